"""The loop nest as text: Python that runs as it is printed, or C99; forward, by stages, or of a gradient.

>>> import syno_lab as sl
>>> print(sl.operators.matmul().loops(), end="")
def operator(X, W1, Y, M, K, N):
    # X: [M, K], W1: [K, N] -> Y: [M, N]
    for i_M in range(M):
        for i_N in range(N):
            Y[i_M, i_N] = 0
            for r_K in range(K):
                Y[i_M, i_N] += X[i_M, r_K] * W1[r_K, i_N]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from syno_lab.codegen.gradients import Form, gradient
from syno_lab.codegen.nest import Access, Array, Condition, Loop, Nest, Program, array_name, forward, staged
from syno_lab.codegen.text import Style
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

Language = Literal["python", "c"]
_INDENT = "    "


def loops(
    operator: Operator,
    binding: Binding | None = None,
    *,
    language: Language = "python",
    staged: bool = False,
    wrt: str | None = None,
    form: Form = "gather",
    dtype: str = "double",
) -> str:
    """The method :meth:`.Operator.loops`."""
    if language not in get_args(Language):
        raise SpecError(f"language: expected python or c, found {quoted(language)}")
    program = make_program(operator, binding, is_staged=staged, wrt=wrt, form=form)
    bound = None if binding is None else operator.complete_binding(binding)
    if language == "c":
        from syno_lab.codegen.loops_c import write_c

        return write_c(program, bound, dtype)
    return "\n".join(_lines(operator, program, bound)) + "\n"


def make_program(
    operator: Operator,
    binding: Binding | None,
    *,
    is_staged: bool = False,
    wrt: str | None = None,
    form: Form = "gather",
    style: Style = "words",
) -> Program:
    """The nests that :func:`loops` and :func:`~syno_lab.codegen.equation.equation` read, by the same arguments.

    Raises:
        SpecError: as :func:`loops`.
    """
    if wrt is not None:
        if is_staged:
            raise SpecError("staged: the stages are those of the forward operator; leave out wrt, or staged")
        return gradient(operator, wrt, form, style)
    return staged(operator, binding, style) if is_staged else forward(operator, style)


def _lines(operator: Operator, program: Program, bound: dict[str, int] | None) -> Iterator[str]:
    arrays = [*program.arguments, program.result]
    arguments = [a.name for a in arrays]
    numpy = array_name(operator, "numpy")
    if program.intermediates:
        yield f"import numpy{f' as {numpy}' * (numpy != 'numpy')}\n\n"
    yield f"def {program.name}({', '.join(arguments if bound is not None else [*arguments, *program.variables])}):"
    yield f"{_INDENT}# {', '.join(map(_described, program.arguments))} -> {_described(program.result)}"
    if program.note:
        yield f"{_INDENT}# {program.note}"
    if bound is not None:
        for variable in program.variables:
            yield f"{_INDENT}{variable} = {bound[variable]}"
    made = {a.name: a for a in program.intermediates}
    for nest in program.nests:
        if nest.note:
            yield f"{_INDENT}# {nest.note}"
        if nest.result.array in made:
            array = made[nest.result.array]
            shape = ", ".join(s.code for s in array.shape) + "," * (len(array.shape) == 1)
            dtype = f"{numpy}.result_type({', '.join(a.name for a in program.arguments)})"
            yield f"{_INDENT}{array.name} = {numpy}.empty(({shape}), {dtype})  # {_shape(array)}"
        yield from _nest(nest)


def _nest(nest: Nest) -> Iterator[str]:
    depth = 1
    if nest.scatters:
        yield f"{_INDENT}{nest.result.array}[...] = 0"
    for loop in nest.over:
        yield _INDENT * depth + _loop(loop)
        depth += 1
    target = _access(nest.result)
    if not nest.scatters:
        yield f"{_INDENT * depth}{target} = 0"
    for loop in nest.sums:
        yield _INDENT * depth + _loop(loop)
        depth += 1
    for condition in nest.conditions:
        yield f"{_INDENT * depth}if {condition_text(condition)}:"
        depth += 1
    yield f"{_INDENT * depth}{target} += {' * '.join(map(_access, nest.factors))}"


def _loop(loop: Loop) -> str:
    return f"for {loop.name} in range({loop.size.code}):"


def condition_text(condition: Condition) -> str:
    """A condition as Python."""
    if condition.kind == "inside":
        return f"0 <= {condition.value} < {condition.size.code}"
    return f"{condition.value % condition.size} == 0"


def _access(access: Access) -> str:
    # A scalar is indexed by the empty tuple.
    return f"{access.array}[{', '.join(map(str, access.index)) or '()'}]"


def _described(array: Array) -> str:
    return f"{array.name}: {_shape(array)}"


def _shape(array: Array) -> str:
    return "[" + ", ".join(map(str, array.shape)) + "]"

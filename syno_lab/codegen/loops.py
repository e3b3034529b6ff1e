"""The loop nest as text, in runnable Python or in C99: forward, by stages, or of a gradient.

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
from syno_lab.common.size import Size
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.synthesis.expressions import Expression

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
    """Implement :meth:`.Operator.loops`."""
    if language not in get_args(Language):
        raise SpecError(f"language: expected python or c, found {quoted(language)}")
    program = make_program(operator, binding, is_staged=staged, wrt=wrt, form=form)
    bound = None if binding is None else operator.complete_binding(binding)
    if language == "c":
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
    """Return the nests that :func:`loops` and :func:`~syno_lab.codegen.equation.equation` write for these arguments.

    Raises SpecError as :func:`loops`.
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
    intermediates = {a.name: a for a in program.intermediates}
    for nest in program.nests:
        if nest.note:
            yield f"{_INDENT}# {nest.note}"
        if nest.result.array in intermediates:
            array = intermediates[nest.result.array]
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
    """Return a condition as Python."""
    if condition.kind == "inside":
        return f"0 <= {condition.value} < {condition.size.code}"
    return f"{condition.value % condition.size} == 0"


def _access(access: Access) -> str:
    # The index of a scalar is the empty tuple.
    return f"{access.array}[{', '.join(map(str, access.index)) or '()'}]"


def _described(array: Array) -> str:
    return f"{array.name}: {_shape(array)}"


def _shape(array: Array) -> str:
    return "[" + ", ".join(map(str, array.shape)) + "]"


# Division and remainder agree in C and Python, because no operand is negative where the earlier conditions hold.
# Generated code divides nowhere else.

_PLUS, _TIMES, _ATOM = 1, 2, 3
_C99 = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"
)
# Reserved names in C: of the included headers, of compilers and of later standards.
_BESIDES = (
    "malloc free memset NULL size_t EXIT_FAILURE EXIT_SUCCESS RAND_MAX MB_CUR_MAX linux unix i386 asm typeof alignas "
    "alignof bool constexpr false nullptr static_assert thread_local true typeof_unqual"
)
_WORDS = frozenset(f"{_C99} {_BESIDES}".split())


def write_c(program: Program, bound: dict[str, int] | None = None, dtype: str = "double") -> str:
    """Write ``program`` as C99: one function of the arrays and the sizes' variables that needs only C's own library.

    With ``bound`` the variables are constants that are defined before the function. Arrays are contiguous and
    row-major; a scalar is an array of one element. A function with intermediates returns 0, or 1 when memory runs out.
    Raises SpecError for a dtype other than ``float`` and ``double``.
    """
    if dtype not in ("float", "double"):
        raise SpecError(f"dtype: expected float or double, found {quoted(dtype)}")
    return "\n".join(_Writer(program, dtype).lines(bound)) + "\n"


class _Writer:
    def __init__(self, program: Program, dtype: str) -> None:
        self.program, self.dtype = program, dtype
        loops = [loop.name for nest in program.nests for loop in (*nest.over, *nest.sums)]
        arrays = [a.name for a in (*program.arguments, *program.intermediates, program.result)]
        names = {*loops, *arrays, *program.variables}
        self.renamed: dict[str, str] = {}
        for variable in program.variables:
            text = variable
            while text in _WORDS or text.startswith("_") or (text != variable and text in names):
                text = f"v{text}" if text.startswith("_") else text + "_"
            self.renamed[variable] = text
            names.add(text)

    def lines(self, bound: dict[str, int] | None) -> Iterator[str]:
        program = self.program
        intermediates = program.intermediates
        if intermediates or any(nest.scatters for nest in program.nests):
            yield "#include <stdlib.h>" if intermediates else "#include <string.h>"
            yield ""
        yield f"/* {', '.join(map(_described, program.arguments))} -> {_described(program.result)}"
        yield f"   {program.note} */" if program.note else "*/"
        if bound is not None and program.variables:
            yield f"enum {{ {', '.join(f'{self.renamed[v]} = {bound[v]}' for v in program.variables)} }};"
        sizes = [] if bound is not None else [f"int {self.renamed[v]}" for v in program.variables]
        arrays = [f"const {self._parameter(a)}" for a in program.arguments] + [self._parameter(program.result)]
        kind = "int" if intermediates else "void"
        # Sizes come first, because the shapes of the arrays refer to them.
        yield f"{kind} {program.name}({', '.join([*sizes, *arrays])})"
        yield "{"
        yield from self._allocate()
        for nest in program.nests:
            yield from self._nest(nest)
        for array in intermediates:
            yield f"{_INDENT}free({array.name});"
        if intermediates:
            yield f"{_INDENT}return 0;"
        yield "}"

    def _allocate(self) -> Iterator[str]:
        intermediates = self.program.intermediates
        for array in intermediates:
            shape = "".join(f"[{self._size(s)}]" for s in array.shape)
            inner = "".join(f"[{self._size(s)}]" for s in array.shape[1:])
            declaration = f"{self.dtype} (*{array.name}){inner}" if inner else f"{self.dtype} *{array.name}"
            yield f"{_INDENT}{declaration} = malloc(sizeof({self.dtype}{shape})); /* {_described(array)} */"
        if intermediates:
            frees = " ".join(f"free({a.name});" for a in intermediates)
            yield f"{_INDENT}if ({' || '.join(f'!{a.name}' for a in intermediates)}) {{ {frees} return 1; }}"

    def _parameter(self, array: Array) -> str:
        return f"{self.dtype} {array.name}" + ("".join(f"[{self._size(s)}]" for s in array.shape) or "[1]")

    def _nest(self, nest: Nest) -> Iterator[str]:
        depth = 1
        if nest.note:
            yield f"{_INDENT}/* {nest.note} */"
        if nest.scatters:
            shape = "".join(f"[{self._size(s)}]" for s in self.program.result.shape)
            yield f"{_INDENT}memset({nest.result.array}, 0, sizeof({self.dtype}{shape}));"
        target = self._access(nest.result)
        braced = bool(nest.over) and not nest.scatters
        for number, loop in enumerate(nest.over, 1):
            yield _INDENT * depth + self._loop(loop) + (" {" if braced and number == len(nest.over) else "")
            depth += 1
        close = depth - 1
        if not nest.scatters:
            yield f"{_INDENT * depth}{target} = 0;"
        for loop in nest.sums:
            yield _INDENT * depth + self._loop(loop)
            depth += 1
        if nest.conditions:
            yield f"{_INDENT * depth}if ({' && '.join(map(self._condition, nest.conditions))})"
            depth += 1
        yield f"{_INDENT * depth}{target} += {' * '.join(map(self._access, nest.factors))};"
        if braced:
            yield f"{_INDENT * close}}}"

    def _loop(self, loop: Loop) -> str:
        return f"for (int {loop.name} = 0; {loop.name} < {self._size(loop.size)}; {loop.name}++)"

    def _condition(self, condition: Condition) -> str:
        if condition.kind == "inside":
            value = self._text(condition.value)
            return f"0 <= {value} && {value} < {self._size(condition.size)}"
        return f"{self._text(condition.value % condition.size)} == 0"

    def _access(self, access: Access) -> str:
        return access.array + ("".join(f"[{self._text(e)}]" for e in access.index) or "[0]")

    def _size(self, size: Size) -> str:
        return self._written(size)[0]

    def _written(self, size: Size) -> tuple[str, int]:
        sides: tuple[list[str], list[str]] = ([], [])
        for variable, power in zip(size.symbols.names, size.exponents, strict=True):
            sides[power < 0].extend([self.renamed.get(variable, variable)] * abs(power))
        above, below = "*".join(sides[0]) or "1", "*".join(sides[1])
        if below:
            return f"{above}/{below if len(sides[1]) == 1 else f'({below})'}", _TIMES
        return above, _ATOM if len(sides[0]) < 2 else _TIMES

    def _text(self, value: Expression) -> str:
        return self._ranked(value)[0]

    def _ranked(self, value: Expression) -> tuple[str, int]:
        if value.operation is None:
            return self._written(value.leaf) if isinstance(value.leaf, Size) else (str(value.leaf), _ATOM)
        assert value.left is not None
        assert value.right is not None
        (left, left_rank), (right, right_rank) = self._ranked(value.left), self._ranked(value.right)
        sign = {"//": "/"}.get(value.operation, value.operation)
        rank = _PLUS if sign in "+-" else _TIMES
        # Sums are evaluated from left to right without brackets. Products with quotients keep their brackets.
        left = left if left_rank >= (rank if rank == _PLUS else _ATOM) else f"({left})"
        right = right if right_rank >= (_PLUS if sign == "+" else _TIMES if sign == "-" else _ATOM) else f"({right})"
        return (f"{left} {sign} {right}" if rank == _PLUS or sign == "%" else f"{left}{sign}{right}"), rank

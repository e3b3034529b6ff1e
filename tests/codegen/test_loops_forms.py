"""The loop nest by stages, in C, and of gradients: each program is run and compared with the meaning."""

import ctypes
import doctest
import random
import subprocess
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import random_arrays, random_operator, repro

import syno_lab as sl
from syno_lab.codegen import equation as equation_room
from syno_lab.codegen import gradients
from syno_lab.codegen import loops as loops_room
from syno_lab.codegen.loops import _Writer, loops
from syno_lab.codegen.nest import forward, generic_binding, staged, variables
from syno_lab.codegen.reference import reference
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.synthesis.expressions import Expression, name, size

DRAWS = 40
Case = tuple[Operator, dict[str, int]]


def run(text: str, *arguments: Any) -> None:
    """Execute the printed Python and call its function."""
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    (function,) = (v for k, v in namespace.items() if k.startswith(("operator", "gradient_")))
    function(*arguments)


def compiled(programs: list[str], folder: Path, flags: tuple[str, ...] = ()) -> list[Callable[..., Any]]:
    """Every program's function, compiled as strict C99 with warnings as errors, all by one run of the compiler."""
    lines = []
    for number, program in enumerate(programs):
        name = "operator" if " operator(" in program else next(w for w in program.split() if "gradient_" in w)
        name = name.partition("(")[0]
        lines.append(program.replace(f" {name}(", f" f{number}(", 1))
    source, library = folder / "nests.c", folder / "nests.so"
    source.write_text("".join(lines))
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-O1"]
    done = subprocess.run(
        ["cc", *strict, *flags, "-shared", "-fPIC", "-o", str(library), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(library))
    return [getattr(loaded, f"f{number}") for number in range(len(programs))]


def call(function: Callable[..., Any], sizes: list[int], arrays: list[np.ndarray]) -> Any:
    return function(*sizes, *(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))


def sizes_of(operator: Operator, binding: dict[str, int]) -> list[int]:
    """The numbers of the ``int`` parameters of a C function, in order."""
    return [binding[name] for name in variables(operator)]


def draws(rng: random.Random, number: int = DRAWS, **limits: Any) -> list[Case]:
    limits = {"max_terms": 1500, **limits}
    return [random_operator(random.Random(rng.getrandbits(60)), **limits) for _ in range(number)]


def figure_4() -> Operator:
    build = Build("[H]", "[s^-1*H]", ["H"], ["k", "s"])
    (i,) = build.output
    k, s = build.reduce("k"), build.reduce("s")
    return build.finish(build.split(s, build.unfold(i, k)))


# -- stages ------------------------------------------------------------------------------------------------------------


def test_staged_python_runs_and_agrees(rng: random.Random) -> None:
    several = 0
    for operator, binding in draws(rng, 60):
        x, weights = random_arrays(operator, binding, 3)
        y = np.full(operator.output_sizes(binding), np.nan)
        run(loops(operator, binding, staged=True), x, *weights, y)
        expected = reference(operator, x, *weights, binding=binding)
        np.testing.assert_allclose(y, expected, atol=1e-10, err_msg=repro(operator, binding))
        several += len(plan(operator, binding).stages) > 1
    assert several > 5, "the draws have operators of several stages"


def test_figure_4_is_two_nests_of_h_and_k_h_by_s() -> None:
    """(1 + k/s) H iterations instead of k H: each window of the H is summed over s before it slides."""
    text = figure_4().loops({"H": 64, "k": 4, "s": 2}, staged=True)
    assert "# stage 1 of 2: H iterations, 1 FLOP each" in text
    assert "# stage 2 of 2: H*k//s iterations, 1 FLOP each" in text
    program = staged(figure_4(), {"H": 64, "k": 4, "s": 2})
    assert [[str(s) for s in array.shape] for array in program.intermediates] == [["s^-1*H"]]
    bound = {"H": 64, "k": 4, "s": 2}
    loops_of = [prod(loop.size.at(bound) for loop in (*nest.over, *nest.sums)) for nest in program.nests]
    assert loops_of == [64, 4 * 32]


def test_stages_without_sizes_are_those_of_a_real_layer() -> None:
    operator = sl.operators.operator_1()
    text = operator.loops(staged=True)
    assert "stages with the fewest FLOPs for N=1, C_in=64, C_out=64, H=28, W=28, k_1=3, g=8, s=2" in text
    assert "C_in // g" not in text
    binding = {"N": 1, "C_in": 8, "C_out": 8, "H": 3, "W": 4, "k_1": 3, "g": 4, "s": 2}
    x, weights = random_arrays(operator, binding)
    y = np.full((1, 8, 3, 4), np.nan)
    run(text, x, *weights, y, *binding.values())
    np.testing.assert_allclose(y, reference(operator, x, *weights, binding=binding), atol=1e-12)


def test_generic_sizes_are_integers_and_large() -> None:
    for label, known in sl.operators.KNOWN.items():
        found = generic_binding(known())
        known().weight_sizes(found)
        primary = [found[v] for v in known().spec.symbols.primary]
        assert len(set(primary)) == len(primary), label
        assert min(primary) > max((found[v] for v in known().spec.symbols.coefficient), default=1), label
    build = Build("[H, k]", "[H, k]", ["H"], ["k=3", "s=2"])
    h, i = build.output
    high, low = build.merge(i, "s")
    operator = build.finish(h, build.split(high, low))
    with pytest.raises(SpecError, match=r"no small sizes make every size of .* an integer: give a binding"):
        generic_binding(operator)


# -- C -----------------------------------------------------------------------------------------------------------------


def test_c_compiles_and_agrees(rng: random.Random, tmp_path: Path) -> None:
    """Plain and staged, sizes as arguments and as constants, float and double."""
    cases = draws(rng)
    programs, calls = [], []
    for number, (operator, binding) in enumerate(cases):
        for is_staged in (False, True):
            dtype = ("float", "double")[number % 2]
            text = loops(operator, None if number % 3 else binding, language="c", staged=is_staged, dtype=dtype)
            if not number % 3:
                text = scoped(text, number * 2 + is_staged)
            programs.append(text)
            calls.append((operator, binding, [] if not number % 3 else sizes_of(operator, binding), dtype))
    for function, (operator, binding, sizes, dtype) in zip(compiled(programs, tmp_path), calls, strict=True):
        x, weights = random_arrays(operator, binding, 5, np.int64)
        y = np.full(operator.output_sizes(binding), 99, dtype={"float": np.float32, "double": np.float64}[dtype])
        call(function, sizes, [np.ascontiguousarray(a, y.dtype) for a in (x, *weights)] + [y])
        expected = reference(operator, x, *weights, binding=binding)
        np.testing.assert_array_equal(y, expected, err_msg=repro(operator, binding))


def scoped(text: str, number: int) -> str:
    """The constants of one program under names of their own, because many programs share this file."""
    (line,) = (line for line in text.splitlines() if line.startswith("enum {"))
    names = [part.split("=")[0].strip() for part in line[6:-3].split(",")]
    defines = "".join(f"#define {name} {name}_of_{number}\n" for name in names)
    undefines = "".join(f"#undef {name}\n" for name in names)
    includes = "".join(line + "\n" for line in text.splitlines() if line.startswith("#include"))
    rest = "".join(line + "\n" for line in text.splitlines() if not line.startswith("#include"))
    return includes + defines + rest + undefines


@pytest.mark.parametrize("name", ["int", "double", "NULL", "free", "X", "i_H", "operator", "__FILE__", "linux"])
def test_variables_may_be_called_like_anything_in_c(name: str, tmp_path: Path) -> None:
    build = Build(f"[H, {name}]", f"[s^-1*H, {name}]", ["H", name], ["k", "s"])
    h, i = build.output
    k, s = build.reduce("k"), build.reduce("s")
    operator = build.finish(build.split(s, build.unfold(h, k)), i)
    binding = {"H": 4, name: 5, "k": 3, "s": 2}
    x, _ = random_arrays(operator, binding)
    expected = reference(operator, x, binding=binding)
    programs = [loops(operator, language="c"), loops(operator, language="c", staged=True)]
    for function in compiled(programs, tmp_path):
        y = np.full(expected.shape, np.nan)
        call(function, list(binding.values()), [x, y])
        np.testing.assert_allclose(y, expected)


def test_brackets_are_written_where_c_needs_them(rng: random.Random) -> None:
    """Any tree of operations, read back: C's quotient of what is not negative is Python's ``//``."""
    program = forward(sl.operators.operator_1())
    operator = sl.operators.operator_1()
    sizes = [c.size for c in (*operator.output, *operator.reductions)]
    values = {"C_in": 24, "C_out": 48, "H": 7, "W": 5, "N": 2, "k_1": 3, "g": 4, "s": 2, "a": 11, "b": 17}

    def tree(depth: int) -> Expression:
        if depth == 0:
            return rng.choice([name("a"), name("b"), *map(size, sizes)])
        left, right = tree(depth - 1), tree(rng.randrange(depth))
        return rng.choice([left + right, left - right, left * right, left // right, left % right])

    writer, seen = _Writer(program, "double"), 0
    for _ in range(400):
        expression = tree(rng.randint(1, 4))
        try:
            expected = eval(str(expression), {}, values)
        except ZeroDivisionError:
            continue
        assert eval(writer._text(expression).replace("/", "//"), {}, values) == expected, str(expression)
        seen += 1
    assert seen > 200


def test_c_of_a_scalar(tmp_path: Path) -> None:
    operator = Build("[]", "[]", ["H"]).finish()
    (function,) = compiled([loops(operator, language="c")], tmp_path)
    y = np.zeros(())
    call(function, [], [np.asarray(3.0), y])
    assert y == 3.0


# -- gradients ---------------------------------------------------------------------------------------------------------


def gradients_of(
    operator: Operator, binding: dict[str, int], wrt: str, form: Any, arrays: dict[str, Any]
) -> np.ndarray:
    """What the printed nest writes for ``d<wrt>``."""
    result = np.full(arrays[wrt].shape, 77.0)
    read = [arrays["dY"], *(a for k, a in arrays.items() if k not in (wrt, "dY"))]
    run(loops(operator, binding, wrt=wrt, form=form), *read, result)
    return result


def test_gradients_are_the_exact_transpose(rng: random.Random) -> None:
    """The dense Jacobian of the meaning, by one unit vector after another, times dY, in integers without tolerance."""
    for operator, binding in draws(rng, 45, max_terms=600, max_elements=60):
        x, weights = random_arrays(operator, binding, 11, np.int64)
        arrays = {"X": x, **{f"W{i + 1}": w for i, w in enumerate(weights)}}
        dy = np.random.default_rng(2).integers(-4, 5, operator.output_sizes(binding))
        for wrt, array in arrays.items():
            expected = np.zeros(array.shape)
            for place in np.ndindex(array.shape):
                unit = np.zeros_like(array)
                unit[place] = 1
                given = [unit if key == wrt else a for key, a in arrays.items()]
                expected[place] = (dy * reference(operator, *given, binding=binding)).sum()
            for form in ("gather", "scatter"):
                found = gradients_of(operator, binding, wrt, form, {**arrays, "dY": dy})
                np.testing.assert_array_equal(found, expected, err_msg=f"{wrt} {form} {repro(operator, binding)}")


@pytest.mark.parametrize("name", sorted(sl.operators.KNOWN))
def test_gradients_of_known_operators_in_c(name: str, tmp_path: Path) -> None:
    """<dY, f(dX)> = <gradient, dX> for every tensor, with the program compiled."""
    operator = sl.operators.KNOWN[name]()
    spec = operator.spec
    binding = {v: {"N": 2, "C_in": 8, "C_out": 16, "H": 4, "W": 6}.get(v, 8) for v in spec.symbols.primary}
    binding |= spec.defaults
    rng = np.random.default_rng(4)
    x, weights = random_arrays(operator, binding, 6, np.int64)
    arrays = {"X": x, **{f"W{i + 1}": w for i, w in enumerate(weights)}}
    dy = rng.integers(-4, 5, operator.output_sizes(binding))
    cases = [(wrt, form) for wrt in arrays for form in ("gather", "scatter")]
    programs = [loops(operator, language="c", wrt=wrt, form=form) for wrt, form in cases]  # type: ignore[arg-type]
    for (wrt, _), function in zip(cases, compiled(programs, tmp_path), strict=True):
        change = rng.integers(-4, 5, arrays[wrt].shape)
        given = [change if key == wrt else a for key, a in arrays.items()]
        forward = (dy * reference(operator, *given, binding=binding)).sum()
        result = np.full(arrays[wrt].shape, np.nan)
        read = [dy, *(a for key, a in arrays.items() if key != wrt)]
        call(function, sizes_of(operator, binding), [np.asarray(a, np.float64) for a in read] + [result])
        assert (result * change).sum() == forward


def test_the_gather_form_writes_in_the_tensor_s_own_iterators() -> None:
    text = sl.operators.conv2d().loops(wrt="X")
    assert "dX[i_N, r_C_in, x_H, x_W] +=" in text
    assert "dY[i_N, i_C_out, x_H - r_k_1 + k_1//2, x_W - r_k_1__2 + k_1//2]" in text
    assert "% s == 0" in sl.operators.strided().loops(wrt="X")
    assert "dX[...] = 0" in sl.operators.conv2d().loops(wrt="X", form="scatter")


def test_a_primitive_without_an_inverse_scatters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "_UNDONE", ("REDUCE", "SHARE"))
    operator = sl.operators.conv1d()
    assert operator.loops(wrt="X") == operator.loops(wrt="X", form="scatter")
    with pytest.raises(SpecError, match="wrt: dX has no equation, because a primitive has no inverse"):
        operator.equation(wrt="X")


def test_examples_in_docstrings() -> None:
    for module in (loops_room, equation_room):
        assert doctest.testmod(module).failed == 0
        assert doctest.testmod(module).attempted > 1


@pytest.mark.parametrize("name", ["conv2d", "operator_1"])
@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("c", {"language": "c"}),
        ("c_staged", {"language": "c", "staged": True}),
        ("staged", {"staged": True}),
        ("wrt_X", {"wrt": "X"}),
        ("wrt_W1", {"wrt": "W1"}),
        ("wrt_X_scatter_c", {"wrt": "X", "form": "scatter", "language": "c"}),
    ],
)
def test_golden(name: str, label: str, options: dict[str, Any], golden: Callable[[str, str], None]) -> None:
    golden(f"loops/{name}_{label}.txt", sl.operators.KNOWN[name]().loops(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "fortran"}, "language: expected python or c, found 'fortran'"),
        ({"wrt": "W2"}, "wrt: expected X or W1, found 'W2'"),
        ({"wrt": "Y"}, "wrt: expected X or W1, found 'Y'"),
        ({"wrt": "X", "form": "both"}, "form: expected gather or scatter, found 'both'"),
        ({"wrt": "X", "staged": True}, "staged: the stages are those of the forward operator"),
        ({"language": "c", "dtype": "half"}, "dtype: expected float or double, found 'half'"),
    ],
)
def test_bad_input_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        sl.operators.conv2d().loops(**options)
    assert "\n" not in str(caught.value)

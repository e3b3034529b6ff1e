"""Specs: every form of the strings of syno-readme.md, and one clear line for everything else."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syno_lab as sl
from syno_lab.errors import ReadingWarning, SpecError
from syno_lab.ir.spec import NEEDED_LIMITS, Limits, Spec, Variable

CONV: dict[str, Any] = {
    "input_shape": "[N, C_in, H, W]",
    "output_shape": "[N, C_out, H, W]",
    "primary_specs": ["N: 0", "C_in: 3", "C_out", "H = 28: 0", "W=28"],
    "coefficient_specs": ["k_1=3: 4", "s=2: 2"],
    "fixed_io_pairs": [(0, 0)],
}


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("H", Variable("H")),
        ("H: 2", Variable("H", limit=2)),
        ("H = 28: 2", Variable("H", 28, 2)),
        ("k_1=3", Variable("k_1", 3)),
        (" k_1=3:4 ", Variable("k_1", 3, 4)),
        ("s=2: 0", Variable("s", 2, 0)),
    ],
)
def test_forms_of_variables(text: str, variable: Variable) -> None:
    assert Variable.parse(text) == variable


@given(st.sampled_from(["H", "C_in", "k_1"]), st.none() | st.integers(1, 999), st.none() | st.integers(0, 99))
def test_variables_print_and_parse(name: str, default: int | None, limit: int | None) -> None:
    variable = Variable(name, default, limit)
    assert Variable.parse(str(variable)) == variable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected name=default: limit, as in k_1=3: 4"),
        ("H W", "expected name=default: limit"),
        ("H=0", "expected a positive integer after '=', found '0'"),
        ("H=-3: 1", "expected a positive integer after '=', found '-3'"),
        ("H=: 1", "expected a positive integer after '=', found ''"),
        ("H=x", "expected a positive integer after '=', found 'x'"),
        ("H: -1", "expected a limit of 0 or more after ':', found '-1'"),
        ("H:", "expected a limit of 0 or more after ':', found ''"),
        ("H: 1: 2", "expected a limit of 0 or more after ':', found '1: 2'"),
    ],
)
def test_refused_variables(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Variable.parse(text)


def test_the_conv_spec() -> None:
    spec = Spec.parse(**CONV, mappings=[{"N": 1, "C_in": 16, "C_out": 32}], max_primitives=9, max_flops=10**9)
    assert [str(size) for size in spec.input_shape] == ["N", "C_in", "H", "W"]
    assert spec.symbols.primary == ("N", "C_in", "C_out", "H", "W")
    assert spec.symbols.coefficient == ("k_1", "s")
    assert spec.defaults == {"H": 28, "W": 28, "k_1": 3, "s": 2}
    assert spec.occurrence_limits == {"N": 0, "C_in": 3, "C_out": None, "H": 0, "W": None, "k_1": 4, "s": 2}
    assert spec.binding_maps == ({"N": 1, "C_in": 16, "C_out": 32, "H": 28, "W": 28, "k_1": 3, "s": 2},)
    assert spec.fixed_outputs == {0: 0}
    assert (spec.limits.max_primitives, spec.limits.max_flops, spec.limits.max_tensors) == (9, 10**9, 3)


def test_the_example_of_the_readme_and_its_bindings() -> None:
    spec = Spec.parse("[H, W]", "[H, W]", ["H: 2", "W: 2"], ["s_1=2: 2"], mappings=[{"H": 16, "W": 16}] * 2)
    assert spec.binding_maps == ({"H": 16, "W": 16, "s_1": 2},)  # equal mappings count once
    whole = Spec.parse("[H]", "[H]", ["H=4"], ["s=2"])
    assert whole.binding_maps == ({"H": 4, "s": 2},)  # the defaults alone, where they are complete
    assert Spec.parse("[H]", "[H]", ["H"], ["s=2"]).binding_maps == ()
    assert Spec.parse("[s^2*C, s^-1*H]", "[C/s*H]", ["C=4", "H=6"], ["s=2"]).is_legal(whole.symbols.size("H"))


def test_a_legal_size_is_integral_under_every_binding() -> None:
    spec = Spec.parse("[H]", "[H]", ["H"], ["s"], mappings=[{"H": 6, "s": 2}, {"H": 6, "s": 4}])
    assert spec.is_legal(spec.symbols.size("s*H"))
    assert not spec.is_legal(spec.symbols.size("H/s"))  # 6/4
    assert not spec.is_legal(spec.symbols.size("1/H"))
    assert spec.bound([{"H": 6, "s": 3}]).is_legal(spec.symbols.size("H/s"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_shape": "N, H"}, "input_shape: shape 'N, H': expected sizes in brackets"),
        ({"output_shape": "[N, Q]"}, "output_shape: size 'Q': unknown variable 'Q'"),
        ({"input_shape": ["N", "H"]}, r"input_shape: expected a text such as '\[N, C_in, H, W\]', found \['N', 'H'\]"),
        ({"input_shape": "[N, H^-1]"}, "size H.-1 can never be a positive integer: primaries may not be in a denomin"),
        ({"primary_specs": "N H"}, r"primary_specs: expected a list such as \['H: 2', 'W: 2'\], found the text 'N H'"),
        ({"coefficient_specs": ["k_1=3", "k_1=5"]}, "variable 'k_1' is declared twice"),
        ({"coefficient_specs": ["H=3"]}, "variable 'H' is declared twice"),
        ({"coefficient_specs": ["k 1=3"]}, "expected name=default: limit"),
        ({"primary_specs": 3}, r"primary_specs: expected a list such as \['H: 2', 'W: 2'\], found 3"),
        ({"primary_specs": [None]}, "variable None: expected name=default: limit"),
        ({"unordered": 3}, r"unordered: expected a list such as \['C_in'\], found 3"),
        ({"unordered": [["N"]]}, r"unordered: expected the size of an input axis as text, found \['N'\]"),
        ({"fixed_io_pairs": 3}, r"fixed_io_pairs: expected a list such as \[\(0, 0\)\], found 3"),
        ({"fixed_io_pairs": [3]}, "fixed_io_pairs: expected pairs of an input and an output axis, found 3"),
        ({"mappings": 3}, "mappings: expected a list such as .*, found 3"),
        ({"mappings": ["N=1"]}, "binding: expected a mapping such as .*, found 'N=1'"),
        ({"mappings": [{3: 1}]}, "binding: unknown variable 3; declared are N, C_in"),
        ({"mappings": [{"Q": 1}]}, "binding: unknown variable 'Q'; declared are N, C_in"),
        ({"mappings": [{"N": 1}]}, "no value for C_in, C_out: give a default"),
        ({"mappings": [{"N": 0, "C_in": 1, "C_out": 1}]}, "binding N=0: expected a positive integer"),
        ({"mappings": [{"N": True}]}, "binding N=True: expected a positive integer"),
        ({"mappings": [{"N": 1.5}]}, "binding N=1.5: expected a positive integer"),
        (
            {"input_shape": "[N, C_in, H/s, W]", "mappings": [{"N": 1, "C_in": 1, "C_out": 1, "H": 7}]},
            r"size s\^-1\*H is 7/2 for H=7, s=2: expected a positive integer",
        ),
        ({"fixed_io_pairs": [(0, 4)]}, "expected input axis below 4 and output axis below 4"),
        ({"fixed_io_pairs": [(-1, 0)]}, "expected input axis below 4"),
        ({"fixed_io_pairs": [(1, 1)]}, "input axis has size C_in, output axis C_out; a fixed pair must be equal"),
        ({"fixed_io_pairs": [(0, 0), (0, 0)]}, "an axis is fixed twice"),
        ({"fixed_io_pairs": [(0,)]}, r"expected pairs of an input and an output axis, found \(0,\)"),
        ({"fixed_io_pairs": [("0", "0")]}, "expected pairs of an input and an output axis"),
        ({"unordered": ["C_out"]}, "unordered 'C_out': no input axis has that size; they are C_in, H, N, W"),
        ({"weight_limits": "loose"}, "weight_limits: expected 'free' or 'primary', found 'loose'"),
        ({"max_primitive": 3}, "unknown limit 'max_primitive'; known are max_primitives, "),
        ({"maximum_tensors": 3}, "unknown limit 'maximum_tensors'; known are max_tensors, "),
        ({"unordered": "C_in"}, r"unordered: expected a list such as \['C_in'\], found the text 'C_in'"),
        ({"coefficient_specs": {"k_1=3": 4}}, "coefficient_specs: expected a list such as .*, found {'k_1=3': 4}"),
        ({"coefficient_specs": [("k_1", 3, 4)]}, "expected name=default: limit, as in k_1=3: 4"),
        ({"coefficient_specs": ["k_1=3..7: 2"]}, "found '3..7'; .* several values are mappings="),
        ({"coefficient_specs": ["k_1=3: inf"]}, "found 'inf'; .* without ':' there is no limit"),
        ({"mappings": {"N": 1}}, "mappings: expected a list such as .*, found {'N': 1}"),
        ({"fixed_io_pairs": {0: 0}}, r"fixed_io_pairs: expected a list such as \[\(0, 0\)\], found {0: 0}"),
        ({"input_shape": "[N, 3, H, W]"}, "input_shape: size '3': .* declare it, as in 'C=3'"),
        ({"input_shape": "[N, C_in: 3, H, W]"}, "axis 'C_in: 3': expected 'unordered' or nothing after ':', found '3'"),
        ({"input_shape": "[N, C_in:, H, W]"}, "axis 'C_in:': expected 'unordered' or nothing after ':', found ''"),
        ({"input_shape": "[N, C_in: ordered, H, W]"}, "expected 'unordered' or nothing after ':', found 'ordered'"),
        ({"input_shape": "[N, H: unordered, H, W]"}, "expected ': unordered' at all axes of the size H or at none"),
        ({"max_primitives": -1}, "max_primitives: expected an integer of 0 or more, found -1"),
        ({"max_reduces": 2.0}, "max_reduces: expected an integer of 0 or more, found 2.0"),
        ({"max_flops": True}, "max_flops: expected an integer of 0 or more, found True"),
        ({"min_flops": 2, "max_flops": 1}, "min_flops 2 is more than max_flops 1: no operator fits"),
        *[
            ({name: None}, f"{name}: expected an integer of 0 or more, found None; a synthesis needs this limit")
            for name in ("max_primitives", "max_tensors", "max_reduces", "min_weights")
        ],
        ({"max_tensors": 0}, "max_tensors counts the input and must be at least 1, found 0"),
        ({"max_tensors": 1}, r"min_weights 1 needs max_tensors of at least 2, found 1 \(the input counts as one\)"),
    ],
)
def test_refused_specs(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as refusal:
        Spec.parse(**{**CONV, **change})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ("[N, C_in: unordered, H, W]", ("C_in",)),
        ("[N,C_in:Unordered,H,W]", ("C_in",)),
        ("[N, C_in : unordered, s^-1*H: unordered, W]", ("C_in", "s^-1*H")),
        ("[N, C_in: unordered, H: unordered, H: unordered]", ("C_in", "H")),
        ("[N: unordered, C_in, H, W]", ("N",)),
    ],
)
def test_unordered_axes_are_read_as_syno_writes_them(shape: str, names: tuple[str, ...]) -> None:
    plain = shape.lower().replace(": unordered", "").replace(":unordered", "").upper()
    plain = plain.replace("C_IN", "C_in").replace("S^", "s^").replace(" ,", ",")
    known = Spec.parse(**CONV | {"input_shape": plain, "unordered": names})
    assert Spec.parse(**CONV | {"input_shape": shape}) == known
    assert Spec.parse(**CONV | {"input_shape": shape, "unordered": names}) == known
    assert known.unordered == names
    spaced = [f" {name.replace('s^-1*H', 'H/s')} " for name in names]  # a size in another form is that size
    assert Spec.parse(**CONV | {"input_shape": plain, "unordered": spaced}) == known


def test_an_unordered_axis_of_the_output_is_read_with_a_warning() -> None:
    with pytest.warns(
        ReadingWarning, match="output_shape: C_out is read without ': unordered': only axes of the input"
    ):
        spec = Spec.parse(**CONV | {"output_shape": "[N, C_out: unordered, H, W]"})
    assert spec == Spec.parse(**CONV)


def test_budgets_by_name() -> None:
    limits = Limits(max_tensors=4, max_contractions=2, max_shifts=1)
    assert (limits.of("SHARE"), limits.of("SHIFT"), limits.of("MERGE"), limits.of("REDUCE")) == (2, 1, None, 5)


def test_the_small_binding_tells_primaries_apart() -> None:
    spec = Spec.parse(**CONV)
    small = spec.small_binding
    assert small["N"] == 1  # fixed
    free = [small[name] for name in ("C_in", "C_out", "H", "W")]
    assert len(set(free)) == 4
    for name in ("C_in", "H"):
        assert spec.symbols.size(f"{name}/s").is_integral(small)


def test_specs_are_values() -> None:
    assert Spec.parse(**CONV) == Spec.parse(**CONV)
    assert hash(Spec.parse(**CONV)) == hash(Spec.parse(**CONV))
    assert Spec.parse(**CONV) != Spec.parse(**CONV, max_primitives=3)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
def test_a_limit_that_is_none_is_no_limit_or_refused_in_one_line(name: str) -> None:
    axes = "[N, C_in, H, W]", "[N, C_out, H, W]", ["N=1: 0", "C_in=4: 2", "C_out=4: 2", "H=4: 0", "W=4: 0"], ["k=3: 2"]
    limits = {"max_primitives": 4, name: None}
    if name in NEEDED_LIMITS:
        with pytest.raises(SpecError, match=f"{name}: expected an integer"):
            sl.Sampler(*axes, seed=0, **limits)
    else:
        sampler = sl.Sampler(*axes, seed=0, **limits)
        assert sampler.root().candidates()
        assert sampler.sample().output_sizes() == (1, 4, 4, 4)

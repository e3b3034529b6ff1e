"""The eight primitives of Table 1: what each does to sizes and expressions, and a refusal for each misuse."""

from collections.abc import Callable
from typing import Any

import pytest

from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import MAX_STEPS
from syno_lab.ir.state import State, Step

BINDING = {"N": 2, "C": 8, "H": 6, "W": 10, "k": 3, "s": 2}


def build() -> Build:
    """Output [N, C, H, W], N fixed, nothing done yet; the input is never reached."""
    return Build("[N]", "[N, C, H, W]", ["N", "C", "H", "W"], ["k", "s"], mappings=[BINDING], fixed_io_pairs=[(0, 0)])


def size(b: Build, text: str) -> Size:
    return b.state.spec.symbols.size(text)


def sizes(coordinates: tuple[Coordinate, ...]) -> list[str]:
    return [str(c.size) for c in coordinates]


@pytest.mark.parametrize(
    ("name", "operands", "parameter", "tops"),
    [
        ("SPLIT", ("H", "W"), None, ["H*W"]),
        ("MERGE", ("C",), "s", ["s^-1*C", "s"]),
        ("MERGE", ("C",), "s^-1*C", ["s", "s^-1*C"]),
        ("SHIFT", ("H",), None, ["H"]),
        ("EXPAND", ("H",), None, []),
        ("UNFOLD", ("H", "k"), None, ["H"]),
        ("UNFOLD", ("k", "H"), None, ["k"]),  # K > N is legal
        ("STRIDE", ("H",), "s", ["s*H"]),
        ("REDUCE", (), "s^-1*C", ["s^-1*C"]),
    ],
)
def test_sizes_are_those_of_table_1(
    name: str, operands: tuple[str, ...], parameter: str | None, tops: list[str]
) -> None:
    b = build()
    b.reduce("k")
    before = b.state
    by_size = {str(c.size): c for c in before.data}
    step = Step(name, tuple(by_size[o] for o in operands), None if parameter is None else size(b, parameter))
    after = before.apply(step)
    results = before.results(step)
    assert sizes(results) == tops
    assert after.data == (*(c for c in before.data if c not in step.operands), *results)
    assert after.steps[-1] is step
    assert after.expanded == (step.operands if name == "EXPAND" else ())
    assert before.data == b.state.data  # a state is a value


@pytest.mark.parametrize(
    ("name", "args", "sizes_", "parameter", "expected"),
    [
        ("SPLIT", (2, 3), (4, 5), None, (13,)),
        ("MERGE", (13,), (20,), 5, (2, 3)),
        ("SHIFT", (5,), (6,), None, (0,)),
        ("SHIFT", (2,), (6,), None, (3,)),
        ("UNFOLD", (0, 0), (6, 3), None, (-1,)),
        ("UNFOLD", (5, 3), (6, 4), None, (6,)),
        ("UNFOLD", (2, 1), (6, 2), None, (2,)),
        ("STRIDE", (4,), (6,), 3, (12,)),
        ("EXPAND", (4,), (6,), None, ()),
    ],
)
def test_expressions_are_those_of_table_1(name: str, args: Any, sizes_: Any, parameter: Any, expected: Any) -> None:
    assert PRIMITIVES[name].index(args, sizes_, parameter) == expected


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_unfold_pads_half_of_k_on_the_left(k: int) -> None:
    n = 7
    reached = [PRIMITIVES["UNFOLD"].index((i, j), (n, k), None)[0] for i in range(n) for j in range(k)]
    assert -min(reached) == k // 2
    assert max(reached) - (n - 1) == k - 1 - k // 2


@pytest.mark.parametrize("name", ["SPLIT", "MERGE", "SHIFT"])
def test_one_to_one_views_are_bijections(name: str) -> None:
    primitive = PRIMITIVES[name]
    assert primitive.is_one_to_one
    domains = {"SPLIT": (4, 6), "MERGE": (24,), "SHIFT": (24,)}[name]
    points = [(i, j) for i in range(4) for j in range(6)] if name == "SPLIT" else [(i,) for i in range(24)]
    assert len({primitive.index(point, domains, 6) for point in points}) == 24


def test_a_contraction_makes_a_weight_and_takes_the_given() -> None:
    b = build()
    n, c, h, w = b.output
    k = b.reduce("k")
    b.contract(share=[k, h], give=[c])
    (weight,) = b.state.weights
    assert sizes(weight.coordinates) == ["k", "H", "C"]  # shared, then given
    assert weight.shape == (size(b, "k"), size(b, "H"), size(b, "C"))
    assert set(b.state.data) == {n, h, w, k}


# One refusal for each misuse that a card names, in the order of the card.
def _strided_then(method: str) -> Callable[[Build], Any]:
    def misuse(b: Build) -> Any:
        strided = b.stride(b.output[2], "s")
        if method == "contract":
            return b.contract(share=[strided])
        return getattr(b, method)(strided, *({"merge": ("s",), "stride": ("s",)}.get(method, ())))

    return misuse


def _used_up(name: str) -> Callable[[Build], Any]:
    def misuse(b: Build) -> Any:
        _, c, h, w = b.output
        b.contract(share=[w], give=[c])  # C has left the data
        return {
            "SPLIT": lambda: b.split(h, c),
            "UNFOLD": lambda: b.unfold(h, c),
            "SHIFT": lambda: b.shift(c),
            "EXPAND": lambda: b.expand(c),
            "MERGE": lambda: b.merge(c, "s"),
            "STRIDE": lambda: b.stride(c, "s"),
            "SHARE": lambda: b.contract(share=[c]),
        }[name]()

    return misuse


TWICE = "a coordinate is named twice; a pGraph uses each coordinate once"
GONE = r"a coordinate of size C is not on top of the data tensor \(any more\)"
FIXED = "the output axis of size N is fixed and takes part in nothing"
STRIDED = r"a STRIDE's result must be consumed by a 1-to-many primitive \(UNFOLD or EXPAND\)"
MISUSES: dict[str, list[tuple[Callable[[Build], Any], str]]] = {
    "SPLIT": [(lambda b: b.split(b.output[1], b.output[1]), TWICE), (_used_up("SPLIT"), GONE)],
    "MERGE": [
        (lambda b: b.merge(b.output[2], "W"), "expected a block that divides H, found W"),
        (lambda b: b.merge(b.output[1], "1"), "expected a block between 1 and C, found 1, which changes nothing"),
    ],
    "SHIFT": [(lambda b: b.shift(b.output[0]), FIXED), (_used_up("SHIFT"), GONE)],
    "EXPAND": [(lambda b: b.expand(b.output[0]), FIXED), (_used_up("EXPAND"), GONE)],
    "UNFOLD": [(lambda b: b.unfold(b.output[1], b.output[1]), TWICE), (_used_up("UNFOLD"), GONE)],
    "STRIDE": [
        (lambda b: b.stride(b.output[2], "1"), "expected a stride other than 1, which changes nothing"),
        (_strided_then("shift"), STRIDED),
        (
            lambda b: b.finish(b.output[0], b.output[1], b.stride(b.output[2], "s"), b.output[3]),
            r"cannot match the input \[N\] with \[N, C, s\*H, W\]",
        ),
    ],
    "REDUCE": [
        (lambda b: b.reduce("1"), "expected a size other than 1, which changes nothing"),
        (lambda b: b.reduce("C/k"), r"expected sizes that are integers for N=2, C=8, .*, found k\^-1\*C"),
    ],
    "SHARE": [
        (lambda b: b.contract(share=[], give=[b.output[1]]), "expected at least one shared coordinate, found none"),
        (lambda b: b.contract(share=[b.output[1]], give=[b.output[1]]), TWICE),
        (_strided_then("contract"), STRIDED),
    ],
}


@pytest.mark.parametrize(
    ("name", "misuse", "message"), [(name, misuse, text) for name, rows in MISUSES.items() for misuse, text in rows]
)
def test_every_misuse_is_refused_in_one_line(name: str, misuse: Callable[[Build], Any], message: str) -> None:
    with pytest.raises(PrimitiveError, match=message) as refusal:
        misuse(build())
    assert "\n" not in str(refusal.value)


def test_every_misuse_on_a_card_has_a_refusal() -> None:
    assert {name: len(rows) for name, rows in MISUSES.items()} == {
        name: len(primitive.card.misuses) for name, primitive in PRIMITIVES.items()
    }


@pytest.mark.parametrize("method", ["merge", "shift", "stride"])
def test_what_may_not_stand_on_a_stride(method: str) -> None:
    with pytest.raises(PrimitiveError, match=STRIDED):
        _strided_then(method)(build())


@pytest.mark.parametrize("name", sorted(set(PRIMITIVES) - {"REDUCE"}))
def test_what_has_left_the_data_is_gone(name: str) -> None:
    with pytest.raises(PrimitiveError, match=f"{name}: {GONE}"):
        _used_up(name)(build())


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("C", "expected a block between 1 and C, found C, which changes nothing"),
        ("s^-1", "expected a block that divides C"),
        ("k", "expected sizes that are integers for .* found k.-1.C"),
        ("s*C", "expected a block that divides C, found s.C"),
    ],
)
def test_blocks_that_do_not_divide(block: str, message: str) -> None:
    b = build()
    with pytest.raises(PrimitiveError, match=f"MERGE: {message}"):
        b.merge(b.output[1], block)


def test_sizes_that_no_binding_makes_whole() -> None:
    b = build()
    with pytest.raises(PrimitiveError, match=r"REDUCE: expected sizes that can be positive integers, found H\^-1"):
        b.reduce("H^-1")
    with pytest.raises(PrimitiveError, match=r"STRIDE: expected sizes that can be positive integers, found s\^-1"):
        b.stride(b.output[2], "s^-1")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: Step("ROTATE"), "unknown primitive 'ROTATE'; known are SPLIT, MERGE"),
        (lambda s: Step("MERGE", s.data[1:2]), "MERGE: expected B parameter, found none"),
        (lambda s: Step("SHIFT", s.data[1:2], s.spec.symbols.size("k")), "SHIFT: expected no parameter, found k"),
        (lambda s: Step("SPLIT", s.data[1:2]), "SPLIT: expected block, offset, found 1 coordinates"),
        (lambda s: Step("REDUCE", s.data[1:2], s.spec.symbols.size("k")), "REDUCE: expected no coordinates, found 1"),
        (lambda s: Step("SHIFT", s.data[1:2], given=s.data[2:3]), "SHIFT: expected main, found 2 coordinates"),
        (
            lambda s: Step("REDUCE", (), Build("[]", "[]", ["Q"]).state.spec.symbols.size("Q")),
            "REDUCE: parameter Q is over other variables than this spec's",
        ),
    ],
)
def test_malformed_steps(step: Callable[[State], Step], message: str) -> None:
    state = build().state
    with pytest.raises(PrimitiveError, match=message):
        state.apply(step(state))


def test_a_pgraph_has_an_end() -> None:
    b = build()
    top = b.output[2]
    for _ in range(MAX_STEPS):
        top = b.shift(top)
    with pytest.raises(PrimitiveError, match=f"SHIFT: expected at most {MAX_STEPS} steps in one pGraph"):
        b.shift(top)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_cards(name: str) -> None:
    card = str(PRIMITIVES[name].card)
    assert name in card
    assert "Syno" in card
    assert "args:" in (PRIMITIVES[name].__doc__ or "")
    assert "rewrite:" in (PRIMITIVES[name].__doc__ or "")
    assert len(PRIMITIVES[name].example[0]) >= len(PRIMITIVES[name].operands)

"""Wishes as a filter of a space: what is left is what the exact mixing property of every operator says."""

import random
from dataclasses import replace
from itertools import islice

import pytest
from strategies import random_operator, repro

import syno_lab as sl
from syno_lab.codegen import mixing as room
from syno_lab.common.wants import Wish, parse_wants
from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import RandomSearch
from syno_lab.synthesis.sampler import Sampler

# Channels and one axis of space; and two axes that may be read whole, with strides and blocks.
ROW = (("[C_in, H]", "[C_out, H]", ["C_in=8: 2", "C_out=8: 1", "H=8: 0"], ["k=3: 3"]), {"max_primitives": 5})
VIEWS = (("[H, W]", "[H, W]", ["H=6: 1", "W=10: 0"], ["s=2: 1"]), {"max_primitives": 4, "min_weights": 0})


@pytest.mark.parametrize(
    ("arguments", "options", "wishes"),
    [
        (*ROW, ["H>=m", "C_in>=a, H>=m", "H->H>=m, C_in->H>=a"]),
        (*VIEWS, ["H>=m", "H>=a", "W>=m", "H->W>=o"]),
    ],
)
def test_the_filtered_space_is_the_space_filtered(arguments: tuple, options: dict, wishes: list[str]) -> None:
    every = [(operator, operator.mixing()) for operator in sl.Sampler(*arguments, **options).enumerate()]
    shares = []
    for wish in wishes:
        sampler = sl.Sampler(*arguments, **options, wants=wish, seed=0)
        left = [operator for operator, mixing in every if mixing.meets(sampler.spec.wants)]
        found = list(sampler.enumerate())
        assert len(found) == len(left)
        assert set(found) == set(left)
        assert sampler.count() == len(left)
        assert set(sampler.samples()) == set(left)
        shares.append(len(left))
    assert all(0 < share < len(every) for share in shares), shares


def test_what_a_search_finds_meets_the_wish() -> None:
    """And is equal to the same operator of a space without wishes, in its files too."""
    arguments, options = ROW
    spec = Spec.parse(*arguments, **options, wants="C_in>=m, H>=m")
    plain = Spec.parse(*arguments, **options)
    search = RandomSearch(synthesis_space(spec), random.Random(0))
    found = []
    while len(found) < 5:
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, 0.0)
        found.append(candidate.operator)
    everywhere = {operator: operator for operator in Sampler.from_spec(plain).enumerate()}
    for operator in found:
        assert operator.mixing().meets(spec.wants)
        twin = everywhere[operator]
        assert twin == operator
        assert Operator(replace(operator.state, spec=plain), operator.inputs).to_json() == operator.to_json()
        assert twin.fingerprint() == operator.fingerprint()
        assert Operator.from_json(operator.to_json()) == Operator.from_json(twin.to_json())


def test_a_decision_is_what_the_matrix_says(rng: random.Random) -> None:
    """On operators with every corner of Table 1, for every wish."""
    open_to_rules = 0
    for _ in range(150):
        operator, binding = random_operator(random.Random(rng.getrandbits(60)), max_terms=2000, max_moves=5)
        try:
            matrix = operator.mixing()
        except SpecError:
            continue
        for axis in range(len(operator.inputs)):
            open_to_rules += None in room.column_by_rules(operator, axis).marks
            for least in ("o", "m", "a"):
                for output in (None, *range(len(operator.output))):
                    wish = Wish(axis, least, output)
                    assert operator.meets([wish]) == matrix.meets([wish]), f"{wish} {repro(operator, binding)}"
    assert open_to_rules, "some are decided by looking at elements"


def test_known_operators_and_the_wish_of_a_convolution() -> None:
    """The table of αNAS's property for Syno: conv1x1 reads no neighbours, a depthwise convolution mixes no channels."""

    def meets(operator: Operator) -> bool:
        spec = operator.spec
        return operator.meets(parse_wants("C_in>=m, H>=m, W>=m", spec.input_shape, spec.output_shape, spec.symbols))

    known = sl.operators
    assert all(map(meets, (known.conv2d(), known.separable(), known.grouped(), known.operator_1())))
    assert not meets(known.conv1x1())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wants": "H>=a"}, "wants H>=a: .*: all of H is read only by a REDUCE with a primary variable, and none"),
        ({"max_reduces": 0}, "wants H>=m: .*: more than one position is read only by a REDUCE, and max_reduces is 0"),
        ({"max_unfolds": 0, "max_splits": 0}, "wants H>=m: .*: no REDUCE may have H, and without UNFOLD and SPLIT"),
    ],
)
def test_a_wish_that_no_operator_can_meet_is_refused_at_once(options: dict, message: str) -> None:
    arguments, limits = ("[H]", "[H]", ["H=8: 0"], ["k=3: 2"]), {"min_weights": 0, **options}
    wanted = {"wants": "H>=m", **limits}
    (wish,) = Spec.parse(*arguments, **wanted).wants
    limits.pop("wants", None)
    for refused in (
        lambda: sl.Sampler(*arguments, **wanted).sample(),
        lambda: next(sl.Sampler(*arguments, **wanted).samples()),
        lambda: next(sl.Sampler(*arguments, **wanted).enumerate()),
        lambda: synthesis_space(Spec.parse(*arguments, **wanted)),
    ):
        with pytest.raises(SpecError, match=message) as refusal:
            refused()
        assert "\n" not in str(refusal.value)
    # It is right: without the wish there are operators, and none of them meets it.
    every = list(islice(sl.Sampler(*arguments, **limits).enumerate(4), 2000))
    assert every
    assert not any(operator.meets([wish]) for operator in every)


def test_a_wish_that_takes_more_steps_than_there_are_is_refused_at_once() -> None:
    arguments, options = ROW
    message = "wants C_in>=a, H>=m: no operator .* it takes at least 4 steps, found max_primitives 3; raise a limit"
    with pytest.raises(SpecError, match=message):
        sl.Sampler(*arguments, **{**options, "max_primitives": 3}, wants="C_in>=a, H>=m", seed=0).sample()
    assert sl.Sampler(*arguments, **options, wants="C_in>=a, H>=m", seed=0).sample().meets()


def test_a_space_without_an_operator_that_meets_the_wish_says_so() -> None:
    """Where no bound tells: H is paired with W, but not in so few steps."""
    arguments, options = VIEWS
    with pytest.raises(SpecError, match=r"no operator found from \[H, W\] .* that meets .* with at most 2 primitives"):
        sl.Sampler(*arguments, **{**options, "max_primitives": 2}, wants="H->W>=o, W->H>=o", seed=0).sample()

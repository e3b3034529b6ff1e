"""The sampler: budgets, seeds, spread, and that it finds what people designed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.canvas import known
from syno_lab.canvas.growth import mixed
from syno_lab.canvas.places import Place
from syno_lab.canvas.primitives import PRIMITIVES
from syno_lab.canvas.sampler import Sampler
from syno_lab.errors import OverTimeError, SpecError, StoppedError

RESNET20 = (
    Place(16, 16, 32, 32, layers=6),
    Place(16, 32, 16, 16, stride=2),
    Place(32, 32, 16, 16, layers=5),
    Place(32, 64, 8, 8, stride=2),
    Place(64, 64, 8, 8, layers=5),
)


@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.3, 1.0]), st.sampled_from([None, 0.2, 1.0]))
def test_every_kernel_keeps_to_its_limits(seed: int, flops: float, params: float | None) -> None:
    sampler = Sampler(RESNET20, max_flops=flops, max_params=params, primitives=(3, 8), fcs=(1, 3), seed=seed)
    fitted = sampler.sample()
    kernel = fitted.kernel
    assert 3 <= len(kernel.nodes) <= 8
    assert 1 <= sum(node.primitive.name == "fc" for node in kernel.nodes) <= 3
    axes = [mixed(node.primitive) for node in kernel.nodes]
    assert any(row for row, _ in axes)
    assert any(column for _, column in axes)
    spent = [0, 0]
    for place in RESNET20:
        bound = fitted.binding(place)
        times = place.layers * place.parts
        spent[0] += times * kernel.flops(bound) + place.pooling
        spent[1] += times * kernel.params(bound)
    assert tuple(spent) == fitted.spent
    assert spent[0] <= flops * sum(place.flops for place in RESNET20)
    assert params is None or spent[1] <= params * sum(place.params for place in RESNET20)


def test_equal_seeds_draw_equal_kernels() -> None:
    first, second, other = (
        [fitted for fitted, _ in zip(Sampler(RESNET20, seed=seed).samples(), range(20), strict=False)]
        for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other
    assert len({fitted.kernel.key for fitted in first}) == 20


def test_draws_spread() -> None:
    sampler = Sampler(RESNET20, max_flops=1, seed=0)
    found = [sampler.sample() for _ in range(400)]
    keys = Counter(fitted.kernel.key for fitted in found)
    assert len(keys) > 390
    names = {node.primitive.name for fitted in found for node in fitted.kernel.nodes}
    assert len(names) == 20
    assert {len(fitted.kernel.nodes) for fitted in found} == set(range(3, 13))
    assert sum(bool(fitted.kernel.free) for fitted in found) > 160
    tries = sum(sampler.outcomes.values())
    assert sampler.outcomes["kernel"] == 400 > 0.25 * tries


@pytest.mark.parametrize(
    ("name", "include", "primitives"),
    [
        ("depthwise_separable", {"unfold", "group", "fc", "relu", "fold_avg"}, 4),
        ("residual", {"fc", "add", "relu", "shift"}, 2),
    ],
)
def test_known_kernels_are_found(name: str, include: set[str], primitives: int) -> None:
    wanted = known.KNOWN[name]().key
    sampler = Sampler(
        RESNET20,
        max_flops=None,
        primitives=(primitives, primitives),
        fcs=(1, 2),
        include=include,
        must_mix=name != "residual",
        normalise=False,
    )
    assert any(fitted.kernel.key == wanted for fitted, _ in zip(sampler.samples(), range(4000), strict=False))


def test_squeeze_and_excitation_is_found_where_all_of_its_primitives_must_be_there() -> None:
    names = ("fold_avg", "fc", "relu", "sigmoid", "mul")
    wanted = known.squeeze_excite().key
    sampler = Sampler(
        RESNET20[:1],
        max_flops=None,
        primitives=(7, 7),
        fcs=(2, 2),
        width=1,
        include=names,
        must_have=names,
        normalise=False,
        prefers_free=False,
    )
    # 61 of 80,000 attempts were it: of 25,000 all others are something else once in 10^8 times.
    drawn = (sampler.attempt().fitted for _ in range(25_000))
    assert any(fitted is not None and fitted.kernel.key == wanted for fitted in drawn)


@given(st.integers(0, 10**6), st.sets(st.sampled_from(sorted(PRIMITIVES)), max_size=4))
def test_what_must_be_there_is_there(seed: int, names: set[str]) -> None:
    fitted = Sampler(RESNET20, max_flops=1, primitives=(6, 8), must_have=names, seed=seed).sample()
    assert names <= {node.primitive.name for node in fitted.kernel.nodes}


def test_few_short_kernels_are_drawn_again() -> None:
    sampler = Sampler(RESNET20, max_flops=1, normalise=False, prefers_free=False)
    found = [sampler.sample() for _ in range(1000)]
    repeats = len(found) - len({fitted.kernel.key for fitted in found})
    assert repeats <= 10  # the target of 1 % is for 5,000


def test_a_kernel_with_groups_where_channels_have_no_common_divisor() -> None:
    sampler = Sampler([Place(3, 3, 4, 4), Place(5, 5, 4, 4)], max_flops=None)
    found = sampler.fit(known.grouped_convolution())
    assert found == (None, "groups: expected channels with a common divisor from 2 up, found none")


def test_places_without_windows_or_groups() -> None:
    sampler = Sampler([Place(7, 7, 4, 4, kh=1, kw=1)], max_flops=None, primitives=(3, 5))
    for fitted, _ in zip(sampler.samples(), range(30), strict=False):
        said = {str(node.primitive) for node in fitted.kernel.nodes}
        assert not said & {"unfold H", "unfold W", "unfold H,W"}
    odd = Sampler([Place(3, 3, 4, 4), Place(5, 5, 4, 4)], max_flops=None)
    for fitted, _ in zip(odd.samples(), range(30), strict=False):
        assert "group G" not in {str(node.primitive) for node in fitted.kernel.nodes}


def test_a_budget_that_nothing_meets_ends_in_one_line() -> None:
    sampler = Sampler(RESNET20, max_flops=1e-9)
    with pytest.raises(OverTimeError, match=r"no end within 0.5 seconds while drawing a kernel; .*dead end") as found:
        sampler.sample(seconds=0.5)
    assert "\n" not in str(found.value)
    with pytest.raises(StoppedError):
        sampler.sample(should_stop=lambda: True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"primitives": (5, 3)}, r"primitives: expected the fewest and the most, .* found \(5, 3\)"),
        ({"primitives": 7}, "primitives: expected the fewest and the most"),
        ({"fcs": (-1, 3)}, "fcs: expected the fewest and the most"),
        ({"width": 0}, "width: expected a whole number from 1 to 64, found 0"),
        ({"groups": 5}, "groups: expected a common divisor of the channels, 2, 4, 8, 16; found 5"),
        ({"include": ["fc", "conv"]}, "include: expected primitives among group, .*, found 'conv'"),
        ({"include": "fc"}, "include: expected a list of names, found the text 'fc'"),
        ({"include": ["fc"], "must_have": ["mul"]}, "must_have: expected primitives among fc, found 'mul'"),
        ({"must_have": ["fc", "mul", "relu"], "primitives": (1, 2)}, "must_have: expected at most 2 names, found 3"),
        ({"width": True}, "width: expected a whole number from 1 to 64, found True"),
        ({"primitives": (True, 4)}, r"primitives: expected the fewest and the most, .* found \(True, 4\)"),
        ({"fcs": (False, 4)}, r"fcs: expected the fewest and the most, .* found \(False, 4\)"),
        ({"include": []}, "include: expected primitives among .*, found none"),
        ({"without_rules": ["twice", "thrice"]}, "without_rules: expected rules among once, .*, found 'thrice'"),
        ({"without_rules": "twice"}, "without_rules: expected a list of names, found the text 'twice'"),
        ({"max_flops": -1}, "budget: expected a share above 0 for max_flops, found -1"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as found:
        Sampler(RESNET20, **given)  # type: ignore[arg-type]
    assert "\n" not in str(found.value)


def test_no_places() -> None:
    with pytest.raises(SpecError, match="places: expected at least one convolution that a kernel can replace"):
        Sampler([])

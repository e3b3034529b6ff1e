"""The kernel probe: effective ranks by hand and by the loop nest, shares of the replaced layer, and mirror images."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from whole_fingerprint import terms

from syno_lab.common.probe import Probe, convolution_probe, effective_rank
from syno_lab.common.terms import Terms, table_fingerprint, table_of
from syno_lab.errors import SpecError
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.models.sites import Site
from syno_lab.operators import KNOWN, conv1x1, conv2d, grouped, separable, shift_conv
from syno_lab.pgraphs import of_network
from syno_lab.pgraphs.of_network import NetworkSpace, name_of
from syno_lab.pgraphs.probe import Roles, mirrors_of, probe, probe_binding, roles_of
from syno_lab.protocol import SpaceRequest
from syno_lab.search import RandomSearch
from syno_lab.synthesis.sampler import Sampler

CONVOLUTION = Site("layer", 64, 64, 16, 16, (3, 3), 2 * 9 * 64 * 64 * 256, 9 * 64 * 64)
LINEAR = Site("layer", 64, 64, 1, 1, (1, 1), 2 * 64 * 64 * 9, 64 * 64, kind="linear", positions=9)


def space_of(*sites: Site) -> NetworkSpace:
    return NetworkSpace(SpaceRequest(sites, "pool", 10**9, None, {}, {}))


# -- ranks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_equal_singular_values_count_fully(rank: int) -> None:
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0][:, :rank] for n in (8, 20))
    assert effective_rank(left @ right.T) == pytest.approx(rank)
    assert effective_rank(-7 * right @ left.T) == pytest.approx(rank)


def test_the_rank_is_that_of_the_singular_values() -> None:
    matrix = np.random.default_rng(1).standard_normal((6, 40)) * np.array([[1], [2], [4], [8], [0], [1]])
    values = np.linalg.svd(matrix, compute_uv=False) ** 2
    shares = values[values > 1e-12] / values.sum()
    assert effective_rank(matrix) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))


def test_a_kernel_of_zeros_has_rank_0() -> None:
    found = Probe.of(np.zeros((3, 4, 5, 6)))
    assert (found.e_space, found.e_out, found.e_in) == (0, 0, 0)
    assert found.score(convolution_probe(3, 4, (5, 6), (3, 3))) == 0
    assert Probe.of(np.ones((3, 4, 5, 6))).score(found) > 0  # a reference of zeros divides nothing by 0


def test_a_separable_kernel_by_hand() -> None:
    # One window for all channels, and one mix of channels: every unfolding has rank 1 but that over what is mixed.
    window, mix = np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(4)
    found = Probe.of(mix[:, :, None, None] * window)
    assert (found.e_space, found.e_out, found.e_in) == pytest.approx((1, 4, 4))
    apart = Probe.of(np.ones((4, 4))[:, :, None, None] * window)
    assert (apart.e_space, apart.e_out, apart.e_in) == pytest.approx((1, 1, 1))


# -- operators -----------------------------------------------------------------------------------------------------


def by_meaning(operator: Operator, binding: dict[str, int], seed: int) -> Probe:
    """The probe with other weights, its kernel read off the loop nest."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in operator.weight_sizes(binding)]
    shape, out = operator.input_sizes(binding), operator.output_sizes(binding)
    rows = []
    for channel in range(shape[1]):
        x = np.zeros(shape)
        x[0, channel, shape[2] // 2, shape[3] // 2] = 1.0
        rows.append(operator.reference(x, *weights, binding=binding)[0])
    # Far from the edges what an element reads of its neighbours is what its neighbours read of it, turned around.
    found = np.stack(rows, axis=1)[:, :, ::-1, ::-1]
    assert found.shape[:2] == (out[1], shape[1])
    return Probe.of(found)


@pytest.mark.parametrize("make", [conv2d, grouped, separable, shift_conv, conv1x1])
def test_the_ranks_are_those_of_the_loop_nest(make: Callable[[], Operator]) -> None:
    operator = make()
    binding = probe_binding(operator) | {"C_in": 16, "C_out": 16}
    found, other = probe(operator, binding), by_meaning(operator, binding, 5)
    assert found.kernel.shape == (16, 16, 8, 8)
    for mine, theirs in ((found.e_space, other.e_space), (found.e_out, other.e_out), (found.e_in, other.e_in)):
        assert mine == pytest.approx(theirs, rel=0.2)  # other weights


def test_known_operators_are_ranked_as_their_trainings_rank_them() -> None:
    """Research note, section 2: test losses of ResNet-8 with the operator."""
    space = space_of(CONVOLUTION)
    scores = {}
    for name in ("conv2d", "grouped", "separable", "operator_1", "operator_2", "conv1x1", "shift_conv"):
        found = space.probe(KNOWN[name]())
        assert found is not None
        assert found["score"] == min(found["space"], found["outputs"], found["inputs"])
        assert found["product"] == pytest.approx(found["space"] * found["outputs"] * found["inputs"])
        scores[name] = found["score"]
    assert scores["conv2d"] == pytest.approx(1, abs=0.05)
    assert scores["grouped"] > 0.9
    assert all(0.5 < scores[name] < 0.9 for name in ("separable", "operator_1", "operator_2"))
    assert scores["conv1x1"] == scores["shift_conv"] < 0.15


def test_it_is_the_same_each_time_and_chance_is_left_alone() -> None:
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the generator that must be left alone
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second = probe(separable()), probe(separable())
    assert np.array_equal(first.kernel, second.kernel)
    assert (first.e_space, first.e_out, first.e_in) == (second.e_space, second.e_out, second.e_in)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_layers_of_a_network_are_what_operators_are_compared_with() -> None:
    pointwise = replace(CONVOLUTION, kernel_size=(1, 1), flops=1)
    depthwise = replace(CONVOLUTION, groups=64)
    scores = {name: space_of(site).probe(conv1x1()) for name, site in (("3", CONVOLUTION), ("1", pointwise))}
    assert [scores[name]["space"] for name in ("3", "1")] == pytest.approx([1 / 9, 1], rel=0.02)
    assert space_of(CONVOLUTION, pointwise).probe(conv1x1()) == scores["3"]  # the layer with the most FLOPs
    assert space_of(depthwise).probe(grouped())["score"] > 0.9


def test_of_text_there_are_no_offsets() -> None:
    space = space_of(LINEAR)
    search = RandomSearch(space.root(lambda operator: True), random.Random(0))
    for _ in range(3):
        candidate = search.ask()
        assert candidate is not None
        found = probe(candidate.operator, probe_binding(candidate.operator, space.spec.binding_maps[0]))
        assert found.kernel.shape == (32, 32)
        assert found.e_space in (0, 1)
        shares = space.probe(candidate.operator)
        assert shares is not None
        assert 0 <= shares["score"] <= shares["space"] <= 1


def test_sizes_are_the_smallest_that_fit() -> None:
    assert probe_binding(conv2d()) == {"N": 1, "C_in": 32, "C_out": 32, "H": 8, "W": 8, "k_1": 3}
    sizes = {"N": 4, "C_in": 9, "C_out": 9, "H": 5, "W": 5, "k_1": 5, "g": 3}
    assert probe_binding(grouped(), sizes) == {"N": 1, "C_in": 36, "C_out": 36, "H": 8, "W": 8, "k_1": 5, "g": 3}
    odd = {**sizes, "C_in": 35, "C_out": 35, "g": 35}
    assert probe_binding(grouped(), odd) == odd  # no smaller sizes fit
    assert probe_binding(grouped(), {**sizes, "z": 3}) == probe_binding(grouped(), sizes)  # of another spec
    with pytest.raises(SpecError, match=r"no value for H, W"):
        probe(conv2d(), {"N": 1, "C_in": 1, "C_out": 1, "k_1": 3})


# -- roles ---------------------------------------------------------------------------------------------------------


def test_roles_and_mirrors_of_axes() -> None:
    names = ["C_in", "C_out", "C", "H", "W", "M", "K", "N"]
    fixed = [(0, 0)]

    def found(into: str, out: str, pairs: list[tuple[int, int]]) -> tuple[Roles, tuple[tuple[int, int], ...]]:
        used = [name for name in names if name in re.findall(r"\w+", into + out)]
        spec = Spec.parse(into, out, used, ["s=2"], fixed_io_pairs=pairs)
        return roles_of(spec), mirrors_of(spec)

    assert found("[N, C_in, H, W]", "[N, C_out, H, W]", fixed) == (Roles((1,), (1,), (2, 3)), ((2, 2), (3, 3)))
    assert found("[N, C_in, s*H, s*W]", "[N, C_out, H, W]", fixed) == (Roles((1,), (1,), (2, 3)), ((2, 2), (3, 3)))
    assert found("[N, C, H, W]", "[N, C, H, W]", fixed) == (Roles((1,), (1,), (2, 3)), ((2, 2), (3, 3)))
    assert found("[N, C_in]", "[N, C_out]", fixed) == (Roles((1,), (1,), ()), ())
    assert found("[H, W]", "[H, W]", []) == (Roles((), (), (0, 1)), ((0, 0), (1, 1)))
    assert found("[M, K]", "[M, N]", []) == (Roles((1,), (1,), (0,)), ((0, 0),))


# -- mirror images -------------------------------------------------------------------------------------------------


def turned(table: Terms, shape: tuple[int, ...], axis: int) -> Terms:
    """The table of terms of the operator that is turned around along an axis of input and output."""

    def around(flat: np.ndarray) -> np.ndarray:
        places = list(np.unravel_index(flat, shape))
        places[axis] = shape[axis] - 1 - places[axis]
        return np.ravel_multi_index(places, shape)

    rows = [np.repeat(one, table.count) for one in (table.y, table.x, *table.weights)]
    return table_of(around(rows[0]), around(rows[1]), rows[2:], table.x_shape)


def test_mirror_images_have_one_name_and_no_others() -> None:
    """On all operators of a small space, judged by the whole tables of their terms and those of their mirror images."""
    sampler = Sampler("[H]", "[H]", ["H: 2"], ["s=2: 1"], max_primitives=5)
    operators = list(sampler.enumerate(5))
    pairs = mirrors_of(operators[0].spec)
    assert pairs == ((0, 0),)
    judged: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    merged = defaultdict(set)
    for operator in operators:
        binding, name = distinct_key(operator, pairs)
        try:
            table = terms(operator, dict(binding))
        except SpecError:  # the judge takes no step of a size that the whole operator does not need
            continue
        images = (table, turned(table, table.x_shape, 0))
        judge = min(map(table_fingerprint, images))
        judged[name].add(judge)
        names[judge].add(name)
        merged[name].add(distinct_key(operator)[1])
    assert all(len(found) == 1 for found in judged.values()), "a name joins operators that are no mirror images"
    assert all(len(found) == 1 for found in names.values()), "mirror images have two names"
    assert sum(len(found) > 1 for found in merged.values()) > 2


def test_an_operator_of_very_many_terms_is_named_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = list(Sampler("[H]", "[H]", ["H: 2"], ["s=2: 1"], max_primitives=5).enumerate(5))
    by_function = {operator: name_of(operator) for operator in operators}
    assert len(set(by_function.values())) < len(operators)  # mirror images have one name
    name_of.cache_clear()
    monkeypatch.setattr(of_network, "NAMED_TERMS", 1)
    try:
        by_text = {operator: name_of(operator) for operator in operators}
    finally:
        name_of.cache_clear()
    assert len(set(by_text.values())) == len(operators)
    assert not set(by_text.values()) & set(by_function.values())

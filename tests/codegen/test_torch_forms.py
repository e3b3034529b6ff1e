"""Forms of one module: few channels and windows as matrices, axes in another order, and the choice by measured time."""

import copy
import pickle
import random
from itertools import product

import pytest
import torch
from strategies import random_operator
from torch_oracle import agrees

import syno_lab as sl
from syno_lab.codegen import torch_choice, torch_module
from syno_lab.codegen.torch_band import LANES, groups_to_merge
from syno_lab.codegen.torch_choice import Form, candidates, default_form, fastest
from syno_lab.codegen.torch_module import recognised, to_torch_source
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

SIZES = {"N": 2, "C_in": 8, "C_out": 8, "H": 6, "W": 5, "k_1": 3, "g": 4}
FORMS = [Form(*values) for values in product(("best", "naive"), (True, False), (False, True))]


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6, 8, 12, 16, 32])
def test_merged_groups_fill_the_lanes_or_stay(groups: int) -> None:
    for c, f in product(range(1, 18), repeat=2):
        merged = groups_to_merge(groups, c, f)
        assert groups % merged == 0
        if (c >= LANES and f >= LANES) or c == f == 1:
            assert merged == 1
        elif merged > 1:
            assert (merged * c % LANES == 0 and merged * f % LANES == 0) or merged == groups


@pytest.mark.parametrize(("c_in", "c_out", "g"), [(8, 8, 4), (8, 16, 4), (16, 8, 8), (6, 6, 2), (16, 16, 8), (8, 8, 8)])
def test_groups_of_few_channels_are_merged(c_in: int, c_out: int, g: int) -> None:
    """Values and gradients are those of the grouped convolution; the weight keeps its elements."""
    operator = sl.operators.grouped()
    binding = {**SIZES, "C_in": c_in, "C_out": c_out, "g": g}
    module = agrees(operator, binding)
    merged = groups_to_merge(g, c_in // g, c_out // g)
    assert ("torch.eye(" in to_torch_source(operator, binding)) == (merged > 1)
    assert module.weight_1.numel() == c_in * c_out // g * 9
    assert "torch.eye(" not in _source(operator, binding, Form("best", matrices=False))
    assert [[str(kind) for kind in stage] for stage in recognised(operator, binding)] == [["grouped convolution"]]


def _source(operator: Operator, binding: dict[str, int], form: Form) -> str:
    return torch_choice.Writer(operator, binding, form).source()


def pooled(stride: int) -> Operator:
    """Sums of windows along the last two axes, the first of them strided."""
    build = Build(
        "[N, C, s*H, W]", "[N, C, H, W]", ["N", "C", "H", "W"], [f"s={stride}", "k=3"], fixed_io_pairs=[(0, 0)]
    )
    n, c, h, w = build.output
    p, q = build.reduce("k"), build.reduce("k")
    return build.finish(n, c, build.unfold(build.stride(h, "s"), p), build.unfold(w, q))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 3, 4, 5, 8])
def test_windows_are_summed_by_bands(k: int, stride: int) -> None:
    """Also windows longer than the axis, whose matrix has no zeros."""
    operator = pooled(stride)
    binding = {"N": 2, "C": 3, "H": 4, "W": 5, "s": stride, "k": k}
    agrees(operator, binding)
    assert (".tril(" in to_torch_source(operator, binding)) == (k > 2)
    assert ".tril(" not in _source(operator, binding, Form(matrices=False))


def filtered(place: int, channels: str, stride: int) -> Operator:
    """A window of a weight along axis ``place``: one filter for all, or one for each channel out or in."""
    axes = ["C", "H", "W"]
    read = [f"s*{axis}" if i == place else axis for i, axis in enumerate(axes)]
    into = "[N, C, H, W, D]" if "out" in channels else "[N, C, H, W]"
    of = f"[N, {', '.join(read)}, D]" if "in" in channels else f"[N, {', '.join(read)}]"
    build = Build(of, into, ["N", *axes, "D"], [f"s={stride}", "k=3"], fixed_io_pairs=[(0, 0)])
    n, *rest = build.output
    window = build.reduce("k")
    inner = [build.reduce("D")] if "in" in channels else []
    build.contract(share=[window, *inner], give=rest[3:])
    moved = [build.unfold(build.stride(axis, "s"), window) if i == place else axis for i, axis in enumerate(rest[:3])]
    return build.finish(n, *moved, *inner)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", ["alone", "out", "in", "in and out"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_windows_over_few_channels_are_toeplitz_matrices(place: int, channels: str, stride: int, k: int) -> None:
    operator = filtered(place, channels, stride)
    binding = {"N": 2, "C": 4, "H": 3, "W": 5, "D": 2, "s": stride, "k": k}
    agrees(operator, binding)
    agrees(operator, binding, Form(matrices=False))
    if k == 3:
        assert "F.conv" not in to_torch_source(operator, binding)


def test_one_filter_for_all_channels_is_depthwise() -> None:
    build = Build("[N, C, H, W]", "[N, C, H, W]", ["N", "C", "H", "W"], ["k=3"], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    p, q = build.reduce("k"), build.reduce("k")
    build.contract(share=[p, q])
    operator = build.finish(n, c, build.unfold(h, p), build.unfold(w, q))
    binding = {"N": 2, "C": 5, "H": 4, "W": 6, "k": 3}
    assert "groups=5" in to_torch_source(operator, binding)
    agrees(operator, binding)


def test_the_weight_is_not_copied_for_each_example_where_columns_are_few() -> None:
    """Blocks of rows with a matrix each, a block's pixels fewer than the channels: examples become columns."""
    build = Build("[N, C, H]", "[N, D, H]", ["N", "C", "D", "H"], ["g=2"], fixed_io_pairs=[(0, 0)])
    n, d, h = build.output
    c = build.reduce("C")
    block, offset = build.merge(h, "g^-1*H")
    build.contract(share=[block, c], give=[d])
    operator = build.finish(n, c, build.split(block, offset))
    binding = {"N": 3, "C": 6, "D": 8, "H": 4, "g": 2}
    module = agrees(operator, binding)
    assert "torch.bmm(self.weight_1" in to_torch_source(operator, binding)
    x = torch.randn(5, 6, 4, dtype=torch.float64)  # another number of examples
    torch.testing.assert_close(module(x)[:2], module(x[:2]))


def test_every_form_is_the_loop_nest(rng: random.Random) -> None:
    for _ in range(12):
        operator, binding = random_operator(rng, max_terms=1000)
        for form in FORMS:
            agrees(operator, binding, form)


# -- the choice ------------------------------------------------------------------------------------------------------


def test_candidates_differ_and_begin_with_the_default() -> None:
    operator = sl.operators.grouped()
    found = candidates(operator, SIZES)
    assert next(iter(found)) == Form()
    assert found[Form()] == to_torch_source(operator, SIZES)
    assert Form(matrices=False) in found
    assert len(set(found.values())) == len(found) > 1


def test_another_form_must_be_faster_by_more_than_noise() -> None:
    default, other, third = Form(), Form(matrices=False), Form(late=True)
    assert torch_choice.least({default: [1.0, 9.0, 1.1], other: [0.5, 1.2, 1.2], third: [2.0, 2.0, 0.1]}) == default
    assert torch_choice.least({default: [1.0, 1.0, 1.0], other: [0.97, 0.97, 0.97]}) == default
    assert torch_choice.least({default: [1.0, 1.0, 1.0], other: [0.9, 0.9, 5.0], third: [0.8, 0.7, 0.8]}) == third


def test_a_choice_is_kept_for_its_shape() -> None:
    """And no random number of the caller's is used up."""
    operator = sl.operators.grouped()
    made: list[Form] = []

    def make(form: Form) -> torch.nn.Module:
        made.append(form)
        return torch_module._made(operator, binding, 1.0, None, form)

    for height in (61, 62):  # shapes that no other test has
        binding = {**SIZES, "H": height}
        before = torch.get_rng_state()
        chosen = fastest(operator, binding, make)
        assert torch.equal(torch.get_rng_state(), before)
        assert made == list(candidates(operator, binding))
        assert fastest(operator, binding, make) == chosen
        assert len(made) == len(candidates(operator, binding))
        made.clear()


def test_measured_modules_are_right_and_travel(rng: random.Random) -> None:
    for number in range(6):
        operator, binding = (sl.operators.grouped(), SIZES) if not number else random_operator(rng, max_terms=1500)
        module = agrees(operator, binding, order="measured")
        assert to_torch_source(operator, binding, order="measured") in candidates(operator, binding).values()
        x = torch.randn(operator.input_sizes(binding), dtype=torch.float64)
        for other in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
            assert torch.equal(other(x), module(x))


# -- where a flattened axis stands -----------------------------------------------------------------------------------


def flattened(is_last: bool) -> Operator:
    """Rolled along two axes flattened, one of which is the channels; the batch and the other axis stay."""
    build = Build("[N, C, H, W]", "[N, C, H, W]", ["N=1", "C=4", "H=32", "W=8"], [], fixed_io_pairs=[(0, 0)])
    n, c, h, w = build.output
    whole = build.shift(build.split(c, w) if is_last else build.split(w, c))
    high, low = build.merge(whole, "W" if is_last else "C")
    return build.finish(n, high, h, low) if is_last else build.finish(n, low, h, high)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_flattened_axis_stands_where_less_is_copied(is_last: bool) -> None:
    operator = flattened(is_last)
    binding = operator.complete_binding(None)
    found = {}
    for late in (False, True):
        writer = torch_choice.Writer(operator, binding, Form(late=late))
        writer.stages()
        assert writer.matters
        found[late] = writer.copying
    chosen = default_form(operator, binding)
    assert chosen == Form(late=found[True] < found[False])
    assert to_torch_source(operator, binding) == _source(operator, binding, chosen)
    assert next(iter(candidates(operator, binding))) == chosen
    for form in FORMS:
        agrees(operator, binding, form)


def test_views_and_weights_cost_no_copies() -> None:
    binding = {name: size for name, size in SIZES.items() if name != "g"}
    writer = torch_choice.Writer(sl.operators.conv2d(), binding)
    writer.stages()
    assert writer.copying == 0
    assert default_form(sl.operators.conv2d(), binding) == Form()

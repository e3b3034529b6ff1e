"""The method ``pooled``: operator and average pooling in one, against the loop nest and against pooling behind it."""

import copy
import pickle
import random
from itertools import product
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import random_arrays, random_operator, random_operators, repro
from torch.nn import functional as F
from torch_oracle import agrees

import syno_lab as sl
from syno_lab.codegen.pooled import pooled
from syno_lab.codegen.torch_choice import Form
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan

FORMS = [Form(*values) for values in product(("best", "naive"), (True, False), (False, True))]
SIZES = {"N": 2, "C": 8, "C_in": 8, "C_out": 8, "H": 8, "W": 12, "k_1": 3, "g": 2, "s": 2}
ON_IMAGES = ("conv2d", "separable", "depthwise", "grouped", "dilated", "conv1x1", "shift_conv", "operator_1")


def blocks_of(operator: Operator, binding: dict[str, int], rng: random.Random) -> tuple[int, int] | None:
    """Rows and columns that divide the last two axes of the output; None if only 1 x 1 does, or there are no two."""
    sizes = operator.output_sizes(binding)[-2:]
    pairs = [p for p in product(range(1, 7), repeat=2) if pooled(operator, binding, p) and p != (1, 1)]
    return rng.choice(pairs) if len(sizes) == 2 and pairs else None


def behind(y: torch.Tensor, pool: tuple[int, int]) -> torch.Tensor:
    """The mean of blocks, by a reshape."""
    rows, columns = y.shape[-2:]
    blocks = y.reshape(*y.shape[:-2], rows // pool[0], pool[0], columns // pool[1], pool[1])
    return blocks.mean((-3, -1))


def test_operator_and_pooling_are_one_operator(rng: random.Random) -> None:
    """Random operators in every form: the new operator's loop nest, and its modules, pool the old one's result."""
    done = 0
    while done < 12:
        operator, binding = random_operator(rng, max_terms=800)
        pool = blocks_of(operator, binding, rng)
        if pool is None:
            continue
        joined, bound = pooled(operator, binding, pool)
        assert joined.weight_sizes(bound) == operator.weight_sizes(binding)
        x, weights = random_arrays(joined, bound, 3)
        sums = behind(torch.from_numpy(operator.reference(x, *weights, binding=binding)), pool) * prod(pool)
        torch.testing.assert_close(torch.from_numpy(joined.reference(x, *weights, binding=bound)), sums)
        for form in FORMS:
            agrees(joined, bound, form)
        done += 1


@settings(max_examples=30)
@given(random_operators(max_terms=600), st.randoms(use_true_random=False))
def test_any_operator_pools_as_its_loop_nest(found: tuple[Operator, dict[str, int]], rng: random.Random) -> None:
    """The form that a layer gets; a failing operator shrinks."""
    operator, binding = found
    if pool := blocks_of(operator, binding, rng):
        agrees(*pooled(operator, binding, pool))


@pytest.mark.parametrize("name", ON_IMAGES)
def test_values_and_gradients_are_those_of_a_pooling_behind(name: str) -> None:
    """Whatever the input's strides and dtype."""
    operator = sl.operators.KNOWN[name]()
    binding = {v: SIZES[v] for v in operator.spec.symbols.names}
    module = operator.to_torch(binding, pool=(2, 4))
    assert module.pool == (2, 4)
    module.double()
    x = torch.randn(3, *operator.input_sizes(binding)[1:], dtype=torch.float64)
    for laid in (x, x.to(memory_format=torch.channels_last), x.transpose(-1, -2).contiguous().transpose(-1, -2)):
        found = []
        for call in (module.pooled, lambda x: behind(module(x), (2, 4))):
            leaf = laid.detach().requires_grad_()
            module.zero_grad()
            y = call(leaf)
            (y * torch.arange(y.numel()).reshape(y.shape)).sum().backward()
            found.append([y, leaf.grad, *(weight.grad for weight in module.parameters())])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)
    module.bfloat16()
    y = module.pooled(x.bfloat16())
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y, behind(module(x.bfloat16()), (2, 4)), atol=0.03, rtol=0.03)


def test_pooling_costs_no_more_flops(rng: random.Random) -> None:
    """What works on each position alone works on the pooled ones; the sums of a block cost what a pooling costs."""
    operator = sl.operators.separable()
    binding = {"N": 1, "C_in": 64, "C_out": 64, "H": 16, "W": 16, "k_1": 3}
    joined, bound = pooled(operator, binding, (2, 2))
    assert plan(joined, bound).flops < 0.4 * plan(operator, binding).flops
    for _ in range(20):
        operator, binding = random_operator(rng, max_terms=5000)
        if pool := blocks_of(operator, binding, rng):
            joined, bound = pooled(operator, binding, pool)
            outputs = prod(operator.output_sizes(binding))
            assert plan(joined, bound).flops <= plan(operator, binding).flops + 2 * outputs, repro(operator, binding)


def test_a_pooled_module_compiles_exports_and_travels() -> None:
    operator = sl.operators.separable()
    binding = {v: SIZES[v] for v in operator.spec.symbols.names}
    module = operator.to_torch(binding, pool=(2, 2))
    x = torch.randn(3, 8, 8, 12)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner.pooled(x)

    expected = F.avg_pool2d(module(x), 2)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(Layer(), (x,), dynamic_shapes=({0: batch},)).module()
    compiled = torch.compile(Layer(), backend="eager", fullgraph=True)
    others = (copy.deepcopy(module), pickle.loads(pickle.dumps(module)))
    for call in (exported, compiled, *(other.pooled for other in others)):
        torch.testing.assert_close(call(x), expected)
    assert "pooled" not in operator.to_torch_source(binding)


def test_blocks_that_do_not_divide_are_left_to_the_caller() -> None:
    operator = sl.operators.conv2d()
    binding = {v: SIZES[v] for v in operator.spec.symbols.names}
    assert pooled(operator, binding, (3, 2)) is None
    assert not hasattr(operator.to_torch(binding, pool=(3, 2)), "pooled")


def test_a_scale_is_of_both_methods() -> None:
    """It multiplies a weight; without weights the result."""
    for name in ("conv2d", "sum_pool_window"):
        operator = sl.operators.KNOWN[name]()
        binding = {v: SIZES[v] for v in operator.spec.symbols.names}
        plain, scaled = (operator.to_torch(binding, scale=scale, pool=(2, 2)).double() for scale in (1.0, -3.0))
        scaled.load_state_dict(plain.state_dict())
        x = torch.randn(operator.input_sizes(binding), dtype=torch.float64)
        torch.testing.assert_close(scaled(x), -3 * plain(x))
        torch.testing.assert_close(scaled.pooled(x), -3 * plain.pooled(x))


@pytest.mark.parametrize("place", [2, 3])
def test_a_pooling_before_a_toeplitz_matrix_joins_its_window(place: int) -> None:
    """The weight's window becomes longer, and the data are not summed before."""
    build = Build("[N, C, H, W]", "[N, C, H, W]", ["N", "C", "H", "W"], ["k"], fixed_io_pairs=[(0, 0)])
    axes = list(build.output)
    window = build.reduce("k")
    build.contract(share=[window])
    axes[place] = build.unfold(axes[place], window)
    operator, pool = build.finish(*axes), (2, 1) if place == 2 else (1, 2)
    for k in (1, 2, 3, 5):
        binding = {"N": 2, "C": 3, "H": 8, "W": 6, "k": k}
        text = operator.to_torch_source(binding, pool=pool).split("def pooled")[1]
        assert (".sum(-1)" in text) == (k > 1)
        agrees(*pooled(operator, binding, pool))


@pytest.mark.parametrize(("taps", "slices"), [(2, 2), (4, 4), (6, 5), (7, 7), (12, 7), (16, 8)])
def test_blocks_are_summed_before_a_window_of_whole_blocks(taps: int, slices: int) -> None:
    """A window of many positions is several sums of few slices."""
    build = Build("[N, s*H, W]", "[N, H, W]", ["N", "H", "W"], ["s=4", "k"], fixed_io_pairs=[(0, 0)])
    n, h, w = build.output
    whole = build.split(h, build.reduce("s"))
    operator = build.finish(n, build.unfold(whole, build.stride(build.reduce("k"), "s")), w)
    for rows, columns in ((6, 3), (80, 3)):
        binding = {"N": 2, "H": rows, "W": columns, "s": 4, "k": taps}
        for form in FORMS:
            agrees(operator, binding, form)
    text = operator.to_torch_source({**binding, "H": 800})
    assert text.count(".unbind(2)") == 1
    assert text.count("z1[:, ") == slices


def test_overlapping_windows_are_one_matrix_or_slices() -> None:
    """A window in a window in a block, along the last axis and before it, with a stride, on large and small planes."""
    for rows, columns, stride in ((12, 4, 1), (12, 40, 2), (40, 3, 1), (4, 300, 2)):
        axes = "[N, C, s*H, W]", "[N, C, H, W]"
        build = Build(*axes, ["N", "C", "H", "W"], ["s", "k", "j"], fixed_io_pairs=[(0, 0)])
        n, c, h, w = build.output
        for size in ("k", "j"):
            w = build.unfold(w, build.reduce(size))
        h = build.unfold(build.unfold(build.stride(h, "s"), build.reduce("k")), build.reduce("j"))
        operator = build.finish(n, c, h, w)
        binding = {"N": 2, "C": 2, "H": rows // stride, "W": columns, "s": stride, "k": 3, "j": 2}
        for form in FORMS:
            agrees(operator, binding, form)
            joined, bound = pooled(operator, binding, (2, 1))
            agrees(joined, bound, form)

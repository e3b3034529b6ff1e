"""What a stage is recognised as, and that the fast forms are right: against the loop nest, in float64."""

import random
from itertools import pairwise, product
from math import prod
from typing import Any

import pytest
import torch
from strategies import random_arrays, random_operator
from torch.utils._python_dispatch import TorchDispatchMode
from torch_oracle import agrees

import syno_lab as sl
from syno_lab.codegen.stage_kinds import Axis, Term, fuse, recognise
from syno_lab.codegen.torch_module import recognised, to_torch, to_torch_source
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate, output_coordinate, reduce_coordinate
from syno_lab.ir.operator import Operator

SIZES = {"N": 2, "C": 8, "C_in": 8, "C_out": 8, "D_in": 8, "D_out": 8, "H": 6, "W": 5, "k_1": 3, "g": 2, "s": 2}


def bound(operator: Operator, **other: int) -> dict[str, int]:
    return {v: (SIZES | other)[v] for v in operator.spec.symbols.names}


class Calls(TorchDispatchMode):
    """Counts the calls of library functions."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "kinds", "calls"),
    [
        ("conv1d", [["convolution"]], {"convolution": 1}),
        ("conv2d", [["convolution"]], {"convolution": 1}),
        ("strided", [["strided convolution"]], {"convolution": 1}),
        ("dilated", [["dilated convolution"]], {"convolution": 1, "constant_pad_nd": 1}),
        ("depthwise", [["depthwise convolution"]], {"convolution": 1}),
        ("grouped", [["grouped convolution"]], {"convolution": 1}),
        ("separable", [["depthwise convolution"], ["matmul"]], {"convolution": 1, "bmm": 1}),
        ("shift_conv", [["matmul"]], {"roll": 1, "bmm": 1}),
        ("matmul", [["matmul"]], {"mm": 1}),
        ("conv1x1", [["matmul"]], {"bmm": 1}),
        ("grouped_linear", [["grouped matmul"]], {"bmm": 1}),
        ("sum_pool", [[]], {"unbind": 2, "add": 2}),
        ("pixel_shuffle", [[]], {"clone": 1}),
        ("pixel_unshuffle", [[]], {"clone": 1}),
        ("fold", [[]], {"clone": 1}),
        ("upsample_nearest", [[]], {"clone": 1}),
        (
            "operator_1",
            [["grouped matmul with an open window"], ["convolution"]],
            {"bmm": 1, "constant_pad_nd": 3, "stack": 1, "convolution": 1},
        ),
        ("operator_2", [["grouped convolution"], ["convolution"]], {"convolution": 2}),
    ],
)
def test_known_operators_become_the_calls_of_an_expert(
    name: str, kinds: list[list[str]], calls: dict[str, int]
) -> None:
    """No window is materialised, and the data are copied no more often than by hand."""
    operator = sl.operators.KNOWN[name]()
    more = {"matmul": {"M": 3, "K": 4}, "operator_2": {"C_in": 16, "C_out": 32}}  # few channels: test_torch_forms.py
    binding = bound(operator, **more.get(name, {}))
    assert [[str(kind) for kind in stage] for stage in recognised(operator, binding)] == kinds
    module = agrees(operator, binding).float()
    x = torch.zeros(operator.input_sizes(binding))
    with torch.no_grad(), Calls() as found:
        module(x)
    for call in {"convolution", "bmm", "mm", "roll", "constant_pad_nd", "stack", "unfold", "avg_pool2d"} | set(calls):
        assert found.names.count(call) == calls.get(call, 0), (call, found.names)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("name", ["conv2d", "strided", "dilated", "depthwise", "sum_pool_window", "operator_1"])
def test_kernels_even_odd_and_larger_than_the_image(name: str, k: int) -> None:
    operator = sl.operators.KNOWN[name]()
    agrees(operator, bound(operator, k_1=k, N=1, C=2, C_in=4, C_out=4, H=3, W=4))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("window_of", ["both", "weight alone", "data alone"])
def test_windows_in_up_to_three_dimensions(axes: int, window_of: str) -> None:
    """Windows summed with the weight, with another one pooled, or left in the result."""
    names = ["A", "B", "D"][:axes]
    left = ["k"] if window_of == "data alone" else []  # an axis of the result: im2col
    spec = f"[N, C, {', '.join(names)}]", f"[N, E, {', '.join(names + left)}]"
    build = Build(*spec, ["N", "C", "E", *names], ["k=2"], fixed_io_pairs=[(0, 0)])
    n, e, *rest = build.output
    c = build.reduce("C")
    windows = [*rest[axes:], *(build.reduce("k") for _ in range(axes - len(left)))]
    build.contract(share=[c, *(windows if window_of == "both" else windows[1:])], give=[e])
    moved = [build.unfold(main, window) for main, window in zip(rest[:axes], windows, strict=True)]
    sizes = dict(zip(names, (4, 3, 5), strict=False))
    agrees(build.finish(n, c, *moved), {"N": 2, "C": 3, "E": 2, "k": 2, **sizes})


def test_a_permuted_weight_where_channels_lie_last() -> None:
    """torch's own gradient of a convolution fails there: ``slow_conv2d: grad_weight must be contiguous``."""
    build = Build("[s*W, N, H]", "[N, s*H, W]", ["N", "H", "W"], ["k", "e", "s"], fixed_io_pairs=[(1, 0)])
    n, h, w = build.output
    first = build.reduce("W")
    build.contract(share=[first])
    turned = build.shift(build.split(w, build.unfold(h, first)))
    high, low = build.merge(turned, "H")
    low = build.unfold(low, build.stride(build.reduce("e"), "s"))
    second = build.reduce("W")
    build.contract(share=[second])
    row = build.unfold(high, second)
    operator = build.finish(row, n, build.unfold(low, build.reduce("k")))
    agrees(operator, {"N": 1, "H": 2, "W": 2, "k": 5, "e": 4, "s": 1})


def test_random_operators_with_everything_computed_again(rng: random.Random) -> None:
    """Recomputation changes no number, in training and in evaluation."""
    for _ in range(25):
        operator, binding = random_operator(rng, max_terms=1500)
        module = agrees(operator, binding, recompute=True)
        x = torch.from_numpy(random_arrays(operator, binding, 5)[0])
        assert torch.equal(module.eval()(x), module.train()(x))


def test_the_naive_plan_agrees_too(rng: random.Random) -> None:
    for _ in range(15):
        operator, binding = random_operator(rng, max_terms=1500)
        agrees(operator, binding, order="naive")


def exploding() -> tuple[Operator, dict[str, int]]:
    """A sum over m of products with two weights that share it: m is far larger than input and output."""
    build = Build("[N, C]", "[N, C]", ["N", "C", "M"], [], fixed_io_pairs=[(0, 0)])
    n, c = build.output
    m, e = build.reduce("M"), build.reduce("C")
    build.contract(share=[m], give=[c])
    build.contract(share=[e], give=[m])
    return build.finish(n, e), {"N": 1, "C": 8, "M": 400}


def test_what_explodes_is_computed_again_instead_of_stored() -> None:
    operator, binding = exploding()
    assert "checkpoint(" not in to_torch_source(operator, binding, recompute=False)
    assert "checkpoint(" not in to_torch_source(operator, {**binding, "M": 4})
    saved: dict[bool | None, int] = {}
    for recompute in (None, False):
        module, x = to_torch(operator, binding, recompute=recompute), torch.randn(64, 8, requires_grad=True)
        sizes: list[int] = []

        def pack(t: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(t.numel())
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            module(x)
        saved[recompute] = max(sizes)
    assert saved[False] >= 64 * 400
    assert saved[None] <= 8 * 400  # the weights
    agrees(operator, binding)


def test_compiles_exports_and_repeats_itself() -> None:
    operator = sl.operators.operator_1()
    binding = bound(operator)
    torch.manual_seed(0)
    module = to_torch(operator, binding).eval()
    x = torch.randn(3, *operator.input_sizes(binding)[1:])
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: batch},)).module()
    other = torch.randn(5, *x.shape[1:])
    torch.testing.assert_close(exported(other), module(other))
    assert torch.equal(module(x), module(x))
    fast = to_torch(operator, binding, compile=True)
    fast.load_state_dict(module.state_dict())
    torch.testing.assert_close(fast(x), module(x))
    assert to_torch_source(operator, binding) == to_torch_source(operator, binding)


def test_weights_keep_their_shape_and_lie_in_memory_as_the_convolution_reads_them() -> None:
    operator = sl.operators.conv2d()
    module = to_torch(operator, bound(operator, C_out=4))
    assert tuple(module.weight_1.shape) == operator.weight_sizes(bound(operator, C_out=4))[0] == (8, 3, 3, 4)
    assert module.weight_1.permute(3, 0, 1, 2).is_contiguous()
    assert module.double().weight_1.permute(3, 0, 1, 2).is_contiguous()


def test_bad_input_is_refused_in_one_line() -> None:
    module = to_torch(sl.operators.conv2d(), bound(sl.operators.conv2d()))
    with pytest.raises(TypeError, match=r"expected an input of torch.float32 like the weights, found torch.float64"):
        module(torch.zeros(1, 8, 6, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"expected an input of shape \[batch, 8, 6, 5\], found \[1, 8, 5, 6\]"):
        module(torch.zeros(1, 8, 5, 6))
    with pytest.raises(SpecError, match=r"(?s)^(?!.*\n).*C_out"):
        to_torch(sl.operators.operator_1(), bound(sl.operators.operator_1(), g=8, s=3))


def test_autocast_may_give_another_dtype() -> None:
    module = to_torch(sl.operators.conv2d(), bound(sl.operators.conv2d()))
    with torch.autocast("cpu", torch.bfloat16):
        assert module(torch.zeros(1, 8, 6, 5, dtype=torch.bfloat16)).dtype is torch.bfloat16


# -- the recognition by itself ---------------------------------------------------------------------------------------


def leaves(count: int) -> list[Coordinate]:
    size = sl.operators.conv2d().output[2].size
    return [output_coordinate(i, size) for i in range(count)] + [reduce_coordinate(i, size) for i in range(count)]


def test_fused_terms_are_digits(rng: random.Random) -> None:
    """``fuse`` says yes exactly where the sums are 0, step, 2*step, ... in the order of the terms."""
    names = leaves(3)
    for _ in range(300):
        terms = [Term(rng.choice((1, 2, 3, 4, 6)), names[i], rng.choice((1, 2, 3))) for i in range(rng.randint(1, 3))]
        fused = fuse(terms)
        sums = {sum(t.coefficient * v for t, v in zip(terms, point, strict=True)) for point in _points(terms)}
        if fused is None:  # then no order of the terms counts in equal steps without a repeat
            assert len(sums) < prod(t.size for t in terms) or len({b - a for a, b in pairwise(sorted(sums))}) > 1
            continue
        values = [sum(t.coefficient * v for t, v in zip(fused.terms, p, strict=True)) for p in _points(fused.terms)]
        assert values == [fused.step * i for i in range(fused.size)]
        assert set(values) == sums


def _points(terms: Any) -> list[tuple[int, ...]]:
    return list(product(*(range(t.size) for t in terms)))


def test_roles_of_coordinates() -> None:
    b, g, o, c, h, p = leaves(3)
    axes = [Axis.plain(b, 2), Axis.plain(g, 3), Axis.plain(c, 4), Axis((Term(2, h, 5), Term(1, p, 3)), -1, 10)]
    roles = recognise(axes, [g, c, p, o], {c, p})
    assert (roles.batch, roles.group, roles.contracted, roles.free) == ((axes[0],), (g,), (c,), (o,))
    assert [(s.stride, s.dilation, s.window.size) for s in roles.sliding] == [(2, 1, 3)]
    assert str(roles) == "strided grouped convolution"
    # A main coordinate in the weight, too: a convolution with other weights at each place is none.
    assert recognise(axes, [g, c, h, p, o], {c, p}).kind == "general"

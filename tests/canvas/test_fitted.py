"""Kernels at the places of a network: parts, strides, normalisation, numbers by place."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import syno_lab as sl
from syno_lab.canvas import known
from syno_lab.canvas.filling import MOST_ELEMENTS
from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.places import Budget, Place, places_of
from syno_lab.canvas.primitives import Primitive
from syno_lab.canvas.reference import at_place
from syno_lab.canvas.sampler import Sampler
from syno_lab.errors import SpecError
from syno_lab.models.sites import Site

SMALL = {"N": 2, "C_in": 4, "C_out": 4, "H": 4, "W": 6, "KH": 3, "KW": 3, "s": 1}


def filled(
    operator: Fitted, bound: dict[str, int], rng: np.random.Generator
) -> tuple[torch.nn.Module, list[np.ndarray]]:
    """The module in float64 in evaluation, with drawn weights."""
    weights = [rng.normal(size=sizes) for sizes in operator.weight_sizes(bound)]
    module = operator.to_torch(bound).double().eval()
    for parameter, weight in zip(module.parameters(), weights, strict=True):
        parameter.data = torch.from_numpy(weight)
    return module, weights


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("channels", [(4, 4), (12, 4), (4, 12)])
@pytest.mark.parametrize("stride", [1, 2])
def test_modules_compute_the_reference_in_parts(
    channels: tuple[int, int], stride: int, normalise: bool, np_rng: np.random.Generator
) -> None:
    place = Place(*channels, 4, 6, stride=stride)
    sampler = Sampler([place], max_flops=None, primitives=(3, 7), normalise=normalise, seed=sum(channels) + stride)
    compared = 0
    while compared < 12:
        operator = sampler.sample()
        bound = operator.complete_binding()
        if operator.memory(bound) > 1 << 20:
            continue
        module, weights = filled(operator, bound, np_rng)
        x = np_rng.normal(size=(3, *operator.input_sizes(bound)[1:]))
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = operator.reference(x, *weights, binding=bound)
        if not np.abs(wanted).max() < 1e100:
            continue
        found = module(torch.from_numpy(x)).detach().numpy()
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found, wanted, atol=1e-10 * scale, err_msg=str(operator.kernel))
        compared += 1


def test_convolutions_of_other_channels_by_hand(np_rng: np.random.Generator) -> None:
    wide, narrow = {**SMALL, "C_out": 12, "s": 2}, {**SMALL, "C_in": 12}
    operator = Fitted(known.convolution())
    module, (weight,) = filled(operator, wide, np_rng)
    x = torch.from_numpy(np_rng.normal(size=(2, 4, 8, 12)))
    wanted = F.conv2d(F.avg_pool2d(x, 2), torch.from_numpy(weight.reshape(12, 4, 3, 3)), padding=1)
    torch.testing.assert_close(module(x), wanted)
    module, (weight,) = filled(operator, narrow, np_rng)
    x = torch.from_numpy(np_rng.normal(size=(2, 12, 4, 6)))
    parts = torch.from_numpy(weight).view(3, 4, 4, 3, 3)
    wanted = sum(F.conv2d(x[:, 4 * i : 4 * i + 4], parts[i], padding=1) for i in range(3)) / 3
    torch.testing.assert_close(module(x), wanted)


def test_costs_of_parts_and_of_pooling() -> None:
    operator = Fitted(known.convolution())
    bound = {"N": 1, "C_in": 4, "C_out": 12, "H": 4, "W": 6, "s": 2}
    assert operator.flops(bound) == 2 * 4 * 12 * 9 * 24 + 4 * 4 * 24  # every element of the input is pooled once
    assert operator.params(bound) == 4 * 12 * 9
    assert operator.input_sizes(bound) == (1, 4, 8, 12)
    assert operator.output_sizes(bound) == (1, 12, 4, 6)


def test_a_normalisation_is_that_of_pytorch(np_rng: np.random.Generator) -> None:
    kernel = Kernel(known.depthwise_separable().nodes, normalise=True)
    operator = Fitted(kernel)
    assert [len(sizes) for sizes in operator.weight_sizes(SMALL)] == [3, 1, 1, 3, 1, 1]
    plain = Fitted(known.depthwise_separable())
    assert operator.params(SMALL) == plain.params(SMALL) + 4 * 4
    assert operator.flops(SMALL) == plain.flops(SMALL) + 2 * 24 * 4 * (3 + 2)  # ReLU after the first alone
    module = operator.to_torch(SMALL).double()
    x = torch.from_numpy(np_rng.normal(size=(5, 4, 4, 6)))
    first, second = torch.nn.BatchNorm2d(4).double(), torch.nn.BatchNorm2d(4).double()

    def wanted() -> torch.Tensor:
        depth = F.conv2d(x, module.weight_1.view(4, 1, 3, 3), padding=1, groups=4)
        return second(F.conv2d(F.relu(first(depth)), module.weight_4.view(4, 4, 1, 1)))

    for _ in range(3):
        torch.testing.assert_close(module(x), wanted())
    for one in (module, first, second):
        one.eval()
    torch.testing.assert_close(module(x), wanted())
    assert kernel.key != known.depthwise_separable().key


def test_vectors_are_not_normalised() -> None:
    kernel = Kernel(known.squeeze_excite().nodes, normalise=True)
    assert kernel.normalised == {}


def test_numbers_by_place() -> None:
    kernel = Kernel(Draft().apply(Primitive("fc", "x0"), (0,)).apply(Primitive("fc", "C"), (1,)).nodes)
    places = (Place(8, 8, 4, 4, layers=2), Place(8, 16, 2, 2, kh=1, kw=1, stride=2))
    operator = fill(kernel, places, Budget.of_shares(places, max_flops=0.5))
    assert isinstance(operator, Fitted)
    for place, (number,) in zip(places, operator.solutions, strict=True):
        bound = operator.complete_binding({"C_in": 8, "C_out": place.c_out, "H": place.h, "W": place.w})
        assert (bound["x0"], bound["KH"], bound["s"]) == (number, place.kh, place.stride)
        assert operator.complete_binding(bound) == bound
    assert operator.complete_binding() == operator.complete_binding({"C_in": 8, "C_out": 8, "H": 4, "W": 4})
    elsewhere = operator.complete_binding({"C_in": 32, "C_out": 32, "H": 2, "W": 2})
    assert (elsewhere["x0"], elsewhere["KH"], elsewhere["s"]) == (1, 3, 1)  # the base solution
    assert operator.complete_binding({**SMALL, "x0": 7})["x0"] == 7
    assert operator.fingerprint(SMALL) != operator.fingerprint({**SMALL, "x0": 7})
    with pytest.raises(SpecError, match="Canvas: no value for H: bind it to a size of the convolution"):
        Fitted(kernel).complete_binding({"C_in": 8, "C_out": 8})
    with pytest.raises(SpecError, match="place: expected c_in and c_out of which one is a multiple"):
        operator.complete_binding({**SMALL, "C_out": 6})
    with pytest.raises(SpecError, match="for x0, found 0"):
        operator.complete_binding({**SMALL, "x0": 0})


def test_a_tensor_that_is_too_large_is_refused() -> None:
    kernel = Kernel(Draft().apply(Primitive("unfold", "H,W"), (0,)).apply(Primitive("fc", "C"), (1,)).nodes)
    place = Place(512, 512, 56, 56, 7, 7)
    found = fill(kernel, (place,), Budget())
    assert isinstance(found, str)
    assert found.startswith(f"{place}: expected tensors of at most {MOST_ELEMENTS} elements, found [")
    # Nor at a place that was not solved for, with the numbers of free variables given or not.
    large = {"C_in": 512, "C_out": 512, "H": 56, "W": 56, "KH": 7, "KW": 7}
    with pytest.raises(SpecError, match=f"expected tensors of at most {MOST_ELEMENTS} elements, found \\["):
        Fitted(kernel).complete_binding(large)
    free = Kernel(Draft().apply("fc x0").apply("fc C").nodes)
    assert Fitted(free).complete_binding(large)["x0"] == 1
    with pytest.raises(SpecError, match=r"found \[x0, H, W\] with 31360000$"):
        Fitted(free).complete_binding({**large, "x0": 10_000})


def test_memory_counts_what_a_stride_pools() -> None:
    operator, image = Fitted(known.residual()), 4 * 4 * 6
    strided = operator.memory({**SMALL, "s": 2}) - operator.memory(SMALL)
    assert strided == 4 * 2 * (3 * image + image)  # bytes, images, the larger input and its pooled copy


def site(**changes: object) -> Site:
    given: dict[str, object] = {"name": "conv", "in_channels": 8, "out_channels": 16, "height": 8, "width": 6}
    given |= {"kernel_size": (3, 3), "flops": 1, "params": 1, "stride": (2, 2), "calls": 2}
    return Site(**given | changes)  # type: ignore[arg-type]


def test_the_place_of_a_layer() -> None:
    assert places_of([site()]) == (Place(8, 16, 4, 3, 3, 3, 2, 2),)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "linear"}, "conv: expected a convolution, found a linear layer"),
        ({"groups": 2}, "conv: expected a dense convolution, without groups and dilation"),
        ({"dilation": (2, 2)}, "conv: expected a dense convolution"),
        ({"kernel_size": (3, 4)}, "conv: expected a window of 1, 3, 5, 7, found 3x4"),
        (
            {"out_channels": 12},
            "channels of which one number is a multiple of the other, found 8 and 12$",
        ),
        ({"height": 7}, "conv: its stride 2 does not divide 7x6"),
        ({"obstacle": "its padding is 0"}, "conv: its padding is 0"),
    ],
)
def test_layers_that_no_kernel_replaces(changes: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why) as found:
        places_of([site(**changes)])
    assert "\n" not in str(found.value)


def test_wrong_arrays_are_refused() -> None:
    operator = Fitted(known.residual())
    bound = operator.complete_binding(SMALL)
    with pytest.raises(SpecError, match=r"expected an input of shape \[N, 4, 4, 6\], found \(1, 4, 6, 4\)"):
        at_place(operator, np.zeros((1, 4, 6, 4)), [np.zeros((1, 4, 4))], bound)
    with pytest.raises(SpecError, match=r"expected weights of shapes \(\(1, 4, 4\),\), found \[\]"):
        at_place(operator, np.zeros((1, 4, 4, 6)), [], bound)


def test_random_kernels_have_positive_memory_and_traffic(rng: random.Random) -> None:
    sampler = Sampler([Place(8, 16, 4, 4, stride=2)], max_flops=None, seed=rng.randrange(10**6))
    for _ in range(30):
        operator = sampler.sample()
        outside = sum(map(int, map(np.prod, (operator.input_sizes(), operator.output_sizes()))))
        assert operator.memory() >= 4 * (outside + operator.params())
        assert operator.traffic() >= int(np.prod(operator.output_sizes()))


def test_a_kernel_is_fitted_to_a_network() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 16, 3, stride=2, padding=1))
    sampler = sl.canvas.Sampler(net, example=(3, 8, 8), max_flops=0.6, seed=3)
    assert sampler.places == (Place(8, 16, 4, 4, stride=2),)  # 3 and 8 channels: none is a multiple of the other
    operator = sampler.sample()
    assert sl.canvas.Sampler(net, example=(3, 8, 8), max_flops=0.6, seed=3).sample() == operator
    with pytest.raises(SpecError, match=r"example: expected the shape \[C, H, W\] of an image beside a network"):
        Sampler(net)
    with pytest.raises(SpecError, match="example: expected no example for places"):
        Sampler(sampler.places, example=(3, 8, 8))
    made = sampler.replace(net, operator)
    made(torch.zeros(2, 3, 8, 8)).sum().backward()
    assert isinstance(net[1], torch.nn.Conv2d)
    assert sum(one.numel() for one in made[1].parameters()) == operator.params() + 16  # and the bias
    with pytest.raises(SpecError, match="expected a sampler of a network, found a sampler of places"):
        Sampler(sampler.places).replace(net, operator)
    with pytest.raises(SpecError, match=r"at least one convolution .*, found none: 0: expected channels of which"):
        Sampler(net[:1], example=(3, 8, 8))


def test_fit_says_why_there_is_no_solution() -> None:
    places = [Place(8, 8, 4, 4)]
    assert known.grouped_convolution().fit(places).groups == 2
    assert known.grouped_convolution().fit(places, groups=8).groups == 8
    with pytest.raises(SpecError, match="base solution: expected at most 10 FLOPs, found"):
        known.convolution().fit(places, Budget(max_flops=10))
    with pytest.raises(SpecError, match="groups: expected channels with a common divisor from 2 up, found 3, 5"):
        known.grouped_convolution().fit([Place(3, 3, 4, 4), Place(5, 5, 4, 4)])


def test_the_numbers_of_a_place_mean_that_place_alone() -> None:
    """Places that differ in one size each, in every order: the first one that is alike must not be taken."""
    draft = Draft()
    for step in (Primitive("unfold", "H,W"), Primitive("fc", "x0"), Primitive("unfold", "H"), Primitive("fc", "C")):
        draft = draft.apply(step, (len(draft.nodes),))
    places = (
        Place(8, 8, 4, 4, layers=3),
        Place(8, 8, 4, 4, stride=2),
        Place(8, 8, 4, 4, kh=5),
        Place(8, 16, 4, 4),
        Place(16, 8, 4, 4),
        Place(16, 16, 4, 4),
    )
    for turned in range(len(places)):
        order = (*places[turned:], *places[:turned])
        operator = fill(Kernel(draft.nodes), order, Budget.of_shares(order, max_flops=0.5))
        assert isinstance(operator, Fitted)
        for place, (number,) in zip(operator.places, operator.solutions, strict=True):
            bound = operator.binding(place)
            assert bound["x0"] == number
            assert operator.template(bound)[0] == replace(place, layers=1)
            size = (place.c_in, place.h * place.stride, place.w * place.stride)
            namespace: dict[str, Any] = {}
            exec(operator.to_torch_source(bound), namespace)
            module = namespace["SynoOperator"]()
            assert module(torch.zeros(2, *size)).shape == (2, place.c_out, place.h, place.w)
            shapes = [tuple(weight.shape) for weight in module.parameters()]
            channels, parts, window = min(place.c_in, place.c_out), place.parts, place.kh * place.kw
            assert shapes == [(parts, number, channels * window), (parts, channels, number * place.kh)]


@pytest.mark.parametrize("given", [{"C": 8, "H": 4, "W": 4}, {"C": 8, "C_in": 16, "C_out": 16}, {"C": 8, "C_in": 8}])
def test_the_channels_of_the_template_name_no_place(given: dict[str, int]) -> None:
    operator = Fitted(known.convolution(), places=(Place(8, 8, 4, 4), Place(16, 16, 4, 4)), solutions=((), ()))
    with pytest.raises(SpecError, match=r"Canvas: expected C_in and C_out, and no C but the smaller .* found C=8"):
        operator.to_torch_source(given)

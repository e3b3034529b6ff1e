"""The sizes at which views show operators are those of real layers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from syno_lab.canvas.known import convolution
from syno_lab.codegen.nest import all_sizes
from syno_lab.common.layers import LAYER, RESNET
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.models.registry import BACKBONES
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import KNOWN, conv2d, grouped_linear, matmul, operator_1, strided
from syno_lab.panes.compared import common_layers, common_sizes, sizes_of, subjects_of
from syno_lab.panes.layers import layers_of
from syno_lab.systems import all_systems, system_of


def examples(operator: Operator) -> dict[str, int]:
    return dict(system_of(operator).example_binding(operator))


def shapes(backbone: str, size: int) -> dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """The 3x3 convolutions of a backbone by name, as the network itself has them."""
    sites = [site for site in BACKBONES[backbone].survey(size=size).sites if site.kernel_size == (3, 3)]
    return {
        site.name: (
            (site.in_channels, site.height, site.width),
            (site.out_channels, site.height // site.stride[0], site.width // site.stride[1]),
        )
        for site in sites
    }


def test_the_layers_are_those_of_the_networks() -> None:
    side = (LAYER["C_in"], LAYER["H"], LAYER["W"])
    for backbone in ("resnet18", "resnet34"):
        layers = {name: shape for name, shape in shapes(backbone, 112).items() if name.startswith("layer1.")}
        assert set(layers.values()) == {(side, (LAYER["C_out"], *side[1:]))}
    found = {"ResNet-34": shapes("resnet34", 224), "ResNet-20": shapes("resnet20", 32)}
    for name, shape in RESNET.items():
        network, layer = name.split()
        same = [one for one, other in found[network].items() if other == shape]
        assert same
        assert all(one.startswith(layer) for one in same)
        found[network] = {one: other for one, other in found[network].items() if other != shape}
    assert [*found["ResNet-34"], *found["ResNet-20"]] == ["conv"], "the first layer of ResNet-20"


def test_operator_1_has_half_of_the_flops_of_a_convolution() -> None:
    dense, own = conv2d(), operator_1()
    assert examples(own) == {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28, "k_1": 3, "g": 8, "s": 2}
    # By hand: 64 channels read 9 elements of 64; the two stages of the docstring.
    first, second = 8 * 4 * 3 * 8, 64 * 8 * 3 * 3 * 4
    assert own.flops(examples(own)) / dense.flops(examples(dense)) == (first + second) / (64 * 64 * 9)
    assert f"{own.flops(examples(own)) / dense.flops(examples(dense)):.2f}" == "0.52"
    assert common_sizes(subjects_of([own, dense])) == examples(own)


def test_every_known_operator_has_integer_sizes() -> None:
    for name, make in KNOWN.items():
        operator, bound = make(), examples(make())
        assert all(size.is_integral(bound) for size in all_sizes(operator)), name
        assert all(number == LAYER[axis] for axis, number in bound.items() if axis in LAYER and name != "matmul"), name
    assert examples(matmul())["N"] > 1, "N is no batch here"
    assert examples(grouped_linear()) == {"N": 1, "D_in": 64, "D_out": 64, "g": 8}
    for system in all_systems():
        for make in system.known.values():
            found = system.example_binding(make())
            assert found["N"] == 1 or system.title == "pGraphs"


def test_a_length_that_does_not_divide_is_the_next_multiple() -> None:
    build = Build("[N, C_in, H]", "[N, g^-1*C_in, H]", ["N", "C_in", "H"], ["g=3"], fixed_io_pairs=[(0, 0)])
    n, c, h = build.output
    assert examples(build.finish(n, build.split(build.reduce("g"), c), h)) == {"N": 1, "C_in": 66, "H": 28, "g": 3}


def test_a_variable_beside_the_layer_s_is_divided_too() -> None:
    build = Build("[N, L]", "[N, g^-1*L]", ["N", "L"], ["g=4"], fixed_io_pairs=[(0, 0)])
    n, own = build.output
    operator = build.finish(n, build.split(build.reduce("g"), own))
    assert all(size.is_integral(examples(operator)) for size in all_sizes(operator))


def test_the_menu_has_the_layers_that_an_operator_fits() -> None:
    assert [name for name, _ in layers_of(operator_1())] == [*RESNET]
    for name, sizes in layers_of(strided()):
        before, after = RESNET[name]
        assert strided().input_sizes(sizes) == (1, *before)
        assert strided().output_sizes(sizes) == (1, *after)
    assert len(layers_of(strided())) == 5
    assert layers_of(matmul()) == []


@pytest.mark.parametrize("other", [conv2d, convolution, nas_pte_1, strided])
def test_every_common_layer_is_that_layer_for_each_operator(other: Callable[[], Any]) -> None:
    for operators in ([operator_1(), other()], [other(), operator_1()]):
        subjects = subjects_of(operators)
        layers = common_layers(subjects)
        for (name, sizes), operator in product(layers, operators):
            bound = sizes_of(operator, sizes)
            assert bound == dict(layers_of(operator))[name]
            assert operator.input_sizes(bound) == (1, *RESNET[name][0])
        # Operator 1's s = 2 is no stride 2 of Canvas, and strided's H is another number of rows.
        assert bool(layers) == (other in (conv2d, nas_pte_1))


@pytest.mark.parametrize("count", [1, 3])
def test_the_layers_of_one_s_own_network_are_there_instead(count: int) -> None:
    from dataclasses import replace

    sizes = [{"N": 1, "C_in": 8 * n, "C_out": 16, "H": 5, "W": 5, "k_1": 3} for n in range(1, count + 1)]
    spec: Spec = conv2d().spec
    bindings = tuple(tuple(one.items()) for one in sizes)
    operator = replace(conv2d(), state=replace(conv2d().state, spec=replace(spec, bindings=bindings)))
    found = layers_of(operator)
    # One binding is the default sizes of an operator that has no layer.
    assert [one for _, one in found] == sizes if count > 1 else [name for name, _ in found] == [*RESNET]
    assert examples(operator) == sizes[0]

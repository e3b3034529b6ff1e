"""What kernels read and mix, against derivatives of their modules, and the kernel probe against known ranks."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from syno_lab.canvas import known
from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.mixing import pairing_of, parse_wishes, probe, wishes_text
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.sampler import Sampler
from syno_lab.common.probe import Probe, convolution_probe
from syno_lab.errors import SpecError

SIZES = {"N": 1, "C_in": 8, "C_out": 8, "H": 12, "W": 14, "KH": 3, "KW": 3, "s": 1}
#: In the place of functions that are flat somewhere, choose one side or subtract: their derivatives are above 0.
SMOOTH = {
    r"F\.relu\(": "F.softplus(",
    r"torch\.abs\(": "F.softplus(",
    r"torch\.(minimum|maximum)\(": "torch.logaddexp(",
    r"\.amax\(": ".logsumexp(",
    r"= -(t\d+)": r"= F.softplus(\1)",
    r" - ": " + ",
}
#: What may be 0 for all weights though elements are read: a softmax subtracts.
MAY_CANCEL = ("softmax",)


def smooth_module(operator: Fitted, rng: torch.Generator) -> nn.Module:
    source = operator.to_torch_source(SIZES)
    for pattern, other in SMOOTH.items():
        source = re.sub(pattern, other, source)
    made: dict[str, Any] = {"__name__": "smooth"}
    exec(source, made)
    module: nn.Module = made["SynoOperator"]().double().eval()
    for (
        weight
    ) in module.parameters():  # positive, so that nothing cancels by chance, and small, so that nothing is flat
        weight.data = torch.rand(weight.shape, generator=rng, dtype=torch.float64) / max(1, weight.shape[-1])
    return module


def marks_by_derivatives(operator: Fitted, rng: torch.Generator) -> list[list[str]]:
    """The matrix by its definition, from the derivatives of every output element at one input."""
    module = smooth_module(operator, rng)
    x = torch.rand((1, 8, 12, 14), generator=rng, dtype=torch.float64)
    rows = torch.autograd.functional.jacobian(module, x, vectorize=True)[0, :, :, :, 0]
    reads = (rows != 0).numpy()  # [C, H, W out, C, H, W in]
    marks = []
    for out in range(3):
        row = []
        for axis in range(3):
            others = tuple([3 + other for other in range(3) if other != axis])
            along = np.moveaxis(reads.any(axis=others), out, 0)  # [line, two others, positions]
            if not along.any(axis=0).all(axis=-1).any():
                row.append("x")
            else:
                most = int(reads.any(axis=others).sum(axis=-1).max())
                row.append("a" if most == reads.shape[3 + axis] else "m" if most > 1 else "o")
        marks.append(row)
    return marks


def test_the_matrix_is_that_of_the_derivatives(rng: random.Random) -> None:
    torch_rng = torch.Generator().manual_seed(rng.randrange(1 << 30))
    sampler = Sampler(
        (Place(8, 8, 12, 14),), max_flops=None, primitives=(2, 8), must_mix=False, groups=2, seed=rng.randrange(1 << 30)
    )
    compared = 0
    kernels = [make() for make in known.KNOWN.values()]
    while compared < 25:
        kernel = kernels.pop() if kernels else Kernel(sampler.sample().kernel.nodes)
        if any(node.primitive.name in MAY_CANCEL for node in kernel.nodes):
            continue
        operator = Fitted(kernel, 2 if "G" in kernel.variables else 1)
        if max(shape.volume.at(operator.complete_binding(SIZES) | {"C": 8}) for shape in kernel.shapes) > 30_000:
            continue
        compared += 1
        found = [list(row[1:]) for row in pairing_of(kernel).marks[1:]]
        assert found == marks_by_derivatives(operator, torch_rng), str(kernel)


@pytest.mark.parametrize(
    ("name", "met"),
    [
        ("convolution", "C_in>=a, H>=m, W>=m, H->H>=m"),
        ("squeeze_excite", "C_in>=a, H>=a, W->C_out>=a"),
        ("figure_6", "C_in>=o, H>=m, W>=o"),
        ("residual", "C_in>=a, H>=o, W->W>=o"),
    ],
)
def test_wishes_of_known_kernels(name: str, met: str) -> None:
    wishes = parse_wishes(met)
    assert wishes_text(wishes) == met
    assert pairing_of(known.KNOWN[name]()).meets(wishes)
    more = {"o": "m", "m": "a"}
    for wish in met.split(", "):
        if wish[-1] in more:  # one more than that is missed
            assert not pairing_of(known.KNOWN[name]()).meets(parse_wishes(wish[:-1] + more[wish[-1]])), wish


def test_a_window_of_one_reads_no_neighbours() -> None:
    assert pairing_of(known.convolution(), (1, 5)).meets(parse_wishes("C_in>=a, H>=o, W>=m"))
    assert not pairing_of(known.convolution(), (1, 5)).meets(parse_wishes("H>=m"))


def test_there_is_no_wish_about_the_batch() -> None:
    for text in ("N>=o", "C_in->N>=m"):
        with pytest.raises(SpecError, match=f"wants '{text}': expected axes that take part in something, found N"):
            parse_wishes(text)
    assert parse_wishes(None) == parse_wishes("") == ()


# -- the probe ---------------------------------------------------------------------------------------------------------

PLACE = Place(16, 16, 16, 16)


def probed(kernel: Kernel, place: Place = PLACE, groups: int = 2, share: float = 2.0) -> Probe:
    budget = Budget.of_shares((place,), max_flops=share)
    operator = fill(kernel, (place,), budget, groups if "G" in kernel.variables else 1)
    assert isinstance(operator, Fitted), operator
    found = probe(operator, place)
    assert found is not None
    return found


def test_a_convolution_has_the_ranks_of_a_convolution() -> None:
    """Linear, so alike at all inputs: the ranks are those of one random kernel of its form, but for the weights drawn.

    The ranks of 16 x 144 random numbers vary by about a hundredth of themselves from draw to draw.
    """
    found = probed(known.convolution())
    reference = convolution_probe(16, 16, (8, 8), (3, 3))
    assert found.kernel.shape == (16, 16, 8, 8)
    for mine, other in (
        (found.e_space, reference.e_space),
        (found.e_out, reference.e_out),
        (found.e_in, reference.e_in),
    ):
        assert mine == pytest.approx(other, rel=0.05)
    assert np.count_nonzero(found.kernel.any(axis=(0, 1))) == 9
    grouped = probed(known.grouped_convolution(), groups=4)
    assert grouped.e_out == pytest.approx(convolution_probe(16, 16, (8, 8), (3, 3), 4).e_out, rel=0.05)


def test_a_narrow_middle_bounds_the_ranks_though_it_is_not_linear() -> None:
    # Each derivative is a product of 16 x n and n x 16; whatever ReLU lets through, no more than n directions are left.
    kernel = known.KNOWN["figure_9b"]()  # FC to x0, ReLU, a shift, FC
    for middle in (1, 3):
        operator = Fitted(kernel, 1, (PLACE,), ((middle,),))
        found = probe(operator, PLACE)
        assert found is not None
        assert found.e_in <= middle + 1e-6
        assert found.e_out <= middle + 1e-6
        assert found.e_in > 0.7 * middle
        assert found.e_space == pytest.approx(1.0)


def test_a_probe_draws_nothing_and_is_the_same_each_time() -> None:
    before = torch.random.get_rng_state()
    kernel = Kernel(known.depthwise_separable().nodes, normalise=True)
    one, other = probed(kernel), probed(kernel)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (one.kernel == other.kernel).all()
    assert one.promise(other) == other.promise(one)
    strided = probed(kernel, Place(16, 32, 8, 8, stride=2))
    assert strided.kernel.shape == (32, 16, 8, 8)

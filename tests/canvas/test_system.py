"""Canvas through the conformance suite of systems, and its search space."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from syno_lab.canvas import known
from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.mixing import pairing_of
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.space import KernelSpace, KernelState, may_become
from syno_lab.canvas.system import CANVAS
from syno_lab.errors import SpecError
from syno_lab.models.sites import Site
from syno_lab.protocol import SpaceRequest, System
from syno_lab.search import RandomSearch
from syno_lab.systems import VARIABLE
from syno_lab.testing.conformance import Case, SystemConformance

SIZES = {"N": 2, "C_in": 4, "C_out": 4, "H": 4, "W": 6, "KH": 3, "KW": 3, "s": 1}
WIDER = {**SIZES, "C_out": 8, "H": 2, "W": 4, "s": 2}


def solved() -> Fitted:
    """A bottleneck with numbers for two places."""
    places = (Place(4, 4, 4, 6, layers=2), Place(4, 8, 2, 4, stride=2))
    found = fill(Kernel(known.KNOWN["figure_9b"]().nodes), places, Budget.of_shares(places, max_flops=0.5))
    assert isinstance(found, Fitted)
    return found


class TestCanvas(SystemConformance):
    """The conformance suite, with Canvas registered: the lab does not list it before its views are there."""

    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(VARIABLE, f"{CANVAS.format}=syno_lab.canvas.system:CANVAS")

    @pytest.fixture
    def system(self) -> System:
        return CANVAS

    @pytest.fixture(
        params=[
            Case(Fitted(known.convolution()), SIZES, WIDER),
            Case(Fitted(known.grouped_convolution(), 2), {**SIZES, "C_in": 8}, {**WIDER, "G": 4}),
            Case(Fitted(known.residual()), WIDER, SIZES),
            Case(solved(), SIZES, WIDER),
        ],
        ids=["convolution", "grouped", "residual", "solved"],
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        found: Case = request.param
        return found


def site(name: str, channels: int = 16, size: int = 8, **changes: object) -> Site:
    given: dict[str, object] = {"in_channels": channels, "out_channels": channels, "height": size, "width": size}
    flops = 2 * channels * channels * 9 * size * size
    given |= {"name": name, "kernel_size": (3, 3), "flops": flops, "params": 9 * channels * channels}
    return Site(**given | changes)  # type: ignore[arg-type]


SITES = [site("a"), site("b", 32, 4), site("c", groups=16, flops=1000)]


def request(share: float = 0.5, **changes: object) -> SpaceRequest:
    spare = int(share * sum(one.flops for one in SITES))
    given: dict[str, object] = {"sites": SITES, "strides": "pool", "spare_flops": spare}
    given |= {"coefficients": None, "occurrences": {}, "limits": {}}
    return SpaceRequest(**given | changes)  # type: ignore[arg-type]


def test_a_search_finds_kernels_within_the_budget() -> None:
    asked = request(0.3)
    space = KernelSpace(asked)
    assert len(space.places) == 2  # the third has groups, and stays
    drawn: list[object] = []
    space.drawn = drawn.append
    search = RandomSearch(space.root(lambda operator: True), random.Random(1))
    names = set()
    for _ in range(40):
        found = search.ask()
        assert found is not None
        operator = found.operator
        assert isinstance(operator, Fitted)
        assert operator.spent.flops + 1000 <= asked.spare_flops
        names.add(space.name_of(operator))
        states = space.root(lambda operator: True)
        for step in found.taken:  # what is stored leads to it again
            states = next(one.state for child in states.children() for one in child.steps() if one.name == step.name)
        assert states.operator() == operator
    assert len(names) == 40
    assert len(drawn) >= 80


def test_a_search_reaches_known_kernels() -> None:
    space = KernelSpace(request(2.0))
    root = space.root(lambda operator: True)
    found = space.known(root)
    assert {"convolution", "depthwise_separable", "spatially_separable", "squeeze_excite"} <= found.keys()
    assert not {"residual", "figure_9b"} & found.keys()  # these read along no axis of the image, or along one
    for name, operator in found.items():
        states = [root]
        for _ in range(40):
            states = [step.state for state in states for step in state.towards(operator)]
            if any(state.is_complete for state in states):
                break
        (end,) = {state.key: state for state in states if state.is_complete}.values()
        assert end.operator() == operator, name
        assert isinstance(end, KernelState)
        assert end.traits()["depth"] >= 1


def test_every_kernel_of_a_search_meets_the_wish() -> None:
    asked = request(0.5, wants="C_in>=a, W->W>=m")
    space = KernelSpace(asked)
    drawn: set[object] = set()
    wished: set[object] = set()
    space.drawn, space.wished = drawn.add, wished.add
    search = RandomSearch(space.root(lambda operator: True), random.Random(2))
    for _ in range(30):
        found = search.ask()
        assert found is not None
        matrix = pairing_of(found.operator.kernel)
        assert {row[1] for row in matrix.marks[1:]} >= {"a"}
        assert matrix.marks[3][3] in "ma"
    assert 30 <= len(wished) < len(drawn)
    assert wished < drawn
    # What the layers do themselves is the wish where none is given; an empty text is none.
    assert KernelSpace(request()).wants == "C_in>=m, H>=m, W>=m"
    assert KernelSpace(request(sites=[site("a", kernel_size=(1, 1))])).wants == "C_in>=m, H>=o, W>=o"
    assert KernelSpace(request(wants="")).wants == ""


def test_a_lower_limit_fills_kernels_less() -> None:
    space = KernelSpace(request(2.0))
    root = space.root(lambda operator: True)
    before = space.known(root)["squeeze_excite"]
    least = before.spent.flops // 2
    space.lower(least + 1000)  # the third layer stays, with 1000
    after = space.known(root)["squeeze_excite"]
    assert before.kernel == after.kernel
    assert least // 2 < after.spent.flops <= least


def test_a_layer_as_a_kernel_computes_the_convolution() -> None:
    one = site("a", 6, 5, out_channels=12, kernel_size=(3, 5))
    operator, binding = CANVAS.for_layer(one)
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((2, 6, 5, 5)), rng.standard_normal((12, 6, 3, 5))
    (sizes,) = operator.weight_sizes(binding)
    wanted = F.conv2d(torch.from_numpy(x), torch.from_numpy(weight), padding=(1, 2)).numpy()
    found = operator.reference(x, weight.reshape(sizes), binding={**binding, "N": 2})
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    with pytest.raises(SpecError, match="a: expected a dense convolution of stride 1 that a kernel of Canvas can"):
        CANVAS.for_layer(replace(one, stride=(2, 2)))


def test_a_draft_may_become_a_kernel_with_sizes_for_its_variables() -> None:
    nodes = known.squeeze_excite().nodes
    draft = Kernel(nodes).draft
    assert may_become(draft, nodes)
    assert not may_become(known.residual().draft, nodes)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"coefficients": ["k=3"]}, "coefficients: expected none, as Canvas has no such limits"),
        ({"occurrences": {"H": 0}}, "occurrences: expected none"),
        ({"limits": {"max_tensors": 3}}, "limits: expected max_primitives alone, found 'max_tensors'"),
        ({"wants": "K>=m"}, "wants: expected an input axis of .N, C_in, H, W., found 'K'"),
        ({"wants": "N>=m"}, "wants 'N>=m': expected axes that take part in something, found N"),
        ({"limits": {"max_primitives": "7"}}, "limits: .* whole number from 1 to 64 for max_primitives, found '7'"),
        ({"limits": {"max_primitives": True}}, "for max_primitives, found True"),
        ({"limits": {"max_primitives": 65}}, "for max_primitives, found 65"),
        ({"spare_flops": 1000}, "FLOPs: expected more than the 1000 of the layers that no kernel .*, found 1000"),
        ({"sites": [site("a", groups=2)]}, "none: a: expected a dense convolution, without groups and dilation"),
        ({"sites": []}, "expected at least one convolution that a kernel can replace, found none$"),
    ],
)
def test_a_space_that_there_is_not(changes: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why) as found:
        KernelSpace(request(**changes))
    assert "\n" not in str(found.value)

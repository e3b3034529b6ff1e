"""The rivals of a finalist: of all group counts and widths the one whose network has the nearest FLOPs."""

from __future__ import annotations

import msgspec
import pytest
from known_trainings import TRAINING

from syno_lab import operators
from syno_lab.errors import SpecError
from syno_lab.experiments.rivals import rival_of
from syno_lab.systems import read_operator
from syno_lab.trial import TrialRequest
from syno_lab.trial.backbone import build, full_costs_of

WIDE = msgspec.structs.replace(TRAINING, options={"width": 8, "blocks": 1})


def put(operator: str, request: TrialRequest = WIDE) -> TrialRequest:
    return msgspec.structs.replace(request, operator=operators.KNOWN[operator]().to_json())


@pytest.mark.parametrize("operator", ["operator_1", "operator_2", "shift_conv"])
def test_grouped_and_narrowed_have_the_nearest_flops(operator: str) -> None:
    request = put(operator)
    target = full_costs_of(request).flops
    title, grouped = rival_of("grouped", request)
    assert isinstance(grouped, TrialRequest)
    count = int(title.split(", ")[1].split()[0])
    away = {}
    for groups in range(2, 100):  # all counts, also those that do not fit some layers
        text = operators.grouped(groups).to_json()
        try:
            costs = full_costs_of(msgspec.structs.replace(request, operator=text))
        except SpecError:
            continue
        if costs.replaced == costs.places:
            away[groups] = abs(costs.flops - target)
    assert set(away) == {2, 4, 8}
    assert away[count] == min(away.values())
    assert read_operator(str(grouped.operator)) == operators.grouped(count)
    title, narrowed = rival_of("narrowed", request)
    assert isinstance(narrowed, TrialRequest)
    assert narrowed.operator is None
    assert title == f"narrowed, width {narrowed.options['width']}"
    near = {width: abs(_narrow(request, width) - target) for width in range(1, 8)}
    assert near[narrowed.options["width"]] == min(near.values())
    if operator == "operator_2":  # a channel more or less changes this small network's FLOPs by a quarter
        assert 0.8 < full_costs_of(narrowed).flops / target < 1.25
    assert build(narrowed).module


def _narrow(request: TrialRequest, width: int) -> int:
    options = request.options | {"width": width}
    return full_costs_of(msgspec.structs.replace(request, operator=None, options=options)).flops


def test_what_has_no_rival_has_a_reason() -> None:
    # A network without a width, layers whose channels no count divides, and layers that are no convolutions.
    wide = put("operator_1", msgspec.structs.replace(TRAINING, backbone="resnet18", options={}))
    assert rival_of("narrowed", wide) == ("narrowed", "expected another number of channels, found none")
    thin = put("conv1x1", msgspec.structs.replace(TRAINING, options={"width": 1, "blocks": 1}))
    assert rival_of("grouped", thin) == ("grouped", "expected another number of groups, found none")
    linear = put("grouped_linear", TrialRequest(backbone="vit_tiny", data="digits", options={"width": 16, "layers": 1}))
    assert "expected an operator that fits some of" in str(rival_of("separable", linear)[1])
    title, rival = rival_of("grouped", linear)
    assert title == "grouped, 4 groups"
    assert isinstance(rival, TrialRequest)
    assert rival.operator == linear.operator

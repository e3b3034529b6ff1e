"""A trial's layers with their sizes: what is shown of it is a part of what the table of trials has."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from syno_widgets import RunsView

from syno_lab.operators import KNOWN
from syno_lab.protocol import Operator
from syno_lab.reports import LabReader
from syno_lab.reports.in_network import InNetwork, find_network
from syno_lab.store import Store
from syno_lab.trial import TrialRequest
from syno_lab.trial.backbone import costs_of, full_costs_of, sites_of
from syno_lab.trial.facts import Facts

TRAINING = {"backbone": "resnet20", "data": "digits", "options": {"width": 8, "blocks": 1}}
NAMES = ("separable", "conv1x1")


def lab_of(folder: Path, training: dict[str, Any], costs: tuple[int, int] | None = None) -> None:
    """A lab with a search of known operators; their costs are those of their networks unless others are given."""
    with Store.open(folder) as store:
        log = store.search("known", {"training": training})
        for name in NAMES:
            text = KNOWN[name]().to_json()
            flops, params = costs or costs_of(TrialRequest.from_dict({**training, "operator": text}))
            number = log.add(name, text, [], flops, params)
            log.record(number, {"state": "finished", "accuracy": 0.5, "wall_s": 1.0})


def test_what_a_trial_shows_adds_up_to_what_the_table_has(tmp_path: Path) -> None:
    lab_of(tmp_path, TRAINING)
    request = TrialRequest.from_dict(TRAINING)
    flops, params = costs_of(request)
    flops -= sum(site.flops for site in sites_of(request))
    params -= sum(site.params for site in sites_of(request))
    with closing(RunsView(tmp_path)) as view:
        view.chosen = "search:known#0"
        assert view.opened is not None
        operator: Operator = view.opened.operator
        places = view.opened.choices["places"]
        assert view.opened.sizes == places[0][1]
        assert not view.opened.example
        for name, sizes in places:
            others = name.partition(" and ")[2]
            number = 1 + int(others.split()[0] if others else 0)
            view.opened.binding = sizes
            found = re.search(r"; ([\d,]+) FLOPs, ([\d,]+) parameters in (.+?)\. In resnet20", view.opened.status)
            assert found is not None, view.opened.status
            assert found[3] == name
            flops += number * int(found[1].replace(",", ""))
            params += number * int(found[2].replace(",", ""))
        row = view.frame().set_index("number").loc[0]
        assert (flops, params) == (row["flops"], row["params"])
        assert f"layers: {flops:,} FLOPs, {params:,} parameters" in view.opened.status
        # Side by side at the sizes of a layer of theirs, which nobody has to invent.
        compared = view.compare("search:known#0", "search:known#1")
        assert {name: compared.sizes[name] for name in ("C_in", "C_out", "H")} == {
            name: places[0][1][name] for name in ("C_in", "C_out", "H")
        }
        assert not compared.example
        assert operator == KNOWN["separable"]()


def test_layers_are_known_without_the_images(tmp_path: Path) -> None:
    training = {"backbone": "resnet20", "data": "/nowhere/cifar-10-batches-bin"}
    request = TrialRequest.from_dict({**training, "operator": KNOWN[NAMES[0]]().to_json()})
    costs = full_costs_of(request, Facts("images", 10, 3, 32, 32))
    lab_of(tmp_path, training, (costs.flops, costs.params))
    with LabReader(tmp_path) as reader:
        reading = reader.read()
    found = find_network(reading.rows[0], reading)
    assert isinstance(found, InNetwork)
    # Figure 3 of the ResNet paper: 32x32 images, 16 to 64 channels; conv1 stays, and 6n = 18 layers are replaced.
    assert found.replaced == 18
    assert found.places[0][0] == "stage1.0.conv1 and 5 more like it"
    assert {found.places[0][1][name] for name in ("C_in", "C_out")} == {16}
    assert {found.places[0][1][name] for name in ("H", "W")} == {32}


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (TRAINING, "expected a network of 1 FLOPs and 1 parameters, as the lab says, found "),
        ({**TRAINING, "own": {"model": {"source": "import os"}}}, "the user's own; code in a lab's folder is not run"),
        ({**TRAINING, "backbone": "resnet99"}, "resnet99"),
        ({**TRAINING, "data": "/nowhere/mine"}, "/nowhere/mine"),
    ],
)
def test_layers_that_are_not_known_are_said_to_be(training: dict[str, Any], reason: str, tmp_path: Path) -> None:
    lab_of(tmp_path, training, (1, 1))
    with closing(RunsView(tmp_path)) as view:
        view.chosen = "search:known#0"
        assert view.opened is not None
        assert view.opened.example
        assert " at example sizes. The layers in which it was trained are not known here: " in view.opened.status
        assert reason in view.opened.status

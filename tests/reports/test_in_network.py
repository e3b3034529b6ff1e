"""A trial's layers with their sizes: what is shown of it is a part of what the table of trials has."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from syno_widgets import RunsView

from syno_lab.operators import KNOWN
from syno_lab.reports import LabReader
from syno_lab.store import Store
from syno_lab.store.searches import LayerSizes
from syno_lab.trial import TrialRequest
from syno_lab.trial.backbone import costs_of, places_of, sites_of

TRAINING = {"backbone": "resnet20", "data": "digits", "options": {"width": 8, "blocks": 1}}
NAMES = ("separable", "conv1x1")


def lab_of(folder: Path, training: dict[str, Any], *, sized: bool = True) -> None:
    """A lab with a search of known operators, with the costs and, if ``sized``, the layers of their networks."""
    with Store.open(folder) as store:
        log = store.search("known", {"training": training})
        for name in NAMES:
            text = KNOWN[name]().to_json()
            request = TrialRequest.from_dict({**TRAINING, "operator": text})
            layers: dict[str, list[Any]] = {}
            for place in places_of(request) if sized else ():
                if place.binding is not None:
                    layers.setdefault(str(place.binding), []).append(place)
            sizes = tuple(LayerSizes(places[0].name, len(places), places[0].binding) for places in layers.values())
            number = log.add(name, text, [], *costs_of(request), sizes)
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
        operator = view.opened.operator
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
        own = TrialRequest.from_dict({**TRAINING, "operator": operator.to_json()})
        layers = sum(place.binding is not None for place in places_of(own))
        assert f"with it in {layers} layers: {flops:,} FLOPs, {params:,} parameters" in view.opened.status
        # Side by side at the sizes of a layer of theirs, which nobody has to invent.
        compared = view.compare("search:known#0", "search:known#1")
        assert {name: compared.sizes[name] for name in ("C_in", "C_out", "H")} == {
            name: places[0][1][name] for name in ("C_in", "C_out", "H")
        }
        assert not compared.example
        assert operator == KNOWN["separable"]()


@pytest.mark.parametrize(
    ("training", "name"),
    [
        ({**TRAINING, "data": "/nowhere/mine"}, "resnet20"),
        ({"backbone": "own:/home/me/nets.py:net@1f", "own": {"model": {"source": "import os"}}}, "nets.py:net"),
        ({}, "its network"),
    ],
)
def test_layers_are_known_without_data_and_without_code(training: dict[str, Any], name: str, tmp_path: Path) -> None:
    lab_of(tmp_path, training)
    with closing(RunsView(tmp_path)) as view:
        view.chosen = "search:known#0"
        assert view.opened is not None
        assert not view.opened.example
        assert f". In {name} with it in " in view.opened.status


def test_a_lab_of_before_has_no_layers(tmp_path: Path) -> None:
    lab_of(tmp_path, TRAINING, sized=False)
    with closing(RunsView(tmp_path)) as view, LabReader(tmp_path) as reader:
        view.chosen = "search:known#0"
        (row, _) = reader.read().rows
        assert view.opened is not None
        assert view.opened.example
        assert f" at example sizes. In resnet20: {row.flops:,} FLOPs, {row.params:,} parameters" in view.opened.status

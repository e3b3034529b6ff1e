"""The lineage of a network as the operator view shows it."""

from __future__ import annotations

import csv
import io
import random
import re

import pytest

from syno_lab.alpha import NetworkOperator, Variant, find_blocks, mutate, trace
from syno_lab.alpha.edits import Replacement
from syno_lab.alpha.lineage import PICTURED
from syno_lab.models.registry import BACKBONES
from syno_lab.panes import Asked, export, read_pane


def evolved(name: str, number: int, rng: random.Random) -> Variant:
    net = BACKBONES[name].build(device="meta", options={"width": 4})
    variant = Variant(find_blocks(trace(net, (3, 32, 32))))
    while len(variant.edits) < number:
        edit = mutate(variant.network, rng)
        if edit is not None:
            variant = variant.edited(edit)
    return variant


@pytest.mark.parametrize("name", ["cnn", "resnet20"])
def test_each_edit_has_its_line_its_costs_and_what_it_changed(name: str, rng: random.Random) -> None:
    variant = evolved(name, PICTURED + 2, rng)
    asked = Asked(NetworkOperator(variant))
    data = read_pane(asked, "lineage")
    steps = data["steps"]
    assert [step["number"] for step in steps] == list(range(PICTURED + 3))
    assert [step["words"] for step in steps] == ["the seed", *map(str, variant.edits)]
    assert [bool(step["pictures"]) for step in steps] == [False] * 3 + [True] * PICTURED
    for number, step in enumerate(steps):
        part = Variant(variant.seed, variant.edits[:number])
        assert (step["flops"], step["params"]) == (part.flops(), part.params())
        assert step["blocks"] == len(part.network.blocks)
    for number, edit in enumerate(variant.edits):
        shown = steps[number + 1]["pictures"]
        if not isinstance(edit, Replacement) or not shown:
            assert len(shown) <= 1
            continue
        before, after = shown
        # The marked nodes are those of the edit, the old ones before and the new ones after.
        assert marked(before["text"]) == [str(node.operation) for node in edit.old.nodes]
        assert marked(after["text"]) == [str(node.operation) for node in edit.new.nodes]
        assert all(picture["svg"].lstrip().startswith("<svg") for picture in shown)
    assert sum(row[3] for row in data["rows"]) == variant.flops()
    assert sum(row[4] for row in data["rows"]) == variant.params()
    assert len(data["rows"]) == len(variant.network.blocks) + 2
    table = list(csv.DictReader(io.StringIO(export(asked, "lineage", data, "CSV").decode())))
    assert [row["params"] for row in table] == [str(step["params"]) for step in steps]


def marked(text: str) -> list[str]:
    """The operations whose tensors the end of a description names."""
    found = re.search(r" Changed: (.*)\.$", text)
    made = dict(re.findall(r"(t\d+) = ((?:(?! of ).)+) of t\d", text))
    return [made[name] for name in found[1].split(", ")] if found else []


def test_a_seed_has_itself_alone() -> None:
    data = read_pane(Asked(NetworkOperator(evolved("cnn", 0, random.Random(0)))), "lineage")
    (step,) = data["steps"]
    assert (step["words"], step["pictures"]) == ("the seed", [])
    assert data["note"].startswith("0 edits")

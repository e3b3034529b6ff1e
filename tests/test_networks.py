"""A tenth of the networks of others, through all that the lab does with a network; and that a fault there is found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
MODULES = ("networks", "networks_listed", "networks_work", "networks_by_hand", "networks_of_packages", "common")
#: What takes half of the time, as a C++ compiler does it: the whole run has it.
LEFT = ("inductor",)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import networks

    return networks


def test_a_tenth_of_the_networks_is_right_wherever_the_page_says_so(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    from networks_work import COLUMNS

    columns = [name for name in COLUMNS if name not in LEFT]
    stored = json.loads((BENCHMARKS / "results" / "networks.json").read_text(encoding="utf-8"))
    page = {row["name"]: row["cells"] for row in stored["rows"]}
    with capsys.disabled():
        found = list(benchmark.rows(benchmark.tenth(), columns, workers=1))
    assert len(found) >= 5
    assert {row["package"] for row in found} == {"torch.nn", "transformers"}
    for row in found:
        for column in columns:
            cell = row["cells"][column]
            assert cell["state"] == page[row["name"]][column]["state"], f"{row['name']}, {column}: {cell}"
            assert cell["state"] not in benchmark.FAULTS, f"{row['name']}, {column}: {cell}"


def test_the_list_is_of_many_families_and_each_of_it_is_on_the_page(benchmark: ModuleType) -> None:
    listed = benchmark.LISTED
    families = [one.family for one in listed]
    assert max(families.count(one) for one in families) <= 4
    assert sum(one.package == "transformers" for one in listed) >= 12
    assert sum(one.package == "monai" for one in listed) >= 6
    assert sum(one.inductor for one in listed) >= 20
    stored = json.loads((BENCHMARKS / "results" / "networks.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in stored["rows"]] == [one.name for one in listed]


class Counts(nn.Module):
    """What it gives depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Conv2d(3, 4, 3, padding=1), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.calls * self.layer(x).mean((2, 3))


class Twofold(nn.Module):
    """A path of its own where no gradients are wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if torch.is_grad_enabled() else self.layer(2 * x)


@pytest.mark.parametrize(("kind", "shape", "where"), [(Counts, (3, 8, 8), "survey"), (Twofold, (8,), "evaluation")])
def test_a_difference_is_found(
    benchmark: ModuleType, kind: type[nn.Module], shape: tuple[int, ...], where: str
) -> None:
    from networks_listed import Listed
    from networks_work import cells

    found = dict(cells(Listed("odd", "torch.nn", "odd", "", kind, shape), ("survey", "put_in", "evaluation")))
    assert found[where]["state"] == "differs", found


def test_a_network_that_is_not_done_in_time_is_a_fault_in_all_columns(benchmark: ModuleType) -> None:
    row = benchmark.row_of(benchmark.BY_NAME["mixer"], ("survey", "plan"), patience_s=0.2)
    assert {name: cell["state"] for name, cell in row["cells"].items()} == {"survey": "fault", "plan": "fault"}
    assert row["cells"]["plan"]["said"] == "not done after 0.2 s"

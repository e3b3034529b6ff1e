"""The tables of features and of tasks in the documentation name tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _rows(page: str) -> list[list[str]]:
    """The cells of a page's only table, without its head."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return table[2:]


FEATURES = _rows("features.md")
TASKS = _rows("tasks.md")


def test_there_are_features() -> None:
    assert len(FEATURES) == 31
    assert [row[0] for row in FEATURES if row[-1] == "no test"] == ["VS Code", "Colab"], "the rest is shown"


def test_there_are_tasks() -> None:
    assert [row[0].partition(". ")[0] for row in TASKS] == [str(number) for number in range(1, 26)]
    assert [row[0] for row in TASKS if row[-1] == "no test"] == []


@pytest.mark.parametrize("row", FEATURES + TASKS, ids=lambda row: row[0])
def test_a_row_names_tests_that_there_are(row: list[str]) -> None:
    *told, shown = row
    assert len(row) == (4 if row in FEATURES else 3)
    assert all(told)
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", shown)
    assert bool(named) != (shown == "no test")
    for file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {test or 'test_'}", text, re.MULTILINE), f"{file} has no {test}"
        assert not test or f"def {test}(" in text

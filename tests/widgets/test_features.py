"""The feature table in the documentation names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "features.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| feature |"))
]


def test_there_are_features() -> None:
    assert len(ROWS) == 23
    assert [row[0] for row in ROWS if row[3] == "no test"] == ["VS Code", "Colab"], "the rest is shown"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_feature_names_tests_that_there_are(row: list[str]) -> None:
    feature, others, ours, shown = row
    assert feature
    assert others
    assert ours
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", shown)
    assert bool(named) != (shown == "no test")
    for file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {test or 'test_'}", text, re.MULTILINE), f"{file} has no {test}"
        assert not test or f"def {test}(" in text

"""What no refactoring may change is as it was recorded (`golden/record.py`), and a change of it is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def test_everything_is_as_it_was_recorded(tmp_path: Path) -> None:
    """In a process of its own, elsewhere, with another order of hashes in each run."""
    done = subprocess.run(
        [sys.executable, GOLDEN / "record.py", "--compare", GOLDEN / "small.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_what_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GOLDEN))
    from record import differences, kept

    new = {"1 a": ["one", "two", "three"], "5 b": [0.5, 0.7], "7 c": ["word"], "7 d": []}
    old = {name: kept(lines) for name, lines in new.items()}
    assert not list(differences(old, new))
    assert not list(differences(old, new | {"5 b": [0.6, 0.6]})), "another processor"
    (told,) = differences(old, new | {"5 b": [0.5, 0.2]})
    assert told.startswith("5 b: differs by more than 0.2")
    told, *shown = differences(old, new | {"1 a": ["one", "2", "three"]})
    assert told == "1 a: differs"
    assert "    now, line 2: 2" in shown
    assert shown[-1] == "    1 of 3 lines differ; there were 3"
    (told, *_) = differences(old, new | {"7 c": ["world"]})
    assert told == "7 c: differs; write a line into CHANGES.md and record it again"
    (told,) = differences(old, {name: new[name] for name in new if name != "1 a"})
    assert told == "1 a: is missing"
    assert [*differences(old, new | {"2 e": ["e"]})] == ["2 e: is new"]

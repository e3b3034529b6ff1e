"""A tenth of the chaos benchmark: whoever is killed, nothing is lost, done twice or stuck."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_nothing_is_lost_whoever_is_killed(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("chaos", BENCHMARKS / "chaos.py")
    assert specification is not None
    assert specification.loader is not None
    chaos = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "chaos", chaos)
    specification.loader.exec_module(chaos)
    monkeypatch.setenv("SYNO_LAB_KINDS", "")
    monkeypatch.setenv("PYTHONPATH", "")
    seed = rng.randrange(1 << 30)
    print("seed", seed)
    found = chaos.run(10, seed, jobs=2, steps=40, seconds=0.02, pause=0.2)
    print(found)
    assert found["kills"] == 10
    for trouble in ("lost", "duplicated", "wrong", "overlapping", "stuck", "processes left"):
        assert not found[trouble], (trouble, found)
    assert found["states"] == {"finished": 5}, "a driver, its two jobs, and two by themselves"

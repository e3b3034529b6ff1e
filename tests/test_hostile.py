"""A tenth of the hostile benchmark: whatever is damaged is read or refused in one line, and runs nothing."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_what_is_damaged_is_refused_in_one_line_and_runs_nothing(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for path in BENCHMARKS.glob("hostile*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    import hostile

    seed = rng.randrange(1 << 30)
    with capsys.disabled():
        print(f"\n{hostile.whole(0.1, seed)}")
    found = hostile.measured(0.1, seed, workers=1)
    assert found["tried"] >= 2000
    assert set(found["surfaces"]) == set(hostile.SURFACES)
    assert not found["findings"], "\n".join(f"{one['detail']}\n  {one['again']}" for one in found["findings"])
    for name, verdicts in found["surfaces"].items():
        assert verdicts.get("refused"), f"{name}: nothing was refused, so nothing was damaged"


@pytest.mark.parametrize(("harm", "verdict"), [("raise", "traceback"), ("run", "code"), ("write", "changed")])
def test_a_reader_that_does_harm_is_found(
    harm: str, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hostile_work

    def harmful(rng: random.Random, place: hostile_work.Place) -> object:
        def read() -> None:
            if harm == "raise":
                raise ValueError("two\nlines")
            (place.marker if harm == "run" else place.given / "new").mkdir()

        return read

    monkeypatch.setitem(hostile_work.SURFACES, "harmful", (harmful, 1))
    assert hostile_work.run("harmful", 0, 0, str(tmp_path))["verdict"] == verdict

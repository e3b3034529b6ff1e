"""A lab for the tests of kernels and notebooks, with short kinds of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import short_jobs

from syno_lab.evaluate.jobs import Lab


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A lab's folder, for this process and its children; whatever runs for it is ended afterwards."""
    place = tmp_path / "lab"
    here = str(Path(short_jobs.__file__).parent)
    monkeypatch.setenv("SYNO_LAB_FOLDER", str(place))
    monkeypatch.setenv("SYNO_LAB_KINDS", short_jobs.VARIABLE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    yield place
    if place.exists():
        with Lab.open(place, start=False) as lab:
            lab.shutdown()

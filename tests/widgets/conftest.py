"""A lab for the tests of kernels and notebooks, with short kinds of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import short_jobs

from syno_lab.jobs import Lab


@contextmanager
def _folder(place: Path) -> Iterator[Path]:
    """A lab's folder, for this process and its children; whatever runs for it is ended afterwards."""
    path = os.pathsep.join(filter(None, [str(Path(short_jobs.__file__).parent), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNO_LAB_FOLDER", str(place))
        patch.setenv("SYNO_LAB_KINDS", short_jobs.VARIABLE)
        patch.setenv("PYTHONPATH", path)
        yield place
        if place.exists():
            with Lab.open(place, start=False) as lab:
                lab.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A lab's folder for one test; it is not there yet."""
    with _folder(tmp_path / "lab") as place:
        yield place


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that runs jobs, for all tests of a file."""
    with _folder(tmp_path_factory.mktemp("jobs") / "lab") as place, Lab.open(place) as opened:
        yield opened


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests read what a message has changed right after it: on a machine however busy, its work is waited for."""
    monkeypatch.setattr("syno_widgets.view.GRACE_S", 120.0)
    for name in ("stepper._FIRST_S", "explorer._FIRST_S", "explorer.GRACE_S"):
        monkeypatch.setattr(f"syno_widgets.{name}", 120.0)

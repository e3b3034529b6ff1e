"""Figure 10: the perplexity of a language model against its training steps (Syno, section 9.3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.paper.facts import LabLike, PaperFigure, Series, place_of, reading_of, results_of
from syno_lab.errors import FormatError
from syno_lab.jobs.context import job_folder
from syno_lab.jobs.records import JobRecord
from syno_lab.reports.published import published_points
from syno_lab.store.courses import CURVE_FILE, read_course
from syno_lab.store.records import finite

#: The default number of steps in an epoch of text (:data:`syno_lab.trial.run.STEPS`).
STEPS = 100


def figure_10(source: LabLike | None = None, *, names: tuple[str, ...] = ()) -> PaperFigure:
    """Perplexity against steps of the language model trainings in a lab; running ones up to their current step.

    Args:
        source: a lab, a store, the path of one, or the stored results of ``benchmarks/trials.py text`` or of the part
            ``text`` of ``reproduce.py`` (a ``.json`` file); None: only the paper's values.
        names: parts of the names of the trainings to show; empty: all.

    Raises:
        FormatError: the file has no trainings of text.
        StoreError: the store cannot be read.
    """
    curves = [] if source is None else _curves(source)
    series = [
        Series(f"here, {name}", points, is_line=True)
        for name, points in curves
        if not names or any(part in name for part in names)
    ]
    theirs = [
        Series(f"the paper, {one.label}", ((float(one.steps), one.perplexity),), True)
        for one in published_points("figure_10")
        if one.steps is not None and one.perplexity is not None
    ]
    lacking = "" if series else " No training of text was found here."
    note = (
        "The paper's two points are GPT-2 (117M parameters) on LM1B after 100,000 steps; perplexities of other "
        f"networks, texts and tokens cannot be compared with them.{lacking}"
    )
    title = "Perplexity against training steps"
    return PaperFigure("figure_10", title, "points", "steps", "perplexity", (*series, *theirs), note, is_log_x=True)


_Curve = tuple[tuple[float, float], ...]


def _curves(source: LabLike) -> list[tuple[str, _Curve]]:
    """Every training with a perplexity: its name, and (steps, perplexity)."""
    place = place_of(source)
    if place.suffix == ".json":
        return _of_file(place)
    reading = reading_of(source)
    found = [(job.name or f"job {job.id}", _of_job(job, reading.folder)) for job in reading.jobs if job.kind == "train"]
    return [(name, points) for name, points in found if points]


def _of_file(path: Path) -> list[tuple[str, _Curve]]:
    results = results_of(path)
    settings, trials = results.get("settings"), results.get("trials")
    found = []
    for trial in trials if isinstance(trials, list) else []:
        if isinstance(trial, Mapping) and isinstance(settings, Mapping):
            points = _points(trial.get("curve"), settings.get("options"))
            if points:
                found.append((f"{trial.get('name')}, seed {trial.get('seed')}", points))
    if not found:
        raise FormatError(f"{path}: expected results of benchmarks/trials.py with trainings of text, found none")
    return found


def _of_job(job: JobRecord, folder: Path) -> _Curve:
    rows = (job.result or {}).get("curve")
    if rows is None:
        rows = read_course(job_folder(folder, job.id) / CURVE_FILE)
    return _points(rows, job.params.get("options"))


def _points(rows: Any, options: Any) -> _Curve:
    steps = options.get("steps", STEPS) if isinstance(options, Mapping) else STEPS
    found = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            epoch, perplexity = finite(row.get("epoch")), finite(row.get("perplexity"))
            if epoch is not None and perplexity is not None:
                found.append((epoch * steps, perplexity))
    return tuple(found)

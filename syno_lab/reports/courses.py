"""The curves of trainings and tunings, running and ended ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from syno_lab.jobs.context import job_folder
from syno_lab.jobs.records import JobRecord
from syno_lab.reports.rows import Source
from syno_lab.store.courses import COURSE_FILE, CURVE_FILE, read_course
from syno_lab.store.records import finite
from syno_lab.store.rungs import BASELINE


class Course(NamedTuple):
    """One line of a figure.

    Attributes:
        job: the number of the job; 0 for a training in rungs, which is none.
        name: the job's name, for people.
        state: the job's state.
        kind: ``train`` (epochs and accuracy) or ``tune`` (trials and the best milliseconds so far).
        points: pairs of these two values, from the first on.
        losses: for a training, triples of epoch, training loss and test loss, in nats.
        rung: of a search in rungs; empty for a training with the full recipe. Accuracies of two rungs are not one
            measure.
    """

    job: int
    name: str
    state: str
    kind: str
    points: tuple[tuple[float, float], ...]
    losses: tuple[tuple[float, float, float], ...] = ()
    rung: str = ""


def rung_courses(sources: Iterable[Source], *, newest: int = 20) -> tuple[Course, ...]:
    """The curves of the newest trainings in rungs with more than one epoch; of each search and rung at most ``newest``.

    On the shorter rungs a training has one epoch, which is no curve.
    """
    found: list[Course] = []
    for source in sources:
        for rung in source.rungs:
            mine = [one for one in source.trainings if one.rung == rung]
            courses: list[Course] = []
            for one in sorted(mine, key=lambda one: one.ended, reverse=True):
                points, losses = _epochs(one.curve)
                if len(points) > 1 and len(courses) < newest:
                    who = "baseline" if one.number == BASELINE else f"trial {one.number}"
                    name = f"{source.name}: {who} on {rung}, seed {one.seed}"
                    courses.append(Course(0, name, one.state, "train", points, losses, rung))
            found += courses
    return tuple(found)


def read_courses(jobs: Iterable[JobRecord], folder: Path, *, newest: int = 20) -> tuple[Course, ...]:
    """The curves of the newest jobs that have one, running jobs first; of each kind at most ``newest``."""
    ordered = sorted(jobs, key=lambda job: (job.state != "running", -job.id))
    found: dict[str, list[Course]] = {"train": [], "tune": []}
    for job in ordered:
        if job.kind in found and len(found[job.kind]) < newest:
            found[job.kind] += _courses(job, folder)[: newest - len(found[job.kind])]
    return (*found["train"], *found["tune"])


def _courses(job: JobRecord, folder: Path) -> list[Course]:
    place, name = job_folder(folder, job.id), job.name or f"job {job.id}"
    if job.kind == "train":
        rows = (job.result or {}).get("curve") if job.result else read_course(place / CURVE_FILE)
        points, losses = _epochs(rows)
        return [Course(job.id, name, job.state, job.kind, points, losses)] if points else []
    if job.result:
        results = job.result.get("results")
        lines = [
            (str(one.get("label", "")), one.get("history"))
            for one in (results if isinstance(results, list) else [])
            if isinstance(one, dict)
        ]
    else:
        course = read_course(place / COURSE_FILE)
        lines = [(str(label), line) for label, line in course.items()] if isinstance(course, dict) else []
    return [
        Course(job.id, f"{name}: {label}" if len(lines) > 1 else name, job.state, job.kind, points)
        for label, line in lines
        if (points := _pairs(line))
    ]


def _epochs(rows: Any) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float, float], ...]]:
    points, losses = [], []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        values = [finite(row.get(name)) for name in ("epoch", "accuracy", "train_loss", "test_loss")]
        epoch, accuracy, train_loss, test_loss = values
        if epoch is not None and accuracy is not None:
            points.append((epoch, accuracy))
        if epoch is not None and train_loss is not None and test_loss is not None:
            losses.append((epoch, train_loss, test_loss))
    return tuple(points), tuple(losses)


def _pairs(line: Any) -> tuple[tuple[float, float], ...]:
    pairs = []
    for pair in line if isinstance(line, list) else []:
        if isinstance(pair, list) and len(pair) == 2:
            trial, best = finite(pair[0]), finite(pair[1])
            if trial is not None and best is not None:
                pairs.append((trial, best))
    return tuple(pairs)

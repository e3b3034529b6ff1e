"""The curves of trainings and tunings, running and ended ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from syno_lab.jobs.context import job_folder
from syno_lab.jobs.records import JobRecord
from syno_lab.reports.rows import Source
from syno_lab.reports.searched import Epoch, Outcome, told
from syno_lab.store.courses import COURSE_FILE, CURVE_FILE, read_course
from syno_lab.store.rungs import BASELINE, FINAL


class Course(NamedTuple):
    """One line of a figure, with the number, name and state of its job; 0 for a training in rungs, which is none.

    ``kind``: ``train`` (epochs and accuracy) or ``tune`` (trials and the best milliseconds so far); ``points`` are
    pairs of these two values, ``losses`` of a training triples of epoch, training loss and test loss, in nats.
    ``rung``: of a search in rungs, as accuracies of two rungs are not one measure; empty for the full recipe.
    """

    job: int
    name: str
    state: str
    kind: str
    points: tuple[tuple[float, float], ...]
    losses: tuple[tuple[float, float, float], ...] = ()
    rung: str = ""

    @property
    def chart(self) -> str:
        """The title of the figure that it belongs in: each rung has one of its own."""
        if self.kind != "train":
            return "Best latency of tunings"
        if self.rung == FINAL:
            return "Accuracy of trainings in the finals, test images"
        return f"Accuracy of trainings{f' on the rung {self.rung}, held-out images' if self.rung else ''}"


class _Tuning(msgspec.Struct, frozen=True):
    """One operator of a tuning: pairs of trial and best milliseconds so far."""

    label: str = ""
    history: tuple[tuple[float, float | None], ...] = ()


class _Tunings(msgspec.Struct, frozen=True):
    results: tuple[_Tuning, ...] = ()


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
        points, losses = _epochs(told(Outcome, job.result or {"curve": read_course(place / CURVE_FILE)}).curve)
        return [Course(job.id, name, job.state, job.kind, points, losses)] if points else []
    if job.result:
        lines = told(_Tunings, job.result).results
    else:
        course = read_course(place / COURSE_FILE)
        both = course.items() if isinstance(course, dict) else ()
        lines = tuple(told(_Tuning, {"label": label, "history": history}) for label, history in both)
    found = [(one.label, tuple((trial, ms) for trial, ms in one.history if ms is not None)) for one in lines]
    return [
        Course(job.id, f"{name}: {label}" if len(lines) > 1 else name, job.state, job.kind, points)
        for label, points in found
        if points
    ]


def _epochs(rows: Iterable[Epoch]) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float, float], ...]]:
    points, losses = [], []
    for row in rows:
        if row.epoch is not None and row.accuracy is not None:
            points.append((row.epoch, row.accuracy))
        if row.epoch is not None and row.train_loss is not None and row.test_loss is not None:
            losses.append((row.epoch, row.train_loss, row.test_loss))
    return tuple(points), tuple(losses)

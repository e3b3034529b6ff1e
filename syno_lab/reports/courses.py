"""The curves of running and ended trainings and tunings."""

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
    """A curve of a figure, with the number, name and state of its job. The job number is 0 for a training in rungs.

    ``kind`` is ``train`` (epoch and accuracy) or ``tune`` (trial and the best latency in ms so far). ``points`` are
    pairs of the two values for its ``kind``. ``losses`` are triples of epoch, training loss and test loss, in nats.
    ``rung`` is the training's rung in a search, or empty for the full recipe.
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
        """The title of the figure for this curve. The curves of each rung have their own figure."""
        if self.kind != "train":
            return "Best latency of tunings"
        if self.rung == FINAL:
            return "Accuracy of trainings in the finals, test images"
        return f"Accuracy of trainings{f' on the rung {self.rung}, held-out images' if self.rung else ''}"


class _Tuning(msgspec.Struct, frozen=True):
    """The curve of one operator of a tuning: pairs of a trial's number and the best latency in ms so far."""

    label: str = ""
    history: tuple[tuple[float, float | None], ...] = ()


class _Tunings(msgspec.Struct, frozen=True):
    results: tuple[_Tuning, ...] = ()


def rung_courses(sources: Iterable[Source], *, newest: int = 20) -> tuple[Course, ...]:
    """Return the curves of the newest trainings with more than one epoch, at most ``newest`` for each search and rung.

    On shorter rungs a training has only one epoch, and thus no curve.
    """
    all_courses: list[Course] = []
    for source in sources:
        for rung in source.rungs:
            trainings = [training for training in source.trainings if training.rung == rung]
            courses: list[Course] = []
            for training in sorted(trainings, key=lambda training: training.ended, reverse=True):
                points, losses = _epochs(training.curve)
                if len(points) > 1 and len(courses) < newest:
                    title = "baseline" if training.number == BASELINE else f"trial {training.number}"
                    name = f"{source.name}: {title} on {rung}, seed {training.seed}"
                    courses.append(Course(0, name, training.state, "train", points, losses, rung))
            all_courses += courses
    return tuple(all_courses)


def read_courses(jobs: Iterable[JobRecord], folder: Path, *, newest: int = 20) -> tuple[Course, ...]:
    """Return the curves of the newest jobs with a curve, running jobs first, at most ``newest`` for each kind."""
    ordered = sorted(jobs, key=lambda job: (job.state != "running", -job.id))
    by_kind: dict[str, list[Course]] = {"train": [], "tune": []}
    for job in ordered:
        if job.kind in by_kind and len(by_kind[job.kind]) < newest:
            by_kind[job.kind] += _courses(job, folder)[: newest - len(by_kind[job.kind])]
    return (*by_kind["train"], *by_kind["tune"])


def _courses(job: JobRecord, folder: Path) -> list[Course]:
    job_files, name = job_folder(folder, job.id), job.name or f"job {job.id}"
    if job.kind == "train":
        points, losses = _epochs(told(Outcome, job.result or {"curve": read_course(job_files / CURVE_FILE)}).curve)
        return [Course(job.id, name, job.state, job.kind, points, losses)] if points else []
    if job.result:
        lines = told(_Tunings, job.result).results
    else:
        course = read_course(job_files / COURSE_FILE)
        items = course.items() if isinstance(course, dict) else ()
        lines = tuple(told(_Tuning, {"label": label, "history": history}) for label, history in items)
    curves = [(line.label, tuple((trial, ms) for trial, ms in line.history if ms is not None)) for line in lines]
    return [
        Course(job.id, f"{name}: {label}" if len(lines) > 1 else name, job.state, job.kind, points)
        for label, points in curves
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

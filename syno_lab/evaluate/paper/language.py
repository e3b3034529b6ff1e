"""Figure 10: the perplexity of a language model against its training steps (Syno, section 9.3)."""

from __future__ import annotations

from syno_lab.evaluate.courses import CURVE_FILE, read_course
from syno_lab.evaluate.jobs.context import job_folder
from syno_lab.evaluate.jobs.records import JobRecord
from syno_lab.evaluate.paper.facts import LabLike, PaperFigure, Series, reading_of
from syno_lab.evaluate.reading.lab import Reading
from syno_lab.evaluate.reading.published import published_points
from syno_lab.evaluate.store.records import finite

#: Steps of an epoch of text where a training does not say (:data:`syno_lab.evaluate.trial.run.STEPS`).
STEPS = 100


def figure_10(source: LabLike | None = None, *, names: tuple[str, ...] = ()) -> PaperFigure:
    """Perplexity against steps of the trainings of text in a lab, those under way as far as they are.

    Args:
        source: a lab, a store, or where it is; None: the paper's alone.
        names: parts of the names of trainings to show; none: all.

    Raises:
        StoreError: the store cannot be read.
    """
    reading = None if source is None else reading_of(source)
    series = []
    for job in () if reading is None else reading.jobs:
        if job.kind == "train" and (not names or any(name in job.name for name in names)):
            points = _curve(job, reading)
            if points:
                series.append(Series(f"here, {job.name or f'job {job.id}'}", points, is_line=True))
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


def _curve(job: JobRecord, reading: Reading | None) -> tuple[tuple[float, float], ...]:
    rows = (job.result or {}).get("curve")
    if rows is None and reading is not None:
        rows = read_course(job_folder(reading.folder, job.id) / CURVE_FILE)
    options = job.params.get("options")
    steps = options.get("steps", STEPS) if isinstance(options, dict) else STEPS
    found = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            epoch, perplexity = finite(row.get("epoch")), finite(row.get("perplexity"))
            if epoch is not None and perplexity is not None:
                found.append((epoch * steps, perplexity))
    return tuple(found)

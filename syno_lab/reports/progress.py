"""The plan, the funnel and the finals of a search in rungs, as tables and sentences, and the funnel as a picture.

The data come from the search's files (its status while it runs, its result at the end), or from a stored result. An
untrained search has only a funnel, without rungs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite, log10
from pathlib import Path
from typing import NamedTuple

import msgspec

from syno_lab.drawing.svg import picture, safe, text
from syno_lab.inputs import count_of, printable
from syno_lab.reports.pictures import LOOKS
from syno_lab.reports.searched import RESULT, STATUS, Funnel, Plan, PlanPart, Point, read_said, searched
from syno_lab.reports.text_tables import Cell, Table
from syno_lab.store.latencies import Times
from syno_lab.store.outcomes import Comparison
from syno_lab.store.pareto import pareto_front
from syno_lab.store.rungs import CONFIRM, FINAL, RIVALS, TIMES
from syno_lab.store.verdicts import sentence, slower
from syno_lab.versioned import JSON

FINALS, MORE_SEEDS = "finals", "more seeds"
#: The stages before any training, with their meaning for people.
DRAWS = {
    "drawn": "reached the input",
    "wished": "meet the wish",
    "affordable": "within the budgets, and no repeats",
    "probed": "have a score of the probe",
}
#: The parts of a plan that train no new operators.
_OTHERS = {
    "baseline": "the network as it is, on the seeds of the finals",
    "draws": "drawing and probing operators",
    MORE_SEEDS: "the best of the last rung again",
    RIVALS: "separable, grouped and narrowed, once each",
    TIMES: "the networks of the finals, in turns",
}
_LONGEST, _LONGEST_SENTENCE = 60, 300
_MOST_TIED = 3  # the most names of equal operators in one row


class Stage(NamedTuple):
    """A stage of the funnel: its name is in :data:`DRAWS`, the name of a rung, or ``finals``.

    ``number`` counts the operators that reached the stage (on a rung: that finished all trainings). ``failed`` counts
    operators with a training that failed, ``waiting`` operators with a training that has not ended. ``seconds`` are
    worker seconds; None for a stage of draws whose time is in a later stage.
    """

    name: str
    number: int
    failed: int = 0
    waiting: int = 0
    seconds: float | None = None

    @property
    def is_trained(self) -> bool:
        """Whether the stage is a rung or the finals."""
        return self.name not in DRAWS


class Progress(NamedTuple):
    """The progress of a search: its ``phase`` is ``timing``, ``baseline``, a rung, ``confirm``, ``final`` or ``done``.

    ``search_s`` are wall seconds so far, ``minutes`` the plan's minutes (None without a plan), ``workers`` the number
    of trainings at a time. ``plan`` has the parts of the plan in order; it is empty until the baseline was timed, and
    for an untrained search. ``stages`` is the funnel from draws to finals. ``verdict`` is empty before the end.
    ``evidence`` is a sentence on the baseline's first trainings; empty before their end.
    """

    name: str
    phase: str
    search_s: float
    minutes: float | None
    workers: int
    plan: tuple[PlanPart, ...]
    stages: tuple[Stage, ...]
    verdict: str
    evidence: str = ""


def read_progress(lab: Path, search: str) -> Progress | None:
    """Return the progress of a search in the lab's folder; None where there is no search with a funnel."""
    status = read_said(lab, search, STATUS)
    return None if status is None else progress_of(status, search)


def read_result(lab: Path, search: str) -> dict[str, JSON] | None:
    """Return the result of a search in the lab's folder; None before its end."""
    return read_said(lab, search, RESULT)


def progress_of(found: Mapping[str, JSON], name: str) -> Progress | None:
    """Return the progress that a status or a result states, or None if it states no funnel."""
    content = searched(found)
    plan = content.plan or Plan()
    if content.funnel is None:
        return None
    parts = tuple(msgspec.structs.replace(part, name=title(part.name)) for part in plan.parts)
    return Progress(
        printable(name, _LONGEST),
        _name(content.phase or "done"),
        content.search_s or content.time.wall_s,
        plan.minutes,
        max(1, plan.workers),
        parts,
        _stages(content.funnel, parts),
        _sentence(content.verdict),
        "" if content.evidence is None else str(content.evidence),
    )


def _stages(funnel: Funnel, plan: Sequence[PlanPart]) -> tuple[Stage, ...]:
    stages = [Stage(name, int(funnel.draws[name])) for name in DRAWS if name in funnel.draws]
    if stages:
        stages[-1] = stages[-1]._replace(seconds=funnel.draws.get("seconds", 0.0))
    order = [part.name for part in plan]  # a stored mapping has lost the order of its keys
    for name in sorted(funnel.rungs, key=lambda name: order.index(title(name)) if title(name) in order else len(order)):
        counts = funnel.rungs[name]
        waiting = max(0, counts.begun - counts.trained - counts.failed)
        stages.append(Stage(title(name), counts.trained, counts.failed, waiting, counts.seconds))
    return tuple(stages)


def title(rung: str) -> str:
    """Return a rung's name for people."""
    return {FINAL: FINALS, CONFIRM: MORE_SEEDS}.get(rung) or _name(rung)


def _name(text: str) -> str:
    return printable(text, _LONGEST)


def _sentence(text: str) -> str:
    return printable(text, _LONGEST_SENTENCE)


def plan_table(plan: Progress) -> Table:
    """Return the plan: each part's number of trainings, seconds of one and of all, and minutes with busy workers."""
    rows: list[list[Cell]] = [
        [
            f"{part.name}: {_OTHERS[part.name]}" if part.name in _OTHERS else part.name,
            part.trainings or None,
            round(part.each_s, 1) if part.trainings else None,
            round(part.seconds),
            round(part.seconds / plan.workers / 60, 1),
        ]
        for part in plan.plan
    ]
    trainings, seconds = sum(part.trainings for part in plan.plan), sum(part.seconds for part in plan.plan)
    rows.append(["in all", trainings, None, round(seconds), round(seconds / plan.workers / 60, 1)])
    workers = count_of(plan.workers, "worker")
    minutes = "" if plan.minutes is None else f"{plan.minutes:.3g} minutes, "
    heads = ("part", "trainings", "seconds each", "seconds in all", "minutes")
    evidence = f"; {plan.evidence}" if plan.evidence else ""
    return Table(f"The plan: {minutes}{workers}{evidence}", heads, rows)


def funnel_table(progress: Progress) -> Table:
    """Return the funnel: for each stage, how many operators reached it, failed or wait, and worker seconds."""
    rows = [
        [
            f"{stage.name}: {DRAWS[stage.name]}" if stage.name in DRAWS else stage.name,
            stage.number,
            stage.failed if stage.is_trained else None,
            stage.waiting if stage.is_trained else None,
            None if stage.seconds is None else round(stage.seconds),
        ]
        for stage in progress.stages
    ]
    return Table("The funnel", ("stage", "operators", "failed", "under way", "seconds of workers"), rows)


def describe_funnel(progress: Progress) -> str:
    """Describe the funnel in one sentence, for readers who cannot see it."""
    drawn = [f"{stage.number:,} {stage.name}" for stage in progress.stages if not stage.is_trained]
    trained = [
        f"{stage.number:,} {'in the' if stage.name == FINALS else 'trained on'} {stage.name}"
        + (f" ({stage.failed} failed)" if stage.failed else "")
        + (f" ({stage.waiting} under way)" if stage.waiting else "")
        for stage in progress.stages
        if stage.is_trained
    ]
    return f"Funnel of {progress.name}: {', '.join([*drawn, *trained]) or 'nothing yet'}."


def headline(progress: Progress) -> str:
    """Describe the search's progress in one line."""
    minutes = f"{progress.search_s / 60:.1f} minutes"
    if progress.phase == "done":
        return f"{progress.name}: done after {minutes}{f': {progress.verdict}' if progress.verdict else ''}."
    planned = "" if progress.minutes is None else f" of {progress.minutes:.3g}"
    return f"{progress.name}: {title(progress.phase)}, {progress.search_s / 60:.1f}{planned} minutes."


def front_points(points: Sequence[Point], finalists: Collection[int | None], *, is_whole: bool) -> list[list[Point]]:
    """Return the points that no point beats in accuracy and FLOPs, and the finalists, the cheapest first.

    Points that show equal numbers form one group; finalists stay single. ``is_whole``: all points.
    """
    ordered = sorted(points, key=lambda point: point.ratio)
    values = [{"accuracy": point.accuracy, "ratio": point.ratio} for point in ordered]
    kept = set(pareto_front(values, maximise=["accuracy"], minimise=["ratio"]))
    groups: dict[tuple[Cell, ...], list[Point]] = {}
    for place, point in enumerate(ordered):
        is_final = point.number in finalists
        if is_whole or is_final or place in kept:
            seen = (_three(point.ratio), point.params, _three(point.accuracy))
            groups.setdefault((point.number,) if is_final else seen, []).append(point)
    return list(groups.values())


def finals_table(result: Mapping[str, JSON], *, is_whole: bool = False) -> Table:
    """Return the front of a result: the baseline first, then the groups of :func:`front_points`.

    Accuracies of the rung (held-out images) and of the finals (test images) are two columns.
    """
    content, progress = searched(result), progress_of(result, "")
    rungs = [stage.name for stage in progress.stages if stage.is_trained] if progress else []
    last = next((name for name in reversed(rungs) if name not in (FINALS, MORE_SEEDS)), "the last rung")
    heads: tuple[str, ...] = (
        *("operator", "of the replaced FLOPs", "parameters", f"accuracy on {last}, held out", "accuracy of the finals"),
        "verdict",
    )
    base = content.baseline
    heads += ("ms of a forward pass, one example / a batch", "ms of a training step, one example / a batch")
    rows: list[list[Cell]] = [["baseline", "1.000", base.params or 0, None, _three(base.accuracy), None]]
    rows[0] += _timed(base.times or {}, {})
    is_joint = "," in content.settings.system
    groups = front_points(content.front, content.finals, is_whole=is_whole)
    for group in groups:
        point, names = group[0], [_point_name(point, is_joint) for point in group]
        name = ", ".join(names[:_MOST_TIED]) + (f" and {len(names) - _MOST_TIED} more" if names[_MOST_TIED:] else "")
        final = content.finals.get(point.number or 0)
        rows.append([name, _three(point.replaced_ratio), point.params, _three(point.accuracy), *_final(final)])
    for title_, one in content.rivals.items():
        name = f"rival: {_name(title_)}, {one.flops_ratio:.3f} of the network's FLOPs, one seed"
        rows.append([name, None, one.operators[0].params if one.operators else None, None, *_final(one)])
    if not base.times:
        heads, rows = heads[:-2], [row[:-2] for row in rows]
    excluded = "".join(
        f"; {_name(name)} is not compared: {printable(why, 200)}" for name, why in content.not_compared.items()
    )
    if hidden := len(content.front) - sum(map(len, groups)):
        excluded += f"; {hidden:,} dominated trials are left out (shown with --all)"
    return Table(f"The front; the finals decide, on the test images{excluded}", heads, rows)


def _point_name(point: Point, is_joint: bool) -> str:
    more = point.known or (point.system if is_joint else "")  # the name of a known operator contains its system
    return f"trial {point.number or 0}" + (f" ({_name(more)})" if more else "")


def _final(one: Comparison | None) -> list[Cell]:
    """Return the cells of a comparison: accuracy, verdict and times."""
    if one is None:
        return [None] * 4
    return [_three(one.operator), _sentence(sentence(one)), *_timed(one.times, one.baseline_times)]


def _timed(times: Times, base: Times) -> list[Cell]:
    """Return the cells of the times of a forward pass and of a training step; slower times are marked."""
    pairs = [[name for name in (kind, f"{kind}-batch") if name in times] for kind in ("forward", "step")]
    marks = [" (slower)" if slower(times, base, *pair) else "" for pair in pairs]
    return [" / ".join(f"{times[name]:.3g}" for name in pair) + mark for pair, mark in zip(pairs, marks, strict=True)]


def _three(number: float | None) -> str | None:
    return None if number is None or not isfinite(number) else f"{number:.3f}"


_WIDTH, _LINE, _LEFT, _RIGHT, _TOP = 640, 26, 110, 190, 26


def funnel_picture(progress: Progress) -> str:
    """Draw the funnel as SVG text: for each stage a bar, whose length is the logarithm of the number of operators.

    The picture is readable on light and dark backgrounds. The picture's label is :func:`describe_funnel`.
    """
    most = max((stage.number for stage in progress.stages), default=0)
    room = _WIDTH - _LEFT - _RIGHT
    parts = [text(0, 14, "operators by stage (bars: logarithm)", 12)]
    for index, stage in enumerate(progress.stages):
        top = _TOP + index * _LINE
        length = room * log10(1 + stage.number) / log10(1 + max(most, 1))
        colour = LOOKS["on the front" if stage.is_trained else "trials"][0]
        parts.append(text(_LEFT - 8, top + 15, stage.name, 12, "end"))
        parts.append(
            f'<rect x="{_LEFT}" y="{top}" width="{max(length, 1):.1f}" height="{_LINE - 6}" fill="{colour}">'
            f"<title>{safe(stage.name)}</title></rect>"
        )
        parts.append(text(_LEFT + length + 6, top + 15, _words(stage), 12))
    height = _TOP + len(progress.stages) * _LINE
    return picture(_WIDTH, height, describe_funnel(progress), parts)


def _words(stage: Stage) -> str:
    """Return the text beside a bar."""
    parts = [f"{stage.number:,}"]
    parts += [f"{stage.failed} failed"] if stage.failed else []
    parts += [f"{stage.waiting} under way"] if stage.waiting else []
    parts += [f"{stage.seconds:,.0f} s"] if stage.seconds else []
    return ", ".join(parts)

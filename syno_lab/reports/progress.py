"""The plan, the funnel and the finals of a search in rungs: as tables, in words, and the funnel as a picture.

They are read from the files that the search writes (its status while it runs, its result at the end), or from a stored
result. An untrained search has a funnel alone, without rungs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log10
from pathlib import Path
from typing import NamedTuple

import msgspec

from syno_lab.drawing.svg import picture, safe, text
from syno_lab.inputs import count_of, printable
from syno_lab.reports.pictures import LOOKS
from syno_lab.reports.searched import RESULT, STATUS, Funnel, Plan, PlanPart, read_said, searched
from syno_lab.reports.text_tables import Cell, Table
from syno_lab.store.outcomes import Comparison
from syno_lab.store.rungs import CONFIRM, FINAL
from syno_lab.versioned import JSON

FINALS, MORE_SEEDS = "finals", "more seeds"
#: What comes before any training, with its meaning for people.
DRAWS = {
    "drawn": "reached the input",
    "wished": "meet the wish",
    "affordable": "within the budgets, and no repeats",
    "probed": "have a score of the probe",
}
#: Parts of a plan that train no operator that was found.
_OTHERS = {
    "baseline": "the network as it is, on the seeds of the finals",
    "draws": "drawing and probing operators",
    MORE_SEEDS: "the best of the last rung again",
}
_LONGEST = 60


class Stage(NamedTuple):
    """A stage of the funnel: a name of :data:`DRAWS`, that of a rung, or ``finals``.

    ``number`` counts the operators that came so far (on a rung with all their trainings), ``failed`` those whose
    training did not finish, ``waiting`` those whose trainings have not ended; ``seconds`` are worker seconds, None for
    draws that are timed with a later stage.
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
    """How far a search is: its ``phase`` is ``timing``, ``draws``, a rung's name, ``final`` or ``done``.

    ``search_s`` are wall seconds so far, ``minutes`` those of the plan (None without one), ``workers`` trainings at a
    time. ``plan`` has its parts in order (empty before the baseline is timed, and for an untrained search), ``stages``
    the funnel, from what was drawn to the finals; ``verdict`` is what the search found, empty before its end.
    """

    name: str
    phase: str
    search_s: float
    minutes: float | None
    workers: int
    plan: tuple[PlanPart, ...]
    stages: tuple[Stage, ...]
    verdict: str


def read_progress(lab: Path, search: str) -> Progress | None:
    """The progress of a search in the lab's folder; None where it is none with a funnel, or has not begun."""
    found = read_said(lab, search, STATUS)
    return None if found is None else progress_of(found, search)


def read_result(lab: Path, search: str) -> dict[str, JSON] | None:
    """The result of a search in the lab's folder; None before its end."""
    return read_said(lab, search, RESULT)


def progress_of(found: Mapping[str, JSON], name: str) -> Progress | None:
    """The progress that a status or a result tells; None without a funnel."""
    said = searched(found)
    plan = said.plan or Plan()
    if said.funnel is None:
        return None
    parts = tuple(msgspec.structs.replace(part, name=title(part.name)) for part in plan.parts)
    return Progress(
        printable(name, _LONGEST),
        _name(said.phase or "done"),
        said.search_s or said.time.wall_s,
        plan.minutes,
        max(1, plan.workers),
        parts,
        _stages(said.funnel, parts),
        _name(said.verdict),
    )


def _stages(funnel: Funnel, plan: Sequence[PlanPart]) -> tuple[Stage, ...]:
    stages = [Stage(name, int(funnel.draws[name])) for name in DRAWS if name in funnel.draws]
    if stages:
        stages[-1] = stages[-1]._replace(seconds=funnel.draws.get("seconds", 0.0))
    order = [part.name for part in plan]  # a mapping that was in the store has lost its order
    for name in sorted(funnel.rungs, key=lambda name: order.index(title(name)) if title(name) in order else len(order)):
        one = funnel.rungs[name]
        waiting = max(0, one.begun - one.trained - one.failed)
        stages.append(Stage(title(name), one.trained, one.failed, waiting, one.seconds))
    return tuple(stages)


def title(rung: str) -> str:
    """A rung's name for people."""
    return {FINAL: FINALS, CONFIRM: MORE_SEEDS}.get(rung) or _name(rung)


def _name(text: str) -> str:
    return printable(text, _LONGEST)


def plan_table(plan: Progress) -> Table:
    """The plan: for each part its trainings, worker seconds each and in all, and minutes with all workers busy."""
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
    return Table(f"The plan: {minutes}{workers}", heads, rows)


def funnel_table(progress: Progress) -> Table:
    """The funnel: for each stage the operators that came so far, those that failed or wait, and worker seconds."""
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
    """The funnel in one sentence, for readers who cannot see it."""
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
    """Where the search is, in one line."""
    minutes = f"{progress.search_s / 60:.1f} minutes"
    if progress.phase == "done":
        return f"{progress.name}: done after {minutes}{f': {progress.verdict}' if progress.verdict else ''}."
    planned = "" if progress.minutes is None else f" of {progress.minutes:.3g}"
    return f"{progress.name}: {title(progress.phase)}, {progress.search_s / 60:.1f}{planned} minutes."


def finals_table(result: Mapping[str, JSON]) -> Table:
    """The front of a result: the baseline, and every operator that was trained on the last rung, the cheapest first.

    Accuracies of the rung (held-out images) and of the finals (test images) are two columns. An interval is that of
    the difference from the baseline, over seeds and images where there are several seeds.
    """
    said, progress = searched(result), progress_of(result, "")
    rungs = [stage.name for stage in progress.stages if stage.is_trained] if progress else []
    last = next((name for name in reversed(rungs) if name not in (FINALS, MORE_SEEDS)), "the last rung")
    heads = (
        *("operator", "of the replaced FLOPs", "parameters", f"accuracy on {last}, held out", "accuracy of the finals"),
        *("against the baseline", "interval", "seeds", "verdict"),
    )
    base = said.baseline
    seeds = None if base.accuracies is None else len(base.accuracies)
    rows: list[list[Cell]] = [
        ["baseline", "1.000", base.params or 0, None, _three(base.accuracy), None, None, seeds, None]
    ]
    is_joint = "," in said.settings.system
    for one in sorted(said.front, key=lambda one: one.replaced_ratio or 0.0):
        name = f"trial {one.number or 0}" + (f" ({_name(one.known)})" if one.known else "")
        if is_joint and not one.known:  # a known one has its system in its name
            name += f" ({_name(one.system)})"
        final = said.finals.get(one.number or 0)
        rows.append([name, _three(one.replaced_ratio), one.params, _three(one.accuracy), *_final_cells(final)])
    untold = "".join(
        f"; {_name(name)} is not compared: {printable(why, 200)}" for name, why in said.not_compared.items()
    )
    return Table(f"The front; the finals decide, on the test images{untold}", heads, rows)


def _final_cells(one: Comparison | None) -> list[Cell]:
    """Accuracy, difference from the baseline, interval, seeds and verdict of a comparison; empty without one."""
    return [None] * 5 if one is None else [_three(one.operator), *one.texts, len(one.seeds), _name(one.verdict)]


def _three(number: float | None) -> str | None:
    return None if number is None or not isfinite(number) else f"{number:.3f}"


_WIDTH, _LINE, _LEFT, _RIGHT, _TOP = 640, 26, 110, 190, 26


def funnel_picture(progress: Progress) -> str:
    """The funnel as SVG text: a bar for each stage, as long as the logarithm of its operators.

    Its colours are readable on a light and on a dark ground; its label is :func:`describe_funnel`.
    """
    most = max((stage.number for stage in progress.stages), default=0)
    room = _WIDTH - _LEFT - _RIGHT
    parts = [text(0, 14, "operators by stage (bars: logarithm)", 12)]
    for place, stage in enumerate(progress.stages):
        top = _TOP + place * _LINE
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
    """What stands behind a bar."""
    parts = [f"{stage.number:,}"]
    parts += [f"{stage.failed} failed"] if stage.failed else []
    parts += [f"{stage.waiting} under way"] if stage.waiting else []
    parts += [f"{stage.seconds:,.0f} s"] if stage.seconds else []
    return ", ".join(parts)

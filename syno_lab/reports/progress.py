"""The plan, the funnel and the finals of a search in rungs: as tables, in words, and the funnel as a picture.

They are read from the files that the search writes (its status while it runs, its result at the end), or from a stored
result. An untrained search has a funnel alone, without rungs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path
from typing import Any, NamedTuple

from syno_lab.inputs import count_of, is_plain_name, printable
from syno_lab.reports.pictures import GREY, LOOKS
from syno_lab.reports.rungs import compared
from syno_lab.reports.text_tables import Table
from syno_lab.store.courses import read_course
from syno_lab.store.records import finite
from syno_lab.store.rungs import CONFIRM, FINAL

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


class PlanPart(NamedTuple):
    """A part of the plan: ``trainings`` of ``each_s`` worker seconds each (0 for drawing), ``seconds`` in all."""

    name: str
    trainings: int
    each_s: float
    seconds: float


class Stage(NamedTuple):
    """A stage of the funnel.

    Attributes:
        name: of :data:`DRAWS`, of a rung, or ``finals``.
        number: of operators that came so far: with all their trainings on a rung.
        failed: those whose training did not finish; ``waiting``: those whose trainings have not ended.
        seconds: worker seconds; None for draws that are timed with a later stage.
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
    """How far a search is.

    Attributes:
        name: of the search.
        phase: the part that it is doing: ``timing``, ``draws``, a rung's name, ``final``, ``done``.
        search_s: wall seconds so far.
        minutes: those of the plan; None without a plan.
        workers: trainings at a time.
        plan: its parts in order; empty before the baseline is timed, and for an untrained search.
        stages: the funnel, from what was drawn to the finals.
        verdict: what the search found; empty before its end.
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
    if not is_plain_name(search):
        return None
    found = read_course(lab / "searches" / search / "status.json")
    return progress_of(found, search) if isinstance(found, dict) else None


def read_result(lab: Path, search: str) -> dict[str, Any] | None:
    """The result of a search in the lab's folder; None before its end."""
    if not is_plain_name(search):
        return None
    found = read_course(lab / "searches" / search / "result.json")
    return found if isinstance(found, dict) else None


def progress_of(found: Mapping[str, Any], name: str) -> Progress | None:
    """The progress that a status or a result tells; None without a funnel."""
    funnel = found.get("funnel")
    if not isinstance(funnel, dict):
        return None
    plan, taken = (_mapping(found, key) for key in ("plan", "time"))
    given = plan.get("parts")
    parts = tuple(_part(one) for one in (given if isinstance(given, list) else []) if isinstance(one, dict))
    return Progress(
        printable(name, _LONGEST),
        _name(found.get("phase") or "done"),
        finite(found.get("search_s")) or finite(taken.get("wall_s")) or 0.0,
        finite(plan.get("minutes")),
        max(1, _whole(plan.get("workers"))),
        parts,
        _stages(funnel, parts),
        _name(found.get("verdict") or ""),
    )


def _part(one: Mapping[str, Any]) -> PlanPart:
    return PlanPart(
        title(str(one.get("name"))), _whole(one.get("trainings")), _seconds(one, "each_s"), _seconds(one, "seconds")
    )


def _stages(funnel: Mapping[str, Any], plan: Sequence[PlanPart]) -> tuple[Stage, ...]:
    draws, rungs = (_mapping(funnel, key) for key in ("draws", "rungs"))
    has_drawn = [name for name in DRAWS if finite(draws.get(name)) is not None]
    stages = [Stage(name, _whole(draws[name])) for name in has_drawn]
    if stages:
        stages[-1] = stages[-1]._replace(seconds=_seconds(draws, "seconds"))
    order = [part.name for part in plan]  # a mapping that was in the store has lost its order
    names = sorted(rungs, key=lambda name: order.index(title(name)) if title(name) in order else len(order))
    for name in names:
        one = _mapping(rungs, name)
        begun, trained, failed = (_whole(one.get(key)) for key in ("begun", "trained", "failed"))
        stages.append(Stage(title(name), trained, failed, max(0, begun - trained - failed), _seconds(one, "seconds")))
    return tuple(stages)


def title(rung: str) -> str:
    """A rung's name for people."""
    return {FINAL: FINALS, CONFIRM: MORE_SEEDS}.get(rung) or _name(rung)


def _mapping(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def _name(value: object) -> str:
    return printable(str(value), _LONGEST)


def _whole(value: object) -> int:
    return max(0, int(finite(value) or 0))


def _seconds(found: Mapping[str, Any], key: str) -> float:
    return max(0.0, finite(found.get(key)) or 0.0)


# -- as tables and in words --------------------------------------------------------------------------------------------


def plan_table(plan: Progress) -> Table:
    """The plan: for each part its trainings, worker seconds each and in all, and minutes with all workers busy."""
    rows: list[list[str | int | float | None]] = [
        [
            f"{part.name}: {_OTHERS[part.name]}" if part.name in _OTHERS else part.name,
            part.trainings or None,
            round(part.each_s, 1) if part.trainings else None,
            round(part.seconds),
            round(part.seconds / plan.workers / 60, 1),
        ]
        for part in plan.plan
    ]
    rows.append(
        [
            "in all",
            sum(part.trainings for part in plan.plan),
            None,
            round(sum(part.seconds for part in plan.plan)),
            round(sum(part.seconds for part in plan.plan) / plan.workers / 60, 1),
        ]
    )
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


def finals_table(result: Mapping[str, Any]) -> Table:
    """The front of a result: the baseline, and every operator that was trained on the last rung, the cheapest first.

    Accuracies of the rung (held-out images) and of the finals (test images) are two columns. An interval is that of
    the difference from the baseline, over seeds and images where there are several seeds.
    """
    last = _last_rung(result)
    heads = (
        *("operator", "of the replaced FLOPs", "parameters", f"accuracy on {last}, held out", "accuracy of the finals"),
        *("against the baseline", "interval", "seeds", "verdict"),
    )
    baseline = _mapping(result, "baseline")
    accuracies = baseline.get("accuracies")
    seeds = len(accuracies) if isinstance(accuracies, list) else None
    params = _whole(baseline.get("params"))
    rows: list[list[str | int | float | None]] = [
        ["baseline", "1.000", params, None, _three(baseline.get("accuracy")), None, None, seeds, None]
    ]
    finals = compared(result)
    front = result.get("front")
    points = [one for one in (front if isinstance(front, list) else []) if isinstance(one, dict)]
    is_joint = "," in str(_mapping(result, "settings").get("system"))
    for one in sorted(points, key=lambda one: finite(one.get("replaced_ratio")) or 0.0):
        known = one.get("known")
        name = f"trial {_whole(one.get('number'))}" + (f" ({_name(known)})" if known else "")
        if is_joint and not known:  # a known one has its system in its name
            name += f" ({_name(one.get('system'))})"
        row = [name, _three(one.get("replaced_ratio")), _whole(one.get("params")), _three(one.get("accuracy"))]
        rows.append([*row, *_final_cells(finals.get(_whole(one.get("number"))))])
    return Table(f"The front; the finals decide, on the test images{_untold(result)}", heads, rows)


def _final_cells(one: Mapping[str, Any] | None) -> list[str | int | float | None]:
    """Accuracy, points against the baseline, interval, seeds and verdict of a comparison; empty without one."""
    if one is None:
        return [None] * 5
    wide = one.get("over_seeds") or one.get("interval")
    ends = [finite(wide.get(key)) for key in ("difference", "low", "high")] if isinstance(wide, dict) else []
    if len(ends) < 3 or None in ends:
        by = interval = None
    else:
        difference, low, high = (end for end in ends if end is not None)
        if one.get("measure", "accuracy") == "accuracy":
            by, interval = f"{100 * difference:+.1f} points", f"{100 * low:+.1f} to {100 * high:+.1f}"
        else:  # a loss: less is better
            by, interval = f"{difference:+.3f} nats", f"{low:+.3f} to {high:+.3f}"
    seeds = one.get("seeds")
    return [
        _three(one.get("operator")),
        by,
        interval,
        len(seeds) if isinstance(seeds, list) else None,
        _name(one.get("verdict") or ""),
    ]


def _last_rung(result: Mapping[str, Any]) -> str:
    progress = progress_of(result, "")
    rungs = [stage.name for stage in progress.stages if stage.is_trained] if progress else []
    return next((name for name in reversed(rungs) if name not in (FINALS, MORE_SEEDS)), "the last rung")


def _untold(result: Mapping[str, Any]) -> str:
    """The reasons why finals could not be compared."""
    given = _mapping(result, "not_compared")
    return "".join(f"; {_name(name)} is not compared: {printable(str(why), 200)}" for name, why in given.items())


def _three(value: object) -> str | None:
    number = finite(value)
    return None if number is None else f"{number:.3f}"


# -- as a picture ------------------------------------------------------------------------------------------------------

_WIDTH, _LINE, _LEFT, _RIGHT, _TOP = 640, 26, 110, 190, 26


def funnel_picture(progress: Progress) -> str:
    """The funnel as SVG text: a bar for each stage, as long as the logarithm of its operators.

    Its colours are readable on a light and on a dark ground; its label is :func:`describe_funnel`.
    """
    most = max((stage.number for stage in progress.stages), default=0)
    room = _WIDTH - _LEFT - _RIGHT
    parts = [_text(0, 14, "operators by stage (bars: logarithm)", "start")]
    for place, stage in enumerate(progress.stages):
        top = _TOP + place * _LINE
        length = room * log10(1 + stage.number) / log10(1 + max(most, 1))
        colour = LOOKS["on the front" if stage.is_trained else "trials"][0]
        parts.append(_text(_LEFT - 8, top + 15, stage.name, "end"))
        parts.append(
            f'<rect x="{_LEFT}" y="{top}" width="{max(length, 1):.1f}" height="{_LINE - 6}" fill="{colour}">'
            f"<title>{_safe(stage.name)}</title></rect>"
        )
        parts.append(_text(_LEFT + length + 6, top + 15, _words(stage), "start"))
    height = _TOP + len(progress.stages) * _LINE
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    words = _safe(describe_funnel(progress))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{words}" font-family="sans-serif">'
    return f"{head}{''.join(parts)}</svg>"


def _words(stage: Stage) -> str:
    """What stands behind a bar."""
    parts = [f"{stage.number:,}"]
    parts += [f"{stage.failed} failed"] if stage.failed else []
    parts += [f"{stage.waiting} under way"] if stage.waiting else []
    parts += [f"{stage.seconds:,.0f} s"] if stage.seconds else []
    return ", ".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    look = f'font-size="12" text-anchor="{anchor}" fill="{GREY}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)

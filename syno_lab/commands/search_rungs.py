"""The printed output of a search in rungs and of an untrained search: plan, funnel and front."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.commands.output import Reporter, say, say_table, table, tell
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.reports.text_tables import Table


class PlanTeller:
    """Print the plan of a search on standard error, once, as soon as the search has made it.

    The plan is in the search's status, so this works for a job and for a search in this process.
    """

    def __init__(self, folder: Path, name: str, minutes: float | None, report: Reporter) -> None:
        self._folder, self._name, self._minutes, self._report = folder, name, minutes, report
        self._has_plan = self._is_told = False

    def look(self) -> None:
        """Print the plan if it is for this search's minutes, not for an earlier search's; print the evidence later."""
        if self._is_told:
            return
        from syno_lab.reports.progress import plan_table, read_progress

        progress = read_progress(self._folder, self._name)
        if progress is None or not progress.plan or progress.minutes is None or self._minutes is None:
            return
        if abs(progress.minutes - self._minutes) > 0.01 * self._minutes:
            return
        if not self._has_plan:
            self._has_plan = True
            plan = plan_table(progress)
            self._report.show(plan.title, table(plan.records()))
        elif progress.evidence:
            tell(progress.evidence)
        self._is_told = bool(progress.evidence)


def say_rungs(plain: Mapping[str, JSON], *, is_whole: bool = False) -> None:
    """Print the funnel, the shares of the time, and the front; ``is_whole`` prints all trials of the last rung."""
    from syno_lab.reports.progress import finals_table, funnel_table, progress_of
    from syno_lab.reports.searched import searched

    result = searched(plain)
    progress = progress_of(plain, result.settings.name)
    assert progress is not None
    _say(funnel_table(progress))
    shares = dict(result.time.shares)
    rest = shares.pop("rest")
    names = {part.name: None for part in progress.plan} | dict.fromkeys(shares)
    parts = [f"{'finals' if name == 'final' else name} {shares[name]:.1%}" for name in names if name in shares]
    parts.append(f"the rest (store, jobs, estimate, idle workers) {rest:.1%}")
    say(f"time of the workers: {', '.join(parts)}")
    _say(finals_table(plain, is_whole=is_whole))
    say(f"{result.trials} trials; {result.end}; {result.verdict}")
    chosen = ", ".join(f"why-{number}.html" for number in dict.fromkeys(result.numbers.values()))
    if chosen:
        say(f"why each finalist was chosen: {chosen} in {result.folder}")


def say_untrained(plain: Mapping[str, JSON]) -> None:
    """Print the number of examined operators, the funnel, the front and the known operators."""
    from syno_lab.reports.progress import funnel_table, progress_of
    from syno_lab.reports.searched import searched

    result = searched(plain)
    progress = progress_of(plain, result.settings.name)
    say(
        f"{result.examined} operators examined, {result.examined_per_cpu_s:.1f} a CPU-second, none trained; "
        f"{result.elites} are in the lab; {result.end}"
    )
    if progress is not None:
        _say(funnel_table(progress))
    for title, points in (("front", result.front), ("known", result.known)):
        say_table(
            [
                {
                    title: point.known or f"trial {point.number}",
                    **({"system": point.system} if "," in result.settings.system else {}),
                    "score": f"{point.score:.3f}",
                    "FLOPs": f"{point.flops_ratio:.3f}",
                    "of the replaced": f"{point.replaced_ratio:.3f}",
                    "parameters": point.params,
                }
                for point in points
                if not isinstance(point, str)
            ]
        )
    say(f"the front as a picture: {result.picture}")


def _say(table_: Table) -> None:
    say(f"{table_.title}:")
    say_table(table_.records())

"""The run itself: operators from the sampler and the builder in turn, checked, counted and, where they fail, shrunk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trust import checks
from trust.corners import CORNERS, corners
from trust.programs import program
from trust.shrink import shrink
from trust.sources import Case, cases
from trust.tvm_parent import Child


@dataclass(frozen=True)
class Subject:
    """The operators of one system, as a run sees them.

    Attributes:
        checks: what can be checked, by name, and what each check says of one operator; ``tvm`` is asked of a child.
        corners: the names of the corners that an operator has under a binding.
        names: of all corners, in the order of the report.
        size: of an operator, in steps.
        shrink: the smallest case that still fails.
        program: Python source that shows a failure.
    """

    checks: Mapping[str, Callable[..., str | None]]
    corners: Callable[[Any, dict[str, int]], frozenset[str]]
    names: Iterable[str]
    size: Callable[[Any], int]
    shrink: Callable[[Any, Callable[[Any], bool]], Any]
    program: Callable[[Callable[..., str | None], Any, str], str]


PGRAPHS = Subject(
    {"values": checks.values, "gradients": checks.gradients, "tvm": checks.tvm_values},
    corners,
    CORNERS,
    lambda operator: len(operator.steps),
    shrink,
    program,
)
#: Failures of one check that are shrunk, and that are listed at all.
SHRUNK, LISTED = 3, 20


@dataclass(frozen=True)
class Failure:
    """An operator on which two ways disagree, as small as it could be made."""

    check: str
    source: str
    complaint: str
    steps: int
    steps_before: int
    program: str

    def __str__(self) -> str:
        return (
            f"{self.check}, {self.source}: {self.complaint}\n"
            f"{self.steps} steps, shrunk from {self.steps_before}; this program shows it:\n\n{self.program}"
        )


def complaint(check: str, case: Case, child: Child, subject: Subject = PGRAPHS) -> str | None:
    """What ``check`` says of an operator: None is praise, and an exception or the end of a process a complaint."""
    if check == "tvm":
        answer = child.ask(
            {"do": "run", "operator": case.text, "binding": case.binding, "seed": case.seed}
            | {"dtype": "float64", "order": "best"}
        )
        if "failure" in answer:
            return str(answer["failure"]).strip()
        error = float(answer["error"])
        return None if error <= checks.TOLERANCE else f"TVM differs from the loop nest by {error:.3g}"
    try:
        return subject.checks[check](case.operator, case.binding, case.seed)
    except Exception as error:  # noqa: BLE001 - whatever is raised is a failure of this operator
        return f"raises {type(error).__name__}: {error}"


def kind(said: str) -> str:
    """What a smaller operator must say as well, so that shrinking does not slip to another fault."""
    first, last = said.splitlines()[0], said.splitlines()[-1]
    if first.startswith("raises "):
        return first.partition(":")[0]
    if first.startswith("Traceback"):
        return last.partition(":")[0]
    return first if first.startswith("the TVM process ended") else "differs"


def investigate(
    check: str, case: Case, said: str, child: Child, *, smaller: bool = True, subject: Subject = PGRAPHS
) -> Failure:
    """The failure that ``case`` is, shrunk where asked."""
    before = subject.size(case.operator)
    if smaller:

        def fails(attempt: Case) -> bool:
            found = complaint(check, attempt, child, subject)
            return found is not None and kind(found) == kind(said)

        case = subject.shrink(case, fails)
        said = complaint(check, case, child, subject) or said
    text = subject.program(subject.checks[check], case, said)
    return Failure(check, case.source, said, subject.size(case.operator), before, text)


def run(
    counts: dict[str, int],
    seed: int,
    *,
    stream: Iterable[Case] | None = None,
    command: tuple[str, ...] | None = None,
    say: Callable[[str], None] = lambda _: None,
    subject: Subject = PGRAPHS,
) -> tuple[dict[str, Any], list[Failure]]:
    """Check the first ``counts[check]`` operators of ``seed`` in each way.

    Args:
        counts: how many operators for each check of the subject.
        seed: of the operators and the numbers in their tensors.
        stream: the operators, where they are not those of ``seed``.
        command: the program that uses TVM; by default ``tvm_child.py``.
        say: takes a line of progress.
        subject: whose operators these are.

    Returns:
        A report of plain JSON values, and the failures.
    """
    met = {check: Counter[str]() for check in counts}
    sources = {check: Counter[str]() for check in counts}
    checked, failed = Counter[str](), Counter[str]()
    seconds = dict.fromkeys(("operators", *counts), 0.0)
    failures: list[Failure] = []
    total = max(counts.values(), default=0)
    given = iter(cases(seed) if stream is None else stream)
    with Child(command) if command else Child() as child:
        for number in range(total):
            start = time.perf_counter()
            case = next(given)
            found = subject.corners(case.operator, case.binding)
            seconds["operators"] += time.perf_counter() - start
            for check in counts:
                if number >= counts[check]:
                    continue
                start = time.perf_counter()
                said = complaint(check, case, child, subject)
                seconds[check] += time.perf_counter() - start
                checked[check] += 1
                met[check].update(found)
                sources[check][case.source] += 1
                if said is not None:
                    failed[check] += 1
                    if failed[check] <= LISTED:
                        is_shrunk = failed[check] <= SHRUNK
                        failure = investigate(check, case, said, child, smaller=is_shrunk, subject=subject)
                        failures.append(failure)
                        say(str(failure))
            if (number + 1) % 500 == 0:
                say(f"{number + 1} operators, {sum(failed.values())} failures")
        processes = child.started
    report = {
        "seed": seed,
        "tolerance": checks.TOLERANCE,
        "checked": {check: checked[check] for check in counts},
        "failed": {check: failed[check] for check in counts},
        "seconds": {name: round(spent, 1) for name, spent in seconds.items()},
        "tvm_processes": processes,
        "sources": {check: dict(sources[check]) for check in counts},
        "corners": {name: {check: met[check][name] for check in counts} for name in subject.names},
        "failures": [vars(failure) for failure in failures],
    }
    return report, failures

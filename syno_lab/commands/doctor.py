"""``syno-lab doctor``: check what this machine has and lacks, or check the boards at a tracker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from syno_lab.commands.output import Reporter, say, write_json
from syno_lab.errors import SynoError

if TYPE_CHECKING:
    from syno_lab.processes.findings import Finding

MISSING = 1


def command(
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Check this RPC tracker and its boards instead.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Check only the boards of this key.")] = None,
    target: Annotated[
        str | None, typer.Option(help="The kind of the boards, as for `syno-lab tune`. [default: asked of the board]")
    ] = None,
) -> None:
    """List the things that this machine has and lacks; the exit status is 1 if a needed thing is missing."""
    if tracker is None and (key is not None or target is not None):
        raise SynoError("expected --tracker HOST:PORT beside --key and --target")
    with Reporter() as report:
        findings = list(_here(report) if tracker is None else _there(report, tracker, key, target))
        report("doctor", 1.0, f"{len(findings)} checks")
    if not say_findings(findings, {}, "absent " if tracker is None else "note   "):
        raise typer.Exit(MISSING)


def say_findings(findings: Sequence[Finding], facts: Mapping[str, str], mark: str) -> bool:
    """Print findings, with ``mark`` before optional things that are missing; return whether no needed thing is missing.

    The JSON includes ``facts``.
    """
    for finding in findings:
        say(f"{'ok     ' if finding.ok else 'MISSING' if finding.needed else mark} {finding.name}: {finding.found}")
        if not finding.ok and finding.advice:
            say(f"        {finding.advice}")
    healthy = all(finding.ok or not finding.needed for finding in findings)
    write_json({**facts, "healthy": healthy, "findings": findings})
    return healthy


def _here(report: Reporter) -> Iterator[Finding]:
    from concurrent.futures import ThreadPoolExecutor

    from syno_lab.doctor import CHECKS, run_check

    # Run the checks in parallel, because most of the time is for child processes that import torch and TVM.
    with ThreadPoolExecutor(len(CHECKS)) as pool:
        findings = [pool.submit(run_check, check) for check in CHECKS]
        for index, (check, finding) in enumerate(zip(CHECKS, findings, strict=True)):
            report("doctor", index / len(CHECKS), f"looking at {check.__doc__ or check.__name__}".partition("\n")[0])
            yield finding.result()


def _there(report: Reporter, tracker: str, key: str | None, target: str | None) -> Iterator[Finding]:
    from syno_lab.tuning.checkup import check_up
    from syno_lab.tuning.targets import check_target

    if target is not None:
        check_target(target)
    report("doctor", 0.0, f"looking at the tracker {tracker}")
    for finding in check_up(tracker, key, target=target):
        report("doctor", 0.5, f"looked at {finding.name}")
        yield finding

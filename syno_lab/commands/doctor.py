"""``syno-lab doctor``: what this machine has and what is missing."""

from __future__ import annotations

from dataclasses import asdict

import typer

from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, write_json

MISSING = 1


def command(json: JsonTarget = None) -> None:
    """Say in plain words what is there and what is missing; the exit status is 1 when something needed is missing."""
    from syno_lab.evaluate.doctor import CHECKS, run_check

    check_json(json)
    findings = []
    with Reporter() as report:
        for place, check in enumerate(CHECKS):
            report("doctor", place / len(CHECKS), f"looking at {check.__doc__ or check.__name__}".partition("\n")[0])
            findings.append(run_check(check))
        report("doctor", 1.0, f"{len(CHECKS)} checks")
    for finding in findings:
        mark = "ok     " if finding.ok else "MISSING" if finding.needed else "absent "
        say(f"{mark} {finding.name}: {finding.found}", json)
        if not finding.ok:
            say(f"        {finding.advice}", json)
    healthy = all(finding.ok or not finding.needed for finding in findings)
    write_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]}, json)
    if not healthy:
        raise typer.Exit(MISSING)

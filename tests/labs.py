"""What tests of jobs have in common: real jobs in the processes of a lab, waiting for them, and what became of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from syno_lab.jobs import JobHandle, JobRecord, Lab

TESTS = Path(__file__).resolve().parent
PATIENCE_S = 240.0


def show_kinds(patch: pytest.MonkeyPatch, kinds: str) -> None:
    """Let labs that are opened from now on find ``kinds``, in files of this folder."""
    patch.setenv("SYNO_LAB_KINDS", kinds)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]))


def until(condition: Callable[[], object], lab: Lab | None = None) -> None:
    """Wait for a condition; a lab says what is wrong with it when that does not come."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, lab and (lab.keeper.trouble, lab.jobs(), lab.ledger.leases())
        time.sleep(0.05)


def ended(lab: Lab, number: int) -> JobRecord:
    """The job once it has ended."""
    job = lab.job(number).wait(PATIENCE_S)
    assert job.is_ended, (lab.keeper.trouble, job)
    return job


def journal(lab: Lab, number: int) -> list[tuple[int, int]]:
    """The steps that a counting job has done, in the order in which it did them: attempt and step."""
    lines = (lab.folder / "jobs" / str(number) / "journal.txt").read_text().splitlines()
    return [(int(attempt), int(step)) for attempt, step, _ in map(str.split, lines)]


def steps(lab: Lab, number: int) -> list[int]:
    """The same without the attempts."""
    return [step for _, step in journal(lab, number)]


def check_endings(
    lab: Lab, deaths: int, more: Mapping[str, tuple[str, str]] | None = None
) -> tuple[dict[str, JobHandle], dict[str, JobRecord]]:
    """Let jobs end in all ways and compare what is said of each; they are given up after so many deaths.

    Args:
        lab: where they run.
        deaths: how often each is tried.
        more: further ways of :func:`job_kinds.end`, each with the job's state and reason.
    """
    given_up = f"given up after {deaths} deaths: "
    table = {
        "SIGKILL": ("poisoned", given_up + "killed by SIGKILL"),
        "SIGSEGV": ("poisoned", given_up + "killed by SIGSEGV"),
        "exit": ("poisoned", given_up + "exit status 0, without a result"),
        "SystemExit": ("poisoned", given_up + "exit status 0, without a result"),
        "bug": ("failed", "ValueError: two lines"),
        **(more or {}),
    }
    handles = {how: lab.submit("end", {"how": how}, max_attempts=deaths) for how in table}
    found = {how: ended(lab, handle.id) for how, handle in handles.items()}
    assert {how: (job.state, job.reason) for how, job in found.items()} == table
    assert "ValueError: two" in handles["bug"].log()
    return handles, found


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

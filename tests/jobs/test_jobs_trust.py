"""A job runs only if the user's own account has asked for it, to the letter; anything else waits and says so."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import answered, refused

from syno_lab.errors import JobError
from syno_lab.jobs import JobContext, Lab, attempts, child
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Ending, JobRecord
from syno_lab.jobs.sweep import Watch, sweep
from syno_lab.jobs.trust import request
from syno_lab.store import Store
from syno_lab.store.database import FILE_NAME
from syno_lab.tuning.method import Method, from_job, to_job

pytestmark = pytest.mark.cold

CODE = {"name": "rule", "source": "def rule(s, b):\n\topen('/tmp/x')\x1b[2J\n", "origin": "mine.py"}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Store.open(tmp_path) as store:
        yield Ledger(store.database)


def submit(ledger: Ledger, **params: object) -> JobRecord:
    return ledger.job(ledger.submit("train", params, resources={"slot": 1}, name="mine"))


def become_another(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on as another user, whose key is another: all that is in the lab comes from a stranger."""
    monkeypatch.setenv("SYNO_LAB_CONFIG", str(folder))


def held(number: int) -> str:
    return f"not signed with your key: `syno-lab jobs allow {number}` shows what it would run, and allows it"


def test_what_the_user_submitted_is_ready_and_stays_so(ledger: Ledger) -> None:
    job = submit(ledger, x=1)
    assert ledger.is_ready(job)
    ledger.pause(job.id)
    ledger.resume(job.id)
    lease = attempts.take(ledger, job.id)
    assert lease is not None
    attempts.end(ledger, job.id, lease.token, Ending("failed", "a reason"))
    ledger.retry(job.id)
    assert sweep(ledger, Watch()) == []
    assert ledger.is_ready(ledger.job(job.id)), "none of it needs another signature"


def test_what_another_submitted_waits_in_whatever_state_it_was(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, paused, failed, taken = (submit(ledger, x=x) for x in range(4))
    ledger.pause(paused.id)
    for job in (failed, taken):
        lease = attempts.take(ledger, job.id)
        assert lease is not None
        if job is failed:
            attempts.end(ledger, job.id, lease.token, Ending("failed", "a reason"))
    become_another(monkeypatch, tmp_path / "another")
    assert not ledger.is_ready(waiting)
    assert attempts.take(ledger, waiting.id) is None
    watch = Watch()
    for _ in range(2):
        sweep(ledger, watch)
        assert [(job.state, job.reason) for job in ledger.jobs()][:3] == [
            ("paused", held(waiting.id)),
            ("paused", ""),
            ("failed", "a reason"),
        ]
    for steer, job in ((ledger.resume, waiting), (ledger.resume, paused), (ledger.retry, failed)):
        with pytest.raises(JobError, match=f"^job {job.id} is not signed with your key: .* jobs allow {job.id}. shows"):
            steer(job.id)
    assert lease is not None
    ending = child._run(ledger, taken.id, JobContext(ledger, tmp_path, taken.id, lease.token))
    assert attempts.end(ledger, taken.id, lease.token, ending)
    assert (ledger.job(taken.id).state, ledger.job(taken.id).reason) == ("failed", f"job 4 is {held(4)}")
    for job in (waiting, paused):
        ledger.allow(job)
    ledger.resume(paused.id)
    assert [job.id for job in ledger.ready(range(1, 5))] == [waiting.id, paused.id]


@pytest.mark.parametrize("column", ["kind", "params", "resources", "job"])
def test_a_request_that_was_changed_is_not_the_users(ledger: Ledger, column: str) -> None:
    job = submit(ledger, x=1)
    other = {
        "kind": replace(job, kind="tune"),
        "params": replace(job, params={"x": 2}),
        "resources": replace(job, resources={"slot": 2.0}),
        "job": replace(job, id=job.id + 1),
    }[column]
    if column == "job":  # a signature that belongs to another job
        submit(ledger, x=3)
        ledger.database.write("INSERT OR REPLACE", "syno_jobs", *_row(other))
    else:
        ledger.database.write("INSERT OR REPLACE", "syno_jobs", *_row(other))
    sweep(ledger, Watch())
    assert ledger.job(other.id).reason == held(other.id)
    with pytest.raises(JobError, match=r"has changed meanwhile: look at it again"):
        ledger.allow(replace(job, id=other.id, params={"x": 9}))
    ledger.allow(ledger.job(other.id))
    assert ledger.is_ready(ledger.job(other.id))


def _row(job: JobRecord) -> tuple[str, list[object]]:
    from syno_lab.jobs.records import COLUMNS, to_row

    texts = {"params": json.dumps(job.params), "resources": json.dumps(job.resources), "after": "[]"}
    return COLUMNS, to_row(job, texts)


def test_a_request_is_the_same_text_in_whatever_order_it_was_written(ledger: Ledger) -> None:
    first, second = submit(ledger, a=1, b={"c": 1, "d": 2}), submit(ledger, b={"d": 2, "c": 1}, a=1)
    assert request(first) == request(replace(second, id=first.id))


def test_a_lab_without_signatures_waits_and_is_allowed_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path) as store:
        for x in range(3):
            submit(Ledger(store.database), x=x, rule=CODE)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.executescript("DELETE FROM syno_signatures;")
    monkeypatch.setattr(Lab, "hand_over", lambda self, timeout=None: True)  # nothing needs to run here
    monkeypatch.setattr("syno_lab.jobs.keeper.Keeper.start", lambda self: None)
    place = ("--folder", str(tmp_path))
    assert [job["reason"] for job in json.loads(answered(capsys, "jobs", *place, "--json", "-"))] == [
        held(number) for number in (1, 2, 3)
    ]
    assert "expected the numbers of jobs, or --all" in refused(capsys, "jobs", "allow", *place)
    from syno_lab.cli import main

    assert main(("jobs", "allow", "2", *place)) == 2
    shown = capsys.readouterr()
    assert "1 to allow, shown above: the same command with --yes signs them" in shown.err
    assert "  | def rule(s, b):\n  |         open('/tmp/x')\N{REPLACEMENT CHARACTER}[2J" in shown.out
    assert "\x1b" not in shown.out
    assert "x: 1" in shown.out
    records = json.loads(answered(capsys, "jobs", "allow", "2", "--yes", *place, "--json", "-"))
    assert [(job["id"], job["state"], job["reason"]) for job in records] == [(2, "waiting", "")]
    records = json.loads(answered(capsys, "jobs", "allow", "--all", "--yes", *place, "--json", "-"))
    assert [(job["id"], job["state"]) for job in records] == [(1, "waiting"), (3, "waiting")]
    assert "nothing to allow" in answered(capsys, "jobs", "allow", "--all", *place)


def test_code_of_the_users_own_travels_in_the_request() -> None:
    method = Method((CODE_RULE := from_job({"rules": [CODE]}).rules[0], "tiling"), strategy="replay-trace")
    assert from_job(json.loads(json.dumps(to_job(method)))) == method
    space = Method(space=CODE_RULE)
    assert from_job(json.loads(json.dumps(to_job(space)))) == space
    assert from_job({}) == Method()

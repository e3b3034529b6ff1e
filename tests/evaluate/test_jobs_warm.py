"""Processes of jobs that are forked by one that has imported everything: they are as if started by themselves."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job_kinds
import psutil
import pytest
import warm_kinds
from labs import check_endings, ended, journal, show_kinds, steps, until

from syno_lab.evaluate.jobs import JobRecord, Lab, alive, starting, supervise
from syno_lab.evaluate.jobs.kinds import WARM, WARM_VARIABLE
from syno_lab.evaluate.jobs.kinds import warm_kinds as named
from syno_lab.evaluate.trial import TrialRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is started by itself")

#: What torch and threadpoolctl put into the environment of whoever imports them.
SET_BY_IMPORTS = ("TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK")
WARM_MAIN, ALONE_MAIN = "syno_lab.evaluate.jobs.warm", "syno_lab.evaluate.jobs.child"


@pytest.fixture(scope="module", autouse=True)
def kinds() -> Iterator[None]:
    trainings = "train alone=syno_lab.evaluate.trial.job:run"
    with pytest.MonkeyPatch.context() as patch:
        show_kinds(patch, f"{job_kinds.VARIABLE};{warm_kinds.VARIABLE};{trainings}")
        patch.setenv(WARM_VARIABLE, "forked, count, end, train")
        yield


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, kinds: None) -> Iterator[Lab]:
    with Lab.open(tmp_path_factory.mktemp("lab"), slots=2) as opened:
        yield opened
        servers = warm_processes(opened)
        opened.shutdown()
    until(lambda: not any(process.is_running() for process in servers))  # they go with the worker that asked them


def warm_processes(lab: Lab) -> list[psutil.Process]:
    """Those that the worker has started; what they fork has the same words, but another parent."""
    worker = psutil.Process(lab.cluster.processes()["worker"])
    return [process for process in worker.children() if WARM_MAIN in process.cmdline()]


def result(lab: Lab, kind: str) -> dict[str, Any]:
    job = ended(lab, lab.submit(kind).id)
    assert job.state == "finished", job
    assert job.result is not None
    return job.result


def test_a_forked_process_is_like_one_started_by_itself(lab: Lab) -> None:
    alone, forked, another = result(lab, "alone"), result(lab, "forked"), result(lab, "forked")
    assert (alone["main"], forked["main"], another["main"]) == (ALONE_MAIN, WARM_MAIN, WARM_MAIN)
    environments = [one["same"].pop("environment") for one in (alone, forked)]
    for one in environments:  # these tests may run in a process that has imported torch itself
        for name in SET_BY_IMPORTS:
            one.pop(name, None)
    assert environments[0] == environments[1]
    assert forked["same"] == alone["same"]
    assert forked["same"]["leads"]
    assert forked["same"]["shown"]
    assert not set(forked["draws"]) & set(another["draws"]), "each draws its own"
    (server,) = warm_processes(lab)
    assert server.num_threads() == 1
    assert alive.TOKEN_VARIABLE not in os.environ


def test_how_a_forked_process_ends_is_known(lab: Lab) -> None:
    _, found = check_endings(lab, 1)
    assert all(0 < job.cpu_s < 30 for job in found.values())


def test_cancelling_ends_all_that_a_forked_process_has_started(lab: Lab) -> None:
    handle = lab.submit("end", {"how": "orphans"})
    file = lab.folder / "jobs" / str(handle.id) / "orphans.json"
    until(file.is_file)
    (lease,) = lab.ledger.leases()
    mine = [alive.identity(pid) for pid in json.loads(file.read_text())]
    assert {alive.pid_of(name or "") for name in (*mine, lease.child)} == set(alive.holders(lease.token))
    handle.cancel()
    assert ended(lab, handle.id).state == "cancelled"
    assert not any(alive.is_alive(name or "") for name in (*mine, lease.child))


def test_the_process_that_forks_is_killed(lab: Lab) -> None:
    going = lab.submit("count", {"steps": 150, "seconds": 0.02})
    dying = lab.submit("count", {"steps": 10_000, "seconds": 0.02}, max_attempts=1)
    until(lambda: going.record().progress > 0 and dying.record().progress > 0)
    (server,) = warm_processes(lab)
    server.kill()
    os.kill(alive.pid_of(lab.ledger.lease(dying.id).child), signal.SIGKILL)  # type: ignore[union-attr]
    assert ended(lab, dying.id).reason == "given up after 1 deaths: ended without a result: how is not known"
    found = ended(lab, going.id)
    assert (found.state, found.attempt) == ("finished", 1), "its children go on"
    assert steps(lab, going.id) == list(range(1, 151))
    after = lab.submit("forked")
    found = ended(lab, after.id)
    assert (found.state, found.attempt) == ("finished", 1)
    assert (found.result or {})["main"] == WARM_MAIN, "there is another one"


def test_a_training_that_was_forked_comes_to_the_same(lab: Lab) -> None:
    request = TrialRequest(
        backbone="resnet20", data="digits", options={"width": 4, "blocks": 1}, epochs=2, train_images=64,
        test_images=50, threads=1,
    )  # fmt: skip
    handles = [lab.submit(kind, request.to_dict()) for kind in ("train", "train alone")]
    forked, alone = (ended(lab, handle.id) for handle in handles)
    assert forked.state == alone.state == "finished"
    assert forked.result is not None
    assert alone.result is not None
    for key in ("accuracy", "flops", "params"):
        assert forked.result[key] == alone.result[key], key
    times = ("seconds", "wall_s", "cpu_s")
    curves = [
        [{key: value for key, value in row.items() if key not in times} for row in job.result["curve"]]
        for job in (forked, alone)
    ]
    assert len(curves[0]) == 2
    assert curves[0] == curves[1]


# -- in this process, without Dask: what a worker does --------------------------------------------------------------


@pytest.fixture
def nursery(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[starting._Nursery]:
    """A fresh one, that imports a file which the test may write."""
    (tmp_path / "code").mkdir()
    monkeypatch.setenv("SYNO_LAB_KINDS", "written=written_kind:run;count=job_kinds:count")
    monkeypatch.setenv(WARM_VARIABLE, "written,count")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    fresh = starting._Nursery()
    monkeypatch.setattr(starting, "_nursery", fresh)
    yield fresh
    if fresh._server is not None:
        fresh._server.retire()


def write(tmp_path: Path, before: str, answer: int) -> None:
    main = "sys.modules['__main__'].__spec__.name"
    text = f"import sys\n{before}\n\ndef run(params, context):\n    return {{'answer': {answer}, 'main': {main}}}\n"
    (tmp_path / "code" / "written_kind.py").write_text(text)


def supervised(tmp_path: Path, kind: str, params: dict[str, Any] | None = None) -> JobRecord:
    with Lab.open(tmp_path / "lab", start=False) as lab:
        handle = lab.submit(kind, params)
        supervise.supervise(str(lab.folder), handle.id)
        return handle.record()


def test_code_that_has_changed_is_imported_anew(nursery: starting._Nursery, tmp_path: Path) -> None:
    write(tmp_path, "", 1)
    assert supervised(tmp_path, "written").result == {"answer": 1, "main": WARM_MAIN}
    first = nursery._server
    assert supervised(tmp_path, "written").result == {"answer": 1, "main": WARM_MAIN}
    assert nursery._server is first
    write(tmp_path, "changed = True", 2)
    assert supervised(tmp_path, "written").result == {"answer": 2, "main": WARM_MAIN}
    assert nursery._server is not first


@pytest.mark.parametrize(
    "before",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
        f"if sys.modules['__main__'].__spec__.name == {WARM_MAIN!r}: sys.exit(3)",
        f"if sys.modules['__main__'].__spec__.name == {WARM_MAIN!r}: import os; os.abort()",
        "from types import SimpleNamespace as Has; sys.modules['torch'] = Has(cuda=Has(_is_in_bad_fork=lambda: True))",
    ],
    ids=["it has threads", "it ends", "it crashes", "CUDA was asked for before"],
)
def test_what_cannot_fork_is_not_used(nursery: starting._Nursery, tmp_path: Path, before: str) -> None:
    write(tmp_path, before, 3)
    for _ in range(2):
        assert supervised(tmp_path, "written").result == {"answer": 3, "main": ALONE_MAIN}


def test_a_process_that_cannot_be_marked_starts_itself(
    nursery: starting._Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the token where others read it a job could not be ended: such a process is not gone on with."""
    monkeypatch.setattr(starting.warm, "PLACEHOLDER", "1" * 32)  # not what the one that forks looks for
    write(tmp_path, "import os", 4)
    found = supervised(tmp_path, "written")
    assert found.result == {"answer": 4, "main": ALONE_MAIN}
    assert found.attempt == 1
    assert nursery._server is not None
    assert nursery._server.is_up, "it was used"


def test_a_start_without_an_answer_is_given_up_and_no_fault_of_the_job(
    nursery: starting._Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "", 1)
    supervised(tmp_path, "written")
    assert nursery._server is not None
    hanging = nursery._server._process
    hanging.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(starting, "ANSWER_S", 0.3)
    found = supervised(tmp_path, "count", {"steps": 20})
    assert (found.state, found.deaths) == ("waiting", 0)
    assert found.reason.startswith("the process that starts jobs does not answer")
    monkeypatch.setattr(starting, "ANSWER_S", 60.0)
    hanging.send_signal(signal.SIGCONT)  # now it forks, for an attempt that there is no more
    with Lab.open(tmp_path / "lab", start=False) as lab:
        supervise.supervise(str(lab.folder), found.id)
        assert lab.ledger.job(found.id).state == "finished"
        assert journal(lab, found.id) == [(2, step) for step in range(1, 21)]
    until(lambda: hanging.poll() is not None)


def test_which_kinds_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WARM_VARIABLE, "")
    assert named() == frozenset()
    monkeypatch.delenv(WARM_VARIABLE)
    assert named() == set(WARM)
    # A tuning must not find torch imported: TVM takes the process down that has both.
    assert "tune" not in named()
    for module in starting._modules():
        importlib.import_module(module)

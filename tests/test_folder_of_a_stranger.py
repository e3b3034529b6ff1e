"""A lab folder that somebody else made, opened with everything there is: nothing in it runs, connects or hangs."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from command_line import every_command, refused
from labs import free_port

from syno_lab.cli import main
from syno_lab.errors import JobError
from syno_lab.experiments import SearchSettings, TuningChoice
from syno_lab.jobs import Lab, door
from syno_lab.jobs.ledger import Lease, Ledger
from syno_lab.jobs.sweep import Watch
from syno_lab.operators import conv2d
from syno_lab.store import Store
from syno_lab.trial import TrialRequest
from syno_lab.version import __version__

pytestmark = pytest.mark.cold

#: What one command may take: processor seconds and seconds of the clock.
CPU_S, WALL_S = 5.0, 60
#: Names of modules that we or libraries import by and by: none of those in the folder may be taken for them.
PLANTED = (
    "json.py",
    "sitecustomize.py",
    "distributed.py",
    "torch.py",
    "syno_lab.py",
    "conftest.py",
    "usercustomize.py",
)


@dataclass
class Stranger:
    """The folder, what would be there if anything of it ran, and who came to the address that it names."""

    folder: Path
    marker: Path
    outside: Path
    address: str
    visitors: list[Any] = field(default_factory=list)


@pytest.fixture(scope="module", params=["files", "pipes"])
def stranger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    """With hostile files, and with pipes that nobody writes to in their place."""
    top = tmp_path_factory.mktemp("stranger")
    outside = top / "outside"
    outside.mkdir()
    (top / "lab").mkdir()
    (outside / "secret.txt").write_text("a secret of the user's")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Stranger(top / "lab", top / "marker", outside, f"127.0.0.1:{listener.getsockname()[1]}")

        def listen() -> None:
            while True:
                try:
                    made.visitors.append(listener.accept())
                except OSError:
                    return

        threading.Thread(target=listen, daemon=True).start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SYNO_LAB_CONFIG", str(top / "their-config"))
            _store(made)
            patch.setenv("SYNO_LAB_CONFIG", str(top / "our-config"))
            (_files if request.param == "files" else _pipes)(made)
            for name in PLANTED:
                (made.folder / name).write_text(_code(made))
            patch.chdir(made.folder)  # as somebody does who looks into a folder
            # A job of another machine is waited for by design, for a minute without a sign of life; here for a second.
            patch.setattr("syno_lab.jobs.lab.Watch", partial(Watch, grace_s=1.0))
            yield made
        listener.shutdown(socket.SHUT_RDWR)


def _code(stranger: Stranger) -> str:
    return f"from pathlib import Path\nPath({str(stranger.marker)!r}).touch()\ndef rule(schedule, block): pass\n"


def _store(stranger: Stranger) -> None:
    """Jobs in every state, with code and paths, signed by the stranger; two searches to look at."""
    outside, code = str(stranger.outside), {"name": "rule", "source": _code(stranger), "origin": "\x1b]0;x\x07mine.py"}
    task = {"label": "x", "operator": conv2d().to_json(), "binding": {"C_in": 4, "C_out": 4, "H": 6, "W": 6}}
    training = TrialRequest(backbone="resnet20", data=outside)
    tuning = TuningChoice(within=1.0, target="local", tracker=stranger.address, key="x")
    search = SearchSettings(training=training, trials=1, name="found", tuning=tuning)
    with Store.open(stranger.folder) as store:
        ledger = Ledger(store.database)

        def submit(kind: str, params: dict[str, Any], state: str = "waiting") -> None:
            job = ledger.job(ledger.submit(kind, params, resources={"slot": 1}, name="\x1b[2J\u202eevil"))
            ledger.write(replace(job, state=state))  # type: ignore[arg-type]

        for state in ("waiting", "running", "paused", "failed", "poisoned", "cancelled"):
            submit("tune", {"tasks": [task], "rules": [code]}, state)
        submit("tune", {"tasks": [task | {"builder": "os:system", "operator": f"touch {stranger.marker}"}]})
        submit("tune", {"tasks": [task], "tracker": stranger.address, "key": "x"})
        submit("train", training.to_dict())
        submit("search", search.to_dict())
        submit("os:system", {"command": f"touch {stranger.marker}"})
        submit("../../outside/secret", {})
        lease = Lease(2, "0" * 32, "elsewhere", "another boot", "1:1", "1:1", 0, 0.0)
        row = [getattr(lease, name) for name in ("job", "token", "place", "boot", "supervisor", "child", "beat", "at")]
        store.database.write("INSERT", "syno_leases", "job, token, place, boot, supervisor, child, beat, at", row)
        row = (1, "../../outside", "{}", "2026-01-01T00:00:00+00:00")
        store.database.write("INSERT", "syno_searches", "search, name, settings, created", row)
        store.search("found", search.identity)
    folder = stranger.folder / "searches" / "found"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(search.to_dict()))


def _files(stranger: Stranger) -> None:
    """Addresses, and links that lead out of the folder."""
    found = {
        "foreign": f"tcp://{stranger.address}",
        "address": f"tcp://{stranger.address}",
        "settings": {"slots": 10**9},
    }
    for name in ("cluster.json", "scheduler.json"):
        (stranger.folder / name).write_text(json.dumps(found))
    for name in ("logs/1-0.log", "logs/1-1.log", "cluster.lock", "searches/found/search.lock"):
        (stranger.folder / name).parent.mkdir(exist_ok=True)
        (stranger.folder / name).symlink_to(stranger.outside / "secret.txt")
    (stranger.folder / "jobs").symlink_to(stranger.outside)
    (stranger.folder / "tuning").symlink_to(stranger.outside)


def _pipes(stranger: Stranger) -> None:
    """Pipes in the place of all that is read, and of what is locked."""
    names = ["cluster.json", "scheduler.json", "cluster.lock", "results.sqlite-lock", "tuning/x.jsonl"]
    names += [f"logs/{job}-{attempt}.log" for job in range(1, 12) for attempt in (0, 1)]
    names += [f"jobs/{job}/{name}" for job in range(1, 12) for name in ("curve.json", "course.json", "checkpoint.pt")]
    names += [
        f"searches/found/{name}" for name in ("status.json", "tree.json", "result.json", "settings.json", "search.lock")
    ]
    for name in names:
        (stranger.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (stranger.folder / name).unlink(missing_ok=True)
        os.mkfifo(stranger.folder / name)


@contextmanager
def harmless(stranger: Stranger) -> Iterator[None]:
    """Within the block nothing of the stranger's runs, connects, changes a file elsewhere, or takes for ever."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still at work after {WALL_S} s")

    def elsewhere() -> list[tuple[str, bytes]]:
        return sorted((str(path), path.read_bytes()) for path in stranger.outside.rglob("*"))

    before, children, used = elsewhere(), psutil.Process().children(recursive=True), _cpu_s()
    handler = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(WALL_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert _cpu_s() - used < CPU_S
    assert psutil.Process().children(recursive=True) == children, "a process was started"
    assert not stranger.marker.exists(), "code of the folder ran"
    assert elsewhere() == before
    time.sleep(0.05)  # for a connection to be seen
    assert stranger.visitors == [], "somebody connected to an address of the folder"


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


#: Words and the exit statuses that they may have. Every command with ``--folder``, but for `OTHERS`.
COMMANDS: list[tuple[str, set[int]]] = [
    ("jobs", {0}),
    ("jobs list", {0}),
    ("jobs show 1", {0}),
    ("jobs show 11", {0}),
    ("jobs log 1", {0, 2}),
    ("jobs log 1 --attempt 1", {0, 2}),
    ("jobs log 2 --follow --tail 3", {0, 2}),
    ("jobs watch", {1}),
    ("jobs watch 1 7", {1}),
    ("jobs pause 1", {2}),
    ("jobs resume 1", {2}),
    ("jobs resume 3", {2}),
    ("jobs retry 4", {2}),
    ("jobs retry 5", {2}),
    ("jobs allow 1", {2}),
    ("jobs allow --all", {2}),
    ("search --continue --name found", {2}),
    ("search --continue --name found --in-process", {2}),
    ("search --continue --name found --detach", {2}),
    ("search --continue --name ../../outside", {2}),
    ("show found#0 --as why", {0, 2}),
    ("show search#0 --as why", {0, 2}),
    ("export found#0", {0, 2}),
    ("network found#best", {2}),
    ("jobs cancel 1", {0}),
    ("jobs stop", {0}),
]


#: These submit work of the user's own, which is theirs to run wherever they like; or it is the folder of notebooks; or
#: the user's own scheduler and worker begin there, which is what it is for.
OTHERS = {"train", "tune", "lab", "kernel install", "jobs serve"}


@pytest.mark.parametrize(("words", "statuses"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_commands(words: str, statuses: set[int], stranger: Stranger, capsys: pytest.CaptureFixture[str]) -> None:
    with harmless(stranger):
        status = main([*words.split(), "--folder", str(stranger.folder)])
    told = capsys.readouterr()
    assert status in statuses, told.err
    assert "Traceback" not in told.out + told.err
    assert not {"\x1b", "\x07", "\u202e"} & set(told.out + told.err), "the terminal sees none of their control signs"
    if status == 2:
        assert told.err.splitlines()[-1].startswith("syno-lab: ")
    if words == "jobs watch":
        assert "not signed with your key: `syno-lab jobs allow 1`" in told.out
    if words == "search --continue --name found" and (stranger.folder / "searches/found/settings.json").is_file():
        assert (
            f"name the tracker '{stranger.address}', and no job there that is signed with your key names it" in told.err
        )


def test_a_demo_goes_nowhere_else(stranger: Stranger, capsys: pytest.CaptureFixture[str]) -> None:
    with harmless(stranger):
        status = main(["demo", "--data", "/no/such/folder", "--out", str(stranger.folder)])
    assert status == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_runs_view(stranger: Stranger, tmp_path: Path) -> None:
    from syno_widgets import RunsView

    str(RunsView(tmp_path)._repr_mimebundle_())  # imports what it needs, on a folder of our own
    with harmless(stranger):
        view = RunsView(stranger.folder)
        html = str(view._repr_mimebundle_())
        view.close()
    assert "\x1b" not in html


def test_a_notebook_attaches_the_folder(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``%load_ext syno_lab`` does in a kernel that was started in such a folder."""
    from syno_widgets.attached import AttachedLab

    with harmless(stranger):
        monkeypatch.setenv("SYNO_LAB_FOLDER", str(stranger.folder))
        attached = AttachedLab()
        assert "waiting" not in {job.state for job in attached.opened().jobs()}
        time.sleep(1.5)  # its thread looks for work meanwhile
        attached.close()


@pytest.mark.parametrize("stranger", ["files"], indirect=True)
def test_such_a_folder_is_served(
    stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user's own scheduler and worker begin in it, and an open lab hands jobs out: none of the stranger's."""
    monkeypatch.setenv("SYNO_LAB_CONFIG", str(tmp_path / "config"))
    before = sorted((str(path), path.read_bytes()) for path in stranger.outside.rglob("*"))
    words = ["--listen", "127.0.0.1", "--port", str(free_port()), "--certificate", str(tmp_path / "join.pem")]
    assert main(["jobs", "serve", *words, "--folder", str(stranger.folder)]) == 0, capsys.readouterr().err
    with Lab.open(stranger.folder) as lab:
        try:
            deadline = time.monotonic() + WALL_S
            while lab.jobs(state="waiting") or lab.ledger.leases():  # the lease is that of a machine that is gone
                assert time.monotonic() < deadline, "an unsigned job is not held"
                time.sleep(0.1)
            assert lab.cluster.is_up()
            assert not lab.jobs(state="running")
            for job in (one for one in lab.jobs() if one.state == "paused"):
                with pytest.raises(JobError, match="not signed with your key"):
                    door.take(str(stranger.folder), job.id, "elsewhere", "boot", "1:1", __version__)
        finally:
            lab.shutdown()
    assert not stranger.marker.exists(), "code of the folder ran"
    assert stranger.visitors == [], "somebody connected to an address of the folder"
    assert sorted((str(path), path.read_bytes()) for path in stranger.outside.rglob("*")) == before


def test_a_folder_of_others_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("jobs", "serve", "--listen", "127.0.0.1", "--certificate", str(tmp_path / "join.pem"), "--folder")
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / "thesis.txt").touch()
    wide.chmod(0o777)
    assert f"{wide}: others may write to it" in refused(capsys, *words, str(wide))
    assert [path.name for path in wide.iterdir()] == ["thesis.txt"]
    if os.geteuid() == 0:  # only root can give a folder away
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        line = refused(capsys, *words, str(theirs))
        assert "found one of user 65534" in line
        assert line.endswith("other machines take jobs from it: copy the lab to a folder of your own")
        assert not list(theirs.iterdir())
    assert not (tmp_path / "join.pem").exists()


def test_every_command_that_takes_a_folder_is_tried() -> None:
    takes = {
        " ".join(words) for words, command in every_command() if any(one.name == "folder" for one in command.params)
    }
    tried = {" ".join(word for word in words.split()[:2] if word.isalpha()) for words, _ in COMMANDS}
    assert takes - tried == OTHERS

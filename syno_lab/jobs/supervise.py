"""What a Dask worker does for a job: take it, start its process, look after that, and write down how it died.

The process is in a session of its own, has its attempt's token in its environment and its output in the attempt's log.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from syno_lab import private
from syno_lab.errors import NO_ROOM, JobError, StoreError
from syno_lab.jobs import attempts, away, endpoint, gpus
from syno_lab.jobs.context import BEAT_S, job_folder, log_path
from syno_lab.jobs.ledger import Lease, Ledger
from syno_lab.jobs.records import Ending
from syno_lab.jobs.sweep import Watch, is_orphan, sweep
from syno_lab.processes import alive
from syno_lab.processes.process import describe_exit, module_command, own_environment
from syno_lab.store import Store
from syno_lab.store.database import FILE_NAME

#: Seconds between two looks at what the user wishes.
PERIOD_S = 0.2
#: Seconds after which a job that could not be started on a full disk is put in line again.
ROOM_S = 10.0

_stores: dict[str, Store] = {}
_guard = threading.Lock()


def open_store(folder: str) -> Store:
    """The store of a lab, opened once in this process."""
    with _guard:
        if folder not in _stores:
            _stores[folder] = Store.open(folder, is_thorough=False)
        return _stores[folder]


def supervise(folder: str, number: int) -> None:
    """Do a job if it still waits, or adopt it; return when its attempt has ended. For Dask's workers.

    Dask may call this twice, late, or on another worker after a death: the store alone decides. Raises JobError where
    the lab's folder is not here.
    """
    root = Path(folder)
    if away.is_away():
        away.run(folder, number)
        return
    if not (root / FILE_NAME).is_file():
        raise JobError(
            f"no lab in {folder} on {platform.node()}: a worker must see the lab's folder by this path, or be started "
            "by `syno-lab worker`"
        )
    ledger = Ledger(open_store(folder).database)
    needs = ledger.job(number).resources
    if not needs:
        _make_room()
    # What a dead worker left running occupies what we were given to occupy: it comes first, or there would be too many.
    is_sent = False
    while lease := _adopt(ledger, number, needs):
        if lease.job != number and not is_sent:  # our job would wait for the other's end, whatever place is free
            _send_again(ledger, root, number)
            is_sent = True
        Supervisor(ledger, root, lease).watch()
    lease = attempts.take(ledger, number)
    if lease is None and sweep(ledger, Watch()):
        lease = attempts.take(ledger, number)
    if lease is not None:
        Supervisor(ledger, root, lease).run()
        _pass_on(ledger, root, number)


def _adopt(ledger: Ledger, number: int, needs: dict[str, float]) -> Lease | None:
    """Adopt an attempt that goes on without a supervisor: this job's, or one that occupies the same."""
    for lease in filter(is_orphan, ledger.leases()):
        if lease.job == number or (needs and ledger.job(lease.job).resources == needs):
            adopted = attempts.adopt(ledger, lease.job)
            if adopted is not None:
                return adopted
    return None


def _make_room() -> None:
    """A driver only waits: let Dask give its thread to another job."""
    from distributed import secede

    with contextlib.suppress(ValueError):  # not in a worker
        secede()


def _send_again(ledger: Ledger, root: Path, number: int) -> None:
    """Put a job that waits in line once more, because this task has another's attempt to look after."""
    from distributed import get_worker

    from syno_lab.jobs.dispatch import send, worker_client

    with contextlib.suppress(ValueError, OSError, TimeoutError, StoreError):  # not in a worker: it goes on after that
        job = ledger.job(number)
        if job.state == "waiting":
            send(worker_client(), root, job, get_worker().state.total_resources, is_again=True)


def _pass_on(ledger: Ledger, root: Path, number: int) -> None:
    """Send what the end of a job made ready, so that it goes on while no lab is open anywhere."""
    from distributed import get_worker

    from syno_lab.jobs.dispatch import send, worker_client

    with contextlib.suppress(ValueError, OSError, TimeoutError, StoreError):  # a keeper does the same, later
        after = ledger.jobs("state='waiting' AND after!='[]'")
        fresh = ledger.ready([number, *(job.id for job in after if number in job.after)])
        if fresh:
            client = worker_client()
            counted = get_worker().state.total_resources
            for job in fresh:
                send(client, root, job, counted)


@dataclass(frozen=True)
class _Started:
    """A process of an attempt: ``end()`` once it has ended gives its exit code and the CPU-seconds that it had.

    What it left in its group is killed then.
    """

    pid: int
    end: Callable[[], tuple[int, float]]


def _start(root: Path, number: int, token: str, log: Path, more: Mapping[str, str]) -> _Started:
    """Start the process of an attempt, with ``more`` in its environment. Raises OSError where it cannot be started."""
    private.folder(log.parent)
    with private.create(log, "ab") as output:
        child = subprocess.Popen(
            module_command("syno_lab.jobs.child", str(root), str(number), token),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=root,
            env={**_environment(token), **more},
            start_new_session=True,
            umask=private.UMASK,
        )

    def end() -> tuple[int, float]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # its number is not given out before we reap it
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, usage.ru_utime + usage.ru_stime

    return _Started(child.pid, end)


def _environment(token: str) -> dict[str, str]:
    return own_environment(**{**endpoint.passed_on(), "PYTHONUNBUFFERED": "1", alive.TOKEN_VARIABLE: token})


class Supervisor:
    """One attempt under our eyes."""

    def __init__(self, ledger: Ledger, root: Path, lease: Lease) -> None:
        self.ledger, self.root, self.lease = ledger, root, lease
        self._cancelled = False

    def run(self) -> None:
        """Start the process of the attempt and stay with it to its end."""
        number, token = self.lease.job, self.lease.token
        job = self.ledger.job(number)
        kills = oom_kills()
        with gpus.assigned(job.resources.get(gpus.GPU, 0.0)) as visible:
            try:
                job_folder(self.root, number).mkdir(parents=True, exist_ok=True)
                child = _start(self.root, number, token, log_path(self.root, number, job.attempt), visible)
            except OSError as error:
                said = f"its process could not be started: {error}"
                if error.errno in NO_ROOM:  # no fault of the job
                    time.sleep(ROOM_S)
                    self._give_back(said)
                else:
                    self._write_down(said, 0.0, 0.0)
                return
            begun = time.monotonic()
            self._stay(child.pid)
            code, cpu_s = child.end()
        self._write_down(exit_cause(code, oom_kills() > kills), time.monotonic() - begun, cpu_s)

    def watch(self) -> None:
        """Stay with a process that somebody else started."""
        begun, pid = time.monotonic(), alive.pid_of(self.lease.child)
        with contextlib.ExitStack() as held:
            pool = gpus.pool()
            if pool is not None:
                amount = self.ledger.job(self.lease.job).resources.get(gpus.GPU, 0.0)
                held.enter_context(pool.held(gpus.visible_to(pid), amount))
            self._stay(pid)
        self._write_down("died after the worker that supervised it: how is not known", time.monotonic() - begun, 0.0)

    def _stay(self, pid: int) -> None:
        """Return once the process has ended; end it where the user wishes so."""
        version: tuple[int, int] | None = None
        beaten = time.monotonic()
        with ended(pid) as wait:
            while not wait(PERIOD_S):
                with contextlib.suppress(StoreError):  # busy or full for a moment: the process goes on meanwhile
                    found = self.ledger.database.version()
                    if found != version:
                        version = found
                        self._heed()
                    if time.monotonic() - beaten >= BEAT_S:
                        beaten = time.monotonic()
                        attempts.beat(self.ledger, self.lease.job, self.lease.token)

    def _heed(self) -> None:
        lease = self.ledger.lease(self.lease.job)
        is_ours = lease is not None and lease.token == self.lease.token
        if not is_ours or self.ledger.job(self.lease.job).wish == "cancel":
            alive.end_attempt(self.lease.token, alive.TERM_S)

    def _write_down(self, cause: str, wall_s: float, cpu_s: float) -> None:
        """Say how the attempt ended, where it has not said so itself."""
        self._insist(Ending("died", cause, None, wall_s, cpu_s))

    def _give_back(self, reason: str) -> None:
        """Put the job in line again, by no fault of its own; its process, if there is one, finds no lease any more."""
        self._insist(Ending("stopped", reason))

    def _insist(self, ending: Ending) -> None:
        alive.end_attempt(self.lease.token)
        while True:
            with contextlib.suppress(StoreError):
                attempts.end(self.ledger, self.lease.job, self.lease.token, ending)
                return
            time.sleep(1.0)


@contextlib.contextmanager
def ended(pid: int) -> Iterator[Callable[[float], bool]]:
    """Give a function that waits so many seconds and says whether the process has ended; at once where Linux tells."""
    name = alive.identity(pid)
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):

        def look(seconds: float) -> bool:
            time.sleep(min(seconds, 0.05))
            return name is None or not alive.is_alive(name)

        yield look
        return
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    try:
        yield lambda seconds: bool(poller.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def oom_kills() -> int:
    """How often this system's kernel has killed for lack of memory; 0 where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def exit_cause(code: int, is_oom: bool) -> str:
    """A text that says how a process without a result ended."""
    said = describe_exit(code)
    if code == -9 and is_oom:
        return f"out of memory: {said} by the kernel"
    return f"{said}, without a result" if code >= 0 else said

"""The task of a Dask worker for a job: take the job, start and supervise its process, and record the process's death.

The process has its own session, the attempt's token in its environment, and its output in the attempt's log.
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
from pathlib import Path

from syno_lab import private
from syno_lab.errors import NO_ROOM, JobError, StoreError
from syno_lab.jobs import attempts, away, endpoint, gpus
from syno_lab.jobs.context import BEAT_S, job_folder, log_path
from syno_lab.jobs.ledger import Lease, Ledger
from syno_lab.jobs.records import Ending, JobRecord
from syno_lab.jobs.sweep import Watch, sweep
from syno_lab.processes import alive
from syno_lab.processes.process import describe_exit, module_command, own_environment, spawn
from syno_lab.store import Store
from syno_lab.store.database import FILE_NAME

#: Seconds between two reads of the user's requests.
PERIOD_S = 0.2
#: Seconds after which a job that did not start because of a full disk is put in the queue again.
ROOM_S = 10.0

_stores: dict[str, Store] = {}
_guard = threading.Lock()


def open_store(folder: str) -> Store:
    """Return the store of a lab, opened once in this process."""
    with _guard:
        if folder not in _stores:
            _stores[folder] = Store.open(folder, is_thorough=False)
        return _stores[folder]


def supervise(folder: str, number: int) -> None:
    """Run a job that still waits, or adopt its attempt; return when the attempt has ended. Dask calls this.

    Dask may call this twice, late, or on another worker after a death, so the store alone decides whether the job runs.
    Raises JobError where the lab's folder is not on this machine.
    """
    from distributed import secede

    root = Path(folder)
    if os.environ.get(away.VARIABLE):
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
        with contextlib.suppress(ValueError):  # this process is no worker
            secede()  # a driver only waits, so Dask may use this task's thread for another job
    # An attempt of a dead worker still takes resources. Supervise this attempt first, or too many jobs would run.
    is_sent = False
    while lease := _adopt(ledger, number, needs):
        if lease.job != number and not is_sent:  # this job must not wait for the adopted job
            _send(root, lambda: ledger.jobs("job=? AND state='waiting'", (number,)), is_again=True)
            is_sent = True
        Supervisor(ledger, root, lease).watch()
    lease = attempts.take(ledger, number)
    if lease is None and sweep(ledger, Watch()):
        lease = attempts.take(ledger, number)
    if lease is not None:
        Supervisor(ledger, root, lease).run()
        _send(root, lambda: _became_ready(ledger, number))


def _adopt(ledger: Ledger, number: int, needs: dict[str, float]) -> Lease | None:
    """Adopt an attempt that has no supervisor, of this job or of a job with the same resources."""
    for lease in ledger.leases():
        is_like = lease.is_orphan and (lease.job == number or (needs and ledger.job(lease.job).resources == needs))
        if is_like and (adopted := attempts.adopt(ledger, lease.job)) is not None:
            return adopted
    return None


def _became_ready(ledger: Ledger, number: int) -> list[JobRecord]:
    """Return the jobs that became ready at the end of this job, so that they run without an open lab."""
    after = ledger.jobs("state='waiting' AND after!='[]'")
    return ledger.ready([number, *(job.id for job in after if number in job.after)])


def _send(root: Path, find: Callable[[], list[JobRecord]], *, is_again: bool = False) -> None:
    """Submit jobs from this worker. If the store or the scheduler does not answer, a keeper sends them later."""
    from distributed import get_worker

    from syno_lab.jobs.dispatch import send, worker_client

    with contextlib.suppress(ValueError, OSError, TimeoutError, StoreError):
        if jobs := find():
            client, counted = worker_client(), get_worker().state.total_resources
            for job in jobs:
                send(client, root, job, counted, is_again=is_again)


def _start(root: Path, number: int, token: str, log: Path, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process of an attempt with ``more`` environment variables. Raises OSError where the start fails."""
    private.folder(log.parent)
    with private.create(log, "ab") as output:
        command = module_command("syno_lab.jobs.child", str(root), str(number), token)
        own = {**endpoint.passed_on(), "PYTHONUNBUFFERED": "1", alive.TOKEN_VARIABLE: token}
        return spawn(command, output, own_environment(**{**own, **more}), folder=root)


def _end(child: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Kill the group of a process that has ended; return the exit code and the CPU seconds of the process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # the system does not reuse the process identifier before `wait4`
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


class Supervisor:
    """The supervisor of one attempt."""

    def __init__(self, ledger: Ledger, root: Path, lease: Lease) -> None:
        self.ledger, self.root, self.lease = ledger, root, lease
        self._cancelled = False

    def run(self) -> None:
        """Start the process of the attempt and supervise it until it has ended."""
        number, token = self.lease.job, self.lease.token
        job = self.ledger.job(number)
        kills = oom_kills()
        with gpus.assigned(job.resources.get(gpus.GPU, 0.0)) as visible:
            try:
                job_folder(self.root, number).mkdir(parents=True, exist_ok=True)
                child = _start(self.root, number, token, log_path(self.root, number, job.attempt), visible)
            except OSError as error:
                reason = f"its process could not be started: {error}"
                if error.errno in NO_ROOM:  # a full disk is no fault of the job
                    time.sleep(ROOM_S)
                    self._insist(Ending("stopped", reason))  # this counts no death
                else:
                    self._write_down(reason, 0.0, 0.0)
                return
            started = time.monotonic()
            self._stay(child.pid)
            code, cpu_s = _end(child)
        self._write_down(exit_cause(code, oom_kills() > kills), time.monotonic() - started, cpu_s)

    def watch(self) -> None:
        """Supervise a process that another worker has started."""
        started, pid = time.monotonic(), alive.pid_of(self.lease.child)
        with contextlib.ExitStack() as stack:
            pool = gpus.pool()
            if pool is not None:
                amount = self.ledger.job(self.lease.job).resources.get(gpus.GPU, 0.0)
                stack.enter_context(pool.held(gpus.visible_to(pid), amount))
            self._stay(pid)
        self._write_down("died after the worker that supervised it: how is not known", time.monotonic() - started, 0.0)

    def _stay(self, pid: int) -> None:
        """Return once the process has ended; end the process if the user requests it."""
        version: tuple[int, int] | None = None
        beaten = time.monotonic()
        with ended(pid) as wait:
            while not wait(PERIOD_S):
                with contextlib.suppress(StoreError):  # a busy store or a full disk may recover
                    current = self.ledger.database.version()
                    if current != version:
                        version = current
                        self._heed()
                    if time.monotonic() - beaten >= BEAT_S:
                        beaten = time.monotonic()
                        attempts.beat(self.ledger, self.lease.job, self.lease.token)

    def _heed(self) -> None:
        is_current = self.ledger.lease(self.lease.job, self.lease.token) is not None
        if not is_current or self.ledger.job(self.lease.job).wish == "cancel":
            alive.end_attempt(self.lease.token, alive.TERM_S)

    def _write_down(self, cause: str, wall_s: float, cpu_s: float) -> None:
        """Record the ending of the attempt, unless the process of the attempt has recorded it."""
        self._insist(Ending("died", cause, None, wall_s, cpu_s))

    def _insist(self, ending: Ending) -> None:
        alive.end_attempt(self.lease.token)
        while True:
            with contextlib.suppress(StoreError):
                attempts.end(self.ledger, self.lease.job, self.lease.token, ending)
                return
            time.sleep(1.0)


@contextlib.contextmanager
def ended(pid: int) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds for the end of the process and returns whether the process has ended."""
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
    """Return how many processes Linux has killed for lack of memory; 0 where the count is not readable."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def exit_cause(code: int, is_oom: bool) -> str:
    """Describe how a process without a result ended."""
    description = describe_exit(code)
    if code == -9 and is_oom:
        return f"out of memory: {description} by the kernel"
    return f"{description}, without a result" if code >= 0 else description

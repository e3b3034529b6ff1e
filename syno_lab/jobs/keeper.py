"""The keeper: a thread of an open lab that sends waiting jobs to a worker and sets the results of futures.

Any number of processes may have a keeper. The results of a keeper's actions are in the store, and a repeated action
does no harm. Without a keeper, running jobs continue; jobs that only a keeper can restart wait for the next keeper.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.errors import JobError, StoreError
from syno_lab.jobs import endpoint
from syno_lab.jobs.cluster import COUNTED, START_S, Cluster
from syno_lab.jobs.dispatch import ANSWER_S, connect, counted_resources, send
from syno_lab.jobs.endpoint import Endpoint
from syno_lab.jobs.handle import JobFuture
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.sweep import Watch, sweep

if TYPE_CHECKING:
    from distributed import Client, Future

#: Seconds between two reads of the store, and between two sweeps.
PERIOD_S, SWEEP_S = 0.1, 1.0
#: Seconds after which a lasting error of the store or the scheduler is logged. A caller gets the error at once.
LASTS_S = 5.0
#: Seconds within which a connection must close. The scheduler at the other end may be dead.
CLOSE_S = 2.0
#: Seconds within which the lab's own scheduler must answer, before the keeper checks whether it was killed.
OWN_ANSWER_S = 5.0
#: Seconds after which the lab's own scheduler is replaced if it lives but does not answer.
SILENT_S = 30.0

_log = logging.getLogger(__name__)


class Keeper:
    """The keeper thread of an open lab. `start` starts the thread, `stop` ends it."""

    def __init__(self, folder: Path, ledger: Ledger, watch: Watch, cluster: Cluster, address: str | None) -> None:
        self._folder, self._ledger, self._watch, self._cluster, self._address = folder, ledger, watch, cluster, address
        self._named: Endpoint | None = None
        self._inherited: Endpoint | None = None
        self._client: Client | None = None
        self._is_foreign = False
        self._counted: frozenset[str] = frozenset()
        self._silent: tuple[str, float] | None = None  # a silent scheduler's address, and since when
        self._sent: dict[tuple[int, int], Future] = {}
        self._futures: list[JobFuture] = []
        self._guard = threading.Lock()
        self._awake, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble = ""
        """Why waiting jobs do not run, in one line; empty without an error."""

    def start(self) -> None:
        """Start the thread. Raises `JobError` when a cluster named here or in the settings does not answer."""
        if self._address is None:
            self._inherited = endpoint.inherited()
        if self._address is not None or self._default() is None:
            self._named = endpoint.named(self._address)
        if self._named is not None:
            self._join(self._named)
        if self._address is not None:
            self._cluster.remember(self._address)
        self._thread = threading.Thread(target=self._run, name="lab-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the connection. Submitted jobs continue."""
        self._ended.set()
        self._awake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
        self._disconnect()

    def wake(self) -> None:
        """Make the thread read the store at once."""
        self._awake.set()

    def hand_over(self, timeout: float | None = None) -> bool:
        """Wait until the cluster has all jobs that are ready now; return False after ``timeout`` seconds.

        Raises JobError where the cluster does not start or answer, or this lab starts no jobs.
        """
        if self._thread is None:
            raise JobError("this lab was opened only for reading: open it with start=True to run jobs")
        deadline = None if timeout is None else time.monotonic() + timeout
        pending = {(job.id, job.round) for job in self._ledger.ready(number for number, _ in self._ledger.waiting())}
        while pending := (pending & set(self._ledger.waiting())) - set(self._sent):
            self.wake()
            time.sleep(0.05)
            if not self._is_silent() and self.trouble:
                raise JobError(self.trouble)
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def watch(self, future: JobFuture) -> JobFuture:
        """Set the result of a future when its job ends."""
        if not future.settle():
            with self._guard:
                self._futures.append(future)
        return future

    def _run(self) -> None:
        version: tuple[int, int] | None = None
        swept, since, is_logged = 0.0, 0.0, False
        while not self._ended.is_set():
            try:
                current = self._ledger.database.version()
                is_due = time.monotonic() - swept >= SWEEP_S
                if is_due:
                    swept = time.monotonic()
                    sweep(self._ledger, self._watch)
                    if self._client is not None and not self._is_connected():
                        self._disconnect()  # a lost client would search and log
                if is_due or current != version:
                    version = current
                    self._settle()
                    self._dispatch()
                self.trouble = ""
            except (JobError, StoreError) as error:  # the loop's next round tries again
                if str(error) != self.trouble:
                    self.trouble, since, is_logged = str(error), time.monotonic(), False
                elif not is_logged and time.monotonic() - since >= LASTS_S:
                    _log.warning("%s", error)
                    is_logged = True
            self._awake.wait(PERIOD_S)
            self._awake.clear()

    def _settle(self) -> None:
        with self._guard:
            self._futures = [future for future in self._futures if not future.settle()]

    def _dispatch(self) -> None:
        waiting = self._ledger.waiting()
        leases = self._ledger.leases()
        orphans = [self._ledger.job(lease.job) for lease in leases if lease.is_orphan]
        current = {*waiting, *((job.id, job.round) for job in orphans)}
        for key in [key for key in self._sent if key not in current]:
            del self._sent[key]
        # If a task has ended but its job has not, submit the task again.
        ended = {key: future for key, future in self._sent.items() if future.status != "pending"}
        for key in ended:
            del self._sent[key]
        errors = [future.exception(timeout=ANSWER_S) for future in ended.values() if future.status == "error"]
        fresh = self._ledger.ready(job for job, turn in waiting if (job, turn) not in {**self._sent, **ended})
        fresh += [job for job in orphans if (job.id, job.round) not in self._sent]
        if fresh or (
            any(lease.is_here for lease in leases) and self._is_down()
        ):  # running attempts need no scheduler, but waiting jobs would not start
            client = self._connected()
            for job in fresh:
                key = job.id, job.round
                self._sent[key] = send(client, self._folder, job, self._counted, is_again=key in ended)
        for error in errors:
            raise JobError(f"a worker could not take a job: {error}")

    def _is_connected(self) -> bool:
        is_running = self._client is not None and self._client.status == "running"
        return is_running and (self._is_foreign or self._cluster.is_up())

    def _is_down(self) -> bool:
        """Whether this lab uses its own cluster, and its scheduler or its worker is not alive."""
        return self._named is None and self._default() is None and not self._cluster.is_up()

    def _default(self) -> Endpoint | None:
        """Return a foreign cluster that the caller did not name: of this process's job, or the lab's last."""
        if self._inherited is not None:
            return self._inherited
        last = self._cluster.foreign()
        return None if last is None else endpoint.named(last)

    def _connected(self) -> Client:
        """Return a connection to the cluster; start the lab's own cluster where it does not run."""
        if self._client is not None and self._is_connected():
            return self._client
        other = self._named or self._default()
        if other is not None:
            self._disconnect()
            try:
                return self._join(other)
            except JobError:
                if self._named is not None:
                    raise
                self._inherited = None  # the user has not named this cluster, so use this machine
                self._cluster.remember(None)
        own = self._cluster.endpoint()
        client = self._client
        if client is not None and client.status == "running" and client.scheduler.address == own.address:
            return client  # the scheduler is the same; only a worker was missing
        self._disconnect()
        self._client, self._is_foreign, self._counted = self._answering(own), False, COUNTED
        return self._client

    def _answering(self, own: Endpoint) -> Client:
        """Connect to the lab's own scheduler. Replace a scheduler that has not answered for :data:`SILENT_S`."""
        try:
            client = connect(own, OWN_ANSWER_S)
        except JobError:
            if self._silent is None or self._silent[0] != own.address:
                self._silent = own.address, time.monotonic() - OWN_ANSWER_S
            if time.monotonic() - self._silent[1] < SILENT_S:
                raise
            _log.warning("the scheduler at %s lives and does not answer: a new one is started", own.address)
            self._cluster.end(own.address)
            client = connect(self._cluster.endpoint(), OWN_ANSWER_S)
        # The order matters: a thread in `hand_over` must not see the old error once the scheduler answers.
        self.trouble = ""
        self._silent = None
        return client

    def _is_silent(self) -> bool:
        """Whether the lab's own scheduler, which does not answer, will soon be replaced, so that callers must wait."""
        return self._silent is not None and time.monotonic() - self._silent[1] < SILENT_S + START_S

    def _join(self, other: Endpoint) -> Client:
        """Connect to a foreign cluster."""
        if not other.is_encrypted:
            _log.warning(
                "the Dask cluster at %s is without TLS: every user of this machine can run code in it", other.address
            )
        client = connect(other)
        try:
            self._counted = counted_resources(client)
        except JobError:
            _let_go(client)
            raise
        self._client, self._is_foreign = client, True
        return client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        self._sent.clear()
        if client is not None:
            closing = threading.Thread(target=_let_go, args=(client,), name="lab-disconnect", daemon=True)
            closing.start()
            closing.join(CLOSE_S)


def _let_go(client: Client) -> None:
    try:
        client.close(timeout=CLOSE_S)
    except Exception as error:  # noqa: BLE001 - a dead scheduler ends in errors of any class
        _log.debug("closing a connection: %s", error)

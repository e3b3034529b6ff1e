"""The thread of an open lab that sees to it that waiting jobs get run and that futures hear of their endings.

It may be in several processes at once and in none: what it does is written in the store, and doing it twice is
harmless. Without any, jobs go on; only what nobody but it would start again waits for the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError, StoreError
from syno_lab.evaluate.jobs.cluster import Cluster
from syno_lab.evaluate.jobs.handle import JobFuture
from syno_lab.evaluate.jobs.ledger import Ledger
from syno_lab.evaluate.jobs.records import JobRecord
from syno_lab.evaluate.jobs.supervise import supervise
from syno_lab.evaluate.jobs.sweep import Watch, sweep

if TYPE_CHECKING:
    from distributed import Client, Future

#: Seconds between two looks at the store, and between two sweeps.
PERIOD_S, SWEEP_S = 0.1, 1.0
#: Seconds within which a scheduler must answer.
ANSWER_S = 10.0

_log = logging.getLogger(__name__)


class Keeper:
    """See the module; `start` makes the thread, `stop` ends it."""

    def __init__(self, folder: Path, ledger: Ledger, watch: Watch, cluster: Cluster, address: str | None) -> None:
        self._folder, self._ledger, self._watch, self._cluster, self._address = folder, ledger, watch, cluster, address
        self._client: Client | None = None
        self._sent: dict[tuple[int, int], Future] = {}
        self._futures: list[JobFuture] = []
        self._guard = threading.Lock()
        self._awake, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble = ""
        """Why waiting jobs are not being run, one line; empty when all is well."""

    def start(self) -> None:
        """Begin. Raises `JobError` when a cluster was named and does not answer."""
        if self._address is not None:
            self._client = connect(self._address)
        self._thread = threading.Thread(target=self._run, name="lab-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the connection; what was sent is run all the same."""
        self._ended.set()
        self._awake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
        self._disconnect()

    def wake(self) -> None:
        """There is something to do."""
        self._awake.set()

    def hand_over(self, timeout: float | None = None) -> bool:
        """Wait until all that is ready now is in the cluster's hands; False when the time (in seconds) is up.

        Raises:
            JobError: the cluster does not start or answer, or nothing is started by this lab.
        """
        if self._thread is None:
            raise JobError("this lab was opened only to look: open it with start=True to have jobs run")
        deadline = None if timeout is None else time.monotonic() + timeout
        wanted = {(job.id, job.round) for job in self._ledger.ready()}
        while wanted - set(self._sent):
            self.wake()
            time.sleep(0.05)
            if self.trouble:
                raise JobError(self.trouble)
            if deadline is not None and time.monotonic() >= deadline:
                return False
            wanted &= {(job.id, job.round) for job in self._ledger.ready()}
        return True

    def watch(self, future: JobFuture) -> JobFuture:
        """Settle a future when its job ends."""
        if not future.settle():
            with self._guard:
                self._futures.append(future)
        return future

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        version: tuple[int, int] | None = None
        swept = 0.0
        while not self._ended.is_set():
            try:
                found = self._ledger.database.version()
                is_due = time.monotonic() - swept >= SWEEP_S
                if is_due:
                    swept = time.monotonic()
                    sweep(self._ledger, self._watch)
                if is_due or found != version:
                    version = found
                    self._settle()
                    self._dispatch()
                self.trouble = ""
            except (JobError, StoreError) as error:  # for a moment or for long: it is tried again either way
                if str(error) != self.trouble:
                    _log.warning("%s", error)
                self.trouble = str(error)
            self._awake.wait(PERIOD_S)
            self._awake.clear()

    def _settle(self) -> None:
        with self._guard:
            self._futures = [future for future in self._futures if not future.settle()]

    def _dispatch(self) -> None:
        ready = {(job.id, job.round): job for job in self._ledger.ready()}
        for key in [key for key in self._sent if key not in ready]:
            del self._sent[key]
        if not ready:
            return
        client = self._connected()
        for key, job in ready.items():
            sent = self._sent.get(key)
            if sent is None or sent.status != "pending":
                self._sent[key] = send(client, self._folder, job)

    def _connected(self) -> Client:
        """A connection to the cluster; the cluster itself is started where it is not up."""
        is_own = self._address is None
        if self._client is not None and self._client.status == "running" and not (is_own and not self._cluster.is_up()):
            return self._client
        address = self._cluster.address() if self._address is None else self._address
        if self._client is not None and self._client.status == "running" and self._client.scheduler.address == address:
            return self._client  # only its worker was missing
        self._disconnect()
        self._client = connect(address)
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        self._sent.clear()
        if client is not None:
            try:
                client.close(timeout=2)
            except Exception as error:  # noqa: BLE001 - a dead scheduler ends in errors of any class
                _log.debug("closing a connection: %s", error)


def connect(address: str) -> Client:
    """Connect to a Dask scheduler.

    Raises:
        JobError: it does not answer.
    """
    from distributed import Client

    try:
        return Client(address, timeout=ANSWER_S, set_as_default=False, name="syno-lab")
    except (OSError, ValueError, TimeoutError, ImportError) as error:
        raise JobError(
            f"the Dask cluster at {address} does not answer within {ANSWER_S:g} s ({type(error).__name__}): "
            "see that its scheduler runs and is of the same Dask, or leave the address out to use this machine"
        ) from error


def send(client: Client, folder: Path, job: JobRecord) -> Any:
    """Put a job in a scheduler's line; the same round of a job is there only once, whoever sends it."""
    from distributed import fire_and_forget

    future = client.submit(
        supervise,
        str(folder),
        job.id,
        key=f"syno-job-{job.id}-{job.round}",
        resources=offered(client, job.resources),
        pure=False,
    )
    fire_and_forget(future)
    return future


def offered(client: Client, wanted: dict[str, float]) -> dict[str, float]:
    """What to ask of Dask: slots only where a worker counts them; else the workers' threads are the slots."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    counted = {name for worker in workers for name in worker["resources"]}
    return {name: amount for name, amount in wanted.items() if name != "slot" or name in counted}

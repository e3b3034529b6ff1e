"""A lab's folder with its jobs. Every front end submits, lists, watches and stops jobs through this module."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from syno_lab import private
from syno_lab.jobs.cluster import Cluster, Settings
from syno_lab.jobs.context import JobContext
from syno_lab.jobs.handle import JobHandle
from syno_lab.jobs.keeper import Keeper
from syno_lab.jobs.kinds import ONE_SLOT, RESOURCES, check
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import ENDED, JobRecord, JobState
from syno_lab.jobs.sweep import Watch, sweep
from syno_lab.processes import alive
from syno_lab.store import Store
from syno_lab.store.database import Closing, is_frozen

__all__ = ["Lab"]


class Lab(Closing):
    """An open lab; a context manager, made by `Lab.open`. A job continues after its lab is closed.

    Attributes:
        folder: the lab's folder, with ``results.sqlite``, ``logs/`` and ``jobs/<id>/``.
        store: the results store in the folder.
    """

    def __init__(
        self, folder: Path, store: Store, *, address: str | None, settings: Settings, parent: int | None, start: bool
    ) -> None:
        self.folder = folder
        self.store = store
        self.ledger = Ledger(store.database)
        self._parent = parent
        self._watch = Watch()
        self.cluster = Cluster(folder, settings)
        self.keeper = Keeper(folder, self.ledger, self._watch, self.cluster, address)
        if start:
            self.keeper.start()

    @classmethod
    def of(cls, context: JobContext) -> Lab:
        """Open the lab of a running job. A job that is submitted through this lab is a child of the running job."""
        return cls.open(context.root, parent=context.id, is_thorough=False)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        address: str | None = None,
        slots: int | None = None,
        gpus: int | None = None,
        idle_minutes: float | None = None,
        listen: str | None = None,
        port: int | None = None,
        start: bool = True,
        parent: int | None = None,
        is_thorough: bool = True,
    ) -> Lab:
        """Open the lab in a folder; create the lab where there is none.

        Args:
            folder: the lab's folder.
            address: the address of a foreign Dask scheduler, ``tls://host:port`` (``tcp://`` only on this machine).
                None: the scheduler in the user's settings (`endpoint.named`), else the lab's own scheduler, which
                starts with the first job.
            slots: the number of jobs that train at a time on a cluster that this lab starts; None: as at the last
                start, or one for every two cores.
            gpus: the number of that cluster's GPUs, as the resource ``GPU``; None: as at the last start, or none.
            idle_minutes: minutes without a job after which that cluster ends; None: as at the last start, or 10.
            listen: the address of this machine on which that cluster listens for workers of other machines, with TLS;
                None: as at the last start, or loopback alone.
            port: the port at that address; None: as at the last start, or Dask's default.
            start: whether to start waiting jobs; False only to read the lab and to cancel jobs.
            parent: the number of the job that submits jobs through this lab.
            is_thorough: whether to check the whole store for damage.

        Raises:
            StoreError: the store is damaged, has another version or cannot be created.
            JobError: the cluster at `address` does not answer, or a number is out of range.
        """
        root = Path(folder).expanduser().absolute()
        settings = Settings(slots, gpus, idle_minutes, listen, port)
        if not root.is_dir():
            private.folder(root)
        is_frozen_here = not start and is_frozen(root)
        store = Store.look(root) if is_frozen_here else Store.open(root, is_thorough=is_thorough)
        try:
            return cls(root, store, address=address, settings=settings, parent=parent, start=start)
        except BaseException:
            store.close()
            raise

    def submit(
        self,
        kind: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        after: Iterable[int] = (),
        max_attempts: int = 3,
        resources: Mapping[str, float] | None = None,
    ) -> JobHandle:
        """Store a job, and start it as soon as a worker is free. When this method returns, the job is on the disk.

        Args:
            kind: a name of :mod:`syno_lab.jobs.kinds`.
            params: plain data for the function of the kind.
            name: a title for people.
            after: the numbers of jobs that must finish first. If one of those jobs fails, this job fails.
            max_attempts: the number of deaths (signals, exits without a result, out of memory) that poison the job.
            resources: the amounts of a worker's resources that the job takes, such as ``{"slot": 1, "GPU": 1}``; None:
                the default of its kind; empty: for a job that only waits for other jobs.

        Raises:
            JobError: the kind is unknown, or a number is out of range.
            StoreError: the parameters are not plain data, or the store cannot be written.
        """
        check(kind)
        needs = RESOURCES.get(kind, ONE_SLOT) if resources is None else resources
        number = self.ledger.submit(
            kind, params or {}, name=name, after=after, max_attempts=max_attempts, resources=needs, parent=self._parent
        )
        self.keeper.wake()
        return JobHandle(self, number)

    def sweep(self) -> list[int]:
        """End the attempts of dead processes; return the numbers of the jobs with such attempts."""
        return [] if self.store.database.is_read_only else sweep(self.ledger, self._watch)

    def jobs(
        self, kind: str | None = None, state: JobState | None = None, parent: int | None = None
    ) -> list[JobRecord]:
        """Return jobs in order of submission. A sweep runs first, so that no dead job is listed as running."""
        self.sweep()
        filters = {"kind": kind, "state": state, "parent": parent}
        conditions = {name: value for name, value in filters.items() if value is not None}
        return self.ledger.jobs(" AND ".join(f"{name}=?" for name in conditions) or "1", conditions.values())

    def job(self, number: int) -> JobHandle:
        """Return a job by its number. Raises JobError for an unknown number."""
        self.ledger.job(number)
        return JobHandle(self, number)

    def wait(self, numbers: Iterable[int] | None = None, timeout: float | None = None) -> bool:
        """Wait until these jobs (by default all) have ended; return False after ``timeout`` seconds."""
        ids = None if numbers is None else list(numbers)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.sweep()
            states = [job.state for job in self.ledger.jobs()] if ids is None else map(self.ledger.state, ids)
            if all(state in (None, *ENDED) for state in states):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.1)

    def hand_over(self, timeout: float | None = None) -> bool:
        """Start the cluster, and wait until it has every job that is ready now. After that, the lab may be closed.

        Returns:
            Whether the cluster had all jobs within `timeout` seconds.

        Raises JobError where the cluster does not start or answer, or the lab was opened with `start=False`.
        """
        return self.keeper.hand_over(timeout)

    def shutdown(self) -> None:
        """End the lab's own cluster and the processes of its jobs. The jobs continue when the lab is opened again."""
        self.keeper.stop()
        self.cluster.stop()
        for lease in self.ledger.leases():
            if lease.is_here:
                alive.end_attempt(lease.token, 1.0)
        self.sweep()

    def close(self) -> None:
        """Close the lab; its jobs continue."""
        self.keeper.stop()
        self.store.close()

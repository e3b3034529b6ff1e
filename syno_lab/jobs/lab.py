"""A laboratory folder with its jobs: submitted, listed, watched, stopped; the one door for every front end."""

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
from syno_lab.jobs.records import JobRecord, JobState
from syno_lab.jobs.sweep import Watch, sweep
from syno_lab.processes import alive
from syno_lab.store import Store
from syno_lab.store.database import Closing, is_frozen

__all__ = ["Lab"]


class Lab(Closing):
    """An open lab; a context manager, made by `Lab.open`. Closing it ends no job.

    Attributes:
        folder: where everything is: ``results.sqlite``, ``logs/``, ``jobs/<id>/``.
        store: the results store in it.
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
        """The lab of a job that runs; jobs that are submitted through it are this one's children."""
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
        """Open the lab in a folder, made where there is none.

        Args:
            folder: of the lab.
            address: of a Dask scheduler to use (``tls://host:port``; ``tcp://`` only on this machine) in place of the
                lab's own, which is started when the first job needs it and found again by whoever opens the lab later.
                None: the one of the user's settings (`endpoint.named`), where one is named there.
            slots: how many jobs that train run at a time, for a cluster that this call starts; None: as many as last
                time, at first one for every two cores.
            gpus: how many GPUs that cluster offers as the resource ``GPU``; None: as last time, at first none.
            idle_minutes: after how long without a job that cluster ends by itself; None: as last time, at first 10.
            listen: the address of this machine on which that cluster listens, so that workers of other machines can
                join, with TLS; None: as last time, at first loopback alone.
            port: of that address; None: as last time, at first Dask's usual one.
            start: see that waiting jobs get run; False only to look and to cancel.
            parent: the job in whose name jobs are submitted.
            is_thorough: look through the whole store for damage.

        Raises:
            StoreError: the store is damaged, of another version or cannot be made.
            JobError: the cluster at `address` does not answer, or a number makes no sense.
        """
        root = Path(folder).expanduser().absolute()
        settings = Settings(slots, gpus, idle_minutes, listen, port)
        if not root.is_dir():
            private.folder(root)
        is_looking = not start and is_frozen(root)
        store = Store.look(root) if is_looking else Store.open(root, is_thorough=is_thorough)
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
        """Write a job down and have it run as soon as there is room for it; it is safe when this returns.

        Args:
            kind: a name of :mod:`syno_lab.jobs.kinds`.
            params: plain data for its function.
            name: for people.
            after: numbers of jobs that must have finished before; where one fails, this one does.
            max_attempts: deaths (signals, exits without a result, out of memory) after which it is given up.
            resources: what it occupies of a worker, such as ``{"slot": 1, "GPU": 1}``; None for what its kind does,
                nothing for one that only waits for others.

        Raises:
            JobError: the kind is unknown, or a number makes no sense.
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
        """Put right what the dead have left; the numbers of jobs that were in their hands."""
        return [] if self.store.database.is_read_only else sweep(self.ledger, self._watch)

    def jobs(
        self, kind: str | None = None, state: JobState | None = None, parent: int | None = None
    ) -> list[JobRecord]:
        """Return jobs in order of submission; a sweep comes first, so that no dead job is shown as running."""
        self.sweep()
        wanted = {"kind": kind, "state": state, "parent": parent}
        given = {name: value for name, value in wanted.items() if value is not None}
        return self.ledger.jobs(" AND ".join(f"{name}=?" for name in given) or "1", given.values())

    def job(self, number: int) -> JobHandle:
        """Return a job by its number. Raises JobError where there is none."""
        self.ledger.job(number)
        return JobHandle(self, number)

    def wait(self, numbers: Iterable[int] | None = None, timeout: float | None = None) -> bool:
        """Wait until these jobs (all, if none are named) have ended; False when the time (in seconds) is up."""
        wanted = None if numbers is None else list(numbers)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = [job for job in self.jobs() if not job.is_ended and (wanted is None or job.id in wanted)]
            if not left:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.2)

    def hand_over(self, timeout: float | None = None) -> bool:
        """Wait until every job that is ready now was given to the cluster, which is started for it: then close.

        Returns:
            Whether they were within `timeout` seconds.

        Raises JobError where the cluster does not start or answer, or the lab was opened with `start=False`.
        """
        return self.keeper.hand_over(timeout)

    def shutdown(self) -> None:
        """End the lab's own cluster and the processes of its jobs; those go on when the lab is opened again."""
        self.keeper.stop()
        self.cluster.stop()
        for lease in self.ledger.leases():
            if lease.is_here:
                alive.end_attempt(lease.token, 1.0)
        self.sweep()

    def close(self) -> None:
        """Let go of the lab; its jobs go on."""
        self.keeper.stop()
        self.store.close()

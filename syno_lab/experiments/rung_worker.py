"""A worker of a search in rungs, which takes trainings from the queue in the store, one after another.

Trainings on a cheap rung take a second or two, less than the start of a process. So one process (:class:`.TrialWorker`)
runs many trainings. A worker is a job of kind ``rungs`` (:class:`.JobWorkers`), or a thread (:class:`.LocalWorkers`).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from syno_lab.errors import SynoError
from syno_lab.experiments.plan import RIVALS_SHARE, as_begun
from syno_lab.experiments.rivals import NAMES, rival_of
from syno_lab.experiments.settings import SearchSettings
from syno_lab.experiments.watching import read_status, search_folder
from syno_lab.jobs.records import ENDED
from syno_lab.models.rungs import Rung
from syno_lab.store import SearchLog, Store
from syno_lab.store.rungs import BASELINE, FINAL, RIVALS, TIMING, RungLog, RungTraining
from syno_lab.trial import TrialOutcome, TrialRequest, TrialWorker
from syno_lab.trial.job import with_room
from syno_lab.trial.own import bring
from syno_lab.trial.rungs import HOLDOUT, reward_of, rung_request, rungs_of
from syno_lab.trial.workers import DEADLINE_S, LOG_FILE

if TYPE_CHECKING:
    from syno_lab.jobs import JobContext, JobHandle, Lab

KIND = "rungs"
#: The number of batches in a training on :data:`.store.rungs.TIMING`.
TIMING_STEPS = 20
#: The most seconds of a training that measures time: a share of the search's seconds, with a minimum for tiny searches.
TIMING_SHARE, LEAST_TIMING_S = 0.1, 5.0
#: Seconds between two reads of an empty queue.
LOOK_S = 0.1
#: Seconds with an empty queue after which a worker ends. The search starts another worker if necessary.
IDLE_S = 300.0

Train = Callable[..., TrialOutcome]


def request_for(
    settings: SearchSettings, one: RungTraining, operator: str | None, baseline_s: float | None
) -> TrialRequest:
    """Return the request for a training of the queue.

    Args:
        settings: the settings of the search.
        one: the training.
        operator: the operator's JSON; None for the baseline.
        baseline_s: seconds of the baseline's training on this rung, or None.
    """
    plain = msgspec.structs.replace(settings.training, operator=operator, seed=one.seed)
    if one.part == RIVALS:
        _, rival = rival_of(one.rung.removeprefix(f"{RIVALS}: "), plain)
        assert isinstance(rival, TrialRequest)
        most_s = RIVALS_SHARE * 60 * (settings.minutes or 0) * settings.workers / len(NAMES) / (plain.folds or 1)
        plain = msgspec.structs.replace(rival, time_limit_s=most_s)
    if one.part in (FINAL, RIVALS):
        return msgspec.structs.replace(plain, stopping=None, rivals=[], keep_predictions=True)
    most_s = max(LEAST_TIMING_S, TIMING_SHARE * 60 * (settings.minutes or 0))
    limits = {"time_limit_s": most_s, "gives_up": True, "probe_steps": 4}
    if one.rung == TIMING:
        timed = msgspec.structs.replace(plain, steps=TIMING_STEPS, holdout=HOLDOUT, folds=None)
        return msgspec.structs.replace(timed, stopping=None, rivals=[], **limits)
    (rung,) = (rung for rung in rungs_of(settings.training) if rung.name == one.rung)
    request = rung_request(plain, rung, seed=one.seed, baseline_s=baseline_s if operator is not None else None)
    return msgspec.structs.replace(request, **limits) if operator is None and is_timed(rung) else request


def is_timed(rung: Rung) -> bool:
    """Whether a whole training of the baseline measures the rung's time; for other rungs a few batches are enough."""
    return bool(rung.changes.keys() - {"steps"})


def work(
    settings: SearchSettings,
    log: SearchLog,
    folder: Path,
    holder: str,
    *,
    train: Train,
    should_stop: Callable[[], bool],
    report: Callable[[float, str], None] = lambda fraction, message: None,
    idle_s: float = IDLE_S,
) -> int:
    """Take trainings from the queue of ``log`` until stopped, or until the queue was empty for ``idle_s``.

    Returns the number of trainings that ended. ``holder`` names this worker in the queue; the trainings of an earlier
    worker of this name return to the queue. ``train`` is :meth:`.TrialWorker.run`, or a function with its arguments.
    ``folder`` is in the search's folder; it has the checkpoints of each training until the outcome is stored.
    """
    queue = log.rungs
    queue.release(holder)
    # No training takes longer than the whole search; a longer training hangs.
    deadline_s = max(DEADLINE_S, 60 * (settings.minutes or 0))
    rungs = as_begun(rungs_of(settings.training), read_status(folder.parent).plan)
    measures = {rung.name: rung.measure for rung in rungs}
    baselines: dict[str, float] = {}
    done, empty_since = 0, time.monotonic()
    while not should_stop() and time.monotonic() - empty_since < idle_s:
        training = queue.take(holder)
        if training is None:
            time.sleep(LOOK_S)
            continue
        title = "the baseline" if training.number == BASELINE else f"trial {training.number}"
        report(0.0, f"{title} on {training.rung}, seed {training.seed}")
        operator = None if training.number == BASELINE else log.trial(training.number).operator
        request = request_for(settings, training, operator, _baseline_s(queue, training.rung, baselines))
        files = folder / f"{training.number}-{training.rung}-{training.seed}".replace(" ", "-").replace("/", "-")
        begin = partial(train, request, folder=files, should_stop=should_stop, deadline_s=deadline_s)
        outcome = with_room(begin, report, should_stop)
        queue.record(training, outcome.to_dict(), reward_of(measures.get(training.rung, "accuracy"), outcome))
        if outcome.state != "interrupted":
            shutil.rmtree(files, ignore_errors=True)
            done += 1
        empty_since = time.monotonic()
    return done


def _baseline_s(queue: RungLog, rung: str, known: dict[str, float]) -> float | None:
    """Return the seconds of the baseline's training on a rung; None if this training has not finished."""
    if rung not in known:
        ended = [row for row in queue.trainings(rung) if row.number == BASELINE and row.state == "finished"]
        if ended:
            known[rung] = TrialOutcome.from_dict(ended[0].outcome).work_s
    return known.get(rung)


class Workers(Protocol):
    """The workers of one search; a context manager that ends the workers."""

    def look(self) -> None:
        """Check all workers, and restart workers that have ended. Raises SynoError if a worker has failed."""

    def __enter__(self) -> Workers: ...

    def __exit__(self, *_: object) -> None: ...


class LocalWorkers:
    """Workers without a cluster: threads of this process, each with a child process for its trainings.

    ``train`` trains in place of the child processes.
    """

    def __init__(
        self,
        settings: SearchSettings,
        log: SearchLog,
        folder: Path,
        should_stop: Callable[[], bool] = lambda: False,
        train: Train | None = None,
    ) -> None:
        self._is_closed = threading.Event()
        self._failure: BaseException | None = None
        for holder in log.rungs.holders():
            log.rungs.release(holder, is_dead=False)

        def stop() -> bool:
            return self._is_closed.is_set() or should_stop()

        def run(holder: str) -> None:
            try:
                with TrialWorker(folder / LOG_FILE) as trials:
                    work(settings, log, folder, holder, train=train or trials.run, should_stop=stop, idle_s=inf)
            except BaseException as error:  # noqa: BLE001 - the search's own thread raises it
                self._failure = error

        names = [f"thread {number}" for number in range(settings.workers)]
        self._threads = [threading.Thread(target=run, args=(name,), name=name, daemon=True) for name in names]

    def look(self) -> None:
        """See :class:`Workers`."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> LocalWorkers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        for thread in self._threads:
            thread.join()


class JobWorkers:
    """Workers as jobs of kind ``rungs``. The workers continue for a while after the search's own process has died."""

    def __init__(self, settings: SearchSettings, lab: Lab) -> None:
        self._settings = settings
        self._lab = lab
        self._handles: list[JobHandle] = []
        self._queue = lab.store.search(settings.name, settings.identity).rungs

    def look(self) -> None:
        """See :class:`Workers`."""
        # Calls are frequent, so the method reads only the states of jobs.
        ended = [handle for handle in self._handles if self._lab.ledger.state(handle.id) in ENDED]
        for handle in ended:
            self._queue.release(holder_of(handle.id))
            record = handle.record()
            if record.state != "finished":
                raise SynoError(f"a worker of the search ended as {record.state}: {record.reason}")
            self._handles.remove(handle)
        while len(self._handles) < self._settings.workers:
            self._handles.append(self._submit())

    def _submit(self) -> JobHandle:
        name = f"{self._settings.name}: worker"
        return self._lab.submit(KIND, self._settings.to_dict(), name=name, resources=self._settings.resources)

    def __enter__(self) -> JobWorkers:
        # Workers from an earlier process of this search continue. A search that has ended has cancelled its workers.
        for job in self._lab.jobs(kind=KIND):
            if job.params.get("name") == self._settings.name and not job.is_ended:
                handle = self._lab.job(job.id)
                if job.wish == "cancel" or len(self._handles) == self._settings.workers:
                    handle.cancel()
                else:
                    handle.resume()
                    self._handles.append(handle)
        for holder in self._queue.holders() - {holder_of(handle.id) for handle in self._handles}:
            self._queue.release(holder, is_dead=False)
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            with suppress(SynoError):
                handle.cancel()


def holder_of(job: int) -> str:
    """Return the name under which a job holds trainings of the queue."""
    return f"job {job}"


def run(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Run a job of kind ``rungs``: trainings of the search with the settings ``params``.

    Raises JobFailed for invalid settings, JobStopped when the job was paused or cancelled.
    """
    from syno_lab.jobs import JobFailed, JobStopped

    try:
        settings = SearchSettings.from_dict(params)
        bring(settings.training)  # the user's signature of the job covers the code
    except SynoError as error:
        raise JobFailed(str(error), retry=False) from None
    folder = search_folder(context.root, settings.name) / "rungs"
    with Store.open(context.root, is_thorough=False) as store, TrialWorker(folder / LOG_FILE) as trials:
        done = work(
            settings,
            store.search(settings.name, settings.identity),
            folder,
            holder_of(context.id),
            train=trials.run,
            should_stop=context.should_stop,
            report=lambda fraction, message: context.report(fraction, message),
        )
    if context.should_stop():
        raise JobStopped(f"stopped after {done} trainings")
    return {"trained": done}

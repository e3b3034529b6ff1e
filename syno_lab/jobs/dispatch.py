"""Sends jobs to the queue of a Dask scheduler."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError
from syno_lab.jobs import door, node
from syno_lab.jobs.endpoint import Endpoint
from syno_lab.jobs.kinds import is_at_home
from syno_lab.jobs.records import JobRecord
from syno_lab.jobs.supervise import supervise

if TYPE_CHECKING:
    from distributed import Client

#: Seconds within which a scheduler must answer.
ANSWER_S = 10.0
#: The resource of every worker that a lab starts.
SLOT = "slot"
#: Seconds within which a worker's own scheduler must answer it.
WORKER_ANSWER_S = 5.0
#: Seconds beyond Dask's own limit after which we do not wait for it any more.
GRACE_S = 5.0


def connect(endpoint: Endpoint, timeout: float | None = None) -> Client:
    """Connect to a Dask scheduler. Raises JobError where it does not answer, or not to this key."""
    from distributed import Client

    node.use_steady_clock()
    timeout = ANSWER_S if timeout is None else timeout
    where = f"the Dask cluster at {endpoint.address}"
    try:
        security = endpoint.security()
        return within(
            timeout + GRACE_S,
            lambda: Client(endpoint.address, timeout=timeout, set_as_default=False, name="syno-lab", security=security),
        )
    except (OSError, ValueError, TimeoutError, ImportError) as error:
        does = f"does not answer within {timeout:g} s ({type(error).__name__})"
        tls = " and lets this key in" if endpoint.is_encrypted else ""
        raise JobError(
            f"{where} {does}: see that its scheduler runs{tls} and is of the same Dask, or leave the address out to "
            "use this machine"
        ) from error


def worker_client() -> Client:
    """The client of the Dask worker that this is, which shows what the worker shows.

    Raises ValueError where this is no worker; OSError where the scheduler does not answer.
    """
    from distributed import get_worker

    worker = get_worker()
    held: Any = worker.security
    if not held.tls_client_cert:  # Dask's command gives a worker its key as a worker alone
        held.tls_client_cert, held.tls_client_key = held.tls_worker_cert, held.tls_worker_key
    return within(WORKER_ANSWER_S + GRACE_S, lambda: worker._get_client(timeout=WORKER_ANSWER_S))


def within(seconds: float, connect: Callable[[], Client]) -> Client:
    """What ``connect`` gives, within so many seconds of the monotonic clock.

    Dask's own time limit is a moment of the clock of the day: where that is set back meanwhile, Dask waits for as long.
    A connection that comes too late is closed. Raises TimeoutError where the time is over.
    """
    made: Future[Client] = Future()

    def run() -> None:
        try:
            client = connect()
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            made.set_exception(error)
            return
        try:
            made.set_result(client)
        except InvalidStateError:  # nobody waits any more
            client.close()

    threading.Thread(target=run, name="dask-connect", daemon=True).start()
    try:
        return made.result(seconds)
    except TimeoutError:
        if made.cancel() or not made.done():
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        return made.result()


def send(client: Client, folder: Path, job: JobRecord, counted: Collection[str], *, is_again: bool = False) -> Any:
    """Put a job into a scheduler's queue; each round of a job is there only once, even if several processes send it.

    With ``is_again`` it is put there once more: a task of its own, because Dask does not run one key a second time as
    long as any client holds what became of the first, and two clients that take turns could hold it for ever.

    ``counted`` are the resources that the workers count. Slots are asked for only where they do: else the workers'
    threads are the slots. Anything else is waited for until a worker has it. A job that works in the lab's store runs
    on the lab's own machine.
    """
    from distributed import fire_and_forget

    needs = {name: amount for name, amount in job.resources.items() if name != SLOT or name in counted}
    if door.HOME in counted and is_at_home(job.kind, job.resources):
        needs[door.HOME] = 1
    key = f"syno-job-{job.id}-{job.round}" + (f"-{uuid.uuid4().hex}" if is_again else "")
    future = client.submit(supervise, str(folder), job.id, key=key, resources=needs, pure=False)
    fire_and_forget(future)
    return future


def counted_resources(client: Client) -> frozenset[str]:
    """Ask somebody else's scheduler what its workers count. Raises JobError where it does not answer."""
    return frozenset(name for worker in _information(client)["workers"].values() for name in worker["resources"])


def scheduler_name(endpoint: Endpoint, timeout: float) -> str:
    """What tells the scheduler at an address from one that is started there later.

    Raises JobError: none answers within so many seconds, or not to this key.
    """
    client = connect(endpoint, timeout)
    try:
        return str(_information(client)["id"])
    finally:
        client.close()


def _information(client: Client) -> dict[str, Any]:
    """What a scheduler says of itself and of all its workers. Raises JobError where it does not answer."""
    pool = ThreadPoolExecutor(1)
    try:
        found: dict[str, Any] = pool.submit(client.scheduler_info, n_workers=-1).result(ANSWER_S)
    except (OSError, TimeoutError) as error:
        raise JobError(f"the Dask cluster at {client.scheduler.address} does not answer") from error
    finally:
        pool.shutdown(wait=False)  # Dask itself would wait for ever
    return found

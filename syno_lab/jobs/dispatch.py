"""Submission of jobs to the queue of a Dask scheduler."""

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
#: The resource that every worker of a lab has.
SLOT = "slot"
#: Seconds within which a worker's own scheduler must answer the worker.
WORKER_ANSWER_S = 5.0
#: Seconds after Dask's own timeout until the lab stops waiting for Dask.
GRACE_S = 5.0


def connect(endpoint: Endpoint, timeout: float | None = None) -> Client:
    """Connect to a Dask scheduler. Raises JobError where the scheduler does not answer, or refuses the client's key."""
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
            f"{where} {does}: see that its scheduler runs{tls} and has this version of Dask, or leave the address out "
            "to use this machine"
        ) from error


def worker_client() -> Client:
    """Return the client of this process's Dask worker, which has the worker's certificate.

    Raises ValueError where this process is no worker; OSError where the scheduler does not answer.
    """
    from distributed import get_worker

    worker = get_worker()
    security: Any = worker.security
    if not security.tls_client_cert:  # Dask's command sets the key of the worker, not of its client
        security.tls_client_cert, security.tls_client_key = security.tls_worker_cert, security.tls_worker_key
    return within(WORKER_ANSWER_S + GRACE_S, lambda: worker._get_client(timeout=WORKER_ANSWER_S))


def within(seconds: float, connect: Callable[[], Client]) -> Client:
    """Call ``connect`` and return its result, within ``seconds`` by the monotonic clock.

    Dask's own timeout uses the wall clock: if that clock is set back by an hour, Dask waits an hour longer. If the
    connection succeeds after the timeout, it is closed. Raises TimeoutError at the timeout.
    """
    pending: Future[Client] = Future()

    def run() -> None:
        try:
            client = connect()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again
            pending.set_exception(error)
            return
        try:
            pending.set_result(client)
        except InvalidStateError:  # the future was cancelled at the timeout
            client.close()

    threading.Thread(target=run, name="dask-connect", daemon=True).start()
    try:
        return pending.result(seconds)
    except TimeoutError:
        if pending.cancel() or not pending.done():
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        return pending.result()


def send(client: Client, folder: Path, job: JobRecord, counted: Collection[str], *, is_again: bool = False) -> Any:
    """Submit a job to a scheduler, with a key for its round. A round runs once, even if several processes submit it.

    ``is_again`` gives the task a new key. Dask does not run a key again while any client holds the result of that key,
    and two clients in turn could hold it for ever.

    ``counted`` are the names of the resources that the workers have. Slots are requested only where workers count
    slots; elsewhere the workers' threads are the slots. Any other resource is always requested. A job that works in the
    lab's store runs on the lab's own machine.
    """
    from distributed import fire_and_forget

    needs = {name: amount for name, amount in job.resources.items() if name != SLOT or name in counted}
    if door.HOME in counted and is_at_home(job.kind, job.resources):
        needs[door.HOME] = 1
    key = f"syno-job-{job.id}-{job.round}" + (f"-{uuid.uuid4().hex}" if is_again else "")
    # Dask may give a new worker more tasks than it has slots for. The worker then starts no task behind the first task
    # that waits for a slot, so a driver comes first.
    priority = 0 if job.resources else 1
    future = client.submit(supervise, str(folder), job.id, key=key, resources=needs, priority=priority, pure=False)
    fire_and_forget(future)
    return future


def counted_resources(client: Client) -> frozenset[str]:
    """Return the names of a foreign scheduler's resources. Raises JobError where the scheduler does not answer."""
    return frozenset(name for worker in _information(client)["workers"].values() for name in worker["resources"])


def scheduler_name(endpoint: Endpoint, timeout: float) -> str:
    """Return the identifier of a scheduler. A scheduler that starts later at the same address has another identifier.

    Raises JobError where no scheduler answers within ``timeout`` seconds, or the scheduler refuses the client's key.
    """
    client = connect(endpoint, timeout)
    try:
        return str(_information(client)["id"])
    finally:
        client.close()


def _information(client: Client) -> dict[str, Any]:
    """Return data on a scheduler and its workers. Raises JobError where the scheduler does not answer."""
    pool = ThreadPoolExecutor(1)
    try:
        information: dict[str, Any] = pool.submit(client.scheduler_info, n_workers=-1).result(ANSWER_S)
    except (OSError, TimeoutError) as error:
        raise JobError(f"the Dask cluster at {client.scheduler.address} does not answer") from error
    finally:
        pool.shutdown(wait=False)  # Dask's own call would wait for ever
    return information

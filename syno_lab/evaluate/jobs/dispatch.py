"""How jobs come into a Dask scheduler's line."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError
from syno_lab.evaluate.jobs.records import JobRecord
from syno_lab.evaluate.jobs.supervise import supervise

if TYPE_CHECKING:
    from distributed import Client

#: Seconds within which a scheduler must answer.
ANSWER_S = 10.0
#: The resource of every worker that a lab starts.
SLOT = "slot"


def connect(address: str, timeout: float | None = None) -> Client:
    """Connect to a Dask scheduler.

    Raises:
        JobError: it does not answer.
    """
    from distributed import Client

    timeout = ANSWER_S if timeout is None else timeout
    try:
        return Client(address, timeout=timeout, set_as_default=False, name="syno-lab")
    except (OSError, ValueError, TimeoutError, ImportError) as error:
        raise JobError(
            f"the Dask cluster at {address} does not answer within {timeout:g} s ({type(error).__name__}): "
            "see that its scheduler runs and is of the same Dask, or leave the address out to use this machine"
        ) from error


def send(client: Client, folder: Path, job: JobRecord, counted: Collection[str], *, is_again: bool = False) -> Any:
    """Put a job in a scheduler's line; the same round of a job is there only once, whoever sends it.

    With ``is_again`` it is put there once more: a task of its own, because Dask does not run one key a second time as
    long as any client holds what became of the first, and two clients that take turns could hold it for ever.

    ``counted`` are the resources that the workers count. Slots are asked for only where they do: else the workers'
    threads are the slots. Anything else is waited for until a worker has it.
    """
    from distributed import fire_and_forget

    needs = {name: amount for name, amount in job.resources.items() if name != SLOT or name in counted}
    key = f"syno-job-{job.id}-{job.round}" + (f"-{uuid.uuid4().hex}" if is_again else "")
    future = client.submit(supervise, str(folder), job.id, key=key, resources=needs, pure=False)
    fire_and_forget(future)
    return future


def counted_resources(client: Client) -> frozenset[str]:
    """Ask somebody else's scheduler what its workers count.

    Raises:
        JobError: it does not answer.
    """
    pool = ThreadPoolExecutor(1)
    try:
        workers = pool.submit(client.scheduler_info, n_workers=-1).result(ANSWER_S)["workers"].values()
    except (OSError, TimeoutError) as error:
        raise JobError(f"the Dask cluster at {client.scheduler.address} does not answer") from error
    finally:
        pool.shutdown(wait=False)  # Dask itself would wait for ever
    return frozenset(name for worker in workers for name in worker["resources"])

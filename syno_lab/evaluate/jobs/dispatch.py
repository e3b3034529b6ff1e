"""How jobs come into a Dask scheduler's line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import JobError
from syno_lab.evaluate.jobs.records import JobRecord
from syno_lab.evaluate.jobs.supervise import supervise

if TYPE_CHECKING:
    from distributed import Client

#: Seconds within which a scheduler must answer.
ANSWER_S = 10.0


def connect(address: str, timeout: float = ANSWER_S) -> Client:
    """Connect to a Dask scheduler.

    Raises:
        JobError: it does not answer.
    """
    from distributed import Client

    try:
        return Client(address, timeout=timeout, set_as_default=False, name="syno-lab")
    except (OSError, ValueError, TimeoutError, ImportError) as error:
        raise JobError(
            f"the Dask cluster at {address} does not answer within {timeout:g} s ({type(error).__name__}): "
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

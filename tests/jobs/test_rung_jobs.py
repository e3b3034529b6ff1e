"""A search in rungs whose workers are jobs: trained for real, with a worker that is killed on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from known_trainings import TRAINING
from labs import until

from syno_lab.experiments import SearchSettings
from syno_lab.experiments.rung_worker import KIND
from syno_lab.jobs import Lab
from syno_lab.processes import alive
from syno_lab.store.rungs import TAKEN


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    settings = SearchSettings(
        training=TRAINING,
        minutes=4.0,  # of a machine that may do other work; the trials bound it on a quiet one
        trials=10,
        rungs=True,
        anyway=True,
        method="random",
        limits={"max_primitives": 4},
        coefficients=("s=2: 1",),
        max_replaced_ratio=10.0,
        seeds=(1000,),
        workers=2,
    )
    with Lab.open(tmp_path, slots=2) as lab:
        handle = lab.submit("search", settings.to_dict(), name=settings.name)
        queue = lab.store.search(settings.name, settings.identity).rungs
        until(lambda: any(one.state == TAKEN and one.number >= 0 for one in queue.trainings()), lab)
        leases = {lease.job: lease for lease in lab.ledger.leases()}
        worker = next(job for job in lab.jobs(kind=KIND) if job.id in leases)
        os.kill(alive.pid_of(leases[worker.id].child), signal.SIGKILL)
        job = handle.wait(240)
        assert job.state == "finished", (job.reason, handle.log())
        assert job.result is not None
        trainings = queue.trainings()
        assert all(one.is_ended for one in trainings)
        assert all(one.state == "finished" for one in trainings), [one.outcome for one in trainings]
        assert len({(one.number, one.rung, one.seed) for one in trainings}) == len(trainings)
        assert len(job.result["baseline"]["accuracies"]) == 1
        assert job.result["funnel"]["rungs"]["final"]["trained"] >= 1
        until(lambda: all(one.is_ended for one in lab.jobs(kind=KIND)), lab)

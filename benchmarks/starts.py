"""What the process of a training costs beside the training: started by itself, and forked by one that has imported all.

CPU-seconds of a job of kind ``train`` (its process from beginning to end) over those of the same ``run_trial`` in this
process, where everything is imported already; both ways take turns in one lab. ``least_trial_s`` is how long a trial
must be for that difference to be 2 % of it. ``wall_s`` is from submitting to the result, on an otherwise idle lab.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import about, parser_with_data, save, say, typed, use_one_core

TURNS = 7
#: The same function by itself and, as ``syno-lab`` does it, forked.
WAYS = {"alone": "alone", "forked": "train"}


def main() -> None:
    """Measure and save."""
    given = parser_with_data(__doc__ or "", 256).parse_args()
    core = use_one_core(given.core)
    os.environ["SYNO_LAB_KINDS"] = "alone=syno_lab.evaluate.trial.job:run"
    os.environ["SYNO_LAB_WARM"] = "train"
    save("starts", {"about": about(typed(), core), "images": given.images, **measure(str(given.data), given.images)})


def measure(data: str, images: int) -> dict[str, Any]:
    """Medians over the turns, and of what each turn costs more than the training itself."""
    import psutil
    import torch

    from syno_lab import operators
    from syno_lab.evaluate.jobs import Lab
    from syno_lab.evaluate.trial import TrialRequest, run_trial

    torch.set_num_threads(1)
    operator = operators.conv2d().to_json()
    request = TrialRequest(
        backbone="resnet20", data=data, operator=operator, train_images=images, test_images=64, epochs=1, threads=1
    )

    def here() -> float:
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            outcome = run_trial(request, folder=Path(folder))
        assert outcome.state == "finished", outcome.reason
        return time.process_time() - start

    here()  # what loads on use
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, Lab.open(folder, slots=1) as lab:
        try:
            for turn in range(TURNS + 1):
                bare = here()
                for way, kind in WAYS.items():
                    start = time.monotonic()
                    job = lab.submit(kind, request.to_dict()).wait(600)
                    assert job.state == "finished", job.reason
                    if turn:  # the first starts the worker and the process that forks
                        found[way].append((job.cpu_s, job.cpu_s - bare, time.monotonic() - start))
                        say(f"{way} {turn} of {TURNS}: {job.cpu_s:.2f} CPU-s, the training itself {bare:.2f}")
            worker = psutil.Process(lab.cluster.processes()["worker"])
            (server,) = (one for one in worker.children() if "syno_lab.evaluate.jobs.warm" in one.cmdline())
            memory, once = server.memory_full_info(), server.cpu_times()
        finally:
            lab.shutdown()
    rows = {}
    for way, turns in found.items():
        cpu, more, wall = (statistics.median(column) for column in zip(*turns, strict=True))
        rows[way] = {"cpu_s": cpu, "beside_training_s": more, "least_trial_s": more / 0.02, "wall_s": wall}
        say(f"{way}: {rows[way]}")
    pairs = zip(found["alone"], found["forked"], strict=True)
    return {
        "ways": rows,
        "forked_over_alone": statistics.median(forked[0] / alone[0] for alone, forked in pairs),
        "server": {"cpu_s": once.user + once.system, "resident_mb": memory.rss / 1e6, "own_mb": memory.uss / 1e6},
    }


if __name__ == "__main__":
    main()

"""What the process of a training costs beside the training.

CPU-seconds of a job of kind ``train`` (its process from beginning to end) over those of the same ``run_trial`` in this
process, where everything is imported already. ``least_trial_s`` is how long a trial
must be for that difference to be 2 % of it. ``wall_s`` is from submitting to the result, on an otherwise idle lab.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import about, parser_with_data, save, say, typed, use_one_core

TURNS = 7


def main() -> None:
    """Measure and save."""
    given = parser_with_data(__doc__ or "", 256).parse_args()
    core = use_one_core(given.core)
    save("starts", {"about": about(typed(), core), "images": given.images, **measure(str(given.data), given.images)})


def measure(data: str, images: int) -> dict[str, Any]:
    """Medians over the turns, and of what each turn costs more than the training itself."""
    import torch

    from syno_lab import operators
    from syno_lab.jobs import Lab
    from syno_lab.trial import TrialRequest, run_trial

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
    turns: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder, Lab.open(folder, slots=1) as lab:
        try:
            for turn in range(TURNS + 1):
                bare = here()
                start = time.monotonic()
                job = lab.submit("train", request.to_dict()).wait(600)
                assert job.state == "finished", job.reason
                if turn:  # the first starts the worker
                    turns.append((job.cpu_s, job.cpu_s - bare, time.monotonic() - start))
                    say(f"{turn} of {TURNS}: {job.cpu_s:.2f} CPU-s, the training itself {bare:.2f}")
        finally:
            lab.shutdown()
    cpu, more, wall = (statistics.median(column) for column in zip(*turns, strict=True))
    row = {"cpu_s": cpu, "beside_training_s": more, "least_trial_s": more / 0.02, "wall_s": wall}
    say(str(row))
    return {"ways": {"alone": row}}


if __name__ == "__main__":
    main()

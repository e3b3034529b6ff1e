"""The memory and the pace of images that are decoded while a network trains, against holding them.

Makes class folders of generated images (noise that JPEG can compress a little) in a temporary folder, and goes through
one epoch of each number of images twice, in processes of their own: as a stream (decoded by worker processes), and held
in memory as before. Nothing is trained. Peak memory is the proportional set size of the process and its workers,
sampled once a second, less what the process had before it read an image; the names of the files count. The peak of each
process is told too, whole. Images a CPU-second count the processor's time of all of them, which other work on the
machine changes less than seconds; the load of the machine stands beside.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed

CLASSES = 10
BATCH = 256


def main() -> None:
    """Measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--images", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="numbers of images")
    options.add_argument("--stored", type=int, default=48, help="height and width of the files (48)")
    options.add_argument("--size", type=int, default=32, help="height and width for training (32)")
    given = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        made = 0
        for count in sorted(given.images):
            made = make(Path(place), made, count, given.stored)
            for how in ("streamed", "held"):
                rows.append({"images": count, "how": how} | measured(place, how, given.size))
                say(json.dumps(rows[-1]))
    save("streaming", {"about": about(typed(), None), "stored": given.stored, "size": given.size, "rows": rows})


def make(place: Path, first: int, count: int, stored: int) -> int:
    """Write the images ``first`` to ``count``, a quarter as large where they are noise; return ``count``."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(first)
    for name in range(CLASSES):
        (place / f"{name}").mkdir(exist_ok=True)
    for number in range(first, count):
        pixels = rng.integers(0, 256, (stored // 4, stored // 4, 3), np.uint8)
        image = Image.fromarray(pixels).resize((stored, stored))
        image.save(place / f"{number % CLASSES}" / f"{number}.jpg", quality=85)
    return count


def measured(place: str, how: str, size: int) -> dict[str, Any]:
    """One epoch in a process of its own."""
    command = [sys.executable, __file__, "--child", place, how, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(place: str, how: str, size: int) -> None:
    """Go through one epoch and print what it took."""
    import psutil
    import torch

    from syno_lab.data.datasets import load_dataset
    from syno_lab.data.image_folder import find_image_folder
    from syno_lab.data.stream import stream_of, workers_for
    from syno_lab.training.tasks import task_of

    threads = torch.get_num_threads()
    me, peak, over = psutil.Process(), 0.0, threading.Event()
    peaks: dict[int, float] = {}

    def memory() -> float:
        total = 0.0
        for one in (me, *me.children(recursive=True)):
            try:
                mib = one.memory_full_info().pss / 2**20
            except psutil.Error:  # it has just ended
                continue
            peaks[one.pid] = max(peaks.get(one.pid, 0.0), mib)
            total += mib
        return total

    before = memory()

    def watch() -> None:
        nonlocal peak
        while not over.wait(1.0):
            peak = max(peak, memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu_before, start = time.process_time(), time.perf_counter()
    data = stream_of(find_image_folder(Path(place)), size) if how == "streamed" else load_dataset(place, size=size)
    task = task_of(data, torch.device("cpu"), BATCH, "resized-crop")
    draw = torch.Generator().manual_seed(0)
    ready = time.perf_counter() - start
    task.start_epoch(draw)
    seen = sum(len(task.train_batch(number, torch.float32, draw)[1]) for number in range(task.train_batches))
    seconds = time.perf_counter() - start - ready
    task.close()
    over.set()
    watcher.join()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used) - cpu_before
    print(
        json.dumps(
            {
                "seen": seen,
                "seconds_before": round(ready, 2),
                "epoch_seconds": round(seconds, 2),
                "images_per_s": round(seen / seconds),
                "cpu_seconds": round(cpu_s, 2),
                "images_per_cpu_s": round(seen / cpu_s),
                "load": round(os.getloadavg()[0], 1),
                "peak_mib": round(peak - before, 1),
                "peak_mib_of_main": round(peaks.pop(me.pid), 1),
                "peak_mib_of_workers": sorted(round(mib, 1) for mib in peaks.values()),
                "workers": workers_for(threads) if how == "streamed" else 0,
                "threads": threads,
            }
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "2")
        main()

"""A tuning of a thousand candidates: how time, memory and the size of the records grow with the number of trials.

``python benchmarks/long_tuning.py`` tunes conv2d on one layer of ResNet-34 over RPC on loopback, in one thread. Every
two seconds it looks at the memory of all processes of the tuning (proportional set size: what processes share is
counted once) and at the files of its records. It writes ``benchmarks/results/long_tuning.json`` and draws
``benchmarks/results/long_tuning.svg``; ``--draw`` draws it anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plots
import psutil
from common import RESULTS, about, parser, save, say, tuned_here, typed
from tuning_cost import task_of

from syno_lab.tuning import local_board

if TYPE_CHECKING:
    from syno_lab.tuning import TuningProgress

#: Seconds between two looks at memory and files, which take some milliseconds each.
LOOK_S = 2.0
COLOUR = "#1b6ca8"


def memory_bytes() -> int:
    """The memory of all processes that this one has started."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += process.memory_full_info().pss
    return found


def files_bytes(folder: Path) -> int:
    """What the tuning has written so far."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def draw(result: dict[str, Any]) -> None:
    """Three panels over the number of the trial: seconds since the start, memory, size of the records."""
    plt = plots.start("long_tuning")
    figure, panels = plt.subplots(3, 1, figsize=(6.4, 7.0), sharex=True, layout="constrained", facecolor="white")
    trials = [look["trial"] for look in result["course"]]
    for axes, name, words, unit in zip(
        panels,
        ("seconds", "memory_bytes", "files_bytes"),
        ("seconds since the start", "memory of all processes, MiB", "records, MiB"),
        (1, 2**20, 2**20),
        strict=True,
    ):
        axes.plot(trials, [look[name] / unit for look in result["course"]], color=COLOUR)
        axes.set_ylabel(words)
        axes.set_ylim(bottom=0)
    panels[0].set_title(f"{result['operator']}, {result['shape']}: {result['trials']:,} trials", fontsize=11)
    panels[-1].set_xlabel("trial")
    plots.finish(plt, figure, "long_tuning", panels, ())


def main() -> None:
    """Tune, look, save and draw."""
    options = parser(__doc__ or "")
    options.add_argument("--operator", default="conv2d")
    options.add_argument("--shape", default="64x28", help="channels and height (64x28)")
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--preset", default="quick")
    options.add_argument("--draw", action="store_true", help="draw the stored result, measure nothing")
    chosen = options.parse_args()
    path = RESULTS / "long_tuning.json"
    if chosen.draw:
        if not path.is_file():
            sys.exit(f"--draw: expected a result at {path}; measure first")
        draw(json.loads(path.read_text(encoding="utf-8")))
        return
    course: list[dict[str, Any]] = []
    started = time.monotonic()

    with tempfile.TemporaryDirectory(prefix="long-tuning-") as name, local_board(threads=chosen.threads) as board:
        records = Path(name) / "records"

        def look(now: TuningProgress) -> None:
            seconds = time.monotonic() - started
            if not course or seconds - course[-1]["seconds"] >= LOOK_S or now.trial == now.trials:
                here = {"trial": now.trial, "seconds": seconds, "best_ms": now.best_ms}
                course.append(here | {"memory_bytes": memory_bytes(), "files_bytes": files_bytes(records)})

        task = task_of(chosen.operator, chosen.shape)
        found = tuned_here(task, board, chosen, name, seed=chosen.seed, store=records, on_progress=look)
        written = files_bytes(records)
    result = {name: getattr(chosen, name) for name in ("operator", "shape", "threads", "preset")}
    kept = ("trials", "failed", "seconds", "latency_ms", "best_ms", "stopped")
    result |= {name: getattr(found, name) for name in kept}
    result |= {"files_bytes": written, "course": course, "about": about(typed(), None)}
    say(f"{found.trials} trials, {found.seconds / found.trials:.2f} s each, best {found.best_ms:.3f} ms")
    save("long_tuning", result)
    draw(result)


if __name__ == "__main__":
    main()

"""What the benchmarks share: one core, ``syno-lab sample`` as a child process, where and when results were made."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno_lab.protocol import SearchStep
    from syno_lab.tuning import Board, TuningResult, TuningTask

RESULTS = Path(__file__).parent / "results"
GRACE_S = 600.0  # for the fingerprints after the clock has stopped
TUNING_LIMIT_S = 3600.0


def use_one_core(core: int | None = None) -> int | None:
    """Keep this process and its children on one core, the last one that it may use unless told; None: not possible."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    chosen = allowed[-1] if core is None else core
    if chosen not in allowed:
        sys.exit(f"--core: expected one of {', '.join(map(str, allowed))}, found {chosen}")
    os.sched_setaffinity(0, {chosen})
    os.environ["OMP_NUM_THREADS"] = "1"
    return chosen


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed, for this process; whether it could be told so.

    Otherwise the order in which large tensors are freed decides whether pages are given back and taken again at each
    step: up to half of a step's time, for one of two modules that do the same.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(trim_threshold, 1 << 30)) and bool(mallopt(mmap_threshold, 1 << 25))


def steps_taken(stored: dict[str, Any]) -> list[tuple[SearchStep, ...]]:
    """The steps of each recorded trial: those of a search, or those that ``record_trials.py`` names in its table."""
    import msgspec

    from syno_lab.protocol import SearchStep

    table = stored.get("taken")
    found = [one["taken"] if table is None else [table[name] for name in one["steps"]] for one in stored["recorded"]]
    return msgspec.convert(found, list[tuple[SearchStep, ...]])


def last_rung(stored: dict[str, Any]) -> str | None:
    """The last rung on which ``record_trials.py`` trained; None in a record without rungs, such as a search's."""
    return next(reversed(stored["rungs"]), None) if "rungs" in stored else None


def recorded_rewards(stored: dict[str, Any], rung: str | None = None) -> dict[tuple[str, ...], float]:
    """The reward of each recorded operator by the names of its steps, on a rung (the last one)."""
    return {tuple(one["steps"]): float(_on(stored, one["reward"], rung)) for one in stored["recorded"]}


def recorded_seconds(stored: dict[str, Any], rung: str | None = None) -> dict[tuple[str, ...], float]:
    """The seconds of each recorded operator's training, likewise."""
    return {
        tuple(one["steps"]): float(_on(stored, one.get("work_s", one.get("wall_s")), rung))
        for one in stored["recorded"]
    }


def recorded_traits(stored: dict[str, Any]) -> dict[tuple[str, ...], dict[str, int]]:
    """The traits of each recorded operator; {} where they were not recorded."""
    return {tuple(one["steps"]): one.get("traits", {}) for one in stored["recorded"]}


def _on(stored: dict[str, Any], found: Any, rung: str | None) -> Any:
    return found[rung or last_rung(stored)] if isinstance(found, dict) else found


def sample(**options: object) -> dict[str, Any]:
    """The JSON of ``syno-lab sample`` with these options, from a cold start; operators left out.

    Where the command fails, ``{"error": its one line}``: a row that cannot be run does not end the others.
    """
    words = [sys.executable, "-X", "faulthandler", "-m", "syno_lab.cli", "sample", "--json", "-"]
    for name, value in options.items():
        if value is False:
            words.append(f"--no-{name.replace('_', '-')}")
        elif value is not None and value is not True:
            words += [f"--{name.replace('_', '-')}", str(value)]
    limit = float(str(options.get("seconds") or 0)) * 2 + GRACE_S
    start = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            answer, complaint = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGABRT)  # Python's fault handler then says where it was
            where = [line.strip() for line in child.communicate()[1].splitlines() if line.startswith("  File")]
            return {"error": f"not done after {limit:.0f} seconds: {'; '.join(where[:4])}"}
    if child.returncode:
        return {"error": (complaint.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = json.loads(answer)
    del found["operators"]
    return found | {"wall_seconds": time.monotonic() - start}


def about(command: str, core: int | None) -> dict[str, Any]:
    """Machine, date, versions and command of a run."""
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {'one used' if core is not None else 'not bound to one'}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit that was measured, with a + where files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude", "*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def save(name: str, result: dict[str, Any]) -> None:
    """Print a result and write it to ``benchmarks/results``."""
    text = json.dumps(result, indent=1)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def say(text: str) -> None:
    """Progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def parser(about_it: str) -> argparse.ArgumentParser:
    """Options that all scripts have."""
    made = argparse.ArgumentParser(description=about_it.partition("\n\n")[0])
    made.add_argument("--core", type=int, help="the core to run on (the last one that may be used)")
    made.add_argument("--seed", type=int, default=1)
    return made


def parser_with_data(about_it: str, images: int | None = None) -> argparse.ArgumentParser:
    """The same for scripts that train on CIFAR-10; with ``images`` on so many of its images unless told."""
    made = parser(about_it)
    made.add_argument("--data", type=Path, required=True, help="a folder of CIFAR-10")
    if images is not None:
        made.add_argument("--images", type=int, default=images, help=f"to train on ({images})")
    return made


def typed() -> str:
    """The command as it was typed, without the folders of this machine: a path keeps its last name."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    return shlex.join(["python", f"benchmarks/{Path(words[0]).name}", *words[1:]])


def tuned_here(
    task: TuningTask, board: Board, chosen: argparse.Namespace, folder: str | Path, **more: Any
) -> TuningResult:
    """A tuning for this machine with the options ``--threads``, ``--preset`` and ``--trials``; ``more`` is ``tune``'s.

    Raises:
        TuningError: what :func:`syno_lab.tuning.tune` raises.
    """
    from syno_lab.tuning import tune

    return tune(
        task,
        tracker=board.address,
        key=board.key,
        target=f"local:{chosen.threads}",
        preset=chosen.preset,
        trials=chosen.trials,
        work_dir=folder,
        deadline_s=TUNING_LIMIT_S,
        **more,
    )

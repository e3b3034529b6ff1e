"""What somebody else's files and words do to the lab: malformed inputs by the thousand, each drawn from a seed.

Operator files, sessions, specs, stores, records, data files, checkpoints, exports, bindings, magics and command lines
are damaged or made by an attacker, and opened with the lab's own readers, each in a process that is watched. A reader
may succeed or refuse in one line; it may not raise anything else, run what it reads, change a file, take more than a
GiB, or go on for 5 CPU-seconds or a minute.

    python benchmarks/hostile.py
    python benchmarks/hostile.py --surface stores --seed 7 --index 12    # one of them again, with its traceback
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import hostile_work
from common import about, parser, save, say, typed
from hostile_kit import write_kit
from hostile_work import CLOCK_LIMIT_S, CPU_LIMIT_S, SURFACES

#: What a run may not find.
TROUBLES = ("traceback", "unclear", "hang", "memory", "code", "changed", "died", "unmade")
_START_LIMIT_S = 300.0
_GRACE_S = 3.0  # for what ends by itself there
_TICKS = os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that opens one input after another."""

    def __init__(self, kit: Path, patience_s: float) -> None:
        # Started whole: a fork of a process in which torch has run may wait for threads that it does not have.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, str(kit), patience_s), daemon=True)
        self.process.start()
        theirs.close()
        self.patience_s = patience_s
        self.given: tuple[str, int] | None = None
        self.is_ready = False
        self.begun = time.monotonic()
        self._cpu_before = 0.0

    def give(self, task: tuple[str, int], seed: int) -> None:
        """Let it open the input of this surface and number."""
        self.given, self.begun, self._cpu_before = task, time.monotonic(), self.cpu_s()
        self.connection.send((*task, seed))

    def cpu_s(self) -> float:
        """CPU-seconds so far."""
        try:
            parts = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(parts[11]) + int(parts[12])) / _TICKS

    def overdue(self) -> str:
        """Why it is a hang, or nothing."""
        clock, cpu = time.monotonic() - self.begun, self.cpu_s() - self._cpu_before
        if not self.is_ready:
            return "not ready" if clock > _START_LIMIT_S else ""
        if self.given is None or (cpu <= CPU_LIMIT_S + _GRACE_S and clock <= self.patience_s + _GRACE_S):
            return ""
        return f"still at work after {cpu:.1f} CPU-seconds and {clock:.0f} s"

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def work(connection: Connection, kit: str, patience_s: float) -> None:
    """What a worker's process does."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    if "HOSTILE_TRACE" not in os.environ:
        os.dup2(null, 1)
        os.dup2(null, 2)
    hostile_work.prepare(kit)
    connection.send(None)
    while True:
        try:
            surface, index, seed = connection.recv()
        except EOFError:
            return
        connection.send(hostile_work.run(surface, seed, index, kit, patience_s=patience_s))


def outcomes(
    tasks: Sequence[tuple[str, int]], seed: int, kit: Path, workers: int, patience_s: float
) -> Iterator[dict[str, Any]]:
    """What came of each input, in the order in which they end; a worker that hangs is replaced."""
    left = list(reversed(tasks))
    pool = [Worker(kit, patience_s) for _ in range(min(workers, len(tasks)))]
    try:
        while pool:
            wait([worker.connection for worker in pool], timeout=0.2)
            for worker in list(pool):
                found = _heard(worker)
                if found is not None:
                    yield found
                if worker.given is None and worker.is_ready and left:
                    worker.give(left.pop(), seed)
                elif (worker.given is None and worker.is_ready) or not worker.process.is_alive():
                    pool.remove(worker)
                    worker.end()
                    if left:
                        pool.append(Worker(kit, patience_s))
    finally:
        for worker in pool:
            worker.end()


def _heard(worker: Worker) -> dict[str, Any] | None:
    """What a worker says; what is to be said of one that died or is overdue, which is killed."""
    if worker.connection.poll():
        try:
            found: dict[str, Any] | None = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            verdict, detail = "died", f"exit status {worker.process.exitcode}"
        else:
            worker.is_ready, worker.given = True, None
            return _late(found)
    else:
        verdict, detail = "hang", worker.overdue()
        if not detail:
            return None
        worker.process.kill()
        worker.process.join()
    worker.is_ready = False
    if worker.given is None:
        raise SystemExit(f"a worker came to nothing before it was given an input: {detail}")
    surface, index = worker.given
    worker.given = None
    return {"surface": surface, "index": index, "verdict": verdict, "detail": detail, "cpu_s": 0.0, "mib": 0.0}


def _late(found: dict[str, Any] | None) -> dict[str, Any] | None:
    if found is not None and found["cpu_s"] > CPU_LIMIT_S and found["verdict"] in ("accepted", "refused"):
        return found | {"verdict": "hang", "detail": f"{found['cpu_s']} CPU-seconds; {found['detail']}"}
    return found


def drawn(share: float, only: str | None = None) -> list[tuple[str, int]]:
    """The inputs of a run: so large a part of each surface's."""
    surfaces = SURFACES if only is None else {only: SURFACES[only]}
    tasks = [(name, index) for name, (_, whole) in surfaces.items() for index in range(round(share * whole))]
    random.Random(0).shuffle(tasks)
    return tasks


def repeat(surface: str, index: int, seed: int) -> str:
    """The command that opens one input again."""
    return f"python benchmarks/hostile.py --surface {surface} --seed {seed} --index {index}"


def whole(share: float, seed: int) -> str:
    """The command that opens all of a run's inputs again."""
    return f"python benchmarks/hostile.py --share {share:g} --seed {seed}"


def measured(
    share: float,
    seed: int,
    workers: int,
    only: str | None = None,
    lines: Path | None = None,
    patience_s: float = CLOCK_LIMIT_S,
) -> dict[str, Any]:
    """Open the inputs of a run and count what came of them; ``lines`` is a file for one line of JSON for each."""
    begun = time.monotonic()
    verdicts: dict[str, Counter[str]] = {}
    findings: list[dict[str, Any]] = []
    most = {"cpu_s": 0.0, "mib": 0.0}
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        kit = Path(folder)
        write_kit(kit)
        for done, found in enumerate(outcomes(drawn(share, only), seed, kit, workers, patience_s), 1):
            verdicts.setdefault(found["surface"], Counter())[found["verdict"]] += 1
            most = {name: max(value, found[name]) for name, value in most.items()}
            if found["verdict"] in TROUBLES:
                findings.append(found)
                say(f"{found['verdict']}: {found['detail']}\n  {repeat(found['surface'], found['index'], seed)}")
            if lines is not None:
                with lines.open("a") as file:
                    file.write(json.dumps(found) + "\n")
            if done % 1000 == 0:
                say(f"{done} inputs, {time.monotonic() - begun:.0f} s, {len(findings)} findings")
    return {
        "seed": seed,
        "tried": sum(sum(one.values()) for one in verdicts.values()),
        "surfaces": {name: dict(verdicts.get(name, {})) for name in SURFACES if name in verdicts},
        "findings": [{**one, "again": repeat(one["surface"], one["index"], seed)} for one in findings],
        "most_cpu_s": most["cpu_s"],
        "most_mib": most["mib"],
        "seconds": round(time.monotonic() - begun, 1),
    }


def show_one(surface: str, seed: int, index: int, patience_s: float) -> None:
    """Open one input in this process, keep it, and let its traceback out."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        write_kit(Path(folder))
        hostile_work.show_tracebacks()
        say(json.dumps(hostile_work.run(surface, seed, index, folder, keep=True, patience_s=patience_s), indent=1))


def main() -> None:
    """Run and save, or open one input."""
    options = parser(__doc__ or "")
    options.add_argument("--share", type=float, default=1.0, help="of the inputs of a whole run (1: over 10,000)")
    options.add_argument("--surface", choices=SURFACES, help="only this one")
    options.add_argument("--index", type=int, help="only the input of --surface with this number, with its traceback")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument(
        "--patience", type=float, default=CLOCK_LIMIT_S, help="seconds of the clock until it is a hang"
    )
    options.add_argument("--lines", type=Path, help="a file for one line of JSON for each input")
    options.set_defaults(seed=random.SystemRandom().randrange(1 << 30))
    given = options.parse_args()
    say(f"seed {given.seed}")
    if given.index is not None:
        if given.surface is None:
            sys.exit("--index: expected a --surface with it")
        show_one(given.surface, given.seed, given.index, given.patience)
        return
    result = measured(given.share, given.seed, given.workers, given.surface, given.lines, given.patience)
    if given.surface is None and given.share >= 1:
        save("hostile", {"about": about(typed(), given.core), **result})
    else:
        print(json.dumps({key: value for key, value in result.items() if key != "findings"}, indent=1))
    if result["findings"]:
        sys.exit(f"{len(result['findings'])} findings: see above")


if __name__ == "__main__":
    main()

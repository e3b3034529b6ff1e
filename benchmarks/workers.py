"""The lab's executor at scale: 1, 2, 4 and 8 workers on one machine, and two clusters, with sleeping trainings.

A training that sleeps takes no processor. So what its workers wait for is the lab's own: processes that begin and end,
the store, Dask, the wire. *Overhead* is wall time over trainings times seconds over workers, less one. The cluster is
up, and a job has ended in it, before the clock starts.

Then ``--kills`` processes are killed at random (SIGKILL) while trainings that sleep in steps, with a checkpoint after
each, go on: the training's own process, the worker that looks after it, the scheduler, and of two clusters also the
whole other machine, which then joins again. At the end every training must have ended once with the right sum.

*Two clusters*: half of the workers are the lab's own; the others are those of ``syno-lab worker``, with a folder and
settings of their own, as on another machine. They see no file of the lab: all goes over TCP on 127.0.0.1, with TLS.

    python benchmarks/workers.py
    python benchmarks/workers.py --workers 2 --seconds 5 --kills 3
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from chaos import TESTS, is_mixed, is_right
from common import about, parser, save, say, typed

#: Seconds of one step of a training that is killed; a checkpoint follows each.
STEP_S = 0.1
PATIENCE_S = 120.0
#: Of the process that is killed: its name, and whether there is one where all workers are the lab's own.
HERE = ("training", "worker", "scheduler")
AWAY = ("training away", "worker away", "machine")
_COMMAND = "import sys; from syno_lab.cli import main; sys.exit(main())"


@dataclass
class Machine:
    """``syno-lab worker`` with a folder and settings of its own; it is started again where it has ended."""

    home: Path
    address: str
    certificate: bytes
    slots: int
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    starts: int = field(default=0, init=False)

    def join(self) -> None:
        """Start it where it does not run."""
        if self.process is not None and self.process.poll() is None:
            return
        self.home.mkdir(mode=0o700, exist_ok=True)
        key = self.home / "copied.pem"
        key.touch(mode=0o600)
        key.write_bytes(self.certificate)
        words = ["worker", self.address, "--certificate", str(key), "--slots", str(self.slots)]
        with (self.home / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, *words],
                env={**os.environ, "SYNO_LAB_CONFIG": str(self.home / "settings")},
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Its command, Dask's worker and the trainings, which are the worker's children."""
        if self.process is None:
            return {}
        with contextlib.suppress(psutil.NoSuchProcess):
            command = psutil.Process(self.process.pid)
            workers = command.children()
            trainings = [child for worker in workers for child in worker.children()]
            return {"command": [command], "worker": workers, "training": trainings}
        return {}

    def left(self) -> list[psutil.Process]:
        """All processes that were started with its settings, its own or not any more."""
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get("SYNO_LAB_CONFIG") == str(self.home / "settings"):
                    found.append(one)
        return found

    def lose_power(self) -> None:
        """Kill all of it at once."""
        for one in self.left():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        if self.process is not None:
            self.process.wait()

    def end(self) -> None:
        """End it as Ctrl-C does."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.lose_power()


@contextlib.contextmanager
def workers_of(count: int, *, away: bool) -> Iterator[tuple[Any, Machine | None]]:
    """A lab with so many workers, half of them another machine's with ``away``; all of them are there."""
    from labs import free_port

    from syno_lab.jobs import Lab
    from syno_lab.jobs.dispatch import connect

    with tempfile.TemporaryDirectory(prefix="workers-") as folder, contextlib.ExitStack() as stack:
        machine = None
        own = count - count // 2 if away else count
        lab = Lab.open(Path(folder) / "lab", slots=own, start=False, **_listening(away, free_port))
        if away:
            endpoint = lab.cluster.serve()
            machine = Machine(Path(folder) / "other", endpoint.address, lab.cluster.certificate(), count // 2)
            stack.callback(machine.end)
            machine.join()
            client = connect(endpoint)
            deadline = time.monotonic() + PATIENCE_S
            while len(client.scheduler_info(n_workers=-1)["workers"]) < 2:
                if time.monotonic() > deadline:
                    raise SystemExit(f"the other machine does not join: {machine.home / 'worker.log'}")
                time.sleep(0.1)
            client.close()
        lab.close()
        lab = stack.enter_context(Lab.open(Path(folder) / "lab", slots=own))
        stack.callback(lab.shutdown)
        yield lab, machine


def _listening(away: bool, free_port: Any) -> dict[str, Any]:
    return {"listen": "127.0.0.1", "port": free_port()} if away else {}


def timed(count: int, seconds: float, rounds: int, *, away: bool) -> dict[str, Any]:
    """Wall time of sleeping trainings, so many for each worker."""
    with workers_of(count, away=away) as (lab, _):
        lab.submit("nothing").future().result(PATIENCE_S)
        trainings = rounds * count
        begun = time.monotonic()
        futures = [lab.submit("sleep", {"seconds": seconds}).future() for _ in range(trainings)]
        slept = [future.result(seconds * trainings + PATIENCE_S)["slept"] for future in futures]
        wall = time.monotonic() - begun
        assert slept == [seconds] * trainings
        cpu = statistics.median(job.cpu_s for job in lab.jobs(kind="sleep"))
    ideal = seconds * rounds
    row = {
        "workers": count,
        "clusters": 1 + away,
        "trainings": trainings,
        "seconds": seconds,
        "wall_s": round(wall, 2),
        "overhead": wall / ideal - 1,
        "more_s": (wall - ideal) / rounds,
        "cpu_s": round(cpu, 3),
    }
    say(f"{count} workers, {1 + away} clusters: {wall:.2f} s of {ideal:g}, overhead {row['overhead']:.2%}")
    return row


# -- kills -------------------------------------------------------------------------------------------------------------


def victims(lab: Any, machine: Machine | None) -> dict[str, list[int]]:
    """The processes that live, by what they are."""
    from syno_lab.processes import alive

    found = {role: [pid] for role, pid in lab.cluster.processes().items()}
    there = {} if machine is None else machine.processes()
    away = {one.pid for one in there.get("training", [])}
    children = {alive.pid_of(lease.child) for lease in lab.ledger.leases() if alive.is_alive(lease.child)}
    found["training"] = sorted(children - away)
    found["training away"] = sorted(away)
    found["worker away"] = [one.pid for one in there.get("worker", [])]
    found["machine"] = [one.pid for one in there.get("command", [])]
    return found


def strike(lab: Any, machine: Machine | None, rng: random.Random) -> str | None:
    """Kill one of them, by a role drawn first; the role, or None where there was none."""
    role = rng.choice(HERE if machine is None else HERE + AWAY)
    living = victims(lab, machine).get(role)
    if not living:
        return None
    if role == "machine":
        assert machine is not None
        machine.lose_power()
        return role
    try:
        psutil.Process(rng.choice(living)).kill()
    except psutil.NoSuchProcess:
        return None
    return role


def goes_on(lab: Any, before: dict[int, str], count: int) -> bool:
    """Whether as many trainings as there are workers have made a step since ``before``."""
    running = lab.jobs(kind="count", state="running")
    return sum(job.message != before.get(job.id) for job in running) >= count


def killed(count: int, kills: int, seed: int, *, away: bool) -> dict[str, Any]:
    """Kill so many processes while trainings go on, let them end, and look what is missing."""
    rng = random.Random(seed)
    struck: Counter[str] = Counter()
    recoveries = []
    begun = time.monotonic()
    with workers_of(count, away=away) as (lab, machine):
        enough = lab.folder / "enough"
        given = {"until": str(enough), "seconds": STEP_S}
        numbers = [lab.submit("count", given, name=f"{one}", max_attempts=9999).id for one in range(2 * count)]
        wait_for(lab, machine, {}, count)
        while sum(struck.values()) < kills:
            time.sleep(rng.uniform(0, 2))
            before = {job.id: job.message for job in lab.jobs(kind="count")}
            role = strike(lab, machine, rng)
            if role is None:
                continue
            struck[role] += 1
            recoveries.append(wait_for(lab, machine, before, count))
            say(f"{sum(struck.values())}: {role} killed, all workers at work after {recoveries[-1]:.2f} s")
        enough.touch()
        deadline = time.monotonic() + PATIENCE_S
        while not lab.wait(numbers, timeout=1.0):
            if machine is not None:
                machine.join()
            if time.monotonic() > deadline:
                break
        jobs = lab.jobs(kind="count")
        journals = {job.id: lab.folder / "jobs" / str(job.id) / "journal.txt" for job in jobs}
        lines = {number: path.read_text().splitlines() for number, path in journals.items() if path.is_file()}
        done = {number: [int(line.split()[1]) for line in found] for number, found in lines.items()}
        row = {
            "workers": count,
            "clusters": 1 + away,
            "seed": seed,
            "kills": kills,
            "killed": dict(struck),
            "trainings": len(numbers),
            "lost": [number for number in numbers if number not in {job.id for job in jobs if job.state == "finished"}],
            "wrong": [job.id for job in jobs if job.state == "finished" and not is_right(job.result or {})],
            "overlapping": [number for number, path in journals.items() if is_mixed(path)],
            "attempts": sum(job.attempt for job in jobs),
            "steps": sum(len(set(found)) for found in done.values()),
            "twice": sum(len(found) - len(set(found)) for found in done.values()),
            "joined": 0 if machine is None else machine.starts,
        }
        if machine is not None:
            machine.end()
        lab.shutdown()
        row["left"] = [] if machine is None else [" ".join(one.cmdline()[:6]) for one in machine.left()]
    times = sorted(recoveries)
    row["recovery_s"] = {
        "p50": round(statistics.median(times), 2),
        "p95": round(times[min(len(times) - 1, int(0.95 * len(times)))], 2),
    }
    row["took_s"] = round(time.monotonic() - begun, 1)
    say(str(row))
    return row


def wait_for(lab: Any, machine: Machine | None, before: dict[int, str], count: int) -> float:
    """Seconds until as many trainings as there are workers go on; the other machine joins again where it left."""
    begun = time.monotonic()
    while not goes_on(lab, before, count):
        if machine is not None:
            machine.join()
        if time.monotonic() - begun > PATIENCE_S:
            states = Counter(job.state for job in lab.jobs())
            said = lab.keeper.trouble or "no trouble said"
            raise SystemExit(f"stuck after {PATIENCE_S:g} s: {dict(states)}, {said}, {victims(lab, machine)}")
        time.sleep(0.05)
    return time.monotonic() - begun


def main() -> None:
    """Run and save."""
    options = parser(__doc__ or "")
    options.add_argument("--workers", default="1,2,4,8", help="on one machine (1,2,4,8)")
    options.add_argument("--seconds", type=float, default=60.0, help="of a sleeping training (60)")
    options.add_argument("--rounds", type=int, default=3, help="trainings for each worker (3)")
    options.add_argument("--kills", type=int, default=30, help="on one machine, and as many with two clusters (30)")
    options.add_argument("--across", type=int, default=4, help="workers of the kills and of two clusters (4)")
    given = options.parse_args()
    sys.path.insert(0, str(TESTS))
    import job_kinds

    os.environ["SYNO_LAB_KINDS"] = job_kinds.VARIABLE
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    counts = [int(one) for one in given.workers.split(",")]
    rows = [timed(count, given.seconds, given.rounds, away=False) for count in counts]
    rows.append(timed(given.across, given.seconds, given.rounds, away=True))
    kills = [killed(given.across, given.kills, given.seed, away=away) for away in (False, True)] if given.kills else []
    save("workers", {"about": about(typed(), given.core), "rows": rows, "kills": kills})
    if any(row[what] for row in kills for what in ("lost", "wrong", "overlapping", "left")):
        sys.exit("something was lost: see above")


if __name__ == "__main__":
    main()

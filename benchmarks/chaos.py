"""What is lost when workers, schedulers, trainings and submitting processes are killed or stopped at random moments.

A submitting process hands in counting jobs, each with a checkpoint after every step, under a driver and by itself.
Every so often one of the lab's processes is drawn by chance and killed with SIGKILL; a submitting process that was
killed is started again, as a user would. At the end every job must have finished once, with the right sum, no two
processes of one job may have counted at the same time, and nothing may be left running. With ``--stop`` they are not
killed but stopped for a while (SIGSTOP), as a debugger or a machine that sleeps does.

    python benchmarks/chaos.py --kills 100
    python benchmarks/chaos.py --kills 20 --stop 60
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed

TESTS = Path(__file__).resolve().parent.parent / "tests"
SLOTS = 2
VICTIMS = ("submitter", "worker", "scheduler", "child", "driver")

SUBMITTER = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1)
from syno_lab.jobs import Lab
folder, jobs, steps, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
with Lab.open(folder, slots=2) as lab:
    known = {job.name for job in lab.jobs()}
    if "driver" not in known:
        endless = {"until": folder + "/enough", "seconds": seconds}
        params = {"jobs": jobs, "count": endless, "max_attempts": 9999}
        lab.submit("drive", params, name="driver", resources={}, max_attempts=9999)
    for index in range(jobs):
        if f"single {index}" not in known:
            lab.submit("count", {"steps": steps, "seconds": seconds}, name=f"single {index}", max_attempts=9999)
    print("submitted", flush=True)
    while True:
        time.sleep(1)
"""


class Chaos:
    """One folder, its processes, and who was killed when."""

    def __init__(self, folder: Path, rng: random.Random, jobs: int, steps: int, seconds: float, stop_s: float) -> None:
        self.folder, self.rng, self.stop_s = folder, rng, stop_s
        self.jobs, self.steps, self.seconds = jobs, steps, seconds
        self.last = ""
        self.killed: Counter[str] = Counter()
        self.recoveries: list[float] = []
        self.submitter: subprocess.Popen[bytes] | None = None

    def submit(self) -> None:
        """Start the submitting process where there is none."""
        if self.submitter is None or self.submitter.poll() is not None:
            words = [str(self.folder), str(self.jobs), str(self.steps), str(self.seconds)]
            with (self.folder / "submitter.log").open("ab") as log:
                self.submitter = subprocess.Popen([sys.executable, "-c", SUBMITTER, *words], stderr=log, stdout=log)

    def processes(self, lab: Any) -> dict[str, list[int]]:
        """The living processes by role."""
        from syno_lab.processes import alive

        found: dict[str, list[int]] = {role: [pid] for role, pid in lab.cluster.processes().items()}
        if self.submitter is not None and self.submitter.poll() is None:
            found["submitter"] = [self.submitter.pid]
        for lease in lab.ledger.leases():
            if alive.is_alive(lease.child):
                kind = "driver" if lab.ledger.job(lease.job).kind == "drive" else "child"
                found.setdefault(kind, []).append(alive.pid_of(lease.child))
        return found

    def kill(self, lab: Any) -> bool:
        """Kill one process of a role drawn by chance, or stop it for a while; False when there was none."""
        from syno_lab.processes import alive

        victims = self.processes(lab)
        role = self.rng.choice(VICTIMS)
        if not victims.get(role):
            return False
        pid = self.rng.choice(victims[role])
        try:
            os.kill(pid, signal.SIGSTOP if self.stop_s else signal.SIGKILL)
            if self.stop_s:
                time.sleep(self.stop_s)
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return False
        self.killed[role] += 1
        self.last = role
        if self.stop_s:
            return True
        if role == "submitter" and self.submitter is not None:
            self.submitter.wait()
        while alive.identity(pid) is not None:
            time.sleep(0.001)
        return True


def is_whole(lab: Any) -> bool:
    """Whether all is as it should be: cluster up, each running job in living hands, no slot idle while jobs wait."""
    from syno_lab.processes import alive

    records = lab.jobs()
    if not records:  # the first submitter was killed before it could hand in anything
        return False
    if all(job.is_ended for job in records):
        return True
    leases = lab.ledger.leases()
    is_held = all(alive.is_alive(lease.supervisor) and alive.is_alive(lease.child) for lease in leases)
    at_work = [job for job in records if job.state == "running"]
    wanted = min(SLOTS, sum(not job.is_ended for job in records if job.resources))
    is_driven = all(job.state in ("running", "finished") for job in records if not job.resources)
    return is_held and is_driven and lab.cluster.is_up() and sum(bool(job.resources) for job in at_work) >= wanted


def verdict(lab: Any, chaos: Chaos) -> dict[str, Any]:
    """What was lost, done twice or got stuck."""
    records = lab.jobs()
    names = Counter(job.name for job in records)
    expected = {"driver", *(f"{kind} {index}" for kind in ("single", "count") for index in range(chaos.jobs))}
    lost = [name for name in expected if not names[name]]
    wrong = [job.id for job in records if job.kind == "count" and job.state == "finished" and not is_right(job.result)]
    overlaps = [
        job.id for job in records if job.kind == "count" and is_mixed(lab.folder / "jobs" / str(job.id) / "journal.txt")
    ]
    return {
        "lost": lost,
        "duplicated": [name for name, times in names.items() if times > 1],
        "wrong": wrong,
        "overlapping": overlaps,
        "stuck": [f"{job.id} {job.state}" for job in records if not job.is_ended],
        "states": dict(Counter(job.state for job in records)),
        "attempts": sum(job.attempt for job in records),
    }


def is_right(result: dict[str, int]) -> bool:
    """Whether no step is missing in the sum, and none counted twice."""
    return result["total"] == sum(range(result["steps"]))


def is_mixed(journal: Path) -> bool:
    """Whether an earlier attempt wrote after a later one had begun."""
    if not journal.is_file():
        return False
    attempts = [int(line.split()[0]) for line in journal.read_text().splitlines()]
    return attempts != sorted(attempts)


def run(
    kills: int,
    seed: int,
    *,
    jobs: int,
    steps: int,
    seconds: float,
    pause: float,
    stop_s: float = 0.0,
    patience: float = 300.0,
) -> dict[str, Any]:
    """Kill so many processes (or stop each for ``stop_s``) while jobs go on, let the rest finish, and look."""
    sys.path.insert(0, str(TESTS))
    import job_kinds

    from syno_lab.jobs import Lab
    from syno_lab.processes import alive

    os.environ["SYNO_LAB_KINDS"] = job_kinds.VARIABLE
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        chaos = Chaos(Path(folder), random.Random(seed), jobs, steps, seconds, stop_s)
        with Lab.open(folder, slots=SLOTS, start=False) as lab:
            try:
                done, how = 0, "stopped" if stop_s else "killed"
                while done < kills:
                    chaos.submit()
                    time.sleep(chaos.rng.uniform(0, 2 * pause))
                    if not chaos.kill(lab):
                        continue
                    done += 1
                    struck = time.monotonic()
                    chaos.submit()
                    while not is_whole(lab):
                        if time.monotonic() - struck > patience:
                            raise SystemExit(f"stuck after {patience:g} s: {verdict(lab, chaos)}; seed {seed}")
                        time.sleep(0.02)
                    chaos.recoveries.append(time.monotonic() - struck)
                    say(f"{done}: {chaos.last} {how}, whole again after {chaos.recoveries[-1]:.2f} s")
                    if done % 10 == 0:
                        states = dict(Counter(job.state for job in lab.jobs()))
                        say(f"{done} kills, {time.monotonic() - begun:.0f} s, {states}")
                    if all(job.is_ended for job in lab.jobs()) and done < kills:
                        raise SystemExit(f"all jobs ended after {done} kills: give more --steps")
                chaos.submit()
                (lab.folder / "enough").touch()
                lab.wait(timeout=patience)
                found = verdict(lab, chaos)
                tokens = [lease.token for lease in lab.ledger.leases()]
                found["processes left"] = sum(1 for token in tokens for _ in alive.holders(token))
            finally:
                if chaos.submitter is not None:
                    chaos.submitter.kill()
                    chaos.submitter.wait()
                lab.shutdown()
    times = sorted(chaos.recoveries)
    return {
        "seed": seed,
        "kills": done,
        "killed": dict(chaos.killed),
        **found,
        "recovery_s": {
            "p50": round(statistics.median(times), 3),
            "p95": round(times[min(len(times) - 1, int(0.95 * len(times)))], 3),
        },
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    """Run and save."""
    options = parser(__doc__ or "")
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--jobs", type=int, default=6, help="counting jobs by themselves, and as many under a driver")
    options.add_argument(
        "--steps", type=int, default=400, help="of each job by itself; those under the driver go on until the last kill"
    )
    options.add_argument("--pause", type=float, default=1.0, help="mean seconds between recovery and the next kill")
    options.add_argument("--stop", type=float, default=0.0, help="seconds to stop them for, in place of killing them")
    options.set_defaults(seed=random.SystemRandom().randrange(1 << 30))
    given = options.parse_args()
    say(f"seed {given.seed}")
    size: dict[str, Any] = {"jobs": given.jobs, "steps": given.steps, "seconds": 0.05}
    result = run(given.kills, given.seed, **size, pause=given.pause, stop_s=given.stop)
    save("stops" if given.stop else "chaos", {"about": about(typed(), given.core), "steps": given.steps, **result})
    if any(result[what] for what in ("lost", "duplicated", "wrong", "overlapping", "stuck", "processes left")):
        sys.exit("something was lost: see above")


if __name__ == "__main__":
    main()

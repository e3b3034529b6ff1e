"""A store with 10,000 trials: listed, its front, beside Optuna's own storage with the same; and what a job costs.

The same trials (an operator's JSON of a few kB, a curve of 30 epochs, FLOPs, parameters) are kept by our store and by
Optuna's `RDBStorage` on SQLite. Each is opened and read in a fresh process, imports not counted. Then empty jobs are
handed to a lab one after the other: what is spent from `submit` to the result is overhead.

    python benchmarks/store.py
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed, use_one_core

TESTS = Path(__file__).resolve().parent.parent / "tests"

READERS = {
    "ours": """
from syno_lab.store import Store
def opened():
    return Store.open(path).search("search")
def listed(log):
    return len(log.trials())
def front(log):
    return len(log.front(("accuracy", "flops")))
""",
    "optuna": """
import optuna
optuna.logging.set_verbosity(optuna.logging.WARNING)
def opened():
    return optuna.load_study(study_name="search", storage=optuna.storages.RDBStorage("sqlite:///" + path))
def listed(study):
    return len(study.get_trials(deepcopy=False))
def front(study):
    return len(study.best_trials)
""",
}

CLOCK = """
import json, sys, time
path = sys.argv[1]
{reader}
found = {{}}
def clock(name, call, *given):
    wall, cpu = time.perf_counter(), time.process_time()
    value = call(*given)
    found[name + "_s"], found[name + "_cpu_s"] = time.perf_counter() - wall, time.process_time() - cpu
    return value
log = clock("open", opened)
found["front"] = clock("front", front, log)
found["trials"] = clock("list", listed, log)
clock("front_again", front, log)
print(json.dumps(found))
"""


def trials(count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Trials of plausible size; one in ten ended without an accuracy."""
    from syno_lab import operators

    text = operators.operator_1().to_json()
    made = []
    for number in range(count):
        accuracy = round(rng.random(), 4)
        curve = [
            {"epoch": e, "loss": rng.random(), "accuracy": accuracy * e / 30, "seconds": 1.5} for e in range(1, 31)
        ]
        state = "finished" if number % 10 else "diverged"
        outcome = {"state": state, "reason": "", "accuracy": accuracy if number % 10 else None, "curve": curve}
        outcome |= {"wall_s": 60.0, "cpu_s": 60.0, "versions": {"torch": "2"}}
        flops = rng.randrange(10**7, 10**9)
        made.append(
            {"fingerprint": f"{rng.getrandbits(128):032x}", "operator": text, "flops": flops, "outcome": outcome}
        )
    return made


def fill_ours(path: Path, made: list[dict[str, Any]]) -> float:
    """Seconds a trial to ask and to tell, each saved for good."""
    from syno_lab.protocol import SearchStep
    from syno_lab.store import Store

    with Store.open(path) as store:
        log = store.search("search", {"seed": 1})
        steps = [SearchStep(name, (name,)) for name in "abc"]
        begun = time.perf_counter()
        for trial in made:
            number = log.add(
                trial["fingerprint"],
                trial["operator"],
                steps,
                trial["flops"],
                1000,
            )
            log.record(number, trial["outcome"])
        return (time.perf_counter() - begun) / len(made)


def fill_optuna(path: Path, made: list[dict[str, Any]]) -> float:
    """Seconds a trial to add, which is Optuna's fastest way in."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="search", storage=f"sqlite:///{path}", directions=["maximize", "minimize"])
    begun = time.perf_counter()
    for trial in made:
        outcome = trial["outcome"]
        is_told = outcome["accuracy"] is not None
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.COMPLETE if is_told else optuna.trial.TrialState.FAIL,
                values=[outcome["accuracy"], trial["flops"]] if is_told else None,
                user_attrs={"fingerprint": trial["fingerprint"], "operator": trial["operator"]},
                system_attrs={"outcome": json.dumps(outcome)},
            )
        )
    return (time.perf_counter() - begun) / len(made)


def read(name: str, path: Path, times: int) -> dict[str, Any]:
    """Medians over fresh processes."""
    code = CLOCK.format(reader=READERS[name])
    runs = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def jobs(count: int) -> dict[str, Any]:
    """What empty jobs cost, one after the other, on a cluster that is up."""
    sys.path.insert(0, str(TESTS))
    import job_kinds

    from syno_lab.jobs import Lab

    os.environ["SYNO_LAB_KINDS"] = job_kinds.VARIABLE
    with tempfile.TemporaryDirectory(prefix="store-") as folder, Lab.open(folder, slots=1) as lab:
        try:
            begun = time.perf_counter()
            lab.submit("nothing", {}).future().result(120)
            first = time.perf_counter() - begun
            times, submits = [], []
            for _ in range(count):
                begun = time.perf_counter()
                handle = lab.submit("nothing", {"x": 1})
                submits.append(time.perf_counter() - begun)
                handle.future().result(120)
                times.append(time.perf_counter() - begun)
        finally:
            lab.shutdown()
    return {
        "jobs": count,
        "submit_ms": 1000 * statistics.median(submits),
        "whole_ms": 1000 * statistics.median(times),
        "whole_ms_p95": 1000 * sorted(times)[int(0.95 * len(times))],
        "first_with_cluster_s": first,
        "share_of_a_trial_of_60_s": statistics.median(times) / 60,
    }


def main() -> None:
    """Run and save."""
    options = parser(__doc__ or "")
    options.add_argument("--trials", type=int, default=10_000)
    options.add_argument("--peer-trials", type=int, help="fewer for Optuna, whose writing takes long")
    options.add_argument("--times", type=int, default=5, help="fresh processes for each reading")
    options.add_argument("--jobs", type=int, default=20)
    given = options.parse_args()
    core = use_one_core(given.core)
    made = trials(given.trials, random.Random(given.seed))
    result: dict[str, Any] = {"about": about(typed(), core), "trials": given.trials}
    # In memory where there is such a place: only reading is compared, and 10,000 writes to a disk take their time.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="store-", dir=memory if memory.is_dir() else None) as folder:
        paths = {"ours": Path(folder) / "results.sqlite", "optuna": Path(folder) / "optuna.sqlite"}
        for name, fill in (("ours", fill_ours), ("optuna", fill_optuna)):
            say(f"filling: {name}")
            count = given.trials if name == "ours" else given.peer_trials or given.trials
            write_ms = 1000 * fill(paths[name], made[:count])
            result[name] = {"write_in_memory_ms": write_ms, "mib": paths[name].stat().st_size / 2**20}
            result[name] |= read(name, paths[name], given.times)
    say("jobs")
    result["job"] = jobs(given.jobs)
    save("store", result)


if __name__ == "__main__":
    main()

"""What is lost where trainings, tunings, `improve` and writers are killed again and again; sessions of 5,000 moves.

A process does the work in a folder and is killed (SIGKILL) at a moment drawn by chance; the next one goes on in the
same folder, until so many kills are made, and then to the end. A training must end with the outcome of one that was
never killed; a tuning must keep each trial that it has told of and have none twice; `improve` must keep each training
that the store has had; whoever was killed must leave no process behind. Two writers add to one store meanwhile, one of
them killed again and again: each row that was told of must be there.

    python benchmarks/kills.py --kills 30 --steps 5000
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed

MARK = "SYNO_LAB_KILLS"
_LIMIT_S = 300.0
_ENDS_WITHIN_S = 30.0

TRAIN = """
import sys
from pathlib import Path
import msgspec, torch
from syno_lab import operators
from syno_lab.trial import TrialRequest, run_trial
torch.set_num_threads(1)
request = TrialRequest(
    backbone="resnet20", options={"width": 8, "blocks": 1}, train_images=600, test_images=64, epochs=6, threads=1,
    operator=operators.separable().to_json(),
)
print("ready", flush=True)
print(msgspec.json.encode(run_trial(request, folder=Path(sys.argv[1]))).decode())
"""
TUNE = """
import json, sys
from pathlib import Path
from syno_lab import operators
from syno_lab.tuning import TuningTask, tune
sizes = {"N": 1, "C_in": 8, "C_out": 8, "H": 8, "W": 8, "k_1": 3}
folder = Path(sys.argv[1])
print("ready", flush=True)
task = TuningTask("conv2d", operators.conv2d().to_json(), sizes)
found = tune(
    task, target="local:1", trials=12, seed=0, work_dir=folder, store=folder / "store",
    on_progress=lambda now: print("trial", flush=True),
)
print(json.dumps({"trials": found.trials, "failed": found.failed, "verified": found.verified}))
"""
IMPROVE = """
import json, sys
import torch
from torch import nn
from torch.utils.data import TensorDataset
import syno_lab as sl

torch.set_num_threads(1)

def make_model():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

draw = torch.Generator().manual_seed(0)
classes = torch.arange(128) % 4
images = torch.randn(128, 3, 8, 8, generator=draw) + classes[:, None, None, None]
data = TensorDataset(images, classes), TensorDataset(images[:64], classes[:64])
print("ready", flush=True)
found = sl.improve(make_model, data, minutes=0.3, folder=sys.argv[1], epochs=1, batch_size=16, seeds=2, anyway=True,
                   say=lambda line: print("said", line.splitlines()[0] if line else "", flush=True))
print(json.dumps({"verdict": found.verdict}))
"""
WRITE = """
import sys
from syno_lab.store import Store
path, name, amount = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(path) as store:
    log = store.search("demo", {"epochs": 3})
    print("ready", flush=True)
    for index in range(amount):
        number = log.add(f"{name}-{index}", "{}" * 200, [], 1000, 10)
        log.record(number, {"state": "finished", "accuracy": 0.5, "curve": [0.1] * 10})
        print(f"wrote {name}-{index}", flush=True)
"""


class LostError(Exception):
    """Something that was there is gone, or something is there that should not be."""


class Runner:
    """Starts one script again and again in one folder.

    Attributes:
        kills: how many were made.
        took_s: how long the last one took from its readiness.
        lines: all that the processes printed, but for what a kill cut off.
    """

    def __init__(self, script: str, arguments: list[str], rng: random.Random) -> None:
        self.script, self.arguments, self.rng = script, arguments, rng
        self.kills, self.took_s = 0, 0.0
        self.lines: list[str] = []

    def once(self, until_s: float | None = None) -> str | None:
        """Run it; kill it after so many seconds from its readiness. What it printed last, None where it was killed."""
        mark = uuid.uuid4().hex
        child = subprocess.Popen(
            [sys.executable, "-c", self.script, *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # a buffer would take the last line with the first, and communicate() would not see it
            env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
        )
        assert child.stdout is not None
        first, begun = child.stdout.readline(), time.monotonic()
        try:
            out, errors = child.communicate(timeout=_LIMIT_S if until_s is None else until_s)
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = child.communicate()
            if until_s is None:
                raise LostError(f"not done after {_LIMIT_S:.0f} s") from None
        self.took_s = time.monotonic() - begun
        whole = (first + out).rpartition(b"\n")[0].decode().splitlines()
        self.lines += whole
        all_ended(mark)
        if child.returncode == -9:
            self.kills += 1
            return None
        if child.returncode:
            raise LostError(f"status {child.returncode}: {(errors.decode().strip().splitlines() or [''])[-1]}")
        return whole[-1]

    def killed(self, most: int, span_s: float) -> str:
        """Kill it at random moments of so many seconds, at most so often, then let it end. What it printed last."""
        while most > self.kills:
            found = self.once(self.rng.random() * span_s)
            if found is not None:
                return found
        found = self.once()
        assert found is not None
        return found


def all_ended(mark: str) -> None:
    """Wait until no process of this mark is left. Raises LostError where one stays."""
    import psutil

    deadline = time.monotonic() + _ENDS_WITHIN_S
    while True:
        left = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(" ".join(process.cmdline())[:100])
            except psutil.Error:
                continue
        if not left:
            return
        if time.monotonic() > deadline:
            raise LostError(f"left behind: {'; '.join(left)}")
        time.sleep(0.2)


def trainings(folder: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Trainings that are killed give the outcomes of those that are not."""
    whole = Runner(TRAIN, [str(folder / "whole")], rng)
    wanted = _without_time(json.loads(whole.once() or ""))
    made = runs = 0
    while made < kills:
        one = Runner(TRAIN, [str(folder / f"run-{runs}")], rng)
        found = _without_time(json.loads(one.killed(min(kills - made, 5), whole.took_s)))
        if found != wanted:
            raise LostError(f"the outcome is another one: {found} and not {wanted}")
        made, runs = made + one.kills, runs + 1
        say(f"train: {made} kills in {runs} trainings")
    return {"kills": made, "ended": runs, "wrong": 0}


def _without_time(outcome: dict[str, Any]) -> dict[str, Any]:
    dropped = ("wall_s", "cpu_s", "work_s", "peak_mib", "resumed")
    kept = {name: value for name, value in outcome.items() if name not in dropped}
    kept["curve"] = [{name: value for name, value in row.items() if name != "seconds"} for row in kept["curve"]]
    return kept


def tunings(folder: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Tunings that are killed keep their trials, and measure none twice."""
    made = runs = told = 0
    while made < kills:
        here = folder / f"run-{runs}"
        one = Runner(TUNE, [str(here)], rng)
        last = json.loads(one.killed(min(kills - made, 6), 6.0))
        (record,) = (here / "store").glob("*.jsonl")
        trials = [line for line in record.read_text().splitlines() if '"board"' in line]
        if not last["verified"] or last["trials"] != 12 or len(trials) != 12 or len(set(trials)) != 12:
            raise LostError(f"a tuning of 12 trials ended with {last}, and {len(trials)} trials are recorded")
        now = one.lines.count("trial")
        if now > len(trials):
            raise LostError(f"{now} trials were told of, {len(trials)} are recorded")
        made, runs, told = made + one.kills, runs + 1, told + now
        say(f"tune: {made} kills in {runs} tunings")
    return {"kills": made, "ended": runs, "told": told, "lost": 0}


def improvements(folder: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """What the store of an `improve` has had stays, and the search comes to its end."""
    made = runs = kept = 0
    while made < kills:
        here = folder / f"run-{runs}"
        one = Runner(IMPROVE, [str(here)], rng)
        had: dict[tuple[str, int], Any] = {}
        while one.kills < min(kills - made, 10):
            found = one.once(rng.random() * 12)
            now = _trials(here)
            lost = {name: value for name, value in had.items() if now.get(name) != value}
            if lost:
                raise LostError(f"trials that were there are gone or others: {lost}")
            had = now
            if found is not None:
                break
        else:
            one.once()
        made, runs, kept = made + one.kills, runs + 1, kept + len(_trials(here))
        say(f"improve: {made} kills in {runs} searches, {kept} trials")
    return {"kills": made, "ended": runs, "trials": kept, "lost": 0}


def _trials(lab: Path) -> dict[tuple[str, int], Any]:
    """The outcomes of all trials that a lab's store has finished."""
    from syno_lab.store import Store

    if not (lab / "results.sqlite").exists():
        return {}
    with Store.look(lab) as store:
        return {
            (search.name, trial.number): (trial.fingerprint, trial.accuracy)
            for search in store.searches()
            for trial in search.trials()
            if trial.accuracy is not None
        }


def writers(folder: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Two processes that write to one store at the same time, one of them killed again and again, lose nothing."""
    from syno_lab.store import Store

    path = folder / "lab"
    told: set[str] = set()
    made = attempts = 0
    while made < kills:
        steady = subprocess.Popen(
            [sys.executable, "-c", WRITE, str(path), f"steady{attempts}", "200"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        other = Runner(WRITE, [str(path), f"killed{attempts}", "100000"], rng)
        while other.kills < min(6, kills - made):
            other.arguments[1] = f"killed{attempts}"
            other.once(rng.random())
            attempts += 1
        out, errors = steady.communicate(timeout=_LIMIT_S)
        if steady.returncode:
            raise LostError(f"a writer ended with status {steady.returncode}: {errors.strip()[-200:]}")
        told |= {line.split()[1] for line in (*out.splitlines(), *other.lines) if line.startswith("wrote ")}
        made += other.kills
    with Store.look(path) as store:
        (log,) = store.searches()
        there = {trial.fingerprint for trial in log.trials() if trial.accuracy == 0.5}
    if told - there:
        raise LostError(f"{len(told - there)} rows that were told of are not there")
    say(f"two writers: {made} kills, {len(told)} rows")
    return {"kills": made, "told": len(told), "lost": 0}


def sessions(steps: int, rng: random.Random) -> dict[str, Any]:
    """Sessions of so many moves: each system's can be written, read again and gone through, or says its limit."""
    from syno_lab.alpha.known import KNOWN as BLOCKS
    from syno_lab.canvas.known import KNOWN as KERNELS
    from syno_lab.errors import SynoError
    from syno_lab.operators import KNOWN
    from syno_lab.sessions.session import session_of

    found = {}
    for title, start in (
        ("pGraphs", KNOWN["conv2d"]()),
        ("Canvas", KERNELS["involution"]()),
        ("αNAS", BLOCKS["conv_block"]()),
    ):
        session = session_of(start)
        begun, refusals = time.process_time(), set()
        for number in range(steps):
            try:
                _move(session, rng)
            except SynoError as error:
                if "\n" in str(error):
                    raise LostError(f"{title}: move {number} is refused in several lines: {error}") from error
                refusals.add(type(error).__name__)
        moved_s, begun = time.process_time() - begun, time.process_time()
        try:
            text = session.to_word()
            again = session_of(text)
            if again.to_json() != session.to_json():
                raise LostError(f"{title}: the session that is read again is another one")
            kept = f"{len(text):,} characters"
        except SynoError as error:
            kept = str(error)
        found[title] = {
            "moves": steps,
            "places": len(session.places),
            "moved_s": round(moved_s, 1),
            "kept_s": round(time.process_time() - begun, 1),
            "kept": kept,
        }
        say(f"{title}: {found[title]}")
    return found


def _move(session: Any, rng: random.Random) -> None:
    way = rng.randrange(6)
    if way == 0 and session.entry.parent is not None:
        session.undo()
    elif way == 1:
        session.go(rng.randrange(len(session.places)))
    elif way == 2 and session.ahead(session.place) is not None:
        session.redo()
    else:
        steps = list(session.candidates(session.state))
        if steps:
            session.apply(rng.choice(steps))
        else:
            session.go(0)


WORKS: dict[str, Callable[[Path, int, random.Random], dict[str, Any]]] = {
    "train": trainings,
    "tune": tunings,
    "improve": improvements,
    "writers": writers,
}


def measured(kills: int, steps: int, seed: int, only: str | None = None) -> dict[str, Any]:
    """All of them, or one. Raises LostError for the first thing that is lost."""
    found: dict[str, Any] = {"seed": seed}
    for name, work in WORKS.items():
        if only in (None, name):
            with tempfile.TemporaryDirectory(prefix="kills-") as folder:
                found[name] = work(Path(folder), kills, random.Random(f"{seed}/{name}"))
    if only in (None, "sessions"):
        found["sessions"] = sessions(steps, random.Random(f"{seed}/sessions"))
    return found


def main() -> None:
    """Run and save."""
    options = parser(__doc__ or "")
    options.add_argument("--kills", type=int, default=30, help="of each kind of work")
    options.add_argument("--steps", type=int, default=5000, help="moves of each session")
    options.add_argument("--only", choices=[*WORKS, "sessions"])
    options.set_defaults(seed=random.SystemRandom().randrange(1 << 30))
    given = options.parse_args()
    say(f"seed {given.seed}")
    try:
        result = measured(given.kills, given.steps, given.seed, given.only)
    except LostError as loss:
        sys.exit(f"{loss} (seed {given.seed})")
    if given.only is None:
        save("kills", {"about": about(typed(), given.core), **result})
    else:
        print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

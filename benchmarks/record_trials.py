"""Operators of ResNet-20's search space trained alike on its proxies, so that methods can be compared on real rewards.

``python benchmarks/record_trials.py --data FOLDER --lines FILE`` draws ``--operators`` operators from the space that
``syno-lab search --backbone resnet20`` derives (at most 10 steps, 40 % of the replaced layers' FLOPs unless ``--flops``
says otherwise), half of them with the derived wish and half without, and writes them down before anything is trained:
no proxy and no probe has selected any. Then each is trained on the first ``--rungs`` rungs of the backbone with all
seeds of the rung, on ``--images`` images, as a search in rungs trains them: the reward is the rung's, measured on
held-out training images, and an operator that takes more than twice as long as the baseline has 0.

It prints JSON and writes ``benchmarks/results/recorded_trials.json``: of each operator whether it was drawn with the
wish and whether it meets it, its steps, traits, costs and probe, and by rung the reward and the seconds; beside them
the baseline's rewards. What was drawn and trained is kept in ``--lines`` (one JSON a line), so that a run that was
ended goes on.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from common import RESULTS, about, parser_with_data, say, typed, use_one_core

from syno_lab.errors import SpecError
from syno_lab.experiments import SearchSettings, Space
from syno_lab.models.rungs import Rung
from syno_lab.search import RandomSearch
from syno_lab.systems import read_operator
from syno_lab.trial import TrialOutcome, TrialRequest
from syno_lab.trial.rungs import reward_of, rung_request, rungs_of
from syno_lab.trial.workers import LOG_FILE, TrialWorker

STEPS = 10
#: The number of the baseline among the operators.
BASELINE = -1


class Training(NamedTuple):
    """One training: of the operator ``number`` on a rung with a seed."""

    number: int
    rung: Rung
    seed: int


class Record:
    """What was drawn and trained, in a file that grows by lines."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.drawn: list[dict[str, Any]] = []
        self.trained: dict[tuple[int, str, int], dict[str, Any]] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for line in map(json.loads, lines):
            if "settings" in line and line["settings"] != settings:
                raise SystemExit(f"--lines: {path} holds a run with other settings: {line['settings']}; name another")
            if "operator" in line:
                self.drawn.append(line)
            elif "rung" in line:
                self.trained[line["number"], line["rung"], line["seed"]] = line
        if not lines:
            self._write({"settings": settings})

    def draw(self, one: dict[str, Any]) -> None:
        """One more operator."""
        self.drawn.append(one)
        self._write(one)

    def train(self, one: Training, outcome: TrialOutcome) -> None:
        """One more training."""
        found = {
            "number": one.number,
            "rung": one.rung.name,
            "seed": one.seed,
            "reward": round(reward_of(one.rung.measure, outcome), 5),
            "work_s": round(outcome.work_s, 3),
            "state": outcome.state,
        }
        self.trained[one.number, one.rung.name, one.seed] = found
        self._write(found)

    def baseline_s(self, rung: Rung) -> float:
        """Seconds of the baseline's training on a rung."""
        return float(self.trained[BASELINE, rung.name, 0]["work_s"])

    def on(self, number: int, rungs: tuple[Rung, ...]) -> dict[str, Any]:
        """The rewards and seconds of an operator by rung: the mean and the sum over its seeds."""
        found: dict[str, Any] = {"reward": {}, "work_s": {}}
        for rung in rungs:
            rows = [self.trained[number, rung.name, seed] for seed in range(rung.seeds)]
            found["reward"][rung.name] = round(statistics.fmean(row["reward"] for row in rows), 5)
            found["work_s"][rung.name] = round(sum(row["work_s"] for row in rows), 3)
            if reasons := sorted({row["state"] for row in rows} - {"finished"}):
                found.setdefault("ended", {})[rung.name] = ", ".join(reasons)
        return found

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def draw(record: Record, request: TrialRequest, operators: int, flops: float, seed: int) -> None:
    """Draw what is missing, in turn with the wish and without; each operator once."""
    if len(record.drawn) >= operators:
        return
    spaces = {
        wants: Space(
            SearchSettings(
                training=request,
                trials=operators,
                max_replaced_ratio=flops,
                max_traffic_ratio=4.0,
                limits={"max_primitives": STEPS},
                weight_limits="primary",
                wants=wants,
                seeds=(),
            )
        )
        for wants in ("derived", None)
    }
    wishes = spaces["derived"].operators
    searches = {wants: RandomSearch(space.root, random.Random(f"{seed} {wants}")) for wants, space in spaces.items()}
    met: set[str] = set()
    for number in range(operators):
        wants = None if number % 2 else "derived"
        space = spaces[wants]
        while True:
            candidate = searches[wants].ask()
            if candidate is None:
                raise SystemExit(f"expected {operators} operators, found {number}: the space has no more")
            name = space.operators.name_of(candidate.operator)
            if name not in met:  # the two spaces overlap
                break
        met.add(name)
        if number < len(record.drawn):  # drawn before: the draws are the same, as the seed is
            continue
        trail, costs = searches[wants].trail_of(candidate), space.fitting_costs(candidate.operator)
        wanted = wishes.spec.wants  # type: ignore[attr-defined]  # pGraphs have a spec
        record.draw(
            {
                "number": number,
                "wished": wants is not None,
                "meets": candidate.operator.meets(wanted),
                "steps": list(candidate.steps),
                "taken": msgspec.to_builtins(candidate.taken),
                "operator": candidate.operator.to_json(),
                "traits": dict(trail.end.traits()),
                "probe": _rounded(space.operators.probe(candidate.operator)),
                "replaced_flops": round(space.replaced_share(costs.flops), 5),
                "params": costs.params,
            }
        )
        say(f"drawn {number + 1} of {operators}, {'with' if wants else 'without'} the wish")


def _rounded(probe: Any) -> dict[str, float] | None:
    return None if probe is None else {name: round(value, 5) for name, value in probe.items()}


def train(record: Record, request: TrialRequest, rungs: tuple[Rung, ...]) -> None:
    """Train what has not been trained: the baseline first, whose time limits the others."""
    every = [
        Training(number, rung, seed) for number in _numbers(record) for rung in rungs for seed in range(rung.seeds)
    ]
    left = [one for one in every if (one.number, one.rung.name, one.seed) not in record.trained]
    for some in ([one for one in left if one.number == BASELINE], [one for one in left if one.number != BASELINE]):
        with tempfile.TemporaryDirectory() as folder, TrialWorker(Path(folder) / LOG_FILE) as worker:
            for count, one in enumerate(some, 1):
                outcome = worker.run(_request(record, request, one), folder=Path(folder) / str(count))
                record.train(one, outcome)
                reward = reward_of(one.rung.measure, outcome)
                say(f"{count} of {len(some)}: {one.number} on {one.rung.name}, {reward:.3f} {outcome.state}")


def _numbers(record: Record) -> Iterator[int]:
    yield BASELINE
    yield from range(len(record.drawn))


def _request(record: Record, request: TrialRequest, one: Training) -> TrialRequest:
    if one.number == BASELINE:
        return rung_request(request, one.rung, seed=one.seed)
    operator = record.drawn[one.number]["operator"]
    read_operator(operator)  # a damaged file is found before the training
    mine = msgspec.structs.replace(request, operator=operator)
    return rung_request(mine, one.rung, seed=one.seed, baseline_s=record.baseline_s(one.rung))


def main() -> None:
    """Draw, train and store."""
    arguments = parser_with_data(__doc__ or "", images=5_000)
    arguments.add_argument("--operators", type=int, default=400, help="half of them with the wish (400)")
    arguments.add_argument("--rungs", type=int, default=2, help="of the backbone, from the cheapest on (2)")
    arguments.add_argument("--flops", type=float, default=0.4, help="the most, of the replaced layers' (0.4)")
    arguments.add_argument("--lines", type=Path, required=True, help="a file for what has been drawn and trained")
    arguments.add_argument("--out", type=Path, default=RESULTS / "recorded_trials.json")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    data = str(chosen.data.expanduser().absolute())
    request = TrialRequest(backbone="resnet20", data=data, train_images=chosen.images, epochs=3, threads=1)
    rungs = tuple(rung for rung in rungs_of(request) if not rung.is_full)[: chosen.rungs]
    if not rungs:
        raise SpecError("--rungs: expected 1 or more")
    kept = {"operators": chosen.operators, "flops": chosen.flops, "seed": chosen.seed, "images": chosen.images}
    record = Record(chosen.lines, kept)
    draw(record, request, chosen.operators, chosen.flops, chosen.seed)
    train(record, request, rungs)
    command = typed()
    for path, word in ((chosen.data, "FOLDER"), (chosen.lines, "LINES")):
        command = command.replace(str(path), word)
    head = {
        "about": about(command, core),
        "backbone": "resnet20",
        "max_primitives": STEPS,
        **kept,
        "rungs": {rung.name: {"seeds": rung.seeds, "measure": rung.measure} for rung in rungs},
        "baseline": record.on(BASELINE, rungs),
    }
    rows = [
        {key: value for key, value in one.items() if key not in ("operator", "number", "taken")}
        | record.on(number, rungs)
        for number, one in enumerate(record.drawn)
    ]
    table = {step["name"]: step for one in record.drawn for step in one["taken"]}
    text = text_of(head, rows, table)
    chosen.out.write_text(text, encoding="utf-8")
    print(text)


def text_of(head: dict[str, Any], rows: list[dict[str, Any]], table: dict[str, Any]) -> str:
    """The record as text: a line for each operator, and one for each step that they have, by its name."""
    steps = [f"{json.dumps(name)}: {json.dumps(step)}" for name, step in sorted(table.items())]
    parts = ',\n "recorded": [\n  ', ",\n  ".join(map(json.dumps, rows)), "\n ],\n", ' "taken": {\n  '
    return json.dumps(head, indent=1)[:-2] + "".join(parts) + ",\n  ".join(steps) + "\n }\n}\n"


if __name__ == "__main__":
    main()

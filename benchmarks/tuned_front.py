"""A tuned front: the accuracy of a search's operators against the latency of the whole network with each of them.

First make the search; then train and tune::

    syno-lab search --backbone resnet20 --data CIFAR --minutes 30 --from-nothing --folder LAB
    python benchmarks/tuned_front.py LAB --part accuracy
    python benchmarks/tuned_front.py LAB --part latency

The operators are those that came furthest in the search: all that it trained on the network itself, then the best of
the rung before, until there are ``--operators``; finals and latencies decide nothing. ``accuracy`` trains the network
as it is and with each operator in its places, on all training images and on seeds that the search did not use.
``latency`` tunes each of these networks alike through Relax, with the same trials for a function on average, TVM's
task scheduler and shared records, and runs all of them in turn in one process. Both go on where they were ended:
trainings lie in the folder ``tuned_front`` of the lab, records in its folder ``tuned_front_records``; ``latency`` needs
nothing else of LAB: it takes the operators from the stored accuracies. The results are in
``benchmarks/results/tuned_front.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from common import RESULTS, about, save, say, typed
from narrowed import train

from syno_lab.errors import SynoError
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports import LabReader
from syno_lab.reports.progress import read_result
from syno_lab.scratch import scratch
from syno_lab.systems import find_system, format_of, read_operator
from syno_lab.trial.backbone import full_costs_of
from syno_lab.trial.compare import compared
from syno_lab.trial.request import TrialRequest

NAME = "tuned_front"
BASELINE = "baseline"
SEEDS = (4000, 4001, 4002, 4003, 4004)


def main() -> None:
    """One of the two parts."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("lab", type=Path, help="the folder of a lab with a search named search")
    arguments.add_argument("--part", choices=("accuracy", "latency"), required=True)
    arguments.add_argument("--operators", type=int, default=14, help="how many, at least (14)")
    arguments.add_argument("--seeds", type=int, default=2, help="trainings of each (2)")
    arguments.add_argument("--trials", type=int, default=16, help="candidates of a function on average (16)")
    arguments.add_argument("--threads", type=int, default=1, help="of a network that is measured (1)")
    arguments.add_argument("--rounds", type=int, default=5, help="measurements of each network, in turn (5)")
    chosen = arguments.parse_args()
    try:
        if chosen.part == "accuracy":
            save(NAME, accuracies(chosen, *furthest(chosen.lab, chosen.operators)))
        else:
            save(NAME, latencies(chosen))
    except SynoError as error:
        sys.exit(str(error))


def furthest(lab: Path, count: int) -> tuple[TrialRequest, dict[str, str]]:
    """How the lab's search trains, and the operators that came furthest in it, by name.

    Raises:
        SynoError: there is no such search, or it has trained fewer operators.
    """
    result = read_result(lab, "search")
    if result is None or "plan" not in result:
        raise SynoError(f"expected a search in rungs named search that has ended in {lab}, found none")
    with LabReader(lab) as reader:
        texts = {row.number: str(row.operator) for row in reader.read().of("search:search")}
    order = list(result["funnel"]["rungs"])

    def reached(one: dict[str, Any]) -> tuple[int, float]:
        last = max((order.index(name) for name in one["rungs"]), default=-1)
        return last, one["rungs"][order[last]] if last >= 0 else 0.0

    found: dict[str, str] = {}
    for one in sorted(result["recorded"], key=reached, reverse=True):
        text = texts.get(one["number"])
        if one["rungs"] and text is not None and text not in found.values() and len(found) < count:
            found[f"operator-{one['number']}"] = text
    if len(found) < count:
        raise SynoError(f"expected a search that trained at least {count} operators, found {len(found)}")
    base = msgspec.convert(result["settings"], SearchSettings).training
    return msgspec.structs.replace(base, stopping=None, keep_predictions=True), found


def accuracies(chosen: Any, base: TrialRequest, operators: dict[str, str]) -> dict[str, Any]:
    """The trainings of all networks, each against the network as it is.

    Raises:
        SynoError: a training did not finish.
    """
    seeds = list(SEEDS[: chosen.seeds])
    wanted = {BASELINE: base} | {name: msgspec.structs.replace(base, operator=text) for name, text in operators.items()}
    outcomes = train(wanted, chosen.lab / NAME, seeds)
    whole = full_costs_of(base)
    rows = []
    for name, text in operators.items():
        one = compared(base, seeds, outcomes[BASELINE], outcomes[name])
        rows.append(
            {
                "name": name,
                "operator": text,
                "system": find_system(format_of(text)).title,
                "accuracy": one.operator,
                "by_seed": [outcome.accuracy for outcome in outcomes[name]],
                "flops_ratio": one.flops_ratio,
                "params_ratio": one.params_ratio,
                "over_seeds": msgspec.to_builtins(one.over_seeds),
                "verdict": one.verdict,
            }
        )
    trained = [outcome.accuracy for outcome in outcomes[BASELINE] if outcome.accuracy is not None]
    first = {"accuracy": statistics.mean(trained), "by_seed": trained, "flops": whole.flops, "params": whole.params}
    settings = {"backbone": base.backbone, "options": base.options, "epochs": base.epochs, "seeds": seeds}
    settings["search_seed"] = _seed(chosen.lab)
    return {"about": about(typed(), None), "settings": settings, BASELINE: first, "operators": rows}


def _seed(lab: Path) -> int:
    result = read_result(lab, "search")
    assert result is not None
    return int(result["settings"]["seed"])


def latencies(chosen: Any) -> dict[str, Any]:
    """The stored accuracies with the tuned latency of each network; of the lab only its folder of records is used.

    Raises:
        SynoError: there are no accuracies yet, or a network could not be tuned or computes something else.
    """
    from syno_lab.models.registry import backbone
    from syno_lab.tuning.network import compiled, run_networks, tune_functions
    from syno_lab.tuning.versus import both_networks

    file = RESULTS / f"{NAME}.json"
    if not file.exists():
        raise SynoError(f"expected {file.name} with the accuracies: run --part accuracy first")
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    found = backbone(told["settings"]["backbone"])
    image, target = (3, found.size, found.size), f"local:{chosen.threads}"
    records, net = chosen.lab / f"{NAME}_records", found.build(**told["settings"]["options"]).eval()
    rows = [told[BASELINE], *told["operators"]]
    ready = []
    with scratch("syno-front-") as folder:
        for row in rows:
            name = row.get("name", BASELINE)
            one = net
            if "operator" in row:
                _, one, places = both_networks(read_operator(row["operator"]), net, image, found.selection)
                row["places"] = [sum(place.replaced for place in places), len(places)]
            started = time.monotonic()
            done = tune_functions(one.eval(), (1, *image), target=target, records=records, trials=chosen.trials, seed=0)
            row |= {"functions": len(done.tasks), "failed": dict(done.failed)}
            row |= {"trials": done.trials, "known": done.known, "tuning_s": time.monotonic() - started}
            ready.append(compiled(done, folder, name=name))
            say(f"{name}: {done.trials} trials, {done.known} of them known, {row['tuning_s']:.0f} s")
        measured, where = run_networks(ready, done.options, rounds=chosen.rounds)
    for row, rounds in zip(rows, measured, strict=True):
        row["latency_ms"] = statistics.median(one.latency_ms for one in rounds)
        row["best_ms"] = min(one.best_ms for one in rounds)
        row["rounds_ms"] = [one.latency_ms for one in rounds]
    told["tuning"] = {"trials": chosen.trials, "threads": chosen.threads, "rounds": chosen.rounds, "where": where}
    told["tuning"]["about"] = about(typed(), None)
    return told


if __name__ == "__main__":
    main()

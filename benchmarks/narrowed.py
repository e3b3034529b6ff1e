"""Compare a search's finalists with the network itself and with the network narrowed to their FLOPs, on fresh seeds.

An operator is worth its place only where a network of fewer channels, of the same FLOPs, is not as good. For each
finalist of a search in rungs of ResNet-20 the narrowest ResNet-20 with at least its FLOPs is found; finalist, narrowed
network and ResNet-20 are trained alike on seeds that neither the search nor its finals used, on all training images::

    python benchmarks/narrowed.py NAME LAB

The file ``benchmarks/results/narrowed.json`` keeps a row for each NAME and finalist. Trainings lie in the folder
``narrowed`` of the lab, from which a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from common import RESULTS, about, save, say, typed

from syno_lab.errors import SynoError
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports import LabReader
from syno_lab.reports.progress import read_result
from syno_lab.reports.rungs import finalists
from syno_lab.systems import find_system, format_of
from syno_lab.trial.backbone import full_costs_of
from syno_lab.trial.compare import compared
from syno_lab.trial.request import TrialRequest
from syno_lab.trial.run import TrialOutcome, run_trial

NAME = "narrowed"
WIDTH = 16  # of ResNet-20
SEEDS = tuple(range(3000, 3005))


def main() -> None:
    """Train and compare."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("name", help="of the rows, as in 'canvas'")
    arguments.add_argument("lab", type=Path, help="the folder of a lab with a search named search")
    chosen = arguments.parse_args()
    try:
        rows = compare_all(chosen.name, chosen.lab)
    except SynoError as error:
        sys.exit(str(error))
    file = RESULTS / f"{NAME}.json"
    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    kept = [row for row in before if row["name"] != chosen.name]
    save(NAME, {"about": about(typed(), None), "rows": [*kept, *rows]})


def compare_all(name: str, lab: Path) -> list[dict[str, Any]]:
    """A row for each finalist of the lab's search.

    Raises:
        SynoError: there is no such search, or a training did not finish.
    """
    result = read_result(lab, "search")
    if result is None:
        raise SynoError(f"expected a search named search that has ended in {lab}, found none")
    with LabReader(lab) as reader:
        trials = {row.number: row for row in reader.read().of("search:search")}
    base = msgspec.convert(result["settings"], SearchSettings).training
    base = msgspec.structs.replace(base, stopping=None, keep_predictions=True)
    wanted: dict[str, TrialRequest] = {"baseline": base}
    widths: dict[int, int] = {}
    for number in sorted(set(finalists(result).values())):
        with_operator = msgspec.structs.replace(base, operator=trials[number].operator)
        widths[number] = narrowest(base, full_costs_of(with_operator).flops)
        wanted[f"operator-{number}"] = with_operator
        wanted[f"width-{widths[number]}"] = narrowed(base, widths[number])
    outcomes = train(wanted, lab / NAME)
    rows = []
    for number, width in widths.items():
        operator = outcomes[f"operator-{number}"]
        against = {
            "baseline": compared(base, list(SEEDS), outcomes["baseline"], operator),
            "narrowed": compared(base, list(SEEDS), outcomes[f"width-{width}"], operator),
        }
        text = str(trials[number].operator)
        rows.append(
            {
                "name": name,
                "number": number,
                "system": find_system(format_of(text)).title,
                "operator": find_system(format_of(text)).summary(text),
                "flops": operator[0].flops,
                "params": operator[0].params,
                "width": width,
                "against": {
                    key: {
                        "flops_ratio": one.flops_ratio,
                        "params_ratio": one.params_ratio,
                        "accuracy": one.baseline,
                        "operator_accuracy": one.operator,
                        "over_seeds": msgspec.to_builtins(one.over_seeds),
                        "verdict": one.verdict,
                    }
                    for key, one in against.items()
                },
                "seeds": list(SEEDS),
                "machine": against["baseline"].machine,
            }
        )
        said = {key: one["over_seeds"] for key, one in rows[-1]["against"].items()}
        say(f"{name}, operator {number}, width {width}: {said}")
    return rows


def narrowed(base: TrialRequest, width: int) -> TrialRequest:
    """The training of the network with other widths; stages have the width, twice and four times it."""
    return msgspec.structs.replace(base, options={**base.options, "width": width})


def narrowest(base: TrialRequest, flops: int) -> int:
    """The fewest channels with which the network has at least so many FLOPs."""
    for width in range(1, WIDTH):
        if full_costs_of(narrowed(base, width)).flops >= flops:
            return width
    return WIDTH


def train(wanted: dict[str, TrialRequest], folder: Path) -> dict[str, list[TrialOutcome]]:
    """The outcomes of each request on all seeds, two at a time."""
    tasks = [(name, seed) for seed in SEEDS for name in wanted]
    requests = [msgspec.structs.replace(wanted[name], seed=seed) for name, seed in tasks]
    folders = [folder / f"{name}-{seed}" for name, seed in tasks]
    found: dict[str, list[TrialOutcome]] = {name: [] for name in wanted}
    with ProcessPoolExecutor(2) as pool:
        for (name, seed), outcome in zip(tasks, pool.map(_train, requests, folders), strict=True):
            if outcome.state != "finished":
                raise SynoError(f"expected {name} with seed {seed} to finish, found {outcome.state}: {outcome.reason}")
            say(f"{name}, seed {seed}: {outcome.accuracy:.3f}, {outcome.wall_s:.0f} s")
            found[name].append(outcome)
    return found


def _train(request: TrialRequest, folder: Path) -> TrialOutcome:
    return run_trial(request, folder=folder)


if __name__ == "__main__":
    main()

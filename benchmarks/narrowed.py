"""Compare a search's finalists with the network itself and with the network narrowed to their FLOPs, on fresh seeds.

An operator is worth its place only where a network of fewer channels, of the same FLOPs, is not as good. For each
finalist of a search in rungs of ResNet-20 the narrowest ResNet-20 with at least its FLOPs is found; finalist, narrowed
network and ResNet-20 are trained alike on seeds that neither the search nor its finals used, on all training images::

    python benchmarks/narrowed.py NAME LAB

With ``--stored FILE --data CIFAR`` the finalists are those of the searches in ``benchmarks/results/FILE.json``, which
were compared with ResNet-20 already; only they and the narrowed networks are trained. The file
``benchmarks/results/narrowed.json`` keeps a row for each NAME and finalist. Trainings lie in a folder NAME of the lab.
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
from syno_lab.reports.searched import searched
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
    arguments.add_argument("--stored", help="the name of stored searches instead, such as canvas_searches")
    arguments.add_argument("--data", help="the folder of CIFAR-10's binary batches, for stored searches")
    arguments.add_argument("--seeds", type=int, default=len(SEEDS), help="trainings of each (5)")
    chosen = arguments.parse_args()
    try:
        if chosen.stored:
            base, operators = stored(chosen.stored, chosen.data)
        else:
            base, operators = of_lab(chosen.lab)
        rows = compare_all(chosen, base, operators)
    except SynoError as error:
        sys.exit(str(error))
    file = RESULTS / f"{NAME}.json"
    before = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    kept = [row for row in before if row["name"] != chosen.name]
    save(NAME, {"about": about(typed(), None), "rows": [*kept, *rows]})


def of_lab(lab: Path) -> tuple[TrialRequest, dict[str, str]]:
    """How the lab's search trains, and its finalists as texts.

    Raises:
        SynoError: there is no such search.
    """
    result = read_result(lab, "search")
    if result is None:
        raise SynoError(f"expected a search named search that has ended in {lab}, found none")
    with LabReader(lab) as reader:
        trials = {row.number: row for row in reader.read().of("search:search")}
    base = msgspec.convert(result["settings"], SearchSettings).training
    found = {
        f"operator-{number}": str(trials[number].operator) for number in sorted(set(searched(result).numbers.values()))
    }
    return msgspec.structs.replace(base, stopping=None, keep_predictions=True), found


def stored(name: str, data: str | None) -> tuple[TrialRequest, dict[str, str]]:
    """The same of stored searches of the command with its defaults, all of one backbone and as many epochs.

    Raises:
        SynoError: without data, or when they are of several backbones or epochs.
    """
    rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    kinds = sorted({(row["settings"]["backbone"], row["settings"]["epochs"]) for row in rows})
    if data is None or len(kinds) != 1:
        raise SynoError(f"expected --data, and searches of one backbone and as many epochs, found {data}, {kinds}")
    (backbone, epochs), found = kinds[0], dict[str, str]()
    for place, row in enumerate(rows):
        for best in row["best"].values():
            if best is not None and best["operator"] not in found.values():
                found[f"search-{place}-operator-{best['number']}"] = best["operator"]
    base = TrialRequest(backbone=backbone, data=data, epochs=epochs, threads=1, channels_last=True)
    return msgspec.structs.replace(base, keep_predictions=True), found


def compare_all(given: Any, base: TrialRequest, operators: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each operator; ``base`` trains the network itself, which is left out where it was compared already.

    Raises:
        SynoError: a training did not finish.
    """
    seeds = list(SEEDS[: given.seeds])
    wanted: dict[str, TrialRequest] = {} if given.stored else {"baseline": base}
    widths: dict[str, int] = {}
    for name, text in operators.items():
        wanted[name] = msgspec.structs.replace(base, operator=text)
        widths[name] = narrowest(base, full_costs_of(wanted[name]).flops)
        wanted[f"width-{widths[name]}"] = narrowed(base, widths[name])
    outcomes = train(wanted, given.lab / given.name, seeds)
    rows = []
    for name, width in widths.items():
        operator, text = outcomes[name], operators[name]
        others = {"narrowed": outcomes[f"width-{width}"]}
        if "baseline" in outcomes:
            others["baseline"] = outcomes["baseline"]
        against = {key: compared(base, seeds, other, operator) for key, other in others.items()}
        rows.append(
            {
                "name": given.name,
                "finalist": name,
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
                "seeds": seeds,
                "machine": against["narrowed"].machine,
            }
        )
        said = {key: one["over_seeds"] for key, one in rows[-1]["against"].items()}
        say(f"{given.name}, {name}, width {width}: {said}")
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


def train(wanted: dict[str, TrialRequest], folder: Path, seeds: list[int]) -> dict[str, list[TrialOutcome]]:
    """The outcomes of each request on all seeds, two at a time."""
    tasks = [(name, seed) for seed in seeds for name in wanted]
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

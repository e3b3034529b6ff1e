"""Evolve whole networks by properties, by random subgraphs and as Primer does, at equal trials (αNAS, section 6).

``python benchmarks/evolution.py LABS --data CIFAR`` makes one search of ``syno-lab search --system alpha`` for each
backbone, seed and kind of mutation, each in a folder of its own in LABS; the same command continues one that was cut
off, and makes none twice. Of each it keeps the hypervolume of accuracy (from chance up) and parameters (up to the
seed's, as a share of them) and the overhead of search and store beside the trainings. By properties alone, the most
accurate network with at most half of the seed's parameters is trained on fresh seeds beside the seed itself.

``--part locality`` trains children of the CNN, one edit each, by properties and by random subgraphs, for two epochs.
Children of more than twice the CNN's FLOPs are left out on both sides: one of them takes as long as all others.
Results are in ``benchmarks/results/evolution.json``, part by part.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from common import RESULTS, about, save, say, typed

from syno_lab.alpha import NetworkOperator, Variant, find_blocks, mutate, trace
from syno_lab.alpha.mutating import Mutations
from syno_lab.errors import SynoError
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports import LabReader, front_of
from syno_lab.reports.progress import read_result
from syno_lab.trial.backbone import example_of, full_costs_of
from syno_lab.trial.compare import compared
from syno_lab.trial.request import TrialRequest
from syno_lab.trial.run import TrialOutcome, run_trial

#: By properties, and two rivals of the paper.
WAYS = ("progressive", "random", "primer")
#: Backbones with the seeds of their searches.
SEARCHES = {"resnet20": (0,), "cnn": (0, 1, 2)}
CHANCE = 0.1  # of ten classes
FRESH = (3000, 3001, 3002)
#: Images of a search's trainings, and of its tests; the specification's for two cores.
IMAGES = (5000, 1000)
SHARE = 0.9  # of the parent's accuracy, which a child should keep
MOST_FLOPS = 2  # of the parent's; children that take more are not trained


def main() -> None:
    """Measure one part, or all, and save."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("labs", type=Path, help="a folder for the labs")
    arguments.add_argument("--data", required=True, help="the folder of CIFAR-10's binary batches")
    arguments.add_argument("--part", choices=PARTS, help="one part alone")
    arguments.add_argument("--trials", type=int, default=40, help="of each search (40)")
    arguments.add_argument("--epochs", type=int, default=3, help="of each of its trainings (3)")
    arguments.add_argument("--resolution", type=int, help="of the images, for locality (theirs)")
    arguments.add_argument("--children", type=int, default=30, help="of each kind, for locality (30)")
    given = arguments.parse_args()
    file = RESULTS / "evolution.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in [given.part] if given.part else PARTS:
        try:
            for part in PARTS[name](given):
                found[name] = {"about": about(typed(), None), **part}
                save("evolution", found)  # at once: a run may be cut off
        except SynoError as error:
            sys.exit(str(error))


def searches(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All searches so far, their fronts, and the best smaller network of those by properties."""
    rows = []
    for name, seeds in SEARCHES.items():
        for seed, way in product(seeds, WAYS if name == "cnn" else WAYS[:1]):
            lab = given.labs / f"{name}-{way}-{seed}"
            search(lab, name, seed, way, given)
            row = {"backbone": name, "seed": seed, "mutations": way, **measured(lab)}
            if way == "progressive":
                row["half"] = half(lab)
            say(str(row))
            rows.append(row)
            yield {"trials": given.trials, "epochs": given.epochs, "images": IMAGES, "rows": rows}


def search(lab: Path, backbone: str, seed: int, way: str, given: argparse.Namespace) -> None:
    """Make the search, or go on with it; nothing where it has ended."""
    result = read_result(lab, "search")
    if result is not None and result["trials"] >= given.trials:
        return
    words = [sys.executable, "-m", "syno_lab.cli", "search", "--folder", str(lab)]
    if (lab / "searches" / "search").exists():
        words += ["--continue"]
    else:
        words += ["--system", "alpha", "--backbone", backbone, "--data", given.data, "--seed", str(seed)]
        words += ["--trials", str(given.trials), "--epochs", str(given.epochs), "--objectives", "params"]
        words += ["--images", str(IMAGES[0]), "--test-images", str(IMAGES[1]), "--to-the-end", "--seeds", "0"]
        words += ["--system-option", f"mutations={way}"]
    if subprocess.run(words, check=False).returncode:
        raise SynoError(f"expected the search in {lab} to end, found an error, said above")


def measured(lab: Path) -> dict[str, Any]:
    """The hypervolume of a search, and its overhead."""
    result = read_result(lab, "search")
    assert result is not None
    rows = trials(lab)
    seed = rows[0]  # a search begins with the network itself
    volume = front_of(rows, ["accuracy", "params"], reference=(CHANCE, seed.params)).hypervolume
    return {
        "hypervolume": volume / seed.params,
        "states": result["states"],
        "seed_accuracy": seed.accuracy,
        "search_s": result["search_s"],
        "overhead_share": result["overhead_share"],
        "flops": seed.flops,
        "params": seed.params,
        "trials": [[row.accuracy, row.flops, row.params] for row in rows],
    }


def trials(lab: Path) -> list[Any]:
    """The search's trials in their order, without its baseline."""
    with LabReader(lab) as reader:
        return sorted(
            (row for row in reader.read().of("search:search") if not row.is_baseline), key=lambda row: row.number
        )


def half(lab: Path) -> dict[str, Any] | None:
    """The most accurate network with at most half of the seed's parameters, beside the seed, on fresh seeds.

    A network whose training diverges on a fresh seed is counted, and the next one takes its place.
    """
    rows = trials(lab)
    able = [row for row in rows if row.accuracy is not None and row.params <= rows[0].params / 2]
    result = read_result(lab, "search")
    assert result is not None
    base = msgspec.convert(result["settings"], SearchSettings).training
    base = msgspec.structs.replace(base, stopping=None, holdout=None, keep_predictions=True)
    seeds = train(base, lab / "half", "seed")
    diverged = []
    for best in sorted(able, key=lambda row: -row.accuracy):
        request = msgspec.structs.replace(base, operator=best.operator)
        outcomes = train(request, lab / "half", f"trial-{best.number}")
        if any(one.state != "finished" for one in outcomes):
            diverged.append(best.number)
            continue
        found = compared(base, list(FRESH), seeds, outcomes)
        return {
            "number": best.number,
            "diverged": diverged,
            "operator": best.operator,
            "flops_ratio": found.flops_ratio,
            "params_ratio": found.params_ratio,
            "accuracy": found.operator,
            "seed_accuracy": found.baseline,
            "over_seeds": msgspec.to_builtins(found.over_seeds),
            "verdict": found.verdict,
        }
    return None


def train(request: TrialRequest, folder: Path, name: str) -> list[TrialOutcome]:
    """The outcomes of a request on the fresh seeds."""
    requests = [msgspec.structs.replace(request, seed=seed) for seed in FRESH]
    return train_all(requests, [folder / f"{name}-{seed}" for seed in FRESH])


def train_all(requests: list[TrialRequest], folders: list[Path]) -> list[TrialOutcome]:
    """The outcomes of trainings, two at a time."""
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(_train, requests, folders))


def _train(request: TrialRequest, folder: Path) -> TrialOutcome:
    return run_trial(request, folder=folder)


def locality(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Children of the CNN by properties and by random subgraphs: one replaced subgraph each, two epochs."""
    base = TrialRequest(backbone="cnn", data=given.data, epochs=2, resolution=given.resolution)
    seed = Variant(find_blocks(trace(*example_of(base))))
    (parent,) = train_all([base], [given.labs / "locality" / "parent"])
    most = MOST_FLOPS * full_costs_of(base).flops
    found: dict[str, Any] = {"parent": parent.accuracy, "resolution": given.resolution, "most_flops": MOST_FLOPS}
    accuracies = {}
    for way in WAYS[:2]:
        children = drawn(base, seed, way, given.children, most)
        requests = list(children.values())
        folders = [given.labs / "locality" / f"{way}-{number}" for number in range(len(requests))]
        # A child that diverges is no better than a guess.
        accuracies[way] = np.array([one.accuracy or CHANCE for one in train_all(requests, folders)])
        found[way] = {
            "accuracies": accuracies[way].tolist(),
            "median": statistics.median(accuracies[way].tolist()),
            "kept": float((accuracies[way] >= SHARE * parent.accuracy).mean()),
            "operations": statistics.mean(len(child.network.graph.nodes) for child in children),
        }
        say(f"{way}: {found[way]}")
    found["difference"] = difference(accuracies[WAYS[0]], accuracies[WAYS[1]])
    yield found


def drawn(base: TrialRequest, seed: Variant, way: str, number: int, most: float) -> dict[Variant, TrialRequest]:
    """Different children of the seed, one replaced subgraph each, of at most so many FLOPs, with their trainings."""
    rng, known = random.Random(0), set()
    found: dict[Variant, TrialRequest] = {}
    while len(found) < number:
        edit = mutate(seed.network, rng, Mutations(duplicate=0.0, delete=0.0, method=way))
        if edit is not None:
            child = seed.edited(edit)
            request = msgspec.structs.replace(base, operator=NetworkOperator(child).to_json())
            if child.key not in known and full_costs_of(request).flops <= most:
                known.add(child.key)
                found[child] = request
    return found


def difference(one: np.ndarray, other: np.ndarray, resamples: int = 10_000) -> dict[str, float]:
    """The difference of the medians with its bootstrap interval."""
    rng = np.random.default_rng(0)
    draws = [np.median(rng.choice(group, (resamples, len(group))), axis=1) for group in (one, other)]
    low, high = np.quantile(draws[0] - draws[1], (0.025, 0.975))
    return {"difference": float(np.median(one) - np.median(other)), "low": float(low), "high": float(high)}


PARTS = {"locality": locality, "searches": searches}


if __name__ == "__main__":
    main()

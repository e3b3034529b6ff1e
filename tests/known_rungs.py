"""A lab with a search in rungs whose results are known, as such a search leaves it; nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syno_lab import operators
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE, CONFIRM, FINAL, TIMING

FIRST, SECOND, NETWORK = "40 steps", "156 steps", "network"
SEEDS = (1000, 1001)
#: Operators with the accuracies that each training gives: on the first rung, the second (two seeds), the network, the
#: finals. The second one is known to the search from the beginning.
TRIALS: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("grouped", (0.30, 0.38, 0.40, 0.45, 0.470, 0.480)),
    ("separable", (0.31, 0.36, 0.38, 0.44, 0.450, 0.456)),
    ("conv1x1", (0.20, 0.25, 0.27, 0.36)),
    ("operator_1", (0.25, 0.30, 0.30)),
    ("conv2d", (0.22,)),
)
BASE = (0.32, 0.39, 0.485, 0.495)  # on the first two rungs, in the finals
KNOWN = {1: "separable"}
FLOPS = {"grouped": 24_000_000, "separable": 15_000_000, "conv1x1": 9_000_000, "operator_1": 30_000_000}


def fill_rungs(folder: Path, name: str = "rungs", *, is_done: bool = True) -> dict[str, Any]:
    """Write the search; without ``is_done`` it is at its second rung. Returns its result, or its status."""
    with Store.open(folder) as store:
        log = store.search(name, {"training": {"backbone": "resnet20"}, "rungs": True})
        for operator, accuracies in TRIALS:
            text = operators.KNOWN[operator]().to_json()
            number = log.add(f"fp {operator}", text, [], FLOPS.get(operator, 81_000_000), 30_000)
            outcome = {"state": "finished", "accuracy": accuracies[0], "rung": FIRST, "probe": {"score": 0.5}}
            log.record(number, outcome, reward=accuracies[0])
        for number, rung, seed, accuracy in _trainings():
            if is_done or rung in (FIRST, TIMING) or number == BASELINE:
                log.rungs.queue(number, rung, seed, 1)
                one = log.rungs.take("known")
                assert one is not None
                log.rungs.record(one, _outcome(number, rung, seed, accuracy), accuracy)
        if not is_done:
            log.rungs.queue(0, SECOND, 0, 1)
    place = folder / "searches" / name
    place.mkdir(parents=True)
    status = _status(is_done)
    (place / "status.json").write_text(json.dumps(status))
    if not is_done:
        return status
    result = _result(name, place)
    (place / "result.json").write_text(json.dumps(result))
    return result


def _trainings() -> list[tuple[int, str, int, float]]:
    found = [(BASELINE, FIRST, 0, BASE[0]), (BASELINE, SECOND, 0, BASE[1]), (BASELINE, TIMING, 0, 0.1)]
    found += [(BASELINE, FINAL, seed, value) for seed, value in zip(SEEDS, BASE[2:], strict=True)]
    places = [(FIRST, 0), (SECOND, 0), (SECOND, 1), (NETWORK, 0), *((FINAL, seed) for seed in SEEDS)]
    for number, (_, accuracies) in enumerate(TRIALS):
        found += [(number, *place, value) for place, value in zip(places, accuracies, strict=False)]
    return found


def _outcome(number: int, rung: str, seed: int, accuracy: float) -> dict[str, Any]:
    is_whole = rung in (NETWORK, FINAL, TIMING)
    epochs = [0.5 * accuracy, accuracy] if rung in (NETWORK, FINAL) else [accuracy]
    return {
        "state": "finished",
        "accuracy": accuracy,
        "curve": [
            {"epoch": at, "accuracy": value, "train_loss": 2.0, "test_loss": 2.1} for at, value in enumerate(epochs, 1)
        ],
        "flops": 81_102_080 if is_whole else 6_120_704,
        "params": 269_722 if is_whole else 75_290,
        "peak_mib": 190.0 if is_whole else 5.0,
        "wall_s": {FIRST: 3.0, SECOND: 14.0, NETWORK: 80.0, FINAL: 90.0}.get(rung, 6.0),
        "seed": seed,
    }


PLAN = {
    "minutes": 26.0,
    "workers": 2,
    "parts": [
        {"name": "baseline", "trainings": 2, "each_s": 62.14, "seconds": 124.28},
        {"name": "draws", "trainings": 0, "each_s": 0.0, "seconds": 211.5},
        {"name": FIRST, "trainings": 260, "each_s": 2.72, "seconds": 714.0},
        {"name": SECOND, "trainings": 35, "each_s": 18.54, "seconds": 661.2},
        {"name": NETWORK, "trainings": 8, "each_s": 87.0, "seconds": 696.0},
        {"name": CONFIRM, "trainings": 4, "each_s": 87.0, "seconds": 361.9},
        {"name": "finals", "trainings": 4, "each_s": 87.0, "seconds": 348.0},
    ],
}


def _status(is_done: bool) -> dict[str, Any]:
    counts = {"begun": 5, "trained": 4, "failed": 1, "seconds": 15.0}
    rungs = {FIRST: counts, SECOND: {"begun": 3, "trained": 1, "failed": 0, "seconds": 28.0}}
    if is_done:
        rungs[SECOND] = {"begun": 4, "trained": 4, "failed": 0, "seconds": 112.0}
        rungs[NETWORK] = {"begun": 3, "trained": 3, "failed": 0, "seconds": 240.0}
        rungs[CONFIRM] = {"begun": 2, "trained": 2, "failed": 0, "seconds": 320.0}
        rungs[FINAL] = {"begun": 2, "trained": 2, "failed": 0, "seconds": 360.0}
    return {
        "phase": "done" if is_done else SECOND,
        "plan": PLAN,
        "funnel": {
            "draws": {"drawn": 1_204, "wished": 640, "affordable": 512, "probed": 512, "seconds": 187.4},
            "rungs": rungs,
        },
        "known": {str(number): name for number, name in KNOWN.items()},
        "search_s": 1740.0 if is_done else 912.0,
        "end": "its minutes are used" if is_done else "",
        "verdict": "worse than the baseline" if is_done else "",
    }


def _result(name: str, place: Path) -> dict[str, Any]:
    status = _status(True)
    worse = _comparison(0.475, (-0.028, -0.002), "worse than the baseline")
    return {
        "settings": {"name": name, "training": {"backbone": "resnet20"}, "rungs": True},
        "trials": len(TRIALS),
        "end": status["end"],
        "plan": PLAN,
        "funnel": status["funnel"],
        "time": {
            "wall_s": 1740.0,
            "shares": {
                "baseline": 0.05,
                FIRST: 0.2,
                SECOND: 0.19,
                NETWORK: 0.3,
                FINAL: 0.18,
                "draws": 0.06,
                "rest": 0.02,
            },
        },
        "baseline": {"flops": 81_102_080, "params": 269_722, "accuracy": 0.49, "accuracies": list(BASE[2:])},
        "best": {"0.4": {"number": 0, "replaced_ratio": 0.29}, "0.25": None},
        "finalists": {"0.4": 0, "known": 1},
        "comparisons": {
            "0.4": worse,
            "known": _comparison(0.453, (-0.055, -0.019), "worse than the baseline"),
        },
        "not_compared": {},
        "verdict": status["verdict"],
        "front": [
            {"number": 0, "accuracy": 0.45, "replaced_ratio": 0.29, "params": 30_000, "known": None},
            {"number": 1, "accuracy": 0.44, "replaced_ratio": 0.18, "params": 30_000, "known": "separable"},
            {"number": 2, "accuracy": 0.36, "replaced_ratio": 0.11, "params": 30_000, "known": None},
        ],
        "recorded": [{"number": number, "known": KNOWN.get(number)} for number in range(len(TRIALS))],
        "folder": str(place),
    }


def _comparison(operator: float, ends: tuple[float, float], verdict: str) -> dict[str, Any]:
    low, high = ends
    return {
        "measure": "accuracy",
        "baseline": 0.49,
        "operator": operator,
        "interval": {"difference": operator - 0.49, "low": low / 2, "high": high / 2, "confidence": 0.95},
        "over_seeds": {"difference": operator - 0.49, "low": low, "high": high, "confidence": 0.95},
        "seeds": list(SEEDS),
        "verdict": verdict,
    }

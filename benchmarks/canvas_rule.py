r"""Canvas as in its paper: a search by chance, its kernel against a narrower network, and its rule of early stopping.

::

    syno-lab search --system canvas --backbone resnet20 --width 8 --data CIFAR --images 2000 --test-images 2000 \
        --epochs 3 --trials 40 --flops 0.5 --no-rungs --to-the-end --from-nothing --method random --folder LAB
    python benchmarks/canvas_rule.py LAB

All kernels of the search were trained to the end, so that it is known what the rule would have done: their curves are
replayed in ten drawn orders, each against those before it, and it is counted how many epochs the rule saves and whether
the best kernel is kept (``CanvasRule``, section 7 of the paper). The best kernel, and the ResNet-20 of fewer channels
with at least its FLOPs, are trained on seeds that the search did not use. Results: ``results/canvas_rule.json``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from common import about, save, say, typed
from narrowed import compare_all

from syno_lab.errors import SynoError
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports.progress import read_result
from syno_lab.store import Store
from syno_lab.trial.stopping import CanvasRule

ORDERS = 10
Curve = tuple[float, ...]


def replay(curves: list[Curve], rule: CanvasRule, rng: random.Random) -> tuple[float, bool]:
    """The share of the epochs that the rule saves in a drawn order, and whether the best kernel is trained to the end.

    The rivals of a training are the curves of those before it, as far as they were trained.
    """
    epochs = max(map(len, curves))
    best = max(range(len(curves)), key=lambda number: curves[number][-1])
    order = rng.sample(range(len(curves)), len(curves))
    rivals: list[Curve] = []
    is_kept = False
    for number in order:
        curve = curves[number]
        ended = next((at for at in range(1, len(curve)) if rule.reason(curve[:at], rivals, epochs)), len(curve))
        rivals.append(curve[:ended])
        is_kept |= number == best and ended == len(curve)
    return 1 - sum(map(len, rivals)) / sum(map(len, curves)), is_kept


def main() -> None:
    """Replay, train and compare."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("lab", type=Path, help="the folder of a lab with a search named search")
    arguments.add_argument("--seeds", type=int, default=3, help="trainings of the best kernel, and of the network (3)")
    chosen = arguments.parse_args()
    result = read_result(chosen.lab, "search")
    if result is None:
        sys.exit(f"expected a search named search that has ended in {chosen.lab}, found none")
    settings = msgspec.convert(result["settings"], SearchSettings)
    with Store.open(chosen.lab) as store:
        trials = store.search("search", settings.identity).trials()
    curves = {}
    for trial in trials:
        curve = tuple(float(one["accuracy"]) for one in (trial.outcome or {}).get("curve") or ())
        if trial.state == "finished" and len(curve) == settings.training.epochs:
            curves[trial.number] = curve
    if len(curves) < 2:
        sys.exit(f"expected a search with two trainings or more that ended, found {len(curves)} in {chosen.lab}")
    rule = CanvasRule()
    replays = [replay(list(curves.values()), rule, random.Random(seed)) for seed in range(ORDERS)]
    best = max(curves, key=lambda number: curves[number][-1])
    texts = {trial.number: trial.operator for trial in trials}
    base = msgspec.structs.replace(settings.training, stopping=None, keep_predictions=True)
    how = SimpleNamespace(name="canvas-rule", lab=chosen.lab, seeds=chosen.seeds, stored="")
    try:
        rows = compare_all(how, base, {f"operator-{best}": texts[best]})
    except SynoError as error:
        sys.exit(str(error))
    found: dict[str, Any] = {
        "about": about(typed(), None),
        "settings": {name: result["settings"][name] for name in ("method", "seed", "max_replaced_ratio")},
        "training": {"width": base.options.get("width"), "epochs": base.epochs, "images": base.train_images},
        "trained": len(curves),
        "drawn": len(trials),
        "theta": rule.theta,
        "orders": ORDERS,
        "saved": {
            "median": statistics.median(saved for saved, _ in replays),
            "least": min(saved for saved, _ in replays),
        },
        "kept": sum(kept for _, kept in replays),
        "best": {"number": best, "curve": curves[best]},
        "rows": rows,
    }
    save("canvas_rule", found)
    say(f"saved {found['saved']}, kept in {found['kept']} of {ORDERS}")


if __name__ == "__main__":
    main()

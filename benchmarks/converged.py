"""Compare networks that are trained to the end, on every image of CIFAR-10 in a folder.

ResNet-20, ResNet-20 of fewer channels, and ResNet-20 with operators in place of its convolutions, on images of 16x16
pixels: each is trained by the recipe ``converged`` on six folds, so that every image is tested once, and by the recipe
``short`` on the same folds, to see how far three epochs rank networks as sixty do::

    python benchmarks/converged.py --data FOLDER --minutes 30

A converged training of ResNet-20 takes about six minutes of one core (ten epochs: 52 s in ``recipe_sweep.json``), so
all 72 take 7 to 8 CPU-hours, and the short ones another 20 minutes. The file ``benchmarks/results/converged.json`` gets
a row after each training. A training that the minutes end keeps its checkpoint in ``--folder``; the same command goes
on. Folds are done one after the other, all networks on each, so that the networks of an unfinished file are compared on
the same images. The operators are known ones and the best that the searches in ``half_hours.json`` found
(:func:`of_half_hours`). ``--operator LABEL=FILE`` adds a network.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from common import RESULTS, about, parser_with_data, save, say, typed
from narrowed import narrowed, narrowest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from syno_lab import operators, systems
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.nas_pte.operator import NAS_PTE
from syno_lab.trial.backbone import full_costs_of
from syno_lab.trial.compare import paired_bootstrap
from syno_lab.trial.examples import examples_of
from syno_lab.trial.request import TrialRequest
from syno_lab.trial.run import run_trial

NAME = "converged"
BASELINE = "ResNet-20"
FOLDS = 6
SHARES = (0.4, 0.2)  # of ResNet-20's FLOPs, for the narrowed networks
FOUND = 3  # operators of the half-hour searches
SIZES = {"N": 1, "C_in": 16, "C_out": 32, "H": 8, "W": 16}  # with which their functions are told apart


def pointwise_first() -> Operator:
    """Separable convolution in the other order: 1x1, then depthwise K x K."""
    build = Build("[N, C_in, H, W]", "[N, C_out, H, W]", operators.known.IMAGE, ["k_1=3"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k_1"), build.reduce("k_1")
    build.contract(share=[o, p, q])
    h, w = build.unfold(h, p), build.unfold(w, q)
    build.contract(share=[c], give=[o])
    return build.finish(n, c, h, w)


def of_half_hours() -> dict[str, str]:
    """The :data:`FOUND` best operators of the stored half hours, without known ones, by ``half hour SEED#NUMBER``.

    They are ordered by their accuracy in the finals. Of equal functions the first search's is taken.
    """
    rows = json.loads((RESULTS / "half_hours.json").read_text(encoding="utf-8"))["rows"]
    best: dict[str, tuple[float, str, str]] = {}
    for search, share in product(rows, ("0.4", "0.25")):
        text, number = (search["best"][share][name] for name in ("operator", "number"))
        operator = systems.read_operator(text)
        if systems.system_of(operator).recognise(operator) is None:
            label = f"half hour {search['settings']['seed']}#{number}"
            best.setdefault(operator.fingerprint(SIZES), (search["comparisons"][share]["operator"], label, text))
    ordered = sorted(best.values(), key=lambda item: -item[0])
    return {label: text for _, label, text in ordered[:FOUND]}


def networks(base: TrialRequest, files: list[str]) -> dict[str, TrialRequest]:
    """The request of each network by its label; the first is the baseline."""
    flops = full_costs_of(base).flops
    texts = {
        **of_half_hours(),
        "separable": operators.separable().to_json(),
        "separable, 1x1 first": pointwise_first().to_json(),
        "grouped": operators.grouped().to_json(),
        "Operator 1": operators.operator_1().to_json(),
        "Operator 2": operators.operator_2().to_json(),
        "NAS-PTE's first": next(iter(NAS_PTE.values()))().to_json(),
    }
    for text in files:
        label, _, path = text.partition("=")
        texts[label] = Path(path).read_text(encoding="utf-8")
    narrow = {f"narrowed to {share}": narrowed(base, narrowest(base, round(share * flops))) for share in SHARES}
    return {BASELINE: base, **narrow} | {
        label: msgspec.structs.replace(base, operator=text) for label, text in texts.items()
    }


def packed(right: NDArray[np.bool_]) -> dict[str, Any]:
    """Which images were classified correctly, as it is stored."""
    return {"count": len(right), "right": np.packbits(right).tobytes().hex()}


def unpacked(row: dict[str, Any]) -> NDArray[np.bool_]:
    """The same of a stored row."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(row["right"]), np.uint8))
    return bits[: row["count"]].astype(bool)


def main() -> None:
    """Train what the file lacks, until the minutes are over; print the table of what there is."""
    arguments = parser_with_data(__doc__ or "")
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--recipes", nargs="+", choices=("short", "converged"), default=["short", "converged"])
    arguments.add_argument("--epochs", type=int, help="of the recipe converged instead of its own, for a trial run")
    arguments.add_argument("--operator", action="append", default=[], metavar="LABEL=FILE")
    arguments.add_argument("--folder", type=Path, default=Path(".syno-lab/converged"), help="for checkpoints")
    chosen = arguments.parse_args()
    end = time.monotonic() + 60 * chosen.minutes
    file = RESULTS / f"{NAME}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    base = TrialRequest(
        backbone="resnet20",
        data=str(chosen.data),
        resolution=16,
        folds=FOLDS,
        threads=1,
        channels_last=True,
        seed=chosen.seed,
        keep_predictions=True,
    )
    wanted = networks(base, chosen.operator)
    known = {(row["network"], row["recipe"], row["epochs"], row["fold"], row["seed"]) for row in rows}
    for fold, label, recipe in product(range(1, FOLDS + 1), wanted, chosen.recipes):
        epochs = {"epochs": chosen.epochs} if chosen.epochs and recipe == "converged" else {}
        # A new request, so that the recipe's own epochs are filled in.
        plain = {name: value for name, value in wanted[label].to_dict().items() if name != "epochs"}
        request = TrialRequest.from_dict(plain | epochs | {"recipe": recipe, "fold": fold})
        key = (label, recipe, request.epochs, fold, request.seed)
        if key in known:
            continue
        if time.monotonic() > end:
            break
        where = chosen.folder / "-".join(map(str, key)).replace(" ", "-").replace("'", "").replace(",", "")
        outcome = run_trial(request, folder=where, should_stop=lambda: time.monotonic() > end)
        if outcome.state == "interrupted":
            say(f"{key}: goes on next time, after {len(outcome.curve)} epochs")
            break
        if outcome.state != "finished":
            sys.exit(f"{key}: expected a training that finishes, found {outcome.state}: {outcome.reason}")
        right = np.array(outcome.predictions) == examples_of(request).test_labels
        names = ("network", "recipe", "epochs", "fold", "seed")
        rows.append({
            **dict(zip(names, key, strict=True)),
            "flops_ratio": outcome.flops / full_costs_of(base).flops,
            "params": outcome.params,
            "accuracy": outcome.accuracy,
            **packed(right),
            "cpu_s": round(outcome.cpu_s, 1),
            "machine": outcome.machine,
        })  # fmt: skip
        say(f"{key}: {outcome.accuracy:.4f}, {outcome.cpu_s:.0f} CPU-seconds")
        store(rows)
    store(rows)


def store(rows: list[dict[str, Any]]) -> None:
    """Write the rows and the table of what there is."""
    save(NAME, {"about": about(typed(), None), "table": table(rows), "rows": rows})


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each recipe with its epochs: each network's accuracy, its standard error and its difference.

    A network is compared with the baseline over the images of the folds and seeds that both have. ``ranks`` is
    Spearman's rank correlation of the networks with the three-epoch accuracies, over the networks that both have.
    """
    found: dict[tuple[str, int], dict[str, dict[tuple[int, int], NDArray[np.bool_]]]] = {}
    for row in rows:
        of = found.setdefault((row["recipe"], row["epochs"]), {}).setdefault(row["network"], {})
        of[row["fold"], row["seed"]] = unpacked(row)
    means = {
        kind: {label: float(np.concatenate(list(parts.values())).mean()) for label, parts in of.items()}
        for kind, of in found.items()
    }
    short = next((of for (recipe, _), of in means.items() if recipe == "short"), {})
    made = []
    for (recipe, epochs), of in found.items():
        accuracies = means[recipe, epochs]
        both = [label for label in accuracies if label in short]
        lines = []
        for label, parts in of.items():
            right = np.concatenate(list(parts.values()))
            shared = sorted(parts.keys() & of.get(BASELINE, {}).keys()) if label != BASELINE else []
            line: dict[str, Any] = {
                "network": label,
                "images": len(right),
                "accuracy": accuracies[label],
                "standard_error": float(right.std() / np.sqrt(len(right))),
            }
            if shared:
                pair = [np.concatenate([one[key] for key in shared]) for one in (of[BASELINE], parts)]
                line["difference"] = msgspec.to_builtins(paired_bootstrap(*pair))
            lines.append(line)
        ranks = spearmanr([short[label] for label in both], [accuracies[label] for label in both]).statistic
        is_said = recipe != "short" and len(both) > 2
        made.append({"recipe": recipe, "epochs": epochs, "networks": lines, "ranks": float(ranks) if is_said else None})
    return made


if __name__ == "__main__":
    main()

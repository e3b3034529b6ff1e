"""Compare recipes for the baseline: learning rate, weight decay, label smoothing and batch size.

ResNet-20 without an operator is trained on five sixths of a folder's training images of CIFAR-10, scaled to 16x16
pixels, and measured on the other sixth, once for each row of ``GRID``; crop and flip, one cycle::

    python benchmarks/recipe_sweep.py --data FOLDER --epochs 10 --minutes 20

The file ``benchmarks/results/recipe_sweep.json`` gets a row after each training. The same command again goes on with
the rows that are missing. A row holds for its number of epochs only; so run the best of them with ``--epochs 60`` too
(``--only`` takes their numbers in ``GRID``, from 0).
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from common import RESULTS, about, parser_with_data, save, say, typed

from syno_lab.data.datasets import load_dataset
from syno_lab.training import train
from syno_lab.training.recipes import Numbers
from syno_lab.trial.backbone import build
from syno_lab.trial.request import TrialRequest

NAME = "recipe_sweep"
SIZE = 16
HELD_OUT = 1 / 6
USUAL = Numbers(smoothing=0.1, crops=True)
#: Changes of ``USUAL`` and the batch size: first none, then one change, then two.
CHANGES: tuple[tuple[dict[str, float], int], ...] = (
    ({}, 64),
    ({"smoothing": 0.0}, 64),
    ({"learning_rate": 0.05}, 64),
    ({"learning_rate": 0.2}, 64),
    ({"weight_decay": 1e-3}, 64),
    ({"weight_decay": 1e-4}, 64),
    ({}, 32),
    ({}, 128),
    ({"learning_rate": 0.2}, 128),
    ({"learning_rate": 0.05}, 32),
    ({"learning_rate": 0.2, "weight_decay": 1e-3}, 64),
    ({"learning_rate": 0.4}, 128),
)
GRID = tuple((replace(USUAL, **changes), batch) for changes, batch in CHANGES)


def main() -> None:
    """Train the rows that the file lacks, until the minutes are over."""
    arguments = parser_with_data(__doc__ or "")
    arguments.add_argument("--epochs", type=int, default=60)
    arguments.add_argument("--minutes", type=float, default=60.0, help="no training begins after these")
    arguments.add_argument("--only", type=int, nargs="+", default=range(len(GRID)), help="numbers of rows of GRID")
    chosen = arguments.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * chosen.minutes
    file = RESULTS / f"{NAME}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    # The request only says how the network is built; the data are all training images, of which a part is held out.
    request = TrialRequest(backbone="resnet20", data=str(chosen.data), resolution=SIZE, seed=chosen.seed)
    images = load_dataset(chosen.data).holding_out(HELD_OUT)
    for numbers, batch in (GRID[number] for number in chosen.only):
        key = {**asdict(numbers), "batch_size": batch, "epochs": chosen.epochs, "seed": chosen.seed}
        if any(all(row[name] == value for name, value in key.items()) for row in rows) or time.monotonic() > end:
            continue
        start = time.process_time()
        result = train(
            build(request).module,
            images,
            recipe=numbers,
            epochs=chosen.epochs,
            batch_size=batch,
            seed=chosen.seed,
            channels_last=True,
            augment="crop",
        )
        last = result.curve[-1]
        rows.append({
            **key,
            "accuracy": last.test_accuracy,
            "test_loss": last.test_loss,
            "train_loss": last.train_loss,
            "images": [len(images.train_labels), len(images.test_labels)],
            "cpu_s": round(time.process_time() - start, 1),
        })  # fmt: skip
        say(f"{key}: {last.test_accuracy:.4f}, {rows[-1]['cpu_s']} s")
        save(NAME, {"about": about(typed(), None), "rows": rows})


if __name__ == "__main__":
    main()

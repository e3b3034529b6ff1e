"""Every operator of a small space trained alike, so that searches can be compared on rewards of real trainings.

``python benchmarks/record_trials.py --data FOLDER`` enumerates the conv-authors spec (at most 6 primitives) and puts
each operator twice into one small network, trained on CIFAR-10: a 3x3 stem, two layers of the operator with batch
normalisation, 16 channels at 16 x 16 and 8 x 8, mean pooling, a linear layer. 2,000 training images, averaged to
16 x 16, for ``--epochs`` epochs by AdamW, g = 4; the reward is the accuracy on 2,000 images, the test images and
training images that were not used. Of both only whole batches of 64 count, 1,984 images. An operator that cannot be
built, diverges or takes more than ``--longest`` CPU-seconds has the reward 0. ``--most`` takes so many operators by
chance.

It prints JSON and writes ``benchmarks/results/recorded_trials.json``: ``steps``, ``reward`` and ``wall_s`` of each.
What was trained is kept in ``--lines`` (one JSON a line), so that a run that was ended goes on.
"""

from __future__ import annotations

import json
import os
import random
import time
import warnings
from math import isfinite
from pathlib import Path
from typing import Any

from common import RESULTS, about, parser_with_data, say, typed, use_one_core

from syno_lab.commands.specs import load_spec
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import RandomSearch

SIZE, LIMITS = 6, "primary"
CHANNELS, TRAINED, CHECKED, BATCH = 16, 2_000, 2_000, 64


def trails() -> list[tuple[tuple[str, ...], Operator]]:
    """All operators with the names of their steps, in a random order that is always the same."""
    spec, _ = load_spec("conv-authors", max_primitives=SIZE, weight_limits=LIMITS)
    search = RandomSearch(synthesis_space(spec, countable_nodes=60_000), random.Random(0))
    found = []
    while (candidate := search.ask()) is not None:
        found.append((candidate.steps, candidate.operator))
    return found


class Trainer:
    """Trains one operator after another on the same images in the same order.

    Letters: ``B`` images of a batch; images are [B, 3, 16, 16].
    """

    def __init__(self, data: Path, epochs: int, longest_s: float) -> None:
        import torch

        from syno_lab.data.cifar import find_cifar, read_cifar

        torch.set_num_threads(1)
        arrays = read_cifar(*find_cifar(data))

        def images(pixels: Any) -> Any:
            small = torch.nn.functional.avg_pool2d(torch.tensor(pixels).reshape(-1, 3, 32, 32).float() / 255, 2)
            return (small - small.mean((0, 2, 3), keepdim=True)) / small.std((0, 2, 3), keepdim=True)

        train, test = images(arrays.train_images), images(arrays.test_images)
        labels, answers = torch.tensor(arrays.train_labels), torch.tensor(arrays.test_labels)
        self.train = (train[:TRAINED], labels[:TRAINED])
        self.check = (torch.cat([test, train[TRAINED:]])[:CHECKED], torch.cat([answers, labels[TRAINED:]])[:CHECKED])
        self.epochs = epochs
        self.longest_s = longest_s

    def __call__(self, operator: Operator) -> tuple[float, str]:
        """The accuracy, and why it is 0 where it is."""
        import torch
        from torch import nn

        from syno_lab.codegen.torch_module import to_torch

        torch.manual_seed(1)
        layers: list[nn.Module] = [
            nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
        ]
        start = time.process_time()
        try:
            for size in (16, 8):
                binding = {"N": BATCH, "C_in": CHANNELS, "C_out": CHANNELS, "H": size, "W": size, "g": 4}
                layers += [to_torch(operator, binding), nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.AvgPool2d(2)]
        except SynoError as error:
            return 0.0, str(error).splitlines()[0]
        net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS * 16, 10))
        steps = self.epochs * (TRAINED // BATCH)
        optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
        chance = torch.Generator().manual_seed(1)
        images, labels = self.train
        for _ in range(self.epochs):
            order = torch.randperm(TRAINED, generator=chance)
            for number in range(TRAINED // BATCH):
                batch = order[number * BATCH : (number + 1) * BATCH]
                optimizer.zero_grad(set_to_none=True)
                loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
                loss.backward()
                optimizer.step()
                schedule.step()
                if not isfinite(loss.item()):
                    return 0.0, "the loss is not finite"
                if time.process_time() - start > self.longest_s:
                    return 0.0, f"more than {self.longest_s:g} CPU-seconds"
        net.eval()
        right = total = 0
        with torch.no_grad():
            images, labels = self.check
            for first in range(0, len(images) - BATCH + 1, BATCH):  # whole batches: N is bound
                found = net(images[first : first + BATCH]).argmax(1)
                right += int((found == labels[first : first + BATCH]).sum())
                total += BATCH
        return right / total, ""


def main() -> None:
    """Train and store."""
    arguments = parser_with_data(__doc__ or "")
    arguments.add_argument("--epochs", type=int, default=2, help="of each training (2)")
    arguments.add_argument("--longest", type=float, default=30.0, help="CPU-seconds for one training (30)")
    arguments.add_argument("--most", type=int, help="so many operators, by chance (all)")
    arguments.add_argument("--lines", type=Path, required=True, help="a file for what has been trained")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    if chosen.lines.is_file():
        for line in chosen.lines.read_text(encoding="utf-8").splitlines():
            trial = json.loads(line)
            known[tuple(trial["steps"])] = trial
    train = Trainer(chosen.data, chosen.epochs, chosen.longest)
    found = trails()[: chosen.most]
    with chosen.lines.open("a", encoding="utf-8") as lines:
        for number, (steps, operator) in enumerate(found):
            if steps in known:
                continue
            start = time.perf_counter()
            reward, reason = train(operator)
            trial = {"steps": list(steps), "reward": round(reward, 5), "wall_s": round(time.perf_counter() - start, 3)}
            if reason:
                trial["reason"] = reason
            known[steps] = trial
            lines.write(json.dumps(trial) + "\n")
            lines.flush()
            say(f"{number + 1} of {len(found)}: {reward:.3f} in {trial['wall_s']} s {reason}")
    command = typed().replace(str(chosen.data), "FOLDER").replace(str(chosen.lines), "LINES")
    head = {"about": about(command, core), "max_primitives": SIZE, "weight_limits": LIMITS, "epochs": chosen.epochs}
    trials = ",\n  ".join(json.dumps(known[steps]) for steps, _ in found)
    text = json.dumps(head, indent=1)[:-2] + f',\n "recorded": [\n  {trials}\n ]\n}}\n'
    json.loads(text)
    (RESULTS / "recorded_trials.json").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

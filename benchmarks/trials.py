"""Trainings that the course reads: every curve, alike for all operators of a part.

``python benchmarks/trials.py digits`` puts known operators and ``--random`` drawn ones in the six places of a ResNet of
8 layers for scikit-learn's handwritten digits; ``python benchmarks/trials.py text --data FILE`` puts a linear layer by
groups in the place of a tiny GPT's projections to queries, keys and values. Nothing is stopped early.

It prints JSON and writes ``benchmarks/results/trials_digits.json`` or ``trials_text.json``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from common import about, parser, save, say, typed, use_one_core

import syno_lab as sl
from syno_lab import operators
from syno_lab.errors import SynoError
from syno_lab.pgraphs.of_network import derive_spec
from syno_lab.trial import TrialRequest, full_costs_of, run_trial, sites_of

SEEDS = (0, 1, 2)
KNOWN = ("grouped", "separable", "operator_1", "stacked_grouped_convolution", "operator_2")
DIGITS = TrialRequest(
    backbone="resnet20", options={"width": 8, "blocks": 1}, data="digits", epochs=8, batch_size=32, threads=1
)
TEXT = TrialRequest(
    backbone="gpt_tiny",
    options={"width": 64, "layers": 2, "steps": 100},
    epochs=6,
    batch_size=32,
    threads=1,
    test_images=256,
)


def drawn(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """So many operators by chance that fit every place of the digits' network at no more than its FLOPs."""
    spec = derive_spec(sites_of(DIGITS), max_primitives=8)
    found = 0
    for operator in sl.Sampler.from_spec(spec, seed=seed).samples():
        text = operator.to_json()
        try:
            costs = full_costs_of(msgspec.structs.replace(DIGITS, operator=text))
        except SynoError:
            continue
        if costs.replaced == costs.places and costs.flops <= costs.baseline_flops:
            found += 1
            yield f"drawn {found}", text
        if found == count:
            return


def train(request: TrialRequest, name: str) -> dict[str, Any]:
    """One training, as the file has it."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_trial(request, folder=Path(folder))
    kept = ("epoch", "accuracy", "perplexity")
    say(f"{name}, seed {request.seed}: {outcome.state}, {outcome.accuracy} {outcome.reason}")
    return {
        "name": name,
        "seed": request.seed,
        "operator": request.operator,
        "state": outcome.state,
        "reason": outcome.reason,
        "flops": outcome.flops,
        "params": outcome.params,
        "curve": [{key: round(row[key], 5) for key in kept if key in row} for row in outcome.curve],
        "epoch_s": [round(row["seconds"], 3) for row in outcome.curve],
    }


def main() -> None:
    """See the head of this file."""
    options = parser(__doc__ or "")
    options.add_argument("part", choices=["digits", "text"])
    options.add_argument("--data", type=Path, help="a text file, for the part text")
    options.add_argument("--random", type=int, default=24, help="operators drawn, for the part digits (24)")
    arguments = options.parse_args()
    core = use_one_core(arguments.core)
    if arguments.part == "text":
        if arguments.data is None:
            options.error("the part text needs --data FILE")
        request = msgspec.structs.replace(TEXT, data=str(arguments.data))
        names: tuple[str, ...] = ("grouped_linear",)
    else:
        request, names = DIGITS, KNOWN
    todo = [("baseline", None, seed) for seed in SEEDS]
    todo += [(name, getattr(operators, name)().to_json(), seed) for name in names for seed in SEEDS]
    if arguments.part == "digits":
        todo += [(name, text, 0) for name, text in drawn(arguments.random, arguments.seed)]
    # The file and not its place: that is of one machine.
    settings = msgspec.structs.replace(request, data=Path(request.data).name).to_dict()
    command = typed().replace(str(arguments.data), "FILE")
    trials = [train(msgspec.structs.replace(request, operator=text, seed=seed), name) for name, text, seed in todo]
    save(f"trials_{arguments.part}", {"about": about(command, core), "settings": settings, "trials": trials})


if __name__ == "__main__":
    main()

"""How far from uniform the walks are that sample spaces too large to be counted, where the truth can be counted.

``python benchmarks/bias.py`` enumerates a small spec, draws from it by walks and, beside them, uniformly (as
``Sampler.sample`` does there by itself), prints JSON and writes it to ``benchmarks/results/bias.json``;
``python benchmarks/render.py`` puts it into the README. So many uniform draws differ from uniform by chance too: what
walks add is the difference between the two.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from common import about, parser, save, say, typed, use_one_core

from syno_lab.ir.operator import Operator
from syno_lab.synthesis import sampler as engine
from syno_lab.synthesis.fields import SpecFields

FIELDS = SpecFields(
    "[C, H]",
    "[D, H]",
    ["C=12: 1", "D=15: 1", "H=5: 0"],
    ["k=3: 2"],
    max_primitives=5,
    max_tensors=3,
    max_reduces=3,
    max_expands=0,
    max_shifts=0,
    max_strides=0,
)


def bias(every: list[Operator], draw: Callable[[], Operator], draws: int) -> dict[str, Any]:
    """How the shares of ``draws`` draws differ from those of uniform ones over ``every``."""
    times: Counter[Operator] = Counter(dict.fromkeys(every, 0))
    for number in range(draws):
        times[draw()] += 1
        if not (number + 1) % 20_000:
            say(f"  {number + 1:,} draws")
    if len(times) != len(every):
        sys.exit(
            f"expected draws among the {len(every)} operators of the space, found {len(times) - len(every)} others"
        )
    by_steps: dict[int, list[int]] = {}
    for operator, number in times.items():
        by_steps.setdefault(len(operator.steps), []).append(number)
    return {
        "draws": draws,
        "never_drawn": sum(number == 0 for number in times.values()),
        "total_variation": sum(abs(number / draws - 1 / len(every)) for number in times.values()) / 2,
        "by_steps": [
            {
                "steps": steps,
                "operators": len(numbers),
                "share_of_space": len(numbers) / len(every),
                "share_of_draws": sum(numbers) / draws,
                "never_drawn": sum(number == 0 for number in numbers),
                "most": max(numbers),
                "least": min(numbers),
                "most_to_least": max(numbers) / min(numbers) if min(numbers) else None,
            }
            for steps, numbers in sorted(by_steps.items())
        ],
    }


def main() -> None:
    """Enumerate, draw, compare."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--draws", type=int, default=100_000, help="by walks, and uniform ones (100,000)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    spec = FIELDS.spec()
    uniform = engine.Sampler.from_spec(spec, seed=chosen.seed)
    every = list(uniform.enumerate())
    say(f"{len(every):,} operators; {chosen.draws:,} uniform draws")
    if not uniform.is_uniform:
        sys.exit("expected a space that is counted, and so drawn from uniformly; found one that is not")
    result = {
        "spec": msgspec.to_builtins(FIELDS),
        "operators": len(every),
        "uniform": bias(every, uniform.sample, chosen.draws),
    }
    engine.COUNTABLE_NODES = 0  # as if the space were too large to be counted
    walks = engine.Sampler.from_spec(spec, seed=chosen.seed)
    if walks.is_uniform:
        sys.exit("expected a sampler that walks; found one that counts all the same")
    say(f"{chosen.draws:,} walks of one operator each")
    result["walks"] = bias(every, walks.sample, chosen.draws)
    save("bias", result | {"about": about(typed(), core)})


if __name__ == "__main__":
    main()

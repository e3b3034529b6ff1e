"""How long *Complete at random* takes where there is most to choose from: from the root of Operator 1's own spec.

``python benchmarks/completing.py`` asks for one random way for each of 50 seeds, prints JSON and writes it to
``benchmarks/results/completing.json``. Times are seconds of computing.
"""

from __future__ import annotations

import random
import statistics
import time

from common import about, parser, save, say, typed, use_one_core

from syno_lab import operators
from syno_lab.errors import SynoError
from syno_lab.ir.state import State
from syno_lab.synthesis.ways import PATIENCE_S, random_way


def main() -> None:
    """One random way for each seed."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seeds", type=int, default=50, help="how many (50)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    root = State.root(operators.operator_1().spec)
    times, steps = [], []
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        begun = time.process_time()
        try:
            steps.append(len(random_way(root, random.Random(seed)).steps))
        except SynoError as error:
            say(f"seed {seed}: {error}")
        times.append(time.process_time() - begun)
    result = {
        "seeds": chosen.seeds,
        "operators": len(steps),
        "steps": {number: steps.count(number) for number in sorted(set(steps))},
        "median_s": statistics.median(times),
        "worst_s": max(times),
        "limit_s": PATIENCE_S,
        "about": about(typed(), core),
    }
    save("completing", result)


if __name__ == "__main__":
    main()

"""Whether the loop nest, PyTorch and compiled TVM code agree on random operators: ``make trust``.

Half of the operators are drawn by the sampler over eight specs, half are legal ones built at random with every corner
of Table 1. Values: the torch module in float64 against the loop nest. Gradients: by the input and by each weight, by
linearity against the loop nest. TVM: compiled code, in a child process. A failing operator is shrunk and printed as a
program that shows the failure. The command fails when an operator does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the kernels are tiny

import argparse
import random
import sys
from pathlib import Path

from common import about, save, say

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from trust.harness import run


def main() -> None:
    """Check, print and save."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--operators", type=int, default=1000, help="whose values are compared (1000)")
    options.add_argument("--gradients", type=int, help="whose gradients are (a tenth)")
    options.add_argument("--tvm", type=int, help="that are compiled by TVM (a tenth)")
    options.add_argument("--seed", type=int, help="of operators and tensors (a fresh one)")
    chosen = options.parse_args()
    tenth = chosen.operators // 10
    counts = {
        "values": chosen.operators,
        "gradients": tenth if chosen.gradients is None else chosen.gradients,
        "tvm": tenth if chosen.tvm is None else chosen.tvm,
    }
    seed = random.SystemRandom().randrange(1 << 30) if chosen.seed is None else chosen.seed
    say(f"--seed {seed}")
    command = f"python benchmarks/trust.py --operators {chosen.operators} --gradients {counts['gradients']}"
    measured = about(f"{command} --tvm {counts['tvm']} --seed {seed}", None)  # now: files may change meanwhile
    report, failures = run(counts, seed, say=say)
    save("trust", report | {"about": measured})
    if failures:
        sys.exit(f"{sum(report['failed'].values())} of {sum(report['checked'].values())} checks failed, see above")


if __name__ == "__main__":
    main()

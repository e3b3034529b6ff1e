"""Whether all forms of random kernels of Canvas agree: ``python benchmarks/canvas.py --part trust`` calls this.

The checks are those of ``tests/trust/kernels.py``; a failing kernel is shrunk and printed as a program that shows it.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

from common import say

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from trust import kernels
from trust.harness import run

#: Kernels each of which is renumbered so often.
RENUMBERED, TIMES = 20, 1000


def trust(given: Any) -> dict[str, Any]:
    """Values, gradients, TVM code, files and keys of the kernels of a seed.

    Args:
        given: the options ``seed``, ``count`` (kernels whose values, files and keys are checked), ``gradients`` and
            ``tvm`` (how many of these in these ways).
    """
    say(f"--seed {given.seed}")
    counts = {"values": given.count, "gradients": given.gradients, "tvm": given.tvm, "files and keys": given.count}
    stream = list(islice(kernels.cases(given.seed), given.count))
    report, _ = run(counts, given.seed, stream=stream, command=kernels.COMMAND, say=say, subject=kernels.KERNELS)
    report["without_digits"] = dict(kernels.NOT_COMPARED)
    longest = sorted((case.text for case in stream), key=len)[-RENUMBERED:]
    say(f"{TIMES} renumberings of each of the {len(longest)} longest kernels")
    wrong = kernels.renumberings(longest, TIMES, given.seed)
    report["renumberings"] = {"kernels": len(longest), "times": TIMES, "wrong": wrong}
    report["pairs"] = kernels.pairs([case.text for case in stream])
    return report

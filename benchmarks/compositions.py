"""Random networks of ``torch.nn`` with operators in them, compiled and traced: which are equal, and what is refused.

The networks are those of ``tests/compositions.py``: residuals, concatenations, shared layers, calls by keyword, hooks,
parts without gradients, attention. Each is changed (``put_in`` of operators that do what the layers did, with their
weights), then compiled (``aot_eager``), and traced by ``sl.alpha.trace``. Outputs, gradients of the input and lengths
of the gradients of weights are compared in evaluation and in training. A fault is shown as the smallest network that
still has it.

    python benchmarks/compositions.py
    python benchmarks/compositions.py --count 20 --seed 7
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from common import about, parser, save, say, typed, use_one_core

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

#: What a network's outcome is; ``torch``: torch compiles it wrong without an operator too.
KINDS = ("equal", "refused", "torch", "fault")


def tried(seed: int) -> tuple[str, dict[str, str], dict[str, str]]:
    """A network in a process of a pool: the plan, what was found, and what of the smallest one where it is a fault."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    from compositions import check, draw, is_fault, shrunk

    torch.set_num_threads(1)
    plan = draw(seed)
    found = check(plan)
    if not is_fault(found):
        return repr(plan), found, {}
    least = shrunk(plan, lambda one: is_fault(check(one)))
    return repr(least), found, check(least)


def main() -> None:
    """Try the networks, and store how many agree and what was said of the others."""
    options = parser(__doc__ or "")
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--processes", type=int, default=2)
    chosen = options.parse_args()
    core = None if chosen.core is None else use_one_core(chosen.core)
    begun = time.monotonic()
    ways: dict[str, Counter[str]] = {}
    whole, lines, faults = Counter[str](), Counter[str](), []
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        for seed, (plan, found, least) in zip(seeds, pool.map(tried, seeds), strict=True):
            kinds = {way: "equal" if said == "equal" else "refused" for way, said in found.items()}
            for kind in ("torch", "fault"):
                kinds |= {way: kind for way, said in found.items() if said.startswith(kind.upper())}
            for way, kind in kinds.items():
                ways.setdefault(way, Counter())[kind] += 1
            lines.update(found[way] for way, kind in kinds.items() if kind in ("refused", "torch"))
            whole[next((kind for kind in ("fault", "refused", "torch") if kind in kinds.values()), "equal")] += 1
            if least:
                faults.append({"seed": seed, "plan": plan, "found": least})
                say(f"{seed}: {plan}: {least}")
            if sum(whole.values()) % 20 == 0:
                say(f"{sum(whole.values())}: {dict(whole)}")
    result = {
        "about": about(typed(), core),
        "count": chosen.count,
        "seed": chosen.seed,
        "seconds": round(time.monotonic() - begun, 1),
        "whole": {kind: whole[kind] for kind in KINDS},
        "ways": {way: {kind: counts[kind] for kind in KINDS} for way, counts in ways.items()},
        "refusals": [{"line": line, "times": times} for line, times in lines.most_common()],
        "faults": faults,
    }
    save("compositions", result)


if __name__ == "__main__":
    main()

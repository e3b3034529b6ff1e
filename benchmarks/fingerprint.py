"""What a fingerprint costs on operators of the conv-authors spec, free (DESIGN, section 7), as JSON on standard output.

``python benchmarks/fingerprint.py [--count 2000] [--seed 0]``: first calls in the order of drawing, from an
empty memory; the same calls again; and, on a few, the whole table of terms as the peer. No test asserts any of it.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from conv_operators import conv_operators
from whole_fingerprint import whole_fingerprint

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.errors import SynoError
from syno_lab.ir.fingerprint import confirming_binding, distinct_key, fingerprint, fingerprint_binding
from syno_lab.ir.fingerprint_parts import parts, sizes_under
from syno_lab.ir.fingerprint_table import facts, forget, refined
from syno_lab.ir.operator import Operator

BINDINGS = {
    "small": {"N": 1, "C_in": 8, "C_out": 12, "H": 16, "W": 20, "k_1": 3, "k_2": 5, "s": 2, "g": 4},
    "DESIGN": {"N": 1, "C_in": 12, "C_out": 20, "H": 14, "W": 22, "k_1": 3, "k_2": 5, "s": 2, "g": 2},
    "the conv spec's own": {"N": 1, "C_in": 64, "C_out": 64, "H": 32, "W": 32, "k_1": 3, "k_2": 5, "s": 2, "g": 16},
}
WHOLE = {"N": 1, "C_in": 4, "C_out": 8, "H": 12, "W": 16, "k_1": 3, "k_2": 5, "s": 2, "g": 4}


def times_ms(work: Callable[[Operator], object], operators: Iterable[Operator]) -> list[float]:
    """CPU time of ``work`` on each operator."""
    found = []
    for operator in operators:
        start = time.process_time_ns()
        work(operator)
        found.append((time.process_time_ns() - start) / 1e6)
    return found


def summary(times: list[float]) -> dict[str, float]:
    """Median, tail, mean and worst."""
    ordered = sorted(times)
    return {
        "median_ms": round(statistics.median(ordered), 4),
        "p95_ms": round(ordered[int(0.95 * len(ordered))], 4),
        "p99_ms": round(ordered[int(0.99 * len(ordered))], 4),
        "mean_ms": round(statistics.fmean(ordered), 4),
        "max_ms": round(ordered[-1], 2),
    }


def cold_and_warm(work: Callable[[Operator], object], operators: list[Operator]) -> dict[str, object]:
    """First calls from an empty memory, in the order of drawing, and the same again."""
    forget()
    sizes_under.cache_clear()
    cold = times_ms(work, operators)
    entries = facts.cache_info().currsize + refined.cache_info().currsize
    tenth = max(1, len(cold) // 10)
    warm = times_ms(work, operators)
    return {
        "first_calls": summary(cold),
        "first_calls_of_the_last_tenth": summary(cold[-tenth:]),
        "again": summary(warm),
        "parts_remembered": entries,
    }


def main() -> None:
    """Draw, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    spec, _ = load_spec("conv-authors", weight_limits="free", max_primitives=12)
    operators = conv_operators(spec, random.Random(options.seed), options.count)
    usual = fingerprint_binding(spec)
    keys = [distinct_key(operator) for operator in operators]
    report: dict[str, object] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "operators": len(operators),
        "steps": dict(sorted(Counter(len(o.steps) for o in operators).items())),
        "distinct": len(set(keys)),
        "usual_binding": usual,
        "fit_the_usual_binding": sum(dict(items) == usual for items, _ in keys),
        "distinct_key": cold_and_warm(distinct_key, operators),
        "reading_the_parts": summary(times_ms(lambda o: parts(o, sizes_under(tuple(usual.items())), ()), operators)),
    }
    for name, binding in (*BINDINGS.items(), ("confirming", confirming_binding(spec))):
        fit = [o for o in operators if _fits(o, binding)]
        told = cold_and_warm(lambda o, b=binding: fingerprint(o, b), fit)  # type: ignore[misc]
        names = {fingerprint(o, binding) for o in fit}
        usual_names = {fingerprint(o, usual) for o in fit}
        report[f"fingerprint on {name}"] = {
            "binding": binding,
            "fit": len(fit),
            "distinct_here_and_on_the_usual": [len(names), len(usual_names)],
            **told,
        }
    few = [o for o in operators if _fits(o, WHOLE)][:20]
    report["whole table, small binding"] = summary(times_ms(lambda o: whole_fingerprint(o, WHOLE), few))
    print(json.dumps(report, indent=1))


def _fits(operator: Operator, binding: dict[str, int]) -> bool:
    try:
        parts(operator, sizes_under(tuple(binding.items())), ())
    except SynoError:
        return False
    return True


if __name__ == "__main__":
    main()

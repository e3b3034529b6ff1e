"""The pictures of large operators: 1,000 of at most 14 steps are drawn by chance, and the 20 largest laid out.

It prints, for each, its size and how often its lines cross, in our layout and where `dot` is told nothing of ranks.
``--write`` stores the operators for ``tests/codegen/test_drawing_large.py``, whose golden text is written anew then by
``pytest --update-golden``.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

import syno_lab as sl

TESTS = Path(__file__).parents[1] / "tests"
OPERATORS = TESTS / "golden" / "drawing" / "large.json"
NUMBER, LARGEST, STEPS, SEED = 1_000, 20, 14, 20


def largest() -> list[sl.Operator]:
    """The operators with the most parts in their pictures."""
    sampler = sl.Sampler(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N: 0", "C_in=64: 3", "C_out=64: 4", "H=32: 0", "W=32: 0"],
        ["k_1=3: 4", "k_2=5: 3", "s=2: 1", "g=16: 3"],
        fixed_io_pairs=[(0, 0)],
        max_primitives=STEPS,
        max_tensors=4,
        weight_limits="primary",
        seed=SEED,
    )
    found = list(islice(sampler.samples(), NUMBER))
    return sorted(found, key=lambda one: (-one.dot().count("["), one.to_json()))[:LARGEST]


def main() -> None:
    """Measure, and write where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"store the operators in {OPERATORS}")
    write = parser.parse_args().write
    sys.path.insert(0, str(TESTS))
    from crossings import crossings, laid_out, without_ranks

    operators = largest()
    if write:
        texts = [json.dumps(json.loads(one.to_json()), separators=(",", ":")) for one in operators]
        OPERATORS.write_text("[\n" + ",\n".join(texts) + "\n]\n", encoding="utf-8")
    rows = []
    for operator in operators:
        ours = laid_out(operator.dot())
        plain = laid_out(without_ranks(operator.dot()))
        rows.append(
            {"steps": len(operator.steps), "size": ours["bb"], "ours": crossings(ours), "plain": crossings(plain)}
        )
    print(
        json.dumps({"operators": rows, **{key: sum(row[key] for row in rows) for key in ("ours", "plain")}}, indent=1)
    )


if __name__ == "__main__":
    main()

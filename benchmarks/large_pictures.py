"""The pictures of the largest of 1,000 operators with at most 14 steps, to be looked at.

``python benchmarks/large_pictures.py`` draws them by chance (spec ``conv``, seed 14), takes the 20 with the most nodes
and lines, and writes their pictures into a page, ``large_pictures.html`` in the working folder. With ``--write`` it
keeps the operators in ``tests/golden/drawing/large.json``, with which ``tests/codegen/test_drawing_order.py`` draws
them anew and compares.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

from syno_lab.codegen.drawing import dot, svg
from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.ir.operator import Operator
from syno_lab.synthesis.sampler import Sampler

KEPT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "drawing" / "large.json"
STEPS, DRAWN, LARGEST, SEED = 14, 1000, 20, 14


def largest() -> list[Operator]:
    """The operators with the most nodes and lines, of equal ones those that were drawn first."""
    spec, _ = load_spec("conv", max_primitives=STEPS)
    drawn = list(islice(Sampler.from_spec(spec, seed=SEED).samples(), DRAWN))
    return sorted(drawn, key=lambda operator: -len(dot(operator).splitlines()))[:LARGEST]


def main() -> None:
    """Draw, and keep what was asked for."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true", help="keep the operators for the tests")
    chosen = arguments.parse_args()
    operators = largest()
    page = "".join(f"<h2>{number}</h2>{svg(one, is_steady=True)}" for number, one in enumerate(operators, 1))
    Path("large_pictures.html").write_text(f'<meta charset="utf-8"><title>Pictures</title>{page}', encoding="utf-8")
    if chosen.write:
        KEPT.write_text(json.dumps([json.loads(one.to_json()) for one in operators], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

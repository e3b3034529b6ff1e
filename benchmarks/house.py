"""How large the engine is, and how its parts hang together, of this checkout or of others: lines, types, imports.

``python benchmarks/house.py [FOLDER …]`` prints a table with one column for each checkout, this one by default. Lines
are counted by ``tokenize``; seconds are medians of ``--times`` fresh processes, of each checkout in turns, with the
Python of its ``.venv`` where it has one.
"""

from __future__ import annotations

import argparse
import ast
import runpy
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
STARTS = {
    "seconds of import syno_lab": "import syno_lab",
    "seconds of sl.operators.conv2d()": "import syno_lab as sl; sl.operators.conv2d()",
}
SMALL = 60  # lines of a file


def figures(root: Path) -> dict[str, float]:
    """The figures of a checkout, by their names; of any age, so what counts them is this checkout's."""
    house = runpy.run_path(str(HERE / "tests" / "house.py"))
    of = house["modules"].__globals__  # its functions read the place of the checkout from here
    of["ROOT"], of["ENGINE"] = root, root / "syno_lab"
    rooms: Counter[str] = Counter()
    found: dict[str, float] = {}
    counted = {path: house["lines"](path) for path in house["modules"]()}
    for path, lines in counted.items():
        place = path.relative_to(root / "syno_lab")
        rooms[place.parts[0] if len(place.parts) > 1 else "in no room"] += lines.total
    total, code, words = (sum(part) for part in zip(*counted.values(), strict=True))
    found |= {"lines": total, "of code": code, "of docstrings and comments": words, "blank": total - code - words}
    found |= {f"lines of {room}": number for room, number in rooms.most_common()}
    for other in ("widgets", "tests", "benchmarks"):
        files = (root / other).rglob("*.py")
        found[f"lines of Python in {other}"] = sum(len(path.read_text().splitlines()) for path in files)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in counted]
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    found |= {"files": len(counted), f"files under {SMALL} lines": sum(one.total < SMALL for one in counted.values())}
    found |= {"functions": len(lengths), "median lines of a function": statistics.median(lengths)}
    found["arrows between rooms"] = sum(other in of["ROOMS"] for _, other in house["room_arrows"]())
    found["mappings to Any or object in signatures and fields"], found["Any or object alone there"] = house[
        "open_types"
    ]()
    tests = ast.parse((root / "tests" / "test_house.py").read_text(encoding="utf-8"))
    tables = [node for node in tests.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REACHES"]
    found["files that reach for pGraphs' insides"] = len(ast.literal_eval(tables[0].value))
    return found


def seconds(root: Path, code: str) -> float:
    """Seconds of one fresh process, starting Python not counted."""
    own = root / ".venv" / "bin" / "python"
    timed = f"import time; t = time.perf_counter(); exec({code!r}); print(time.perf_counter() - t)"
    asked = [str(own if own.is_file() else sys.executable), "-c", timed]
    return float(subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--times", type=int, default=11)
    asked = parser.parse_args()
    roots = [folder.resolve() for folder in asked.folders]
    columns: list[dict[str, Any]] = [dict(figures(root)) for root in roots]
    for name, code in STARTS.items():
        rounds = [[seconds(root, code) for root in roots] for _ in range(asked.times)]
        for column, times in zip(columns, zip(*rounds, strict=True), strict=True):
            column[name] = f"{statistics.median(times):.3f}"
    print("| |" + "".join(f" {root.name} |" for root in roots))
    print("| --- |" + " ---: |" * len(roots))
    for name in dict.fromkeys(name for column in columns for name in column):
        cells = (f"{one:,}" if isinstance(one := column.get(name, "-"), int) else str(one) for column in columns)
        print(f"| {name} |" + "".join(f" {cell} |" for cell in cells))


if __name__ == "__main__":
    main()

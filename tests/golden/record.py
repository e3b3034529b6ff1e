"""Record what no refactoring may change, or compare a checkout with a record.

    python tests/golden/record.py --out FILE [--large]        # record
    python tests/golden/record.py --compare FILE [--large]    # compare; the exit status is 1 where something differs

``--texts FOLDER`` writes the whole texts too: ``diff -r`` of the folders of two checkouts shows every difference.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from groups import GROUPS, LARGE, SMALL, digest  # noqa: E402 - found by the path above

#: The group whose changes are allowed where CHANGES.md says so; the others have no exception.
WORDS = 7
#: How far rewards of real trainings may be apart: on another processor the same training ends a little elsewhere.
WITHIN = 0.2
_KEPT, _SHOWN, _WIDE = 300, 3, 200  # letters of a text that is kept whole; lines that are shown, and their letters

Found = dict[str, list[Any]]


def found_now(is_large: bool, numbers: Collection[int] = tuple(GROUPS)) -> Found:
    """The lines of all entries by their names, which begin with the number of the group."""
    found: Found = {}
    for number in numbers:
        begun = time.process_time()
        for name, lines in GROUPS[number](LARGE if is_large else SMALL):
            assert f"{number} {name}" not in found, f"two entries are called {number} {name}"
            found[f"{number} {name}"] = lines
        print(f"group {number}: {time.process_time() - begun:.1f} CPU-seconds", file=sys.stderr)
    return found


def kept(lines: list[Any]) -> dict[str, Any]:
    """What a record keeps of an entry: a digest of all, four digits of each line, a short text whole; numbers."""
    if lines and isinstance(lines[0], float):
        return {"numbers": lines}
    text = "\n".join(lines)
    marks = {"digest": digest(text), "lines": "".join(digest(line)[:4] for line in lines)}
    return {**marks, "text": text} if len(text) <= _KEPT else marks


def differences(old: dict[str, Any], new: Found) -> Iterator[str]:
    """A line for each entry that is not as it was, and below it the first lines that differ."""
    for name in sorted({*old, *new}):
        if name not in new or name not in old:
            yield _told(name, "is missing" if name in old else "is new")
        elif "numbers" in old[name]:
            before, now = old[name]["numbers"], new[name]
            if len(before) != len(now) or any(abs(a - b) > WITHIN for a, b in zip(before, now, strict=True)):
                yield _told(name, f"differs by more than {WITHIN}: was {before}, is {now}")
        elif kept(new[name])["digest"] != old[name]["digest"]:
            yield _told(name, "differs")
            marks = [old[name]["lines"][at : at + 4] for at in range(0, len(old[name]["lines"]), 4)]
            if "text" in old[name]:
                yield from (f"    was: {line[:_WIDE]}" for line in old[name]["text"].splitlines())
            lines = [(at, line) for at, line in enumerate(new[name]) if [digest(line)[:4]] != marks[at : at + 1]]
            yield from (f"    now, line {at + 1}: {line[:_WIDE]}" for at, line in lines[:_SHOWN])
            yield f"    {len(lines)} of {len(new[name])} lines differ; there were {len(marks)}"


def _told(name: str, how: str) -> str:
    is_words = name.startswith(f"{WORDS} ")
    return f"{name}: {how}" + ("; write a line into CHANGES.md and record it again" if is_words else "")


def main() -> int:
    """Record or compare, as the command says."""
    parser = argparse.ArgumentParser(description="Record what no refactoring may change, or compare with a record.")
    parser.add_argument("--large", action="store_true", help="10,000 operators a spec and seed: many minutes")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="the file to record in")
    what.add_argument("--compare", type=Path, help="the record to compare with")
    parser.add_argument("--texts", type=Path, help="a folder for the whole texts, one file each")
    parser.add_argument("--groups", type=int, nargs="+", choices=GROUPS, default=list(GROUPS), help="only these")
    asked = parser.parse_args()
    found = found_now(asked.large, asked.groups)
    if asked.texts is not None:
        asked.texts.mkdir(parents=True, exist_ok=True)
        for name, lines in found.items():
            (asked.texts / name.replace("/", "-")[:200]).write_text("\n".join(map(str, lines)) + "\n")
    if asked.out is not None:
        whole = {name: kept(lines) for name, lines in found.items()}
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in whole.items())
        asked.out.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
        return 0
    old = json.loads(asked.compare.read_text(encoding="utf-8"))
    said = list(differences({name: old[name] for name in old if int(name[0]) in asked.groups}, found))
    print("\n".join(said) or f"all {len(found)} entries are as they were")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())

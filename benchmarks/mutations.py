"""How often the tests notice a changed line of the engine, in one checkout or in several.

``python benchmarks/mutations.py [COMMIT_OR_FOLDER …]`` draws lines of the first checkout's engine, changes each as
cosmic-ray does (another operator, number, condition, exception, …), and runs tests in a copy of each checkout. It
leaves annotations, messages, and blocks for types or for ``__main__`` alone. No test can notice a change that changes
no result. Equal engines and seeds give equal changes. A change is *not there* where a checkout has other lines.

Tests of ``syno_lab/PACKAGE/…`` are those in ``tests/PACKAGE``. Another file has the test files at the top of ``tests``
with its name or an import of it; else all that import it; else all at the top. Those of its name run first, none of the
browser or of notebooks. A test that fails without the change too is left out. A timeout says neither that a change was
noticed nor that it survived. Results that ``--out`` has are not made again, but for timeouts at a lower limit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from mutants import HERE, Change, copied, drawn, git, restore

OUTCOMES = ("noticed", "survived", "timeout", "not there")
MARK = "SYNO_LAB_MUTATIONS"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


def tests_of(root: Path, file: Path) -> list[str]:
    """The test files for a file of the engine."""
    package = file.with_suffix("").parts[1]
    imports = re.compile(rf"syno_lab\.{package}\b|from syno_lab import .*\b{package}\b")
    top, every = (sorted((root / "tests").glob(pattern)) for pattern in ("test_*.py", "**/test_*.py"))
    importing = [one for one in every if imports.search(one.read_text(encoding="utf-8"))]
    near = [one for one in top if one.stem == f"test_{package}" or one in importing]
    chosen = sorted((root / "tests" / package).rglob("test_*.py")) or near or importing or top
    return [str(one.relative_to(root)) for one in sorted(chosen, key=lambda one: (file.stem not in one.stem, one))]


def pytest(root: Path, seed: int, limit: float, *words: str) -> tuple[int | None, str]:
    """Exit status, None after so many seconds, and the output; every process that was started is ended."""
    mark = uuid.uuid4().hex
    env = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "SYNO_LAB_SEED": str(seed), "TMPDIR": str(root.parent)}
    env["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "widgets")])
    options = ["-x", "-q", "--color=no", "-m", "not browser and not notebook", f"--hypothesis-seed={seed}", *words]
    asked = [sys.executable, "-m", "pytest", *options]
    status = None
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(asked, cwd=root, env=env, stdout=out, stderr=out, start_new_session=True)
        try:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(limit)
        finally:
            for _ in range(3):  # others may have started meanwhile
                for process in psutil.process_iter():
                    with suppress(psutil.Error):
                        if process.environ().get(MARK) == mark:
                            process.kill()
            child.wait()
        out.seek(0)
        return status, out.read().decode(errors="replace")


def judged(root: Path, change: Change, seed: int, limit: float) -> dict[str, Any]:
    """What the tests of a copy say to a change."""
    words = tests_of(root, Path(change.file))
    while True:
        try:
            if git(root, "apply", "-C1", "-", text=change.patch, check=False).returncode:
                return {"outcome": "not there"}
            status, output = pytest(root, seed, limit, *words)
        finally:
            restore(root)
        if status is None or status == 0:
            return {"outcome": "timeout" if status is None else "survived"}
        test = next(iter(FAILED.findall(output)), "")
        is_file = "::" not in test  # a file that cannot be imported, or pytest came to no end
        again, output = pytest(root, seed, limit, *([test] if test else words), *["--collect-only"] * is_file)
        if again == 0:
            return {"outcome": "noticed", "by": test or f"pytest, which ended with {status}"}
        if not test:
            sys.exit(f"expected tests that can be collected, found {output[-2000:]}")
        words = [word for word in words if word != test] if is_file else [*words, f"--deselect={test}"]


def main() -> None:
    """Draw the changes, judge each in each copy, and say what was noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", default=[str(HERE)], help="commits of this repository, or folders")
    parser.add_argument("--count", type=int, default=30, help="of lines (30)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of all draws")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of each run of tests (600)")
    parser.add_argument("--only", nargs="+", default=[""], help="packages: lines of these alone")
    parser.add_argument("--out", type=Path, default=HERE / "build" / "mutations.jsonl", help="the results")
    asked = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    done = {
        (one["of"], one["patch"]): one for one in rows if one["outcome"] != "timeout" or one["limit"] >= asked.limit
    }
    found: list[dict[str, str]] = []  # of each change the outcomes by checkouts
    print(f"seed {asked.seed}, {asked.count} lines, results in {asked.out}", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
            copies = {checkout: Path(folder, str(number)) for number, checkout in enumerate(asked.checkouts)}
            digests = {checkout: copied(checkout, copy) for checkout, copy in copies.items()}
            Path(folder, "shared").symlink_to(HERE.parent / "shared")  # the data of tests
            for change in drawn(next(iter(copies.values())), asked.count, asked.seed, asked.only):
                found.append({})
                for checkout, copy in copies.items():
                    if not (row := done.get(key := (digests[checkout], change.patch))):
                        begun = time.monotonic()
                        row = {"of": digests[checkout], "checkout": checkout, "limit": asked.limit, **change._asdict()}
                        row |= judged(copy, change, asked.seed, asked.limit)
                        row["seconds"] = round(time.monotonic() - begun)
                        with asked.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(row) + "\n")
                        done[key] = row
                    found[-1][checkout] = row["outcome"]
                    by = f" by {row['by']}" if "by" in row else ""
                    print(
                        f"{change.file}:{change.line}, {change.kind}, in {checkout}: {row['outcome']}{by}", flush=True
                    )
                    if row["outcome"] == "survived":
                        print(change.patch, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted: --seed {asked.seed} goes on")
    both = [one for one in found if len(one) == len(copies) and {*one.values()} <= {"noticed", "survived"}]
    for checkout in copies:
        noticed, counts = sum(one[checkout] == "noticed" for one in both), Counter(one.get(checkout) for one in found)
        share = f"{noticed / max(len(both), 1):.0%} noticed of the {len(both)} changes that were judged in all"
        print(f"{checkout}: {share}; " + ", ".join(f"{counts[name]} {name}" for name in OUTCOMES))


if __name__ == "__main__":
    main()

"""How many changed lines of the engine the tests notice, in one checkout or in several.

``python benchmarks/mutations.py [COMMIT_OR_FOLDER …]`` draws lines of the first checkout's engine, changes each line
by cosmic-ray (another operator, number, condition, exception, …), and runs tests in a copy of each checkout. It does
not change annotations, messages, and blocks for types or for ``__main__``. Some changes change no result, and no test
can notice them. The same engine and seed give the same changes. In a checkout with other lines a change is *not there*.

The tests of ``syno_lab/PACKAGE/…`` are the tests in ``tests/PACKAGE``. For a file outside a package, they are the test
files at the top of ``tests`` with its name or an import of it; else all test files that import it; else all at the top.
Test files with the file's name run first. Tests of the browser and notebooks never run. A test that fails without the
change too does not count. After a timeout it is unknown whether the tests notice the change. A run does not repeat the
results in ``--out``, except timeouts at a lower ``--limit``. After an interruption the exit status is 130.
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
from mutants import HERE, Change, clone, draw, git, restore

OUTCOMES = ("noticed", "survived", "timeout", "not there")
MARK = "SYNO_LAB_MUTATIONS"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


def tests_of(root: Path, file: Path) -> list[str]:
    """Return the test files for a file of the engine."""
    package = file.with_suffix("").parts[1]
    imports = re.compile(rf"syno_lab\.{package}\b|from syno_lab import .*\b{package}\b")
    top, every = (sorted((root / "tests").glob(pattern)) for pattern in ("test_*.py", "**/test_*.py"))
    importing = [test for test in every if imports.search(test.read_text(encoding="utf-8"))]
    near = [test for test in top if test.stem == f"test_{package}" or test in importing]
    chosen = sorted((root / "tests" / package).rglob("test_*.py")) or near or importing or top
    return [str(test.relative_to(root)) for test in sorted(chosen, key=lambda test: (file.stem not in test.stem, test))]


def pytest(root: Path, seed: int, limit: float, *words: str) -> tuple[int | None, str]:
    """Run pytest, end all its processes, and return the exit status (None after ``limit`` seconds) and the output."""
    mark = uuid.uuid4().hex
    env = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "SYNO_LAB_SEED": str(seed), "TMPDIR": str(root.parent)}
    env["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "widgets")])
    options = ["-x", "-q", "--color=no", "-m", "not browser and not notebook", f"--hypothesis-seed={seed}", *words]
    command = [sys.executable, "-m", "pytest", *options]
    status = None
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, cwd=root, env=env, stdout=out, stderr=out, start_new_session=True)
        try:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(limit)
        finally:
            for _ in range(3):  # a process may start another process before it is killed
                for process in psutil.process_iter():
                    with suppress(psutil.Error):
                        if process.environ().get(MARK) == mark:
                            process.kill()
            child.wait()
        out.seek(0)
        return status, out.read().decode(errors="replace")


def judge(root: Path, change: Change, seed: int, limit: float) -> dict[str, Any]:
    """Return the outcome of a change in a copy, and the test that noticed it."""
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
        is_file = "::" not in test  # the file cannot be imported, or pytest crashed
        again, output = pytest(root, seed, limit, *([test] if test else words), *["--collect-only"] * is_file)
        if again == 0:
            return {"outcome": "noticed", "by": test or f"pytest, which ended with {status}"}
        if not test:
            sys.exit(f"expected tests that can be collected, found {output[-2000:]}")
        words = [word for word in words if word != test] if is_file else [*words, f"--deselect={test}"]


def measure(options: argparse.Namespace, outcomes: list[dict[str, str]]) -> None:
    """Judge each change in each checkout, and append to ``outcomes`` a mapping from checkouts to outcomes."""
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    rows = [row for row in rows if row["outcome"] != "timeout" or row["limit"] >= options.limit]
    stored = {(row["of"], row["patch"]): row for row in rows}
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies = {checkout: Path(folder, str(number)) for number, checkout in enumerate(options.checkouts)}
        digests = {checkout: clone(checkout, copy) for checkout, copy in copies.items()}
        Path(folder, "shared").symlink_to(HERE.parent / "shared")  # the data of tests
        for change in draw(next(iter(copies.values())), options.count, options.seed, options.only):
            outcomes.append({})
            for checkout, copy in copies.items():
                key = digests[checkout], change.patch
                if key not in stored:
                    begin = time.monotonic()
                    row = {"of": digests[checkout], "checkout": checkout, "limit": options.limit, **change._asdict()}
                    row |= judge(copy, change, options.seed, options.limit)
                    row["seconds"] = round(time.monotonic() - begin)
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    stored[key] = row
                row = stored[key]
                outcomes[-1][checkout] = row["outcome"]
                by = f" by {row['by']}" if "by" in row else ""
                print(f"{change.file}:{change.line}, {change.kind}, in {checkout}: {row['outcome']}{by}", flush=True)
                if row["outcome"] == "survived":
                    print(change.patch, flush=True)


def main() -> int:
    """Measure, print the share of noticed changes of each checkout, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", default=[str(HERE)], help="commits of this repository, or folders")
    parser.add_argument("--count", type=int, default=30, help="the number of lines (30)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of all draws")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of each run of tests (600)")
    parser.add_argument("--only", nargs="+", default=[""], help="packages: draw lines of these packages only")
    parser.add_argument("--out", type=Path, default=HERE / "build" / "mutations.jsonl", help="the file of the results")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    outcomes: list[dict[str, str]] = []  # for each change, the outcomes by checkouts
    status = 0
    print(f"seed {options.seed}, {options.count} lines, results in {options.out}", flush=True)
    try:
        measure(options, outcomes)
    except KeyboardInterrupt:
        print(f"interrupted: the same command with --seed {options.seed} continues")
        status = 130
    both = [row for row in outcomes if len(row) == len(set(options.checkouts)) and {*row.values()} <= set(OUTCOMES[:2])]
    for checkout in dict.fromkeys(options.checkouts):
        noticed = sum(row[checkout] == "noticed" for row in both)
        counts = Counter(row.get(checkout) for row in outcomes)
        share = f"{noticed / max(len(both), 1):.0%} noticed of the {len(both)} changes that all checkouts judged"
        print(f"{checkout}: {share}; " + ", ".join(f"{counts[name]} {name}" for name in OUTCOMES))
    return status


if __name__ == "__main__":
    sys.exit(main())

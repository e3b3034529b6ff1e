"""Other people's networks through all that the lab does with a network, for the page *Networks that were tried*.

Each of :data:`networks_listed.LISTED` goes through a survey, ``put_in`` of a known operator (forward and backward), an
evaluation, ``torch.compile`` of the network with operators (``aot_eager``, some by inductor), ``sl.alpha.trace``, the
plan of ``sl.improve``, and the file of torch alone with which a network is patched. Each has a process of its own, with
a deadline and a bound on its memory. transformers comes with the development environment; the other packages are
installed by ``pip install -c constraints.txt monai einops efficientnet_pytorch``.

    python benchmarks/networks.py
    python benchmarks/networks.py --only Swin --only scripted    # the stored rows of the others stay
    python benchmarks/networks.py --tenth                        # what CI runs; stores nothing
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import metadata, util
from pathlib import Path
from typing import Any

from common import RESULTS, about, parser, say, typed
from networks_listed import BY_NAME, DEVELOPMENT, LISTED, Listed

PATIENCE_S = 240.0
MEMORY = 8 << 30
FAULTS = ("fault", "differs")


def tenth() -> list[Listed]:
    """Every tenth of those that need no further package."""
    return [one for one in LISTED if one.package in DEVELOPMENT][::10]


def of_one(name: str, columns: Sequence[str]) -> None:
    """Do the columns of one network in this process, a line of JSON for each."""
    import warnings

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import torch

    torch.set_num_threads(1)
    from networks_work import cells

    for column, cell in cells(BY_NAME[name], tuple(columns)):
        print(json.dumps({"column": column, **cell}), flush=True)


def row_of(listed: Listed, columns: Sequence[str], patience_s: float = PATIENCE_S, cache: str = "") -> dict[str, Any]:
    """What became of one network, in a process of its own; ``cache`` is inductor's, for headers that it prepares."""
    begun = time.monotonic()
    words = [sys.executable, __file__, "--one", listed.name]
    words += [word for column in columns for word in ("--column", column)]
    with tempfile.TemporaryDirectory() as folder:
        more = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        more |= {"TORCHINDUCTOR_CACHE_DIR": cache or folder, "TRANSFORMERS_VERBOSITY": "error"}
        child = subprocess.Popen(
            words,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            answers, complaint = child.communicate(timeout=patience_s)
            ending = f"exit status {child.returncode}: {(complaint.strip().splitlines() or ['nothing said'])[-1]}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            answers, _ = child.communicate()
            ending = f"not done after {patience_s:g} s"
    found = [json.loads(line) for line in answers.splitlines() if line.startswith('{"column"')]
    cells = {cell.pop("column"): cell for cell in found}
    for column in columns:
        if column not in cells and (column != "inductor" or listed.inductor):
            cells[column] = {"state": "fault", "said": ending, "seconds": 0.0}
    return {
        "name": listed.name,
        "package": listed.package,
        "family": listed.family,
        "source": listed.source,
        "added": listed.added,
        "shape": list(listed.shape),
        "cells": {column: cells[column] for column in columns if column in cells},
        "seconds": round(time.monotonic() - begun, 1),
    }


def rows(
    networks: Sequence[Listed], columns: Sequence[str], workers: int, patience_s: float = PATIENCE_S
) -> Iterator[dict[str, Any]]:
    """The rows of networks as they are done, with a line about each."""
    pool, cache = ThreadPoolExecutor(workers), tempfile.TemporaryDirectory()
    try:
        waiting = [pool.submit(row_of, one, columns, patience_s, cache.name) for one in networks]
        for count, done in enumerate(as_completed(waiting), start=1):
            row = done.result()
            marks = " ".join(f"{name}:{cell['state']}" for name, cell in row["cells"].items() if cell["state"] != "ok")
            say(f"{count} of {len(networks)}, {row['name']}, {row['seconds']:.0f} s: {marks or 'all right'}")
            for name, cell in row["cells"].items():
                if cell["state"] != "ok":
                    say(f"    {name}: {cell['said']}")
            yield row
    finally:
        pool.shutdown(cancel_futures=True)
        cache.cleanup()


def main() -> None:
    """Try the networks whose packages are installed, and store what became of them."""
    from networks_work import COLUMNS

    options = parser(__doc__ or "")
    options.add_argument("--only", choices=tuple(BY_NAME), action="append", help="may be given several times")
    options.add_argument("--column", choices=tuple(COLUMNS), action="append", help="these columns, stored nowhere")
    options.add_argument("--tenth", action="store_true", help="every tenth that needs no further package, not stored")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds for one network")
    options.add_argument("--out", type=Path, default=RESULTS / "networks.json")
    options.add_argument("--one", choices=tuple(BY_NAME), help="in this process (as the script calls itself)")
    asked = options.parse_args()
    columns = [name for name in COLUMNS if not asked.column or name in asked.column]
    if asked.one:
        of_one(asked.one, columns)
        return
    chosen = tenth() if asked.tenth else [one for one in LISTED if not asked.only or one.name in asked.only]
    there = [one for one in chosen if one.package == "torch.nn" or util.find_spec(one.package)]
    for one in chosen:
        if one not in there:
            say(f"{one.name}: {one.package} is not installed")
    begun, found = time.monotonic(), {}
    is_stored = not (asked.tenth or asked.column)
    earlier = json.loads(asked.out.read_text()) if asked.out.exists() else {"rows": [], "abouts": [], "packages": {}}
    packages = sorted({one.package for one in there} - {"torch.nn"})
    about_it = about(typed(), None)
    for row in rows(there, columns, asked.workers, asked.patience):
        found[row["name"]] = row
        if is_stored:  # each at once: a run that is interrupted goes on with --only
            kept = {each["name"]: each for each in earlier["rows"]} | found
            result = {
                "abouts": [*(earlier["abouts"] if asked.only else []), about_it],
                "packages": earlier["packages"] | {name: metadata.version(name) for name in ("torch", *packages)},
                "seconds": round(time.monotonic() - begun),
                "rows": [kept[one.name] for one in LISTED if one.name in kept],
            }
            asked.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    totals = Counter((name, cell["state"]) for row in found.values() for name, cell in row["cells"].items())
    for name in columns:
        say(f"{name}: " + ", ".join(f"{count} {state}" for (column, state), count in totals.items() if column == name))
    say(f"{time.monotonic() - begun:.0f} s")
    if not is_stored:
        sys.exit(any(cell["state"] in FAULTS for row in found.values() for cell in row["cells"].values()))


if __name__ == "__main__":
    main()

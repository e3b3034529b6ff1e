"""Put the results into ``benchmarks/README.md`` and other pages, between markers: ``python benchmarks/render.py``.

``--check`` writes nothing and fails when a page is not that of the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import page_alpha
import page_canvas
import page_hostile
import page_networks
import page_synthesis
import page_training
import page_tried
from common import RESULTS, typed
from page import Part, abouts, footer

ROOT = Path(__file__).parents[1]
_OF_README = (page_synthesis, page_networks, page_hostile, page_canvas, page_alpha, page_training)
#: The parts of each page.
PAGES = {
    "benchmarks/README.md": tuple([part for page in _OF_README for part in page.PARTS]),
    "docs/networks-tried.md": page_tried.PARTS,
}


def text_of(part: Part) -> str:
    """What stands between the markers of a part: its results, and what they were measured by."""
    texts, last = [], []
    for measure in part.measures:
        path = RESULTS / f"{measure.file}.json"
        if not path.is_file():
            texts.append(f"Not run yet: `{measure.command}`.")
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        found = abouts(result)
        last += found if part.one_footer else []
        texts += [measure.above, measure.rows(result), "" if part.one_footer else footer(found)]
    return "\n\n".join(text for text in (*texts, footer(last)) if text)


def with_part(page: str, part: Part) -> str:
    """``page`` with a part made anew between its markers.

    Raises:
        SystemExit: when a marker is missing.
    """
    begin, end = f"<!-- {part.name}: begin -->", f"<!-- {part.name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        sys.exit(f"expected {begin} and {end} once each in a page, found {len(pattern.findall(page))}")
    return pattern.sub(lambda _: f"{begin}\n{text_of(part)}\n{end}", page)


def main() -> None:
    """Write the pages, or check them."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    options.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    is_check = options.parse_args().check
    for name, parts in PAGES.items():
        before = after = (ROOT / name).read_text(encoding="utf-8")
        for part in parts:
            after = with_part(after, part)
        if is_check and before != after:
            sys.exit(f"{name} is not that of benchmarks/results: run {typed().removesuffix(' --check')}")
        if not is_check:
            (ROOT / name).write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()

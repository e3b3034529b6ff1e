"""``python -m syno_widgets.runs_page LAB SOURCE FILE``: write the runs view of one search as a standalone page.

The engine, which must not import Jupyter, runs this in a child process.
"""

from __future__ import annotations

import sys

from syno_lab.errors import SynoError
from syno_widgets.runs_view import RunsView


def main(lab: str, source: str, path: str) -> None:
    """Write the page; the lab may be in use. An error exits with one line."""
    try:
        view = RunsView(lab, source=source)
        try:
            view.to_html(path)
        finally:
            view.close()
    except SynoError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])

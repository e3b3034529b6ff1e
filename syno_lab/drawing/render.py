"""From DOT to a picture by ``graphviz-pure``, the layout program that comes with its PyPI package.

The package ``graphviz`` starts it, but its own setting (``DOT_BINARY``, usually the system's ``dot``) is left alone,
so that a user's other drawings go on as before.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import lru_cache
from html import escape, unescape
from pathlib import Path

from syno_lab.drawing.text import Names, set_texts
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted

PROGRAM = "graphviz-pure"
TIMEOUT_S = 60.0
_TITLE = re.compile(r"<title>(.*?)</title>\n?", re.DOTALL)


def layout_program() -> Path:
    """The layout program: beside the running Python, among its scripts, or on PATH.

    Raises SynoError when it is in none of these places.
    """
    places = Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))
    found = shutil.which(PROGRAM, path=os.pathsep.join(map(str, places))) or shutil.which(PROGRAM)
    if found is None:
        raise SynoError(
            f"drawing needs the program {quoted(PROGRAM)}, found neither in {places[0]} nor on PATH; "
            f"install it with: python -m pip install {PROGRAM}"
        )
    return Path(found)


@lru_cache(maxsize=128)
def render(source: str, file_format: str = "svg") -> bytes:
    """Lay out DOT text and draw it in a format of Graphviz (``svg``, ``png``, ``json``, ...).

    The last pictures are kept: undo, redo and what a step leaves as it was are not laid out again.

    Raises:
        SynoError: when the layout program is missing, refuses the text or takes longer than a minute.
        ValueError: for a format that Graphviz does not know.
    """
    from graphviz.backend import dot_command

    command = [str(part) for part in dot_command.command("dot", file_format)]
    command[0] = str(layout_program())
    try:
        done = subprocess.run(command, input=source.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SynoError(f"drawing: {PROGRAM} took more than {TIMEOUT_S:.0f} s; draw a smaller graph") from None
    if done.returncode or not done.stdout:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise SynoError(f"drawing: {PROGRAM} refused the DOT text: {lines[-1]}")
    return done.stdout


def accessible_svg(source: str, description: str, titles: Mapping[str, str], names: Names | None = None) -> str:
    """DOT as an SVG element to be put into a page: named for screen readers, as wide as its place allows.

    Args:
        source: the DOT text.
        description: the text alternative of the whole picture.
        titles: what is said of each node, by its name in the DOT text; other parts go without.
        names: names in its texts with how they are set (:mod:`.drawing.text`).
    """
    text = set_texts(render(source).decode(), names or {})
    text = text[text.index("<svg") :]

    def title(match: re.Match[str]) -> str:
        said = titles.get(unescape(match[1]))
        return f"<title>{escape(said)}</title>\n" if said else ""

    text = _TITLE.sub(title, text)
    head, rest = text.split(">", 1)
    label = escape(description, quote=True)
    head += f' role="img" aria-label="{label}" style="max-width:100%;height:auto"'
    return f"{head}>\n<title>{escape(description)}</title>{rest}".strip() + "\n"

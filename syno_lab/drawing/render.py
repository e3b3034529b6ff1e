"""Draw DOT text by the layout program ``graphviz-pure``, which comes with the PyPI package ``graphviz-pure``.

The package ``graphviz`` starts the program. The package's setting ``DOT_BINARY`` (usually the system's ``dot``) stays,
because a user's other drawings use it.
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
    """Return the path of the layout program: beside the running Python, in the scripts folder, or on PATH.

    Raises SynoError when the program is missing.
    """
    places = Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))
    program = shutil.which(PROGRAM, path=os.pathsep.join(map(str, places))) or shutil.which(PROGRAM)
    if program is None:
        raise SynoError(
            f"drawing needs the program {quoted(PROGRAM)}, found neither in {places[0]} nor on PATH; "
            f"install it with: python -m pip install {PROGRAM}"
        )
    return Path(program)


@lru_cache(maxsize=128)
def render(source: str, file_format: str = "svg") -> bytes:
    """Lay out DOT text and draw it in a format of Graphviz (``svg``, ``png``, ``json``, ...).

    The last pictures are cached, so that undo and redo need no new layout.

    Raises:
        SynoError: the layout program is missing, refuses the text or takes longer than a minute.
        ValueError: Graphviz does not know the format.
    """
    from graphviz.backend import dot_command

    command = [str(part) for part in dot_command.command("dot", file_format)]
    command[0] = str(layout_program())
    try:
        process = subprocess.run(command, input=source.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SynoError(f"drawing: {PROGRAM} took more than {TIMEOUT_S:.0f} s; draw a smaller graph") from None
    if process.returncode or not process.stdout:
        lines = process.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise SynoError(f"drawing: {PROGRAM} refused the DOT text: {lines[-1]}")
    return process.stdout


def accessible_svg(source: str, description: str, titles: Mapping[str, str], names: Names | None = None) -> str:
    """Draw DOT text as an SVG element for a page, with a name for screen readers; the page limits the element's width.

    Args:
        source: the DOT text.
        description: the text alternative of the picture.
        titles: the titles of nodes by their names in the DOT text; other elements of the picture get no title.
        names: how each name in the texts is typeset (:mod:`.drawing.text`).
    """
    text = set_texts(render(source).decode(), names or {})
    text = text[text.index("<svg") :]

    def title(match: re.Match[str]) -> str:
        node_title = titles.get(unescape(match[1]))
        return f"<title>{escape(node_title)}</title>\n" if node_title else ""

    text = _TITLE.sub(title, text)
    head, rest = text.split(">", 1)
    label = escape(description, quote=True)
    head += f' role="img" aria-label="{label}" style="max-width:100%;height:auto"'
    return f"{head}>\n<title>{escape(description)}</title>{rest}".strip() + "\n"

"""Scripts and styles of the widgets, joined from files; ``shared.js`` has the parts that several widgets need.

anywidget needs one ES module for each widget, and pages must fetch nothing. So the files, which neither import nor
export anything, are joined, and the end exports ``render``.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
_END = "\nexport default { render };\n"


def joined(*names: str) -> str:
    """Join the texts of files beside this file."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def module(*names: str) -> str:
    """Return the ES module of a widget whose last file defines ``render``."""
    return joined(*names) + _END

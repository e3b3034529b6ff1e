"""Scripts and styles of the widgets, joined from files; ``shared.js`` has the parts that several widgets need.

anywidget wants one ES module for each widget, and nothing may be fetched; so the files, none of which imports or
exports anything, are joined, and the end exports ``render``.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
_END = "\nexport default { render };\n"


def joined(*names: str) -> str:
    """The texts of files beside this one, one after the other."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def module(*names: str) -> str:
    """The ES module of a widget whose last file defines ``render``."""
    return joined(*names) + _END

"""The marks of trials in figures. The shape shows the system; colour and size show the trial's status.

The index of a system in the registry selects the mark. Matplotlib, SVG and the browser draw the same outlines. Every
mark has the area of a circle of radius 1, so that no mark looks more important.
"""

from __future__ import annotations

from typing import NamedTuple

from syno_lab.errors import FormatError
from syno_lab.systems import SYSTEMS, find_system, format_of, formats


class Mark(NamedTuple):
    """The shape of a mark: its names in matplotlib and in plotly, and its outline as an SVG path, y downwards."""

    marker: str
    symbol: str
    path: str


MARKS = {
    "circle": Mark("o", "circle", "M1 0A1 1 0 0 1-1 0A1 1 0 0 1 1 0Z"),
    "diamond": Mark("D", "diamond", "M0-1.253L1.253 0L0 1.253L-1.253 0Z"),
    "square": Mark("s", "square", "M-.886-.886H.886V.886H-.886Z"),
    "triangle": Mark("^", "triangle-up", "M0-1.555L1.347.777L-1.347.777Z"),
    "cross": Mark("P", "cross", "M-.396-1.189H.396V-.396H1.189V.396H.396V1.189H-.396V.396H-1.189V-.396H-.396Z"),
}
#: The mark of the baseline, for every system.
BASELINE = Mark(
    "*", "star", "M0-1.673L.376-.517H1.591L.608.198L.983 1.353L0 .639L-.983 1.353L-.608.198L-1.591-.517H-.376Z"
)


def mark_of(name: str) -> Mark:
    """Return the mark of this name; a circle for an unknown name, as in a foreign lab's file."""
    return MARKS.get(name, MARKS["circle"])


def mark_name(system: str) -> str:
    """Return the name of a system's mark, by the format and index of the system; marks repeat after the last."""
    return [*MARKS][[*dict.fromkeys((*SYSTEMS, *formats()))].index(system) % len(MARKS)]


def system_and_mark(operator: str) -> tuple[str, str]:
    """Return the title and the mark's name of the system that can read an operator's JSON.

    The texts are empty without an operator, and if this process does not know the system.
    """
    try:
        system = find_system(format_of(operator)) if operator else None
    except FormatError:
        system = None
    return ("", "") if system is None else (system.title, mark_name(system.format))

"""The marks of trials in figures: the shape says the system, colour and size say how the trial stands.

A system has the mark of its place in the registry; the same outlines are drawn by matplotlib, as SVG and in the
browser. All have the area of the circle of radius 1, so that none looks more important.
"""

from __future__ import annotations

from typing import NamedTuple

from syno_lab.errors import FormatError
from syno_lab.systems import SYSTEMS, find_system, format_of, formats


class Mark(NamedTuple):
    """One shape: the name of its marker in matplotlib, and its outline as the path of an SVG, y downwards."""

    marker: str
    path: str


MARKS = {
    "circle": Mark("o", "M1 0A1 1 0 0 1-1 0A1 1 0 0 1 1 0Z"),
    "diamond": Mark("D", "M0-1.253L1.253 0L0 1.253L-1.253 0Z"),
    "square": Mark("s", "M-.886-.886H.886V.886H-.886Z"),
    "triangle": Mark("^", "M0-1.555L1.347.777L-1.347.777Z"),
    "cross": Mark("P", "M-.396-1.189H.396V-.396H1.189V.396H.396V1.189H-.396V.396H-1.189V-.396H-.396Z"),
}
#: The mark of the network that trials are compared with, whatever its operator.
BASELINE = Mark("*", "M0-1.673L.376-.517H1.591L.608.198L.983 1.353L0 .639L-.983 1.353L-.608.198L-1.591-.517H-.376Z")


def mark_of(name: str) -> Mark:
    """The mark of this name, a circle where there is none of it, as in a file of another lab."""
    return MARKS.get(name, MARKS["circle"])


def mark_name(system: str) -> str:
    """The name of the mark of the system of this format: by its place among all, each in turn."""
    return [*MARKS][[*dict.fromkeys((*SYSTEMS, *formats()))].index(system) % len(MARKS)]


def system_and_mark(operator: str) -> tuple[str, str]:
    """The title and the name of the mark of the system that reads an operator's JSON.

    Both are empty without an operator, and for JSON of a system that is not known here.
    """
    try:
        system = find_system(format_of(operator)) if operator else None
    except FormatError:
        system = None
    return ("", "") if system is None else (system.title, mark_name(system.format))

"""A session as a page plays it without a kernel: what a stepper shows at each of its places, as plain data.

The page goes from place to place by itself: back to the place before, forth to the one that redo goes to, and to any
place of the tree. So it holds the tree, and of each place the picture with all that stands beside it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from syno_lab.sessions.session import Session
from syno_lab.sessions.shown import plain

#: Bytes that the places of one page may take, deflated and in base64, so that a page stays under 2 MB.
MOST_BYTES = 1_500_000
#: Places whose next steps are in a page: they are many, and a second of computing for some.
LISTS = 24
#: Places of the line of distances that are drawn, those around the one shown.
COURSE = 48


def page_of(session: Session) -> dict[str, Any]:
    """What a stepper's page has of a session: all places, and of the shown one what takes long to work out."""
    player = played(session)
    place, end = str(session.place), str(session.history[-1].number)
    here = player["places"][place]
    course = player["courses"].get(end, {}).get(place, "")
    shown = {"menu": here["menu"], "unlisted": "", "distance": {**here["distance"], "course": course}}
    return {**shown, "tree": session.rows(), "word": session.to_word(), "player": player}


def played(session: Session, *, lists: int = LISTS, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """All places of a session as they are shown; the session stays where it is.

    Args:
        session: of any system.
        lists: how many places have their next steps, those nearest to the shown one on its line first.
        most_bytes: so much they may take in a page; the shown one is there in any case.

    Returns:
        ``parents`` and ``ahead``: by the number of a place the one before it and the one that redo goes to, or None.
        ``places``: by the number, as text, ``svg``, ``description``, ``links``, ``status``, ``strip``, ``complete``,
        ``distance`` and, where they are listed, the next steps as ``menu``; a step that the session has taken from
        there has the number of its place as ``leads``. ``courses``: by the last place of a line and the place shown,
        both as text, the line of distances as SVG.

    Raises SynoError when the layout program is missing.
    """
    copy = session.copy()
    order = _nearest_first(session)
    places: dict[str, dict[str, Any]] = {}
    spent = 0
    for rank, number in enumerate(order):
        copy.go(number)
        shown = _shown(copy, is_listed=rank < lists)
        spent += _bytes(shown)
        if places and spent > most_bytes:
            break
        places[str(number)] = shown
    numbers = range(len(session.places))
    return {
        "parents": [place.parent for place in session.places],
        "ahead": [session.ahead(number) for number in numbers],
        "places": places,
        "courses": _courses(session.copy(), [n for n in numbers if str(n) in places], most_bytes - spent),
    }


def _nearest_first(session: Session) -> Sequence[int]:
    """All places: those of the line through the shown one, the nearest first, then the others."""
    line = [place.number for place in session.history]
    here = line.index(session.place)
    on = [number for _, number in sorted((abs(at - here), number) for at, number in enumerate(line))]
    return [*on, *sorted({place.number for place in session.places} - set(line))]


def _shown(session: Session, *, is_listed: bool) -> dict[str, Any]:
    state, picture = session.state, session.picture()
    shown: dict[str, Any] = {
        "svg": picture.svg,
        "description": picture.description,
        "links": plain(picture.nodes),
        "status": session.status(),
        "strip": session.strip(state),
        "complete": session.is_complete,
        "distance": session.explain(state),
    }
    if is_listed:
        found = session.candidates(state)
        menu = session.menu(state, found)
        for item in (item for group in menu for kind in ("canonical", "pruned") for item in group[kind]):
            item["leads"] = session.behind(found[item["index"]])
        shown["menu"] = menu
    return shown


def _courses(session: Session, places: Sequence[int], most_bytes: int) -> dict[str, dict[str, str]]:
    """The line of distances at each place, for each line through it."""
    wanted, spent = set(places), 0
    found: dict[str, dict[str, str]] = {}
    ends = [place.number for place in session.places if session.ahead(place.number) is None]
    for end in ends:
        session.go(end)
        drawn: dict[str, str] = {}
        for place in session.history:
            if place.number in wanted:
                session.go(place.number)  # on this line, which stays
                drawn[str(place.number)] = session.course(COURSE)
        spent += _bytes(drawn)
        if spent > max(most_bytes, 0) and found:
            break
        found[str(end)] = drawn
    return found


def _bytes(data: object) -> int:
    return len(zlib.compress(json.dumps(data, separators=(",", ":")).encode())) * 4 // 3

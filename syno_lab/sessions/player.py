"""A session for a page without a Jupyter kernel: what a stepper shows at each place, as plain data.

The page changes the shown place without Python: to the parent, to the child that redo goes to, and to any place of the
tree. The data contain the tree, and for each place the picture and all texts beside the picture.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from syno_lab.sessions.session import Session
from syno_lab.sessions.shown import plain

#: The limit of a page's places in bytes, compressed and in base64, so that a page stays under 2 MB.
MOST_BYTES = 1_500_000
#: The number of places with a list of next steps: lists are long, and some take a second to compute.
LISTS = 24
#: The number of places around the shown place in the chart of distances.
COURSE = 48


def page_of(session: Session) -> dict[str, Any]:
    """Return a session's data for a stepper's page: all places, and slow facts only for the shown place."""
    player = played(session)
    place, end = str(session.place), str(session.history[-1].number)
    here = player["places"][place]
    course = player["courses"].get(end, {}).get(place, "")
    shown = {"menu": here["menu"], "unlisted": "", "distance": {**here["distance"], "course": course}}
    return {**shown, "tree": session.rows(), "word": session.to_word(), "player": player}


def played(session: Session, *, lists: int = LISTS, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return all places of a session as the stepper shows them; the session does not move.

    Args:
        session: a session of any system.
        lists: the number of places with a list of next steps; places near the shown place on its line come first.
        most_bytes: the limit of the places' bytes in a page; the shown place is always included.

    Returns:
        ``parents`` and ``ahead``: for each place the number of the parent, and of the child that redo goes to, or None.
        ``places``: by the place's number as text: ``svg``, ``description``, ``links``, ``status``, ``strip``,
        ``complete``, ``distance`` and, for some places, the next steps as ``menu``. In a menu, ``leads`` is the number
        of the place after the step, if the session took the step. ``courses``: the chart of distances as SVG, by the
        last place of a line and the shown place (numbers as text).

    Raises SynoError when the layout program is missing.
    """
    copy = session.copy()
    order = _nearest_first(session)
    places: dict[str, dict[str, Any]] = {}
    spent = 0
    for rank, number in enumerate(order):
        copy.go(number)
        shown = _place_data(copy, is_listed=rank < lists)
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
    """Return all places: first the line through the shown place, the nearest place first, then all other places."""
    line = [place.number for place in session.history]
    here = line.index(session.place)
    on = [number for _, number in sorted((abs(at - here), number) for at, number in enumerate(line))]
    return [*on, *sorted({place.number for place in session.places} - set(line))]


def _place_data(session: Session, *, is_listed: bool) -> dict[str, Any]:
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
        candidates = session.candidates(state)
        menu = session.menu(state, candidates)
        for item in (item for group in menu for kind in ("canonical", "pruned") for item in group[kind]):
            item["leads"] = session.behind(candidates[item["index"]])
        shown["menu"] = menu
    return shown


def _courses(session: Session, places: Sequence[int], most_bytes: int) -> dict[str, dict[str, str]]:
    """Draw the chart of distances for each place on each line of the tree."""
    wanted, spent = set(places), 0
    courses: dict[str, dict[str, str]] = {}
    ends = [place.number for place in session.places if session.ahead(place.number) is None]
    for end in ends:
        session.go(end)
        drawn: dict[str, str] = {}
        for place in session.history:
            if place.number in wanted:
                session.go(place.number)  # the session's line stays the same
                drawn[str(place.number)] = session.course(COURSE)
        spent += _bytes(drawn)
        if spent > max(most_bytes, 0) and courses:
            break
        courses[str(end)] = drawn
    return courses


def _bytes(data: object) -> int:
    return len(zlib.compress(json.dumps(data, separators=(",", ":")).encode())) * 4 // 3

"""Sessions as text: what a damaged or hostile one is answered with. That text keeps everything is test_session's."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest

from syno_lab.errors import FormatError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.operators import KNOWN, conv2d
from syno_lab.pgraphs.stepping import CONSTRUCTION
from syno_lab.sessions.session import Session
from syno_lab.sessions.text import MAX_BYTES, PREFIX

FORMAT = CONSTRUCTION.format


def read_session(text: str) -> Session:
    return Session.reading(text, CONSTRUCTION)


def packed(text: str) -> str:
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(Session(conv2d()).to_json()) | fields)


@pytest.mark.parametrize("name", list(KNOWN))
def test_every_known_operator_goes_there_and_back(name: str) -> None:
    session = Session(KNOWN[name]())
    again = read_session(session.to_word())
    assert again.operator == session.operator
    assert [entry.step for entry in again.history] == [entry.step for entry in session.history]


def test_an_operator_file_is_a_session_too() -> None:
    assert read_session(conv2d().to_json()).operator == conv2d()


def test_the_match_of_a_given_operator_is_kept() -> None:
    build = Build("[H, H]", "[H, H]", ["H"])
    i, j = build.output
    moved = build.shift(i)
    for inputs in ((moved, j), (j, moved)):
        operator = Operator(build.state, inputs)
        assert read_session(Session(operator).to_json()).operator == operator


ROOT = {"parent": None, "spec": 0}
BAD = {
    "nothing": ("", "expected syno-session:.*, or JSON of a session or an operator, found nothing"),
    "words": ("hello", "found 'hello'"),
    "another format": ('{"format": "pickle", "version": 1}', f"expected format '{FORMAT}', found 'pickle'"),
    "a later version": (changed(version=2), "expected version 1, found 2"),
    "an unknown field": (changed(code="import os"), "expected JSON of syno-lab-session version 1"),
    "no places": (changed(places=[]), "places: expected from 1 to 20000, found 0"),
    "no such spec": (changed(places=[{"spec": 3}]), "place 0: expected a step, or a spec from 0 to 0"),
    "two beginnings": (changed(places=[ROOT, ROOT]), "place 1: expected a place before it as its parent, found None"),
    "a parent ahead": (changed(places=[ROOT, {"parent": 1, "spec": 0}]), "place 1: expected a place before it"),
    "a step and a spec": (
        changed(places=[ROOT, {"parent": 0, "spec": 0, "step": {"primitive": "SHIFT"}}]),
        "place 1: expected a step after a place, or a spec, found both",
    ),
    "a step at the beginning": (
        changed(places=[{"step": {"primitive": "SHIFT", "operands": [0]}}]),
        "place 0: expected a step after a place",
    ),
    "an illegal step": (
        changed(places=[ROOT, {"parent": 0, "step": {"primitive": "SHIFT", "operands": [0]}}]),
        "place 1: .*fixed and takes part in nothing",
    ),
    "an unknown primitive": (
        changed(places=[ROOT, {"parent": 0, "step": {"primitive": "<script>"}}]),
        "place 1: unknown primitive '<script>'",
    ),
    "no such coordinate": (
        changed(places=[ROOT, {"parent": 0, "step": {"primitive": "SHIFT", "operands": [99]}}]),
        "place 1: expected a coordinate number from 0 to 3, found 99",
    ),
    "a wrong match": (changed(places=[ROOT | {"match": [0, 1, 2, 3]}]), "place 0: match: expected one data coordinate"),
    "no such place": (changed(place=9), "session: no place 9: expected a number from 0 to 6"),
    "no such turn": (changed(turns=[0]), "turns: expected a place with a parent, found 0"),
    "a malformed spec": (changed(specs=[{"input_shape": "[", "output_shape": "", "primary_specs": []}]), "session: "),
    "a damaged word": (PREFIX + "%%", "the text behind syno-session: is damaged"),
    "half a word": (Session(conv2d()).to_word()[:80], "the text breaks off|is damaged"),
    "a word of anything": (packed("[]"), "session: expected JSON"),
    "a bomb": (packed(" " * (MAX_BYTES + 1)), f"expected at most {MAX_BYTES} bytes, found more"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_bad_texts_are_refused_in_one_line(what: str) -> None:
    text, said = BAD[what]
    with pytest.raises(FormatError, match=said) as refused:
        read_session(text)
    assert "\n" not in str(refused.value)


def test_damage_anywhere_is_refused_or_harmless(rng: random.Random) -> None:
    text = Session(conv2d()).to_json()
    for _ in range(150):
        place = rng.randrange(len(text))
        broken = text[:place] + rng.choice('09x"{}[],-') + text[place + 1 :]
        try:
            session = read_session(broken)
        except FormatError as refused:
            assert "\n" not in str(refused)  # noqa: PT017 either is right
        else:
            assert session.history

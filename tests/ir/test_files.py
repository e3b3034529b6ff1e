"""Operator files: there and back, and everything that is refused."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import random_operator, repro

from syno_lab.errors import FormatError, SynoError
from syno_lab.ir.files import MAX_BYTES, from_json, to_json


@pytest.mark.parametrize("seed", range(60))
def test_there_and_back(seed: int) -> None:
    operator, binding = random_operator(random.Random(seed))
    again = from_json(to_json(operator))
    assert again == operator, repro(operator, binding)
    assert to_json(again) == to_json(operator)
    assert again.fingerprint(binding) == operator.fingerprint(binding)


def record() -> dict[str, Any]:
    return {
        "format": "syno-lab-operator",
        "version": 1,
        "primary": ["H"],
        "coefficient": ["s=2"],
        "input": ["H"],
        "output": ["H"],
        "steps": [
            {"primitive": "MERGE", "operands": [0], "parameter": "s"},
            {"primitive": "SPLIT", "operands": [2, 1]},
        ],
        "match": [3],
    }


def test_the_record_is_read() -> None:
    assert len(from_json(json.dumps(record())).steps) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "expected version 1, found 2"),
        ({"version": "1"}, "version"),
        ({"format": "other"}, "expected format 'syno-lab-operator', found 'other'"),
        ({"more": 1}, "more"),
        ({"steps": [{"primitive": "FOLD"}]}, "step 0: unknown primitive 'FOLD'"),
        ({"steps": [{"primitive": "SHIFT", "operands": [7]}]}, "expected a coordinate number from 0 to 0, found 7"),
        ({"steps": [{"primitive": "SHIFT", "operands": [-1]}]}, "found -1"),
        ({"steps": [{"primitive": "MERGE", "operands": [0], "parameter": "z"}]}, "unknown variable 'z'"),
        ({"steps": [{"primitive": "MERGE", "operands": [0], "parameter": "H"}]}, "changes nothing"),
        ({"steps": [{"primitive": "MERGE", "operands": [0]}]}, "expected B parameter, found none"),
        ({"steps": [{"primitive": "SHIFT", "operands": [0]}] * 100}, "expected at most"),
        ({"match": [0]}, "expected one data coordinate for each input axis"),
        ({"match": []}, "expected one data coordinate"),
        ({"input": ["H", "H"]}, "expected one data coordinate"),
        ({"input": ["H^999"]}, "powers of at most"),
        ({"primary": ["H", "H"]}, "declared twice"),
        ({"primary": "H"}, "array"),
        ({"fixed": [[0, 5]]}, "output axis below 1"),
        ({"unordered": ["W"]}, "no input axis has that size"),
    ],
)
def test_refusals_name_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message) as refusal:
        from_json(json.dumps({**record(), **change}))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["format", "version", "primary", "output", "steps", "match"])
def test_a_missing_field_is_named(missing: str) -> None:
    text = {key: value for key, value in record().items() if key != missing}
    with pytest.raises(FormatError, match=missing):
        from_json(json.dumps(text))


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"format": 1}', "\x00", "[" * 100_000])
def test_junk_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FormatError) as refusal:
        from_json(text)
    assert "\n" not in str(refusal.value)


def test_a_huge_file_is_refused_unread() -> None:
    with pytest.raises(FormatError, match="at most"):
        from_json(" " * (MAX_BYTES + 1))


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(FormatError):
        from_json(b"\xff\xfe{}")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_mutated_file_is_read_or_refused_but_never_crashes(data: st.DataObject) -> None:
    text = bytearray(json.dumps(record()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.integers(32, 126))
    try:
        from_json(bytes(text))
    except SynoError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message

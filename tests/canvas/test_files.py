"""Files of kernels: what is written is read back, and everything else is refused in one line."""

import json
import random
from typing import Any

import pytest
from canvas_growth import kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from syno_lab.canvas.files import MAX_BYTES, from_json
from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.places import Budget, Place
from syno_lab.errors import FormatError


def text(*nodes: dict[str, Any], **more: Any) -> str:
    return json.dumps({"format": "syno-lab-canvas", "version": 1, "nodes": list(nodes)} | more)


PLACE = {"c_in": 8, "c_out": 8, "h": 4, "w": 4}
BOTTLENECK = (
    {"primitive": "fc", "inputs": [0], "parameter": "x0"},
    {"primitive": "fc", "inputs": [1], "parameter": "C"},
)
RELU = {"primitive": "relu", "inputs": [0]}


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_written_and_read_is_the_same(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    found = Fitted(Kernel(kernel(rng, steps).nodes, normalise=rng.random() < 0.5))
    places = (Place(8, 8, 4, 6, layers=3), Place(16, 8, 2, 6, kw=5, stride=2))[: rng.randint(0, 2)]
    solved = fill(found.kernel, places, Budget(), rng.choice((1, 2, 4)))
    if isinstance(solved, Fitted):
        found = solved
    again = from_json(found.to_json())
    assert again == found
    assert hash(again) == hash(found)
    assert again.kernel.shapes == found.kernel.shapes
    assert again.to_json() == found.to_json()
    assert from_json(found.to_json().encode()) == found


def test_the_form_of_a_file() -> None:
    nodes = [
        {"primitive": "unfold", "inputs": [0], "parameter": "H,W"},
        {"primitive": "fc", "inputs": [1], "parameter": "C"},
    ]
    assert json.loads(from_json(text(*nodes)).to_json())["nodes"] == nodes


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "expected JSON of syno-lab-canvas version 1"),
        ("[]", "expected JSON of syno-lab-canvas version 1"),
        (text(RELU, format="syno-lab-operator"), "expected format 'syno-lab-canvas', found 'syno-lab-operator'"),
        (text(RELU, version=2), "expected version 1, found 2; use the Syno Lab that wrote it"),
        (text(RELU, name="mine"), "unknown field `name`"),
        (text(RELU | {"shape": "[C, x0, W]"}), "unknown field `shape`"),
        (text({"primitive": "relu"}), "missing required field `inputs`"),
        (text({"primitive": "relu", "inputs": [0.5]}), "Expected `int`, got `float`"),
        (text({"primitive": "relu", "inputs": [True]}), "Expected `int`, got `bool`"),
        # A cycle: t1 is made of t2, and t2 of t1.
        (
            text({"primitive": "add", "inputs": [0, 2]}, {"primitive": "relu", "inputs": [1]}),
            "node 0: expected tensors that come before the node, 0 to 0, found 0, 2",
        ),
        (text({"primitive": "relu", "inputs": [10**40]}), "kernel file: "),
        (text({"primitive": "relu", "inputs": []}), "node 0: relu: expected 1 inputs, found 0"),
        (text({"primitive": "relu", "inputs": [0] * 500}), "node 0: relu: expected 1 inputs, found 500"),
        (text({"primitive": "\u001b[2J", "inputs": [0]}), r"found '\\x1b\[2J'"),
        (text(RELU | {"parameter": "x" * 5000}), "node 0: relu: expected no parameter, found 'xxx"),
        (
            text(RELU, {"primitive": "group", "inputs": [1], "parameter": "H"}),
            "node 1: group: expected a parameter",
        ),
        (text({"primitive": "fc", "inputs": [0], "parameter": "x9"}), "node 0: fc: size 'x9': unknown variable 'x9'"),
        (
            text({"primitive": "fc", "inputs": [0], "parameter": "x0"}),
            r"output of C·H·W elements, found \[x0",
        ),
        # A variable in the place of a spatial axis.
        (
            text({"primitive": "unfold", "inputs": [0], "parameter": "x0"}),
            r"node 0: unfold: expected a parameter among H \| W \| H,W, found 'x0'",
        ),
        (
            text({"primitive": "softmax", "inputs": [0], "parameter": "x0,W"}),
            "node 0: softmax: expected adjacent axes of C,H,W, found 'x0,W'",
        ),
        (text(RELU, RELU), "expected one tensor that no node uses, found t1, t2"),
        (text(*[{"primitive": "sin", "inputs": [place]} for place in range(65)]), "node 64: expected at most 64 nodes"),
        (text(RELU, groups=0), "groups: expected a whole number from 1 up, found 0"),
        (text(RELU, places=[PLACE | {"c_out": 12}]), "place: expected c_in and c_out of which one is a multiple"),
        (text(RELU, places=[PLACE, PLACE]), "places: expected no two of equal sizes"),
        (text(RELU, places=[PLACE | {"solution": [2]}]), r"whole number for each of no variable, found \[2\]"),
        (text(*BOTTLENECK, places=[PLACE | {"solution": [0]}]), r"whole number for each of x0, found \[0\]"),
        (text(*BOTTLENECK, places=[PLACE]), r"whole number for each of x0, found \[\]"),
        (" " * (MAX_BYTES + 1), f"expected at most {MAX_BYTES} bytes, found {MAX_BYTES + 1}"),
    ],
)
def test_refusals(content: str, why: str) -> None:
    with pytest.raises(FormatError, match=why) as caught:
        from_json(content)
    message = str(caught.value)
    assert message.startswith("kernel file: ")
    assert "\n" not in message
    assert len(message) <= 480

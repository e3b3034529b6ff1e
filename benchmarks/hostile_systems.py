"""The doors of Canvas and αNAS, and the messages that pages send to widgets. See `hostile_surfaces`."""

from __future__ import annotations

import base64
import json
import logging
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import hostile_damage as damage
from hostile_kit import CANVAS_KERNELS, NETWORKS, OPERATORS
from hostile_surfaces import Opening, Place

_FORMS = ("summary", "python", "source", "table", "mixing", "dot", "file", "loops", "latex")
#: Sizes of a search for what two operators differ in may be large; those of a view are not.
_SMALL = {"N": 1, "C_in": 4, "C_out": 4, "H": 6, "W": 6, "k_1": 3, "g": 2, "s": 2}
#: Of kernels: some that are, some that are none.
_SIZES = (
    *("x0", "C", "G", "2*C", "x0*C", "C*KH", "x1*C", "C/G", "G*KH*KW"),
    *("x0^-1", "x0^99999", "H", "H,W", "1/x0", "10^18", "9" * 40, "x99999"),
)
#: Of attributes of operations, likewise.
_ATTRIBUTES = (
    *(0, -1, 8, 16, 10**9, 10**18, 0.5, "x", None),
    *({"mul": 2}, {"mul": 10**12}, {"mul": 0}, {"div": 0}),
)
#: Seconds that work beside a widget may take before the widget is closed, which cancels it.
_PATIENCE_S = 3.0


def kernels(rng: random.Random, place: Place) -> Opening:
    """Files of Canvas kernels, read, counted and shown."""
    return _system_file(rng, place, f"canvas-{rng.choice(CANVAS_KERNELS)}.json", _changed_kernel)


def networks(rng: random.Random, place: Place) -> Opening:
    """Files of αNAS's networks, read, counted and shown."""
    return _system_file(rng, place, f"alpha-{rng.choice(NETWORKS)}.json", _changed_network)


def _system_file(rng: random.Random, place: Place, name: str, change: Callable[[random.Random, Any], None]) -> Opening:
    from syno_lab.systems import read_operator, system_of

    whole = place.json(name)
    if rng.random() < 0.4:
        for _ in range(rng.choice((1, 1, 3))):
            change(rng, whole)
        text = json.dumps(whole)
    else:
        text = damage.damaged_json(rng, whole, place.marker)

    def read() -> object:
        operator = read_operator(text)
        sizes = system_of(operator).example_binding(operator)
        return operator.flops(sizes), operator.params(sizes), operator.to_json(), operator.to_torch_source(sizes)

    if rng.random() < 0.75:
        return read
    path = place.file(rng, "operator.json", text)
    bind = [word for pair in _SMALL.items() if rng.random() < 0.2 for word in ("--bind", "=".join(map(str, pair)))]
    return lambda: place.command("show", path, "--as", rng.choice(_FORMS), *bind)


def _changed_kernel(rng: random.Random, whole: Any) -> None:
    """Another primitive, other inputs or another size in a kernel's file."""
    node = rng.choice(whole["nodes"])
    way = rng.randrange(4)
    if way == 0:
        node["inputs"] = [rng.randrange(-1, 12) for _ in range(rng.randrange(4))]
    elif way == 1:
        node["primitive"] = rng.choice(("fc", "unfold", "fold_avg", "group", "softmax", "shift", "exp", "none", ""))
    elif way == 2:
        node = rng.choice([one for one in whole["nodes"] if one["primitive"] == "fc"] or [node])
        sizes = (
            "x0",
            "C",
            "G",
            "2*C",
            "x0*C",
            "C*KH",
            "x1*C",
            "C/G",
            "G*KH*KW",
            "x0^-1",
            "x0^99999",
            "H",
            "H,W",
            "1/x0",
            "10^18",
            "9" * 40,
            "x99999",
        )
        node["parameter"] = rng.choice(sizes)
    else:
        whole["nodes"] *= rng.choice((2, 30))


def _changed_network(rng: random.Random, whole: Any) -> None:
    """Another operation, attribute or number of a tensor somewhere in a network's file."""
    nodes = [node for found in _inside(whole) if isinstance(found, dict) for node in found.get("nodes") or ()]
    node = rng.choice([node for node in nodes if isinstance(node, dict)] or [{}])
    way = rng.randrange(4)
    if way == 0:
        node["inputs"] = [rng.randrange(-1, 9) for _ in range(rng.randrange(4))]
    elif way == 1:
        node["operation"] = rng.choice(("conv", "dense", "relu", "add", "reshape", "opaque", "parameter", "mean", "x"))
    elif way == 2:
        attributes = node.setdefault("attributes", {})
        attributes[rng.choice(list(attributes) or ["features", "kernel", "stride", "groups", "axes"])] = rng.choice(
            _ATTRIBUTES
        )
    else:
        shapes = [found["inputs"] for found in _inside(whole) if isinstance(found, dict) and found.get("outputs")]
        if shapes and shapes[0] and isinstance(shapes[0][0], list):
            shapes[0][0][rng.randrange(len(shapes[0][0]))] = rng.choice((0, -1, 1, 10**6, 10**9, 10**18, 1.5))


def _inside(whole: Any) -> list[Any]:
    """A JSON document's values, the document itself among them."""
    inner = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()
    return [whole, *(found for one in inner for found in _inside(one))]


def growths(rng: random.Random, place: Place) -> Opening:
    """Sessions of Canvas and αNAS as JSON and in a word, opened, asked for their next steps and gone through."""
    from syno_lab.sessions.session import session_of
    from syno_lab.sessions.text import PREFIX

    name = rng.choice(("canvas", "alpha"))
    whole = place.json(f"{name}-session.json")
    way = rng.randrange(5)
    if way == 0:
        text = damage.damaged_text(rng, place.bytes(f"{name}-session.word").decode(), place.marker)
    elif way == 1:
        packed = damage.damaged_bytes(rng, zlib.compress(place.bytes(f"{name}-session.json")))
        text = PREFIX + base64.urlsafe_b64encode(packed).decode()
    elif way == 2:
        inside = damage.damaged_json(rng, whole, place.marker).encode("utf-8", "surrogatepass")
        text = PREFIX + base64.urlsafe_b64encode(zlib.compress(inside)).decode().rstrip("=")
    elif way == 3:
        one = rng.choice(whole["places"])
        if "step" in one:
            one["step"][rng.choice(("inputs", "parameter", "primitive"))] = rng.choice(
                ([0], [9, -1], "fc", "x0", "add")
            )
        one["parent"] = rng.choice((None, -1, 0, 1, 2, 10**9))
        text = json.dumps(whole)
    else:
        text = damage.damaged_json(rng, whole, place.marker)

    def go() -> object:
        session = session_of(text)
        for number in range(min(len(session.places), 5)):
            session.go(number)
        return session.to_word(), str(session.status)

    return go


# -- messages --------------------------------------------------------------------------------------------------------


class UnforeseenError(Exception):
    """What a widget logged as a fault of its own."""


class _Log(logging.Handler):
    """Keeps the last fault that a widget logged."""

    last: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.last = record.exc_info[1]


_LOG = _Log()


def messages(rng: random.Random, place: Place) -> Opening:
    """Messages of a page to a widget, and values that a page sets: well-formed, damaged, of other kinds."""
    logger = logging.getLogger("syno_widgets")
    if _LOG not in logger.handlers:
        logger.addHandler(_LOG)
        logger.propagate = False
    make = rng.choice(_VIEWS)
    sent = [_message(rng, make.__name__, place.marker) for _ in range(rng.choice((1, 1, 2, 4)))]
    values = rng.sample(damage.odd_values(place.marker), 3)

    def send() -> object:
        from traitlets import TraitError

        from syno_lab.errors import SynoError

        _LOG.last = None
        view = make(place)
        errors = []
        try:
            for content in sent:
                view.handle(content)
                work = view._works.of()
                if work is not None:
                    work.wait(_PATIENCE_S)
                errors.append(view.error)
            settable = [name for name, trait in view.traits(sync=True).items() if not trait.read_only]
            for value in values:
                try:
                    view.set_state({rng.choice(settable): None if isinstance(value, damage.Raw) else value})
                except TraitError:
                    continue
                errors.append(view.error)
        finally:
            view.close()
        if _LOG.last is not None:
            raise UnforeseenError(repr(_LOG.last)) from _LOG.last
        refused = [error for error in errors if error]
        if refused:
            raise SynoError(max(refused, key=lambda error: (not error.isprintable(), len(error))))
        return None

    return send


def _stepper(place: Place) -> Any:
    from syno_widgets import Stepper

    from syno_lab.operators import KNOWN

    return Stepper(KNOWN["conv1x1"]().spec, seed=0)


def _canvas_stepper(place: Place) -> Any:
    from syno_widgets import Stepper

    from syno_lab.canvas.known import KNOWN

    return Stepper(KNOWN["involution"](), seed=0)


def _alpha_stepper(place: Place) -> Any:
    from syno_widgets import Stepper

    from syno_lab.alpha.known import KNOWN

    return Stepper(KNOWN["conv_block"](), seed=0)


def _operator_view(place: Place) -> Any:
    from syno_widgets import OperatorView

    from syno_lab.operators import KNOWN

    return OperatorView(KNOWN["conv1x1"]())


def _compare(place: Place) -> Any:
    from syno_widgets import Compare

    from syno_lab.operators import KNOWN

    return Compare(KNOWN["conv1x1"](), KNOWN["separable"]())


def _explorer(place: Place) -> Any:
    from syno_widgets import Explorer

    from syno_lab.operators import KNOWN

    return Explorer(KNOWN["conv1x1"]().spec)


def _runs_view(place: Place) -> Any:
    from syno_widgets import RunsView

    return RunsView(place.kit / "lab")


_VIEWS = (_stepper, _stepper, _canvas_stepper, _alpha_stepper, _operator_view, _compare, _explorer, _runs_view)


def _message(rng: random.Random, view: str, marker: Path) -> Any:
    """A message for a widget: of its own kind with odd values, with odd fields, or something else altogether."""
    from syno_widgets.compare import CompareRequest
    from syno_widgets.explorer import ExplorerRequest
    from syno_widgets.operator_view import ViewRequest
    from syno_widgets.runs_view import RunsRequest
    from syno_widgets.stepper_request import Request

    kinds = {
        "_operator_view": ViewRequest,
        "_compare": CompareRequest,
        "_explorer": ExplorerRequest,
        "_runs_view": RunsRequest,
    }
    odd = damage.odd_values(marker)
    texts = damage.odd_texts(marker)
    hints = get_type_hints(kinds.get(view, Request))
    found: dict[str, Any] = {"kind": rng.choice(get_args(hints["kind"])), "request": rng.randrange(9)}
    for name, hint in hints.items():
        if name in found or rng.random() < 0.3:
            continue
        if hint is int:
            found[name] = rng.choice((0, 0, 1, 2, -1, 5, 10**6, 10**18, 1 << 63))
        elif hint is str:
            found[name] = rng.choice((*texts, *OPERATORS, "REDUCE", "UNFOLD", "loops", "cost"))
        elif hint == dict[str, int]:
            names = rng.sample([*_SMALL, "no_such", *texts], 4)
            found[name] = {one: rng.choice((1, 2, 4, 64, 0, -1, 10**6, 10**12, 10**18)) for one in names}
        else:
            found[name] = rng.choices((*texts, "H", "W", "C_in", "k_1"), k=rng.choice((0, 1, 2, 300)))
    way = rng.randrange(8)
    if way == 0:
        found[rng.choice((*texts, "no_such"))] = rng.choice((1, "x", None))
    elif way == 1:
        value = rng.choice(odd)
        found[rng.choice(list(found))] = value.text if isinstance(value, damage.Raw) else value
    elif way == 2:
        del found[rng.choice(list(found))]
    elif way == 3:
        found["kind"] = rng.choice((*texts, "cancel_work"))
    elif way == 4 and rng.random() < 0.3:
        return rng.choice((None, 3, "step", [], [found], {}, {"kind": {}}, {"request": found}))
    return found


SYSTEMS: dict[str, tuple[Callable[[random.Random, Place], Opening], int]] = {
    "kernels": (kernels, 2000),
    "networks": (networks, 2000),
    "growths": (growths, 2000),
    "messages": (messages, 2000),
}
"""Surfaces of Canvas, αNAS and widgets by name, and how many inputs a whole run gives to each."""

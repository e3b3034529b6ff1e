"""Panes for operators of any system, which use only the protocol of operators."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from html import unescape
from typing import Any

import msgspec

from syno_lab.effort import end_if
from syno_lab.errors import SynoError
from syno_lab.panes.asked import Asked
from syno_lab.panes.data import Costs, Picture, Piece, Source
from syno_lab.panes.forms import cost_forms, form, picture_forms
from syno_lab.processes.worker import CallFailedError, Worker
from syno_lab.protocol import FLOAT32_BYTES, Operator, Pane
from syno_lab.scratch import scratch
from syno_lab.systems import read_operator

TIR_TIMEOUT_S = 120.0
_POLL_S = 0.1
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


def picture_pane(asked: Asked[Any]) -> Picture:
    """Return the data of the pane ``graph``: the operator's picture, without links."""
    operator = asked.operator
    svg = operator.svg()
    return {
        "svg": svg,
        "dot": operator.dot(),
        "description": described(operator, svg),
        "json": operator.to_json(),
        "links": {},
    }


def described(operator: Operator, svg: str) -> str:
    """Return an operator's description: the first title of its picture's SVG, which screen readers read out."""
    match = _TITLE.search(svg)
    return unescape(match[1]) if match else str(operator)


class CostRow(msgspec.Struct, frozen=True):
    """The cost of a part of an operator.

    Attributes:
        stage: the number of the part.
        does: a text that describes what the part computes.
        sums: the coordinates that the part sums over.
        out: the shape of the part's result in numbers, and in symbols if the shape has symbols.
        iterations: the number of runs of the part's innermost statement.
        flops: the FLOPs of the part.
        share: the part's share of the operator's FLOPs.
        weight_bytes, out_bytes: the bytes of the part's weights and of the part's result, in float32.
        ids: the ids of the part's nodes in the picture.
    """

    stage: int
    does: str
    sums: str
    out: str
    iterations: int
    flops: int
    share: float
    weight_bytes: int
    out_bytes: int
    ids: list[str] = []

    @classmethod
    def of(
        cls,
        stage: int,
        does: str,
        out: str,
        flops: int,
        total: int,
        weights: int,
        made: int,
        *,
        sums: str = "",
        iterations: int | None = None,
        ids: list[str] | None = None,
    ) -> CostRow:
        """Return a row; ``weights`` and ``made`` are numbers of elements; by default an iteration is 2 FLOPs."""
        share = flops / total if total else 0.0
        runs = flops // 2 if iterations is None else iterations
        return cls(stage, does, sums, out, runs, flops, share, FLOAT32_BYTES * weights, FLOAT32_BYTES * made, ids or [])


def costs(asked: Asked[Any], rows: Iterable[CostRow] = (), **totals: int) -> Costs:
    """Return the cost of an operator, with further totals, and of its parts."""
    operator, bound = asked.operator, asked.bound()
    counted = {"flops": operator.flops(bound), **totals, "params": operator.params(bound)}
    parts = [msgspec.to_builtins(row) for row in rows]
    return {"binding": bound, "totals": {**counted, "memory_bytes": operator.memory(bound)}, "rows": parts}


#: The kind (a colour) of a piece by the type of the piece's Pygments token; pieces of other types have no kind.
_KINDS = {
    "Token.Keyword": "keyword",
    "Token.Operator.Word": "keyword",
    "Token.Name.Builtin": "builtin",
    "Token.Name.Decorator": "builtin",
    "Token.Literal.Number": "number",
    "Token.Literal.String": "string",
    "Token.Comment": "comment",
}


def coloured(text: str) -> list[Piece]:
    """Split Python text into pieces with ``text`` and a colour ``kind``; the joined pieces are the text."""
    from pygments.lexers.python import PythonLexer

    pieces: list[Piece] = []
    for token, part in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = str(token)
        kind = next((kind for family, kind in _KINDS.items() if name == family or name.startswith(f"{family}.")), "")
        if not part:
            continue
        if pieces and pieces[-1].get("kind", "") == kind:
            pieces[-1]["text"] += part
        else:
            pieces.append({"text": part, "kind": kind} if kind else {"text": part})
    return pieces


def source_pane(asked: Asked[Any]) -> Source:
    """Return the source of the PyTorch module, a file that needs torch alone."""
    text = asked.operator.to_torch_source(asked.bound())
    return {"text": text, "pieces": coloured(text)}


def tir_pane(asked: Asked[Any]) -> Source:
    """Return TVM's unscheduled TIR, which a child process writes, because TVM can crash its process.

    Raises SynoError when TVM raises an error, crashes or takes more than two minutes.
    """
    text, end = "", time.monotonic() + TIR_TIMEOUT_S
    with scratch("syno-tir-") as folder, closing(Worker(folder / "log")) as worker:
        try:
            for message in worker.talk(_tir, asked.operator.to_json(), dict(asked.bound()), period_s=_POLL_S):
                end_if(asked.should_stop, "waiting for TVM")
                if time.monotonic() > end:
                    raise SynoError(f"TIR: TVM took more than {TIR_TIMEOUT_S:.0f} s; try smaller sizes")
                text = message or text
        except CallFailedError as failure:
            raise SynoError(f"TIR: {str(failure).removeprefix('tir: ')}") from None
    return {"text": text, "pieces": coloured(text)}


def _tir(say: Callable[[str], None], _: Callable[[], None], text: str, binding: dict[str, int]) -> None:
    """Run in a worker process: send the TIR of the operator with this JSON text."""
    say(f"{read_operator(text).to_tvm(binding).script()}\n")


_SIZED = ("name", "binding")

GRAPH = Pane(picture_pane, ("name",), lambda asked, data: picture_forms(asked, "picture"), title="picture")
COST = Pane(costs, _SIZED, cost_forms, title="Cost")
SOURCE = Pane(
    source_pane,
    _SIZED,
    lambda asked, data: [form(asked, "PyTorch", "torch.py", path=["text"])],
    title="PyTorch",
)
TIR = Pane(tir_pane, _SIZED, lambda asked, data: [form(asked, "TIR", "tir.py", path=["text"])], title="TIR")

#: The panes of a system that declares no panes.
GENERIC = {"graph": GRAPH, "cost": COST, "source": SOURCE, "tir": TIR}

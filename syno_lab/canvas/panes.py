"""The panes of the operator view for Canvas's operators."""

from __future__ import annotations

from math import prod
from typing import Any

from syno_lab.canvas.drawing import words
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.primitives import FREE, Cost, flops_of, weight_of
from syno_lab.canvas.shape import Shape
from syno_lab.panes import Asked
from syno_lab.panes.forms import cost_forms, csv_text, form, picture_forms
from syno_lab.panes.generic import GENERIC, picture_pane, total_costs
from syno_lab.protocol import Pane

_FLOAT32_BYTES = 4


# -- the picture -------------------------------------------------------------------------------------------------------


def graph_pane(asked: Asked[Any]) -> dict[str, Any]:
    """The micro-DAG, and what belongs together in it.

    Returns:
        As :func:`syno_lab.panes.generic.picture_pane`, with ``links``: for each tensor and primitive of the drawing by
        its id ``words``, ``kind`` (``tensor`` or ``primitive``), ``light`` (the ids that are lit with it: of a tensor
        all that it is computed from, of a primitive its tensors), and ``marks`` and ``lines``, which are for loop nests
        and empty here.
    """
    return {**picture_pane(asked), "links": _links(asked.operator)}


def _links(operator: Fitted) -> dict[str, dict[str, Any]]:
    said = words(operator)
    found: dict[str, dict[str, Any]] = {"t0": _link(said["t0"], "tensor", ["t0"])}
    for number, node in enumerate(operator.kernel.nodes, start=1):
        name, result = f"p{number}", f"t{number}"
        own = [name, *(one for one in (f"{name}-lhs", f"{name}-rhs", f"{name}-out") if one in said)]
        inputs = [f"t{tensor}" for tensor in node.inputs]
        below = dict.fromkeys(one for tensor in inputs for one in found[tensor]["light"])
        found[name] = _link(said[name], "primitive", [*dict.fromkeys(inputs), *own, result])
        found[result] = _link(said[result], "tensor", [*below, *own, result])
    return found


def _link(said: str, kind: str, light: list[str]) -> dict[str, Any]:
    return {"words": said, "kind": kind, "light": light, "marks": [], "lines": []}


# -- costs -------------------------------------------------------------------------------------------------------------


def cost_pane(asked: Asked[Any]) -> dict[str, Any]:
    """The cost of the operator and of each of its primitives, and the table of its solutions.

    Returns:
        As :func:`syno_lab.panes.generic.total_costs`, with a row for each primitive, as the pane of a pGraph has one
        for each stage, and one for each normalisation and for the pooling in front; their FLOPs sum to the operator's.
        ``solutions`` has a record for each place of the network (:func:`solutions`).
    """
    found = total_costs(asked)
    operator: Fitted = asked.operator
    found["rows"] = _rows(operator, found["binding"], found["totals"]["flops"])
    found["solutions"] = solutions(operator)
    return found


def _rows(operator: Fitted, bound: dict[str, int], total: int) -> list[dict[str, Any]]:
    place, template = operator.template(bound)
    kernel, images, parts = operator.kernel, bound["N"], place.parts
    rows: list[dict[str, Any]] = []

    def add(does: str, sums: str, out: str, iterations: int, flops: int, weights: int, made: int, name: str) -> None:
        """A row; ``weights`` and ``made`` are numbers of elements, ``name`` is the id of what it lights up."""
        rows.append(
            {
                "stage": len(rows) + 1,
                "does": does,
                "sums": sums,
                "out": out,
                "iterations": iterations,
                "flops": flops,
                "share": flops / total if total else 0.0,
                "weight_bytes": _FLOAT32_BYTES * weights,
                "out_bytes": _FLOAT32_BYTES * made,
                "ids": [name],
            }
        )

    def shown(shape: Shape) -> str:
        text = f"[{', '.join(['N', *(size.pretty for size in shape.sizes)])}]"
        numbers = [images, *(size.at(template) for size in shape.sizes)]
        return f"{text} = {numbers}{f' in each of {parts} parts' if parts > 1 else ''}"

    if place.stride > 1:
        flops = images * place.pooling
        sizes = [images, place.c_in, place.h, place.w]
        does, out = f"average pooling of {place.stride} x {place.stride}", f"[N, C_in, H, W] = {sizes}"
        add(does, "the window", out, flops, flops, 0, prod(sizes), "t0")
    for number, node in enumerate(kernel.nodes, start=1):
        inputs, shape = tuple([kernel.shapes[tensor] for tensor in node.inputs]), kernel.shapes[number]
        elements = images * parts * shape.volume.at(template)
        made = 0 if node.primitive.name == "group" else elements  # a group is a view
        cost = flops_of(node.primitive, inputs)
        each = made if cost == FREE else images * parts * cost.size.at(template)
        weight = weight_of(node.primitive, inputs[0])
        weights = 0 if weight is None else parts * prod(size.at(template) for size in weight)
        flops = cost.number * each
        add(f"t{number} = {node}", _sums(operator, number), shown(shape), each, flops, weights, made, f"p{number}")
        if number in kernel.normalised:
            assert weight is not None
            has_relu = kernel.normalised[number]
            norm = Cost(2 + has_relu, shape.volume)
            each = images * parts * norm.size.at(template)
            scale = 2 * parts * (weight[0] * weight[1]).at(template)  # and the offset
            does = f"batch normalisation{' and ReLU' if has_relu else ''} of t{number}"
            add(does, "", shown(shape), each, norm.number * each, scale, made, f"p{number}")
    return rows


def _sums(operator: Fitted, number: int) -> str:
    """What a primitive sums or takes a maximum over, as text."""
    node = operator.kernel.nodes[number - 1]
    name, parameter = node.primitive
    if name == "fc":
        return operator.kernel.shapes[node.inputs[0]].group_inputs.pretty
    return parameter if name in ("fold_avg", "softmax") else ""


# -- solutions ---------------------------------------------------------------------------------------------------------


def solutions(operator: Fitted) -> list[dict[str, Any]]:
    """The solution of each place of the network that an operator was fitted to.

    Returns:
        For each place its sizes (``c_in``, ``c_out``, ``h``, ``w``, ``kh``, ``kw``, ``stride``), how many ``layers``
        and ``parts`` it has, the number of each variable that was determined (``G``, ``x0``, ...), ``flops`` for one
        example and ``params`` of one layer, and of all its layers as ``layers_flops`` and ``layers_params``. The last
        two sum to :attr:`.Fitted.spent`.
    """
    found = []
    for place in operator.places:
        outer = {"C_in": place.c_in, "C_out": place.c_out, "H": place.h, "W": place.w}
        bound = operator.complete_binding({**outer, "KH": place.kh, "KW": place.kw, "s": place.stride})
        flops, params = operator.flops(bound), operator.params(bound)
        found.append(
            {
                "c_in": place.c_in,
                "c_out": place.c_out,
                "h": place.h,
                "w": place.w,
                "kh": place.kh,
                "kw": place.kw,
                "stride": place.stride,
                "layers": place.layers,
                "parts": place.parts,
                **{name: bound[name] for name in operator.inner},
                "flops": flops,
                "params": params,
                "layers_flops": place.layers * flops,
                "layers_params": place.layers * params,
            }
        )
    return found


def _cost_forms(asked: Asked[Any], data: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of every pane of costs, and the solutions as a table where there are any."""
    found = cost_forms(asked, data)
    if data["solutions"]:
        found.append(form(asked, "CSV of solutions", "solutions.csv", text=csv_text(data["solutions"])))
    return found


PANES: dict[str, Pane] = {
    **GENERIC,
    "graph": Pane(graph_pane, ("name",), lambda asked, data: picture_forms(asked, "micro-dag"), title="micro-DAG"),
    "cost": Pane(cost_pane, ("name", "binding"), _cost_forms, title="Cost"),
}

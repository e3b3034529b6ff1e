"""The panes of the operator view for Canvas's operators, and the values of dynamic variables in each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, TypedDict

from syno_lab.canvas.drawing import lights, words
from syno_lab.canvas.filling import conditions_of, lcms_of, ratios_of, solve
from syno_lab.canvas.fitted import Fitted, outer_of, place_in
from syno_lab.canvas.places import NO_BUDGET, Place
from syno_lab.canvas.primitives import FREE, Cost, flops_of, weight_of
from syno_lab.canvas.shape import Shape
from syno_lab.panes import Asked
from syno_lab.panes.data import Costs, Form, Link, Picture, Record
from syno_lab.panes.forms import cost_forms, csv_text, form, picture_forms, whole
from syno_lab.panes.generic import SOURCE, TIR, CostRow, costs, picture_pane
from syno_lab.panes.reach import reach_by_gradients
from syno_lab.protocol import Pane


def graph_pane(asked: Asked[Any]) -> Picture:
    """Return the micro-DAG, and the parts that are highlighted together.

    A tensor highlights all parts that compute it, and a primitive highlights its tensors; no loop nest is linked.
    """
    descriptions = words(asked.operator)
    links: dict[str, Link] = {}
    for name, light in lights(asked.operator.kernel.draft, descriptions).items():
        if "-" not in name:  # the primitive's links include its edges
            kind = "tensor" if name.startswith("t") else "primitive"
            links[name] = {"words": descriptions[name], "kind": kind, "light": light, "marks": [], "lines": []}
    return {**picture_pane(asked), "links": links}


class FittedCosts(Costs):
    """The costs of an operator of Canvas, and its solution at each place of the network (:func:`.solutions`)."""

    solutions: Sequence[Record]


class Solved(TypedDict):
    """A table of solutions; ``marked``: rows with the shown sizes; ``records``: the data of :func:`numbers`."""

    title: str
    heads: list[str]
    rows: list[list[int | str | None]]
    marked: list[int]
    note: str
    records: list[Record]


def cost_pane(asked: Asked[Any]) -> FittedCosts:
    """Return the cost of the operator and of each of its primitives, and the table of its solutions.

    Normalisations and the pooling before the template have rows too; the FLOPs of all rows sum to the operator's.
    """
    operator: Fitted = asked.operator
    return {**costs(asked, _rows(operator, asked.bound())), "solutions": solutions(operator)}


def _rows(operator: Fitted, bound: dict[str, int]) -> list[CostRow]:
    place, template = operator.template(bound)
    kernel, images, parts, total = operator.kernel, bound["N"], place.parts, operator.flops(bound)
    rows: list[CostRow] = []

    def add(does: str, sums: str, out: str, iterations: int, flops: int, weights: int, made: int, name: str) -> None:
        """Add a row; ``weights`` and ``made`` are numbers of elements, ``name`` is the id of the highlighted part."""
        number = len(rows) + 1
        row = CostRow.of(number, does, out, flops, total, weights, made, sums=sums, iterations=iterations, ids=[name])
        rows.append(row)

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
        made = 0 if node.primitive.name == "group" else elements  # a group is a view and computes nothing
        cost = flops_of(node.primitive, inputs)
        runs = made if cost == FREE else images * parts * cost.size.at(template)
        weight = weight_of(node.primitive, inputs[0])
        weights = 0 if weight is None else parts * prod(size.at(template) for size in weight)
        flops = cost.number * runs
        add(f"t{number} = {node}", _sums(operator, number), shown(shape), runs, flops, weights, made, f"p{number}")
        if number in kernel.normalised:
            assert weight is not None
            has_relu = kernel.normalised[number]
            norm = Cost(2 + has_relu, shape.volume)
            runs = images * parts * norm.size.at(template)
            scale = 2 * parts * (weight[0] * weight[1]).at(template)  # and the offset
            does = f"batch normalisation{' and ReLU' if has_relu else ''} of t{number}"
            add(does, "", shown(shape), runs, norm.number * runs, scale, made, f"p{number}")
    return rows


def _sums(operator: Fitted, number: int) -> str:
    """Return the axes of a primitive's sum or maximum, as text."""
    node = operator.kernel.nodes[number - 1]
    name, parameter = node.primitive
    if name == "fc":
        return operator.kernel.shapes[node.inputs[0]].group_inputs.pretty
    return parameter if name in ("fold_avg", "softmax") else ""


class Number(NamedTuple):
    """The value of one dynamic variable at one place."""

    place: str  # The place's name (:func:`place_name`).
    layers: int  # The number of layers at the place.
    variable: str  # The variable's name, such as x0.
    lcm: int  # The value is a multiple of this number.
    base: int | None  # The variable's value in the base solution, or None.
    doublings: int | None  # How often the base value was doubled; None for a value below the base value.
    more: int | None  # The value minus the doubled base value.
    value: int  # The value of the variable at the place.
    is_solved: bool  # Whether the kernel is fitted to the place.


def place_name(place: Place) -> str:
    """Return the sizes of a convolution as the text of a menu entry, different for different sizes."""
    stride = f", stride {place.stride}" if place.stride > 1 else ""
    return f"{place.c_in} to {place.c_out} channels, {place.h}x{place.w}, window {place.kh}x{place.kw}{stride}"


def numbers(operator: Fitted, places: Sequence[Place]) -> list[Number]:
    """Return the values of all dynamic variables at these places, with the derivation of each value.

    At a place to which the operator is not fitted, the values are the base solution of that place alone.
    """
    kernel = operator.kernel
    solved = {replace(place, layers=1) for place in operator.places}
    base = dict(_base(operator, operator.places))
    rows = []
    for place in places:
        alone = replace(place, layers=1)
        is_solved = alone in solved
        bases = base if is_solved else dict(_base(operator, (alone,)))
        bound = operator.complete_binding(outer_of(place))
        units = lcms_of(conditions_of(kernel)[1], len(kernel.free), ratios_of(place, operator.groups))
        for number, name in enumerate(kernel.free):
            least = bases[alone][number] if alone in bases else None
            doublings, more = _grown(least, bound[name])
            ends = (name, units[number], least, doublings, more, bound[name], is_solved)
            rows.append(Number(place_name(place), place.layers, *ends))
    return rows


def _base(operator: Fitted, places: tuple[Place, ...]) -> list[tuple[Place, tuple[int, ...]]]:
    """Return the common base solution of places; an empty list without a solution."""
    solution = solve(operator.kernel, places, NO_BUDGET, operator.groups) if places else ""
    if isinstance(solution, str):
        return []
    return [(replace(place, layers=1), row) for place, row in zip(solution.places, solution.numbers, strict=True)]


def _grown(base: int | None, value: int) -> tuple[int | None, int | None]:
    """Return the number of doublings from a base to a number, and the remaining difference."""
    if base is None or value < base:
        return None, None
    doublings = (value // base).bit_length() - 1
    return doublings, value - (base << doublings)


def solutions(operator: Fitted) -> list[dict[str, int]]:
    """Return the solution for each place of the network to which an operator was fitted.

    Returns:
        For each place its sizes (``c_in``, ``c_out``, ``h``, ``w``, ``kh``, ``kw``, ``stride``), its numbers of
        ``layers`` and ``parts``, the number of each solved variable (``G``, ``x0``, ...), ``flops`` for one example and
        ``params`` of one layer, and the sums over its layers, ``layers_flops`` and ``layers_params``. The sums add up
        to :attr:`.Fitted.spent`.
    """
    rows = []
    for place in operator.places:
        bound = operator.complete_binding(outer_of(place))
        flops, params = operator.flops(bound), operator.params(bound)
        rows.append(
            {
                **vars(place),
                "parts": place.parts,
                **{name: bound[name] for name in operator.inner},
                "flops": flops,
                "params": params,
                "layers_flops": place.layers * flops,
                "layers_params": place.layers * params,
            }
        )
    return rows


def solution_pane(asked: Asked[Any]) -> Solved:
    """Return the derivation of the dynamic variables' values (section 6.3), at each place and for the shown sizes."""
    operator: Fitted = asked.operator
    bound = asked.bound()
    here = place_in(bound)
    is_place = any(replace(place, layers=1) == here for place in operator.places)
    entries = numbers(operator, (*operator.places, *(() if is_place else (here,))))
    rows: list[list[int | str | None]] = []
    marked: list[int] = []
    for number in entries:
        if number.place == place_name(here):
            marked.append(len(rows))
        rows.append([number.place, number.layers if number.is_solved else "not fitted", *number[2:-1]])
    return {
        "title": "Solutions by place",
        "heads": ["place", "layers", "variable", "lcm", "base", "doublings", "topped up by", "value"],
        "rows": rows,
        "marked": marked,
        "note": _note(operator),
        "records": [number._asdict() for number in entries],
    }


def _note(operator: Fitted) -> str:
    groups = f" G = {operator.groups} at every place." if "G" in operator.kernel.variables else ""
    if not operator.kernel.free:
        return f"The kernel has no dynamic variable: its sizes follow from the place.{groups}"
    fitted = (
        "The kernel was fitted to these places."
        if operator.places
        else "The kernel is fitted to no network, and has its base solution: kernel.fit(sites, budget) fits it."
    )
    return (
        f"{fitted}{groups} A variable is a multiple of the lcm of the denominators under it; the base is the least "
        "solution in proportion to the channels; while the budget allowed, it was doubled, and then topped up."
    )


#: The input's axes, and for each axis the output axis along which it is read.
_REACH = reach_by_gradients(("N", "C_in", "s*H", "s*W"), (0, None, 2, 3))


def _cost_forms(asked: Asked[Any], data: FittedCosts) -> list[Form]:
    """Return the forms of a cost pane, and the solutions as a table if there are any."""
    forms = cost_forms(asked, data)
    if data["solutions"]:
        forms.append(form(asked, "CSV of solutions", "solutions.csv", text=csv_text(data["solutions"])))
    return forms


def _solution_forms(asked: Asked[Any], data: Solved) -> list[Form]:
    return [form(asked, "CSV", "x-by-place.csv", text=csv_text(data["records"])), whole(asked, "x-by-place")]


PANES: dict[str, Pane] = {
    "graph": Pane(graph_pane, ("name",), lambda asked, data: picture_forms(asked, "micro-dag"), title="micro-DAG"),
    "cost": Pane(cost_pane, ("name", "binding"), _cost_forms, title="Cost"),
    "solutions": Pane(solution_pane, ("name", "binding"), _solution_forms, title="Solutions"),
    "source": SOURCE,
    "reach": _REACH,
    "tir": TIR,
}

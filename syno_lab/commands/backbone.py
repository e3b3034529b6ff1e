"""``syno-lab backbone``: list the networks, their layers, and the layers that an operator would replace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from syno_lab.commands.operands import OPERATOR, load_operator
from syno_lab.commands.output import say, say_table, write_json
from syno_lab.errors import SpecError
from syno_lab.inputs import count_of
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.models.layers import Survey
    from syno_lab.models.sites import Kind, Site
    from syno_lab.models.sites import Strides as StridesName
    from syno_lab.protocol import Operator


def command(
    name: Annotated[str | None, typer.Argument(help="A backbone; without it, all are listed.")] = None,
    layers: Annotated[
        Literal["conv2d", "linear", "both"] | None,
        typer.Option(help="The kind of layers to replace. [default: the backbone's own]"),
    ] = None,
    match: Annotated[
        list[str] | None, typer.Option(help="Replace only layers whose names match a pattern, as in '*.qkv'.")
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(help="Keep layers whose names match a pattern; '' for none. [default: the first layer]"),
    ] = None,
    pointwise: Annotated[bool, typer.Option("--pointwise", help="Replace 1x1 convolutions too.")] = False,
    groups: Annotated[
        int | None, typer.Option(min=0, help="Groups of a convolution to replace; 0 for any. [default: backbone's own]")
    ] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Replace only convolutions of this stride.")] = None,
    strides: Annotated[
        Literal["pool", "shape"],
        typer.Option(help="Apply strides by an average pooling after the operator, or in the operator's shape."),
    ] = "pool",
    operator: Annotated[str | None, typer.Option(help=f"{OPERATOR}: shows its cost in each slot.")] = None,
    resolution: Annotated[int | None, typer.Option(min=1, help="Height and width of the images.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens of a text.")] = None,
    outputs: Annotated[int | None, typer.Option(min=1, help="Classes, or tokens of the vocabulary.")] = None,
    channels: Annotated[int, typer.Option(min=1, help="Channels of the images.")] = 3,
    everything: Annotated[
        bool, typer.Option("--all", help="Show also the layers that stay, each with the reason.")
    ] = False,
) -> None:
    """Show a backbone's convolutions and linear layers: shapes, FLOPs and share, and the spec of operators for them."""
    from syno_lab.models.registry import backbone
    from syno_lab.pgraphs.of_network import derive_spec

    if name is None:
        _list_all()
        return
    chosen = backbone(name)
    loaded = None if operator is None else load_operator(operator)[:2]
    selection = replace(chosen.selection, strides=strides, pointwise=pointwise or chosen.selection.pointwise)
    if layers is not None:
        kinds: tuple[Kind, ...] = ("conv2d", "linear") if layers == "both" else (layers,)
        # The backbone's name patterns apply only to the kinds of layers that it replaces by default.
        names = chosen.selection.names if chosen.selection.kinds == kinds else ("*",)
        selection = replace(selection, kinds=kinds, names=names)
    if match:
        selection = replace(selection, names=tuple(match))
    if leave is not None:
        selection = replace(selection, leave=tuple(pattern for pattern in leave if pattern))
    if groups is not None:
        selection = replace(selection, groups=groups or None)
    if stride is not None:
        selection = replace(selection, stride=(stride, stride))
    seen = chosen.survey(outputs=outputs, in_channels=channels, size=_size(chosen.domain, resolution, context))
    sites = seen.select(selection)
    rows = seen.rows(selection)
    summary = {
        "name": chosen.name,
        "params": seen.params,
        "flops": seen.flops,
        "reference": chosen.reference,
        "paper": chosen.paper,
        "layers": rows,
        "spec": None,
    }
    lines = []
    if loaded is not None:
        flops, params = _put_in(loaded, seen, sites, rows, strides)
        summary["operator"] = {"label": loaded[0], "flops": flops, "params": params}
        share = flops / seen.flops
        lines.append(f"with {loaded[0]}: {params:,} parameters, {flops:,} FLOPs, {share:.1%} of the network's")
    try:
        spec = derive_spec(sites, strides=strides)
    except SpecError as error:
        lines.insert(0, f"no one specification: {error}")
    else:
        before, after = (f"[{', '.join(map(str, shape))}]" for shape in (spec.input_shape, spec.output_shape))
        lines.insert(0, f"specification: {before} to {after} with {count_of(len(spec.bindings), 'binding')}")
        summary["spec"] = {"input_shape": before, "output_shape": after, "bindings": list(spec.binding_maps)}
    names_of_sites = {site.name for site in sites}
    shown = [row for row in rows if everything or row["name"] in names_of_sites]
    hidden = () if any(row["reason"] for row in shown) else ("replaced", "reason")
    say_table([_for_people(row, hidden) for row in shown])
    replaced = [row for row in rows if row["replaced"]]
    say(
        f"{chosen.name}: {seen.params:,} parameters, {seen.flops:,} FLOPs; {len(replaced)} of {len(seen.sites)} layers "
        f"replaced, {sum(row['share'] for row in replaced):.1%} of the FLOPs"
    )
    for line in lines:
        say(line)
    write_json(summary)


def _put_in(
    operator: tuple[str, Operator], seen: Survey, sites: list[Site], rows: list[dict[str, Any]], strides: StridesName
) -> tuple[int, int]:
    """Return the FLOPs and parameters of the network with the operator in it; add the costs of a slot to its row.

    Add the reason to the row of each layer that stays unchanged. Raises SpecError if the operator fits nowhere.
    """
    from syno_lab.models.slot import costs

    label, value = operator
    places = {place.name: place for place in costs(value, sites, strides=strides)}
    if not any(place.replaced for place in places.values()):
        first = next(iter(places.values()))
        raise SpecError(f"{label} fits none of the {len(places)} layers to replace: {first.name}: {first.reason}")
    flops, params = seen.flops, seen.params
    for row in rows:
        place = places.get(row["name"])
        replaced = place is not None and place.replaced
        row["operator flops"] = place.flops if place is not None and replaced else None
        row["operator params"] = place.params if place is not None and replaced else None
        if place is not None:
            row["replaced"], row["reason"] = place.replaced, place.reason
            flops += place.flops - row["flops"]
            params += place.params - row["params"]
    return flops, params


def _list_all() -> None:
    from syno_lab.models.registry import BACKBONES

    rows: list[dict[str, JSON]] = [
        {
            "name": known.name,
            "takes": f"{known.size}x{known.size} images" if known.domain == "images" else f"{known.size} tokens",
            "params": known.params,
            "flops": known.flops,
            "reference": known.reference,
            "paper": known.paper,
        }
        for known in BACKBONES.values()
    ]
    say_table([{key: row[key] for key in ("name", "takes", "params", "flops", "reference")} for row in rows])
    write_json(rows)


def _size(domain: str, resolution: int | None, context: int | None) -> int | None:
    if domain == "images" and context is not None:
        raise SpecError("--context: expected --resolution for a network that takes images")
    if domain == "text" and resolution is not None:
        raise SpecError("--resolution: expected --context for a network that takes text")
    return resolution if domain == "images" else context


def _for_people(row: dict[str, Any], hidden: tuple[str, ...]) -> dict[str, JSON]:
    shown = {key: value for key, value in row.items() if key not in (*hidden, "bias", "calls", "kind")}
    return {**shown, "share": None if row["share"] is None else f"{row['share']:.1%}"}

"""``syno-lab synthesise``: synthesise a chain of operations with wanted properties (αNAS, section 4)."""

from __future__ import annotations

import json
import random
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from syno_lab.commands.output import say, say_table, write_json, write_text
from syno_lab.effort import Effort
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import LARGEST_SIZE, integer, quoted
from syno_lab.versioned import read_small

if TYPE_CHECKING:
    from syno_lab.alpha import Draft, Properties

_MOST_BYTES = 1 << 22


#: See :data:`syno_lab.alpha.synthesis.METHODS`.
Method = Literal["progressive", "greedy", "enumerative", "random"]


def command(
    properties: Annotated[
        Path | None, typer.Option(help="A file of wanted properties: Properties.to_json(); with --input.")
    ] = None,
    of: Annotated[
        Path | None, typer.Option(help="A graph file or an αNAS operator file: its own properties are wanted.")
    ] = None,
    wants: Annotated[
        str | None,
        typer.Option(help="What must be mixed, 'C>=m, H>=m' say, of axes B, H, W, C; the shape stays; with --input."),
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option("--input", metavar="N,…,C", help="The input's shape, channels last: 8,32,32,16.")
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="progressive: by chance, the nearer the likelier; greedy: always the nearest; enumerative: all, the "
            "shorter first; random: until the shape is right."
        ),
    ] = "progressive",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same chain.")] = 0,
    seconds: Annotated[float | None, typer.Option(min=0, help="At most so many seconds of computing.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the chain into this file.")] = None,
) -> None:
    """Synthesise a chain of operations that has wanted properties: a shape, a depth, and the mixing of axes."""
    from syno_lab.alpha import Draft
    from syno_lab.alpha.synthesis import METHODS

    wanted, shape = _wanted(properties, of, wants, input_shape)
    rng = random.Random(seed)  # noqa: S311 - for choices
    start = Draft(wanted, shape, effort=Effort(seconds))
    answer = METHODS[method](start, rng, None)
    if answer.draft is None:
        raise SynoError(
            f"no chain found by --method {method} after {answer.evaluations:,} evaluations: {answer.reason}; try "
            "another --seed or --method, or want less"
        )
    # As in sl.alpha.synthesise, replace each operation by a random equivalent operation.
    draft = answer.draft.exchanged(rng)
    graph = draft.graph()
    steps = _steps(draft)
    say_table([{"operation": s.operation, "output": s.output, "distance": s.distance, **s.distances} for s in steps])
    say(
        f"{len(draft.chain)} operations by {method} after {answer.evaluations:,} evaluations, seed {seed}; "
        f"{graph.flops():,} FLOPs, {graph.params():,} parameters"
    )
    if svg is not None:
        write_text(svg, graph.svg())
        say(str(svg))
    write_json(
        {
            "method": method,
            "seed": seed,
            "input": list(shape),
            "properties": json.loads(wanted.to_json()),
            "evaluations": answer.evaluations,
            "steps": steps,
            "flops": graph.flops(),
            "params": graph.params(),
            "graph": json.loads(graph.to_json()),
        }
    )


def _wanted(
    properties: Path | None, of: Path | None, wants: str | None, input_shape: str | None
) -> tuple[Properties, tuple[int, ...]]:
    from syno_lab.alpha import Graph, NetworkOperator, Properties
    from syno_lab.systems import read_operator

    options = {"--properties": properties, "--of": of, "--wants": wants}
    names = [name for name, value in options.items() if value is not None]
    if len(names) != 1:
        raise SpecError(f"expected one of {', '.join(options)}, found {' and '.join(names) or 'none'}")
    if of is None:
        if input_shape is None:
            raise SpecError(f"{names[0]}: expected --input with the shape too, 8,32,32,16 say")
        shape = _shape(input_shape)
        if properties is None:
            return Properties.of_wishes(wants or "", shape), shape
        return Properties.from_json(read_small(properties, _MOST_BYTES)), shape
    if input_shape is not None:
        raise SpecError("--input: expected none with --of, whose file has its own input")
    text = read_small(of, _MOST_BYTES)
    if '"syno-lab-graph"' in text[:200]:
        graph = Graph.from_json(text)
    else:
        operator = read_operator(text)
        if not isinstance(operator, NetworkOperator):
            raise SpecError(f"--of: expected a graph or a network of αNAS, found one of {operator.format}")
        graph = operator.graph
    if len(graph.inputs) != 1 or len(graph.output_shapes) != 1:
        counts = f"{len(graph.inputs)} and {len(graph.output_shapes)}"
        raise SpecError(f"--of: expected a graph of one input and one output, found {counts}")
    return Properties.of(graph), graph.inputs[0]


def _shape(text: str) -> tuple[int, ...]:
    inner = text.strip()
    inner = inner[1:-1] if (inner[:1], inner[-1:]) in (("[", "]"), ("(", ")")) else inner
    sizes = tuple([integer(part.strip()) or 0 for part in inner.split(",")])
    if len(sizes) < 2 or not all(sizes):
        raise SpecError(f"--input: expected positive sizes such as 8,32,32,16, found {quoted(text)}")
    if prod(sizes) > LARGEST_SIZE:
        raise SpecError(f"--input: expected at most {LARGEST_SIZE} elements, found {prod(sizes)}")
    return sizes


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the output: the chain after an operation."""

    operation: str
    output: list[int]
    distance: float
    distances: dict[str, float]


def _steps(draft: Draft) -> list[Step]:
    """Return the shape and the distances of the chain after each operation; the first step is the input."""
    from syno_lab.alpha import Draft

    part = Draft(draft.properties, draft.input_shape)
    rows = [_step("input", part)]
    for operation in draft.chain:
        part = part.apply(operation)
        rows.append(_step(str(operation), part))
    return rows


def _step(name: str, draft: Draft) -> Step:
    distances = {name: round(far, 3) for name, far in draft.distances.items()}
    return Step(operation=name, output=list(draft.shape), distance=round(draft.distance, 3), distances=distances)

"""``syno-lab show``: one operator in any of its forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
import typer

from syno_lab.commands.operands import complete_binding, complete_operator, load_operator
from syno_lab.commands.output import is_for_json, say, write_json, write_text
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import integer, quoted

if TYPE_CHECKING:
    from syno_lab.ir.operator import Operator as PGraph
    from syno_lab.protocol import Operator


#: The forms that ``show`` can print.
Form = Literal[
    "summary", "loops", "python", "c", "latex", "table", "receptive-field", "mixing", "source", "tvm", "dot", "svg",
    "file", "figure", "why",
]  # fmt: skip


#: What of an operator a figure shows.
Of = Literal["graph", "loops", "equation"]


_STAGED = ("loops", "python", "c", "latex", "figure")
_GRADIENTS = (*_STAGED, "table")
_REACH = "reach"
#: The forms that an operator of any system has. Those of a system with the pane have a receptive field; only pGraphs
#: have the others.
_OF_ALL = ("summary", "source", "tvm", "dot", "svg", "file", "figure")


@dataclass(frozen=True)
class Wanted:
    """What is asked of a form: the sizes, stages, a gradient, an output element; what a figure shows, and its look."""

    bind: Annotated[list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A size; may be repeated.")] = None
    staged: Annotated[bool, typer.Option("--staged", help="One loop nest for each stage of the lowering plan.")] = False
    wrt: Annotated[
        str | None, typer.Option(metavar="TENSOR", help="The loop nest of the gradient for X, W1, W2, …")
    ] = None
    at: Annotated[
        str | None, typer.Option(metavar="I,J,…", help="The output element, for receptive-field; : for all of an axis.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write it to this file; of --as figure .pdf, .svg, .png, .tex, .tikz or .pgf, of --as why .html too."
        ),
    ] = None
    of: Annotated[Of | None, typer.Option(help="What --as figure shows (default: graph).")] = None
    width: Annotated[
        str | None, typer.Option(metavar="column|page|INCHES", help="Of --as figure (default: column, 3.33 inches).")
    ] = None
    font: Annotated[str | None, typer.Option(metavar="sans|serif|FAMILY", help="Of --as figure (default: sans).")] = (
        None
    )

    def bound(self, operator: Operator) -> dict[str, int] | None:
        """The sizes, where some are given."""
        return complete_binding(operator, self.bind) if self.bind else None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's costs and sizes; None: for an operator without steps, or without values of its variables."""

    label: str
    shape: str
    steps: int | None = None
    weights: int | None = None
    binding: dict[str, int] | None = None
    flops: int | None = None
    params: int | None = None
    memory_bytes: int | None = None


def command(
    operator: Annotated[
        str,
        typer.Argument(
            help="A known operator's name or an operator file; of --as why a trial: SEARCH#NUMBER.",
            autocompletion=complete_operator,
        ),
    ],
    form: Annotated[
        Form,
        typer.Option(
            "--as",
            help="python or c: its loop nest (loops: as python); latex: as an equation; table: its coordinates; "
            "source: PyTorch; tvm: TIR; file: an operator file; figure: for a paper, by the suffix of --out; "
            "why: why a search chose it.",
        ),
    ] = "summary",
    *,
    asked: Wanted,
    folder: Annotated[Path | None, typer.Option(help="The lab's folder, for --as why (default: .syno-lab).")] = None,
) -> None:
    """Show an operator: its size and cost, loop nest, PyTorch or TVM code, picture, or file."""
    if is_for_json() and asked.out is None and form not in ("summary", "why"):
        raise SynoError(f"expected --out FILE for the {form} when --json - takes standard output")
    if folder is not None and form != "why":
        raise SynoError(f"--folder: expected --as why, found --as {form}")
    out = asked.out
    if form == "why":
        _check(form, asked)
        _why(operator, folder, out)
        return
    label, value = load_operator(operator)
    _check(form, asked)
    facts = _facts(label, value, asked.bind)
    if form == "figure":
        _save_figure(value, asked)
        say(str(out))
        write_json(facts)
        return
    if form in _OF_ALL:
        text = _text(value, form, facts, asked)
    elif form == "receptive-field" and _has_field(value):
        text = _field_by_gradients(value, asked)
    else:
        options = [f"--as {one}" for one in (*_OF_ALL, *(("receptive-field",) if _has_field(value) else ()))]
        text = _pgraph_text(_pgraph_for(f"--as {form}", label, value, options), form, asked)
    if out is not None:
        write_text(out, text + ("" if text.endswith("\n") else "\n"))
        say(str(out))
    else:
        say(text)
    write_json(facts)


def _why(key: str, folder: Path | None, out: Path | None) -> None:
    """Say or write why a search chose a trial."""
    from syno_lab.commands.detach import lab_folder
    from syno_lab.reports.why import read_why, why_page, why_tables, why_text

    found = read_why(lab_folder(folder), key)
    if out is not None:
        write_text(out, why_page(found) if out.suffix == ".html" else why_text(found) + "\n")
        say(str(out))
    else:
        say(why_text(found))
    tables = [{"title": title, "heads": list(heads), "rows": rows} for title, heads, rows in why_tables(found)]
    write_json({"label": found.row.label, "known": found.known, "tables": tables})


def _save_figure(operator: Operator, asked: Wanted) -> None:
    from syno_lab.codegen.figure_operator import figure

    if asked.out is None:
        raise SynoError("expected --out FILE for the figure, such as --out figure.pdf")
    of = asked.of or "graph"
    if of == "graph" and (asked.staged or asked.wrt is not None):
        raise SynoError("--staged and --wrt: expected --of loops or --of equation, found --of graph")
    given = asked.width or "column"
    width: float | str = given
    with suppress(ValueError):  # what is neither a number nor a name is refused below
        width = float(given)
    bound = asked.bound(operator) if of != "graph" else None
    made = figure(operator, of, bound, staged=asked.staged, wrt=asked.wrt)
    made.save(asked.out, width=width, font=asked.font or "sans")


def _check(form: Form, asked: Wanted) -> None:
    forms = {
        "--staged": (asked.staged, _STAGED),
        "--wrt": (asked.wrt is not None, _GRADIENTS),
        "--at": (asked.at is not None, ("receptive-field",)),
        "--of": (asked.of is not None, ("figure",)),
        "--width": (asked.width is not None, ("figure",)),
        "--font": (asked.font is not None, ("figure",)),
        "--bind": (bool(asked.bind), tuple(one for one in get_args(Form) if one != "why")),
    }
    for option, (given, fitting) in forms.items():
        if given and form not in fitting:
            raise SynoError(f"{option}: expected --as {', '.join(fitting)}, found --as {form}")


def _facts(label: str, operator: Operator, bind: list[str] | None) -> Facts:
    from syno_lab.ir.operator import Operator as PGraph

    facts = Facts(label=label, shape=str(operator))
    if isinstance(operator, PGraph):
        facts = msgspec.structs.replace(facts, steps=len(operator.steps), weights=len(operator.weights))
    try:
        bound = complete_binding(operator, bind)
    except SpecError:
        if bind:
            raise
        return facts  # no sizes asked for and no defaults: only what is true for all sizes
    return msgspec.structs.replace(
        facts,
        weights=len(operator.weight_sizes(bound)),
        binding=bound,
        flops=operator.flops(bound),
        params=operator.params(bound),
        memory_bytes=operator.memory(bound),
    )


def _text(operator: Operator, form: Form, facts: Facts, asked: Wanted) -> str:
    """One of the forms that any operator has."""
    match form:
        case "source":
            return operator.to_torch_source(complete_binding(operator, asked.bind))
        case "tvm":
            from syno_lab.processes.light import import_tvm

            import_tvm()  # without torch, which TVM would load
            return str(operator.to_tvm(complete_binding(operator, asked.bind)).script())
        case "dot":
            return operator.dot()
        case "svg":
            return operator.svg()
        case "file":
            return operator.to_json()
    return _summary(facts)


def _pgraph_for(wanted: str, label: str, operator: Operator, others: Iterable[str]) -> PGraph:
    """``operator``, if it is a pGraph: ``wanted``, such as ``--as loops``, needs one; ``others`` suit all operators.

    Raises SynoError for an operator of another system.
    """
    from syno_lab.ir.operator import Operator as PGraph
    from syno_lab.systems import system_of

    if not isinstance(operator, PGraph):
        system = system_of(operator).title
        raise SynoError(
            f"{wanted}: expected a pGraph, found {label}, an operator of {system}; other forms: {', '.join(others)}"
        )
    return operator


def _pgraph_text(operator: PGraph, form: Form, asked: Wanted) -> str:
    """One of the forms that only pGraphs have."""
    match form:
        case "loops" | "python" | "c":
            from syno_lab.codegen.loops import loops

            language: Literal["python", "c"] = "c" if form == "c" else "python"
            return loops(operator, asked.bound(operator), language=language, staged=asked.staged, wrt=asked.wrt)
        case "latex":
            from syno_lab.codegen.equation import equation

            return equation(operator, asked.bound(operator), staged=asked.staged, wrt=asked.wrt).latex
        case "table":
            from syno_lab.codegen.coordinates import coordinates

            return str(coordinates(operator, asked.bound(operator), wrt=asked.wrt))
        case "receptive-field":
            return _receptive_field(operator, asked)
    from syno_lab.codegen.mixing import mixing

    return str(mixing(operator, asked.bound(operator)))


def _receptive_field(operator: PGraph, asked: Wanted) -> str:
    from syno_lab.codegen.nest import generic_binding
    from syno_lab.codegen.receptive_field import receptive_field
    from syno_lab.common.reach import CENTER

    if asked.bind or operator.spec.bindings:
        bound = complete_binding(operator, asked.bind)
    else:
        bound = generic_binding(operator)
    index = CENTER if asked.at is None else _index(asked.at)
    return f"with {_sizes(bound)}:\n{receptive_field(operator, index, bound)}"


def _has_field(operator: Operator) -> bool:
    """Whether an operator that is no pGraph can say what it reads: its system has that pane."""
    from syno_lab.ir.operator import FORMAT
    from syno_lab.panes import panes_of

    return operator.format != FORMAT and _REACH in panes_of(operator)


def _field_by_gradients(operator: Operator, asked: Wanted) -> str:
    from syno_lab.common.reach import CENTER
    from syno_lab.panes import Asked, read_pane

    # Without sizes the view's own, as there: an operator need not have any.
    bound = asked.bound(operator)
    binding = None if bound is None else tuple(bound.items())
    data = read_pane(Asked(operator, binding=binding, element=asked.at or CENTER), _REACH)
    return f"with {_sizes(data['binding'])}:\n{data['text']}"


def _index(text: str) -> tuple[int | None, ...]:
    entries = [entry.strip() for entry in text.split(",")]
    index = tuple(None if entry == ":" else integer(entry) for entry in entries)
    if any(entry != ":" and number is None for entry, number in zip(entries, index, strict=True)):
        raise SpecError(f"--at: expected numbers or : with commas between them, such as 0,0,3,:, found {quoted(text)}")
    return index


def _summary(facts: Facts) -> str:
    lines = [f"{facts.label}: {facts.shape}"]
    if facts.binding is not None:
        lines.append(f"with {_sizes(facts.binding)}:")
        lines.append(f"  {facts.flops:,} FLOPs, {facts.params:,} parameters, {facts.memory_bytes:,} bytes in float32")
    return "\n".join(lines)


def _sizes(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in binding.items())

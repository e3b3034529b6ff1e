"""``syno-lab show``: print or write one operator in any of its forms."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
import typer

from syno_lab.commands.detach import FolderOption
from syno_lab.commands.operands import OPERATOR, complete_binding, complete_operator, load_operator, sized
from syno_lab.commands.output import is_for_json, say, write_json, write_text
from syno_lab.errors import SpecError, SynoError

if TYPE_CHECKING:
    from syno_lab.protocol import Operator


#: The forms that ``show`` can print.
Form = Literal[
    "summary", "loops", "python", "c", "latex", "table", "receptive-field", "mixing", "source", "tvm", "dot", "svg",
    "file", "figure", "why",
]  # fmt: skip


#: The parts of an operator that a figure can show.
Of = Literal["graph", "loops", "equation"]


_STAGED = ("loops", "python", "c", "latex", "figure")
_GRADIENTS = (*_STAGED, "table")
_REACH = "reach"
#: The forms that are of sizes, not of symbols: of a trial, those of its first layer.
_SIZED = ("source", "tvm", "receptive-field")
#: The forms of operators of all systems. A system with the pane of the receptive field has this form too; only pGraphs
#: have the other forms.
_OF_ALL = ("summary", "source", "tvm", "dot", "svg", "file", "figure")


@dataclass(frozen=True)
class Wanted:
    """The options of a form: sizes, stages, a gradient, an output element; for a figure, its subject and look."""

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
        """Return the sizes that the user has set, or None."""
        return complete_binding(operator, self.bind) if self.bind else None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's costs, and its sizes (of a trial those of ``layer``); None without steps, or sizes of variables."""

    label: str
    shape: str
    steps: int | None = None
    weights: int | None = None
    binding: dict[str, int] | None = None
    layer: str | None = None
    flops: int | None = None
    params: int | None = None
    memory_bytes: int | None = None


def command(
    operator: Annotated[
        str, typer.Argument(help=f"{OPERATOR}; of --as why a trial.", autocompletion=complete_operator)
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
    wanted: Wanted,
    folder: FolderOption = None,
) -> None:
    """Show an operator: its size and cost, loop nest, PyTorch or TVM code, picture, or file."""
    if is_for_json() and wanted.out is None and form not in ("summary", "why"):
        raise SynoError(f"expected --out FILE for the {form} because --json - uses standard output")
    out = wanted.out
    if form == "why":
        _check(form, wanted)
        _why(operator, folder, out)
        return
    found = load_operator(operator, folder)
    label, value, places = found
    _check(form, wanted)
    if form in _SIZED:  # the other forms have symbols
        wanted = replace(wanted, bind=sized(found, wanted.bind) or None)
    facts = _facts(label, value, sized(found, wanted.bind), places[0][0] if places else None)
    if form == "figure":
        _save_figure(value, wanted)
        say(str(out))
        write_json(facts)
        return
    if form in _OF_ALL:
        text = _text(value, form, facts, wanted)
    elif form == "receptive-field" and _has_field(value):
        text = _field(value, wanted)
    else:
        text = _pgraph_text(label, value, form, wanted)
    if out is not None:
        write_text(out, text + ("" if text.endswith("\n") else "\n"))
        say(str(out))
    else:
        say(text)
    write_json(facts)


def _why(key: str, folder: Path | None, out: Path | None) -> None:
    """Print or write the data that explain why a search chose a trial."""
    from syno_lab.commands.detach import lab_folder
    from syno_lab.reports.why import read_why, why_page, why_tables, why_text

    explanation = read_why(lab_folder(folder), key)
    if out is not None:
        write_text(out, why_page(explanation) if out.suffix == ".html" else why_text(explanation) + "\n")
        say(str(out))
    else:
        say(why_text(explanation))
    tables = [{"title": title, "heads": list(heads), "rows": rows} for title, heads, rows in why_tables(explanation)]
    write_json({"label": explanation.row.label, "known": explanation.known, "tables": tables})


def _save_figure(operator: Operator, wanted: Wanted) -> None:
    from syno_lab.codegen.figure_operator import figure

    if wanted.out is None:
        raise SynoError("expected --out FILE for the figure, such as --out figure.pdf")
    of = wanted.of or "graph"
    if of == "graph" and (wanted.staged or wanted.wrt is not None):
        raise SynoError("--staged and --wrt: expected --of loops or --of equation, found --of graph")
    width_text = wanted.width or "column"
    width: float | str = width_text
    with suppress(ValueError):  # save() refuses a value that is neither a number nor a name
        width = float(width_text)
    bound = wanted.bound(operator) if of != "graph" else None
    drawing = figure(operator, of, bound, staged=wanted.staged, wrt=wanted.wrt)
    drawing.save(wanted.out, width=width, font=wanted.font or "sans")


def _check(form: Form, wanted: Wanted) -> None:
    forms = {
        "--staged": (wanted.staged, _STAGED),
        "--wrt": (wanted.wrt is not None, _GRADIENTS),
        "--at": (wanted.at is not None, ("receptive-field",)),
        "--of": (wanted.of is not None, ("figure",)),
        "--width": (wanted.width is not None, ("figure",)),
        "--font": (wanted.font is not None, ("figure",)),
        "--bind": (bool(wanted.bind), tuple(form_name for form_name in get_args(Form) if form_name != "why")),
    }
    for option, (is_set, fitting) in forms.items():
        if is_set and form not in fitting:
            raise SynoError(f"{option}: expected --as {', '.join(fitting)}, found --as {form}")


def _facts(label: str, operator: Operator, bind: list[str], layer: str | None) -> Facts:
    from syno_lab.ir.operator import Operator as PGraph

    facts = Facts(label=label, shape=str(operator), layer=layer)
    if isinstance(operator, PGraph):
        facts = msgspec.structs.replace(facts, steps=len(operator.steps), weights=len(operator.weights))
    try:
        bound = complete_binding(operator, bind)
    except SpecError:
        if bind:
            raise
        return facts  # without sizes and defaults, return only facts that hold for all sizes
    return msgspec.structs.replace(
        facts,
        weights=len(operator.weight_sizes(bound)),
        binding=bound,
        flops=operator.flops(bound),
        params=operator.params(bound),
        memory_bytes=operator.memory(bound),
    )


def _text(operator: Operator, form: Form, facts: Facts, wanted: Wanted) -> str:
    """Return one of the forms that operators of all systems have."""
    match form:
        case "source":
            return operator.to_torch_source(complete_binding(operator, wanted.bind))
        case "tvm":
            from syno_lab.processes.light import import_tvm

            import_tvm()  # TVM without torch, which TVM would import
            return str(operator.to_tvm(complete_binding(operator, wanted.bind)).script())
        case "dot":
            return operator.dot()
        case "svg":
            return operator.svg()
        case "file":
            return operator.to_json()
    return _summary(facts)


def _pgraph_text(label: str, operator: Operator, form: Form, wanted: Wanted) -> str:
    """Return one of the forms that only pGraphs have. Raises SynoError for an operator of another system."""
    from syno_lab.ir.operator import Operator as PGraph
    from syno_lab.systems import system_of

    if not isinstance(operator, PGraph):
        forms = (*_OF_ALL, "receptive-field") if _has_field(operator) else _OF_ALL
        raise SynoError(
            f"--as {form}: expected a pGraph, found {label}, an operator of {system_of(operator).title}; other forms: "
            f"{', '.join(f'--as {name}' for name in forms)}"
        )
    match form:
        case "loops" | "python" | "c":
            from syno_lab.codegen.loops import loops

            language: Literal["python", "c"] = "c" if form == "c" else "python"
            return loops(operator, wanted.bound(operator), language=language, staged=wanted.staged, wrt=wanted.wrt)
        case "latex":
            from syno_lab.codegen.equation import equation

            return equation(operator, wanted.bound(operator), staged=wanted.staged, wrt=wanted.wrt).latex
        case "table":
            from syno_lab.codegen.coordinates import coordinates

            return str(coordinates(operator, wanted.bound(operator), wrt=wanted.wrt))
    from syno_lab.codegen.mixing import mixing

    return str(mixing(operator, wanted.bound(operator)))


def _has_field(operator: Operator) -> bool:
    from syno_lab.panes import panes_of

    return _REACH in panes_of(operator)


def _field(operator: Operator, wanted: Wanted) -> str:
    from syno_lab.panes import CENTER, Asked, read_pane

    # Without --bind use the example sizes of the view, because an operator may have no default sizes.
    bound = wanted.bound(operator)
    binding = None if bound is None else tuple(bound.items())
    data = read_pane(Asked(operator, binding=binding, element=wanted.at or CENTER), _REACH)
    return f"with {_sizes(data['binding'])}:\n{data['text']}"


def _summary(facts: Facts) -> str:
    lines = [f"{facts.label}: {facts.shape}"]
    if facts.binding is not None:
        layer = "" if facts.layer is None else f", the sizes of {facts.layer}"
        lines.append(f"with {_sizes(facts.binding)}{layer}:")
        lines.append(f"  {facts.flops:,} FLOPs, {facts.params:,} parameters, {facts.memory_bytes:,} bytes in float32")
    return "\n".join(lines)


def _sizes(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in binding.items())

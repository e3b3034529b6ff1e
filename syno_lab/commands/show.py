"""``syno-lab show``: print or write one operator in any of its forms."""

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


#: The parts of an operator that a figure can show.
Of = Literal["graph", "loops", "equation"]


_STAGED = ("loops", "python", "c", "latex", "figure")
_GRADIENTS = (*_STAGED, "table")
_REACH = "reach"
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
    """An operator's costs and sizes; None for an operator without steps, or without sizes of its variables."""

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
    wanted: Wanted,
    folder: Annotated[Path | None, typer.Option(help="The lab's folder, for --as why (default: .syno-lab).")] = None,
) -> None:
    """Show an operator: its size and cost, loop nest, PyTorch or TVM code, picture, or file."""
    if is_for_json() and wanted.out is None and form not in ("summary", "why"):
        raise SynoError(f"expected --out FILE for the {form} because --json - uses standard output")
    if folder is not None and form != "why":
        raise SynoError(f"--folder: expected --as why, found --as {form}")
    out = wanted.out
    if form == "why":
        _check(form, wanted)
        _why(operator, folder, out)
        return
    label, value = load_operator(operator)
    _check(form, wanted)
    facts = _facts(label, value, wanted.bind)
    if form == "figure":
        _save_figure(value, wanted)
        say(str(out))
        write_json(facts)
        return
    if form in _OF_ALL:
        text = _text(value, form, facts, wanted)
    elif form == "receptive-field" and _has_field(value):
        text = _field_by_gradients(value, wanted)
    else:
        options = [f"--as {name}" for name in (*_OF_ALL, *(("receptive-field",) if _has_field(value) else ()))]
        text = _pgraph_text(_pgraph_for(f"--as {form}", label, value, options), form, wanted)
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


def _pgraph_for(wanted: str, label: str, operator: Operator, others: Iterable[str]) -> PGraph:
    """Check that ``operator`` is a pGraph, as ``wanted`` (such as ``--as loops``) requires, and return it.

    Raises SynoError for an operator of another system; ``others`` are the forms that such an operator has.
    """
    from syno_lab.ir.operator import Operator as PGraph
    from syno_lab.systems import system_of

    if not isinstance(operator, PGraph):
        system = system_of(operator).title
        raise SynoError(
            f"{wanted}: expected a pGraph, found {label}, an operator of {system}; other forms: {', '.join(others)}"
        )
    return operator


def _pgraph_text(operator: PGraph, form: Form, wanted: Wanted) -> str:
    """Return one of the forms that only pGraphs have."""
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
        case "receptive-field":
            return _receptive_field(operator, wanted)
    from syno_lab.codegen.mixing import mixing

    return str(mixing(operator, wanted.bound(operator)))


def _receptive_field(operator: PGraph, wanted: Wanted) -> str:
    from syno_lab.codegen.nest import layer_binding
    from syno_lab.codegen.receptive_field import receptive_field
    from syno_lab.common.reach import CENTER

    if wanted.bind or operator.spec.bindings:
        bound = complete_binding(operator, wanted.bind)
    else:
        bound = layer_binding(operator)
    index = CENTER if wanted.at is None else _index(wanted.at)
    return f"with {_sizes(bound)}:\n{receptive_field(operator, index, bound)}"


def _has_field(operator: Operator) -> bool:
    """Return whether the system of an operator that is no pGraph has the pane of the receptive field."""
    from syno_lab.ir.operator import FORMAT
    from syno_lab.panes import panes_of

    return operator.format != FORMAT and _REACH in panes_of(operator)


def _field_by_gradients(operator: Operator, wanted: Wanted) -> str:
    from syno_lab.common.reach import CENTER
    from syno_lab.panes import Asked, read_pane

    # Without --bind use the example sizes of the view, because an operator may have no default sizes.
    bound = wanted.bound(operator)
    binding = None if bound is None else tuple(bound.items())
    data = read_pane(Asked(operator, binding=binding, element=wanted.at or CENTER), _REACH)
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

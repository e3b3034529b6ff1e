"""``syno-lab show``: one operator in any of its forms."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from syno_lab.commands.operands import complete_binding, load_operator
from syno_lab.commands.output import JsonTarget, check_json, say, write_json, write_text
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.operator import Operator


class Form(StrEnum):
    """What ``show`` can print."""

    SUMMARY = "summary"
    LOOPS = "loops"
    SOURCE = "source"
    TVM = "tvm"
    DOT = "dot"
    SVG = "svg"
    FILE = "file"


def command(
    operator: Annotated[str, typer.Argument(help="A known operator's name or an operator file.")],
    form: Annotated[
        Form,
        typer.Option("--as", help="loops: what it computes; source: PyTorch; tvm: TIR; file: an operator file."),
    ] = Form.SUMMARY,
    bind: Annotated[list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A size; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write it to this file.")] = None,
    json: JsonTarget = None,
) -> None:
    """Show an operator: its size and cost, loop nest, PyTorch or TVM code, picture, or file."""
    check_json(json)
    if json == "-" and out is None and form is not Form.SUMMARY:
        raise SynoError(f"expected --out FILE for the {form} when --json - takes standard output")
    label, value = load_operator(operator)
    facts = _facts(label, value, bind or [])
    text = _text(value, form, facts, bind or [])
    if out is not None:
        write_text(out, text + ("" if text.endswith("\n") else "\n"))
        say(str(out), json)
    else:
        say(text, json)
    write_json(facts, json)


def _facts(label: str, operator: Operator, bind: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "label": label,
        "shape": str(operator),
        "steps": len(operator.steps),
        "weights": len(operator.weights),
        "binding": None,
        "flops": None,
        "params": None,
        "memory_bytes": None,
    }
    try:
        bound = complete_binding(operator, bind)
    except SpecError:
        if bind:
            raise
        return facts  # no sizes asked for and no defaults: only what is true for all sizes
    return facts | {
        "binding": bound,
        "flops": operator.flops(bound),
        "params": operator.params(bound),
        "memory_bytes": operator.memory(bound),
    }


def _text(operator: Operator, form: Form, facts: dict[str, Any], bind: list[str]) -> str:
    match form:
        case Form.LOOPS:
            from syno_lab.codegen.loops import loops

            return loops(operator)
        case Form.SOURCE:
            from syno_lab.codegen.torch_module import to_torch_source

            return to_torch_source(operator, complete_binding(operator, bind))
        case Form.TVM:
            return _tvm_script(operator, complete_binding(operator, bind))
        case Form.DOT:
            from syno_lab.codegen.drawing import dot

            return dot(operator)
        case Form.SVG:
            from syno_lab.codegen.drawing import svg

            return svg(operator)
        case Form.FILE:
            return operator.to_json()
        case Form.SUMMARY:
            return _summary(facts)


def _tvm_script(operator: Operator, bound: dict[str, int]) -> str:
    from syno_lab.evaluate.tuning.light import import_tvm

    import_tvm()  # without torch, which TVM would load
    from syno_lab.codegen.tvm_target import to_tvm

    return str(to_tvm(operator, bound).script())


def _summary(facts: dict[str, Any]) -> str:
    lines = [f"{facts['label']}: {facts['shape']}"]
    if facts["binding"] is not None:
        sizes = ", ".join(f"{name}={number}" for name, number in facts["binding"].items())
        lines.append(f"with {sizes}:")
        lines.append(
            f"  {facts['flops']:,} FLOPs, {facts['params']:,} parameters, {facts['memory_bytes']:,} bytes in float32"
        )
    return "\n".join(lines)

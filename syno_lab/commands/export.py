"""``syno-lab export``: an operator as a file that other programs read."""

from __future__ import annotations

import platform
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from syno_lab.commands.operands import complete_binding, load_operator
from syno_lab.commands.output import JsonTarget, check_json, say, write_json
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator


class Target(StrEnum):
    """What ``export`` can write."""

    ONNX = "onnx"
    TORCH_EXPORT = "torch-export"
    PYTHON = "python"
    WEIGHTS = "weights"
    LIBRARY = "library"


def command(
    operator: Annotated[str, typer.Argument(help="A known operator's name or an operator file.")],
    out: Annotated[
        Path, typer.Option(help="The file: *.onnx, *.pt2, *.py, *.safetensors, or *.so or *.tar, a library.")
    ],
    form: Annotated[
        Target | None, typer.Option("--as", help="The format; without it the suffix of --out says it.")
    ] = None,
    bind: Annotated[
        list[str] | None, typer.Option("--bind", "--binding", metavar="NAME=NUMBER", help="A size; may be repeated.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="The operator's weights, as `--as weights` wrote them; else fresh ones.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of fresh weights.")] = 0,
    scale: Annotated[float, typer.Option(help="A constant factor outside the operator.")] = 1.0,
    target: Annotated[
        str | None, typer.Option(help="What a library is compiled for: local, or as TVM names it.")
    ] = None,
    json: JsonTarget = None,
) -> None:
    """Write an operator as ONNX, torch.export, Python, weights or a compiled library; read back and compared."""
    check_json(json)
    if out.is_dir():
        raise SynoError(f"--out: expected a file, found the folder {out}")
    label, value = load_operator(operator)
    bound = complete_binding(value, bind or [])
    from syno_lab.codegen.library import SUFFIXES

    if form is Target.LIBRARY or (form is None and out.suffix in SUFFIXES):
        for option, is_given in {"--weights": weights is not None, "--scale": scale != 1.0}.items():
            if is_given:
                raise SynoError(f"{option}: expected another format, found --as library, whose weights are arguments")
        facts = _library(value, out, bound, target)
    else:
        if target is not None:
            raise SynoError("--target: expected --as library; the other formats run on any machine")
        facts = _export(value, out, bound, form, weights, seed, scale)
    say(_line(facts), json)
    write_json({"label": label, "binding": bound} | facts, json)


def _export(
    operator: Operator,
    out: Path,
    bound: dict[str, int],
    form: Target | None,
    weights: Path | None,
    seed: int,
    scale: float,
) -> dict[str, Any]:
    import torch

    from syno_lab.codegen.export import Format, export, format_of, load_weights
    from syno_lab.codegen.torch_module import to_torch

    kind = format_of(out, None if form is None else form.value)
    if weights is not None and kind is Format.PYTHON:
        raise SynoError(f"--weights: expected a format that holds weights, found --as {kind}")
    if weights is None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            module = to_torch(operator, bound, scale=scale)
    else:
        module = load_weights(operator, weights, bound, scale=scale)
    done = export(operator, out, bound, format=kind, module=module, scale=scale)
    return {
        "path": str(done.path),
        "format": str(done.format),
        "bytes": done.bytes,
        "batch_axes": list(done.batch_axes),
        "compared_with": done.compared_with,
        "difference": done.difference,
        "largest": done.largest,
    }


def _library(operator: Operator, out: Path, bound: dict[str, int], target: str | None) -> dict[str, Any]:
    from syno_lab.codegen.export_check import LOOP_NEST, runs_as_loops
    from syno_lab.codegen.library import check_library, save_library

    out.parent.mkdir(parents=True, exist_ok=True)
    record = save_library(operator, out, bound, target=target or "local")
    facts: dict[str, Any] = {"path": str(out), "format": str(Target.LIBRARY), "bytes": out.stat().st_size}
    facts |= {"target": record.kind, "machine": record.machine}
    # What is for another machine can only be compared there.
    if record.kind == "llvm" and record.machine == platform.machine() and runs_as_loops(operator, bound):
        facts |= {"compared_with": LOOP_NEST, "relative_difference": check_library(out)}
    return facts


def _line(facts: dict[str, Any]) -> str:
    line = f"{facts['path']}: {facts['format']}, {facts['bytes']:,} bytes"
    if facts.get("batch_axes"):
        axes = ", ".join(map(str, facts["batch_axes"]))
        line += f", any size of input axis {axes}"
    if "target" in facts:
        line += f", for {facts['target']} on {facts['machine']}"
    if "compared_with" not in facts:
        return f"{line}; not run here"
    if facts["compared_with"] == "itself":
        return f"{line}; read back and the same"
    if "relative_difference" in facts:
        return f"{line}; read back, it differs from the loop nest by {facts['relative_difference']:.2g} of the output"
    return (
        f"{line}; read back, it differs from the {facts['compared_with']} by {facts['difference']:.2g} "
        f"where the output is up to {facts['largest']:.2g}"
    )

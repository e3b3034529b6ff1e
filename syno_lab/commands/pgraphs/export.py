"""``syno-lab export``: write an operator as a file for other programs."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from syno_lab import private
from syno_lab.commands.detach import FolderOption
from syno_lab.commands.operands import OPERATOR, complete_binding, complete_operator, load_operator, sized
from syno_lab.commands.output import say, write_json, write_text
from syno_lab.errors import SynoError
from syno_lab.protocol import Operator
from syno_lab.scratch import folder_of
from syno_lab.systems import read_operator
from syno_lab.versioned import JSON

#: The formats that ``export`` can write.
Target = Literal["onnx", "torch-export", "python", "weights", "library", "json"]


#: The reason why a format has no weights, by format.
_WITHOUT_WEIGHTS = {"library": "whose weights are arguments", "json": "which holds no weights"}


def command(
    operator: Annotated[str, typer.Argument(help=f"{OPERATOR}.", autocompletion=complete_operator)],
    out: Annotated[
        Path, typer.Option(help="The file: *.onnx, *.pt2, *.py, *.safetensors, *.json, or *.so or *.tar, a library.")
    ],
    form: Annotated[Target | None, typer.Option("--as", help="The format. [default: by the suffix of --out]")] = None,
    bind: Annotated[
        list[str] | None, typer.Option("--bind", "--binding", metavar="NAME=NUMBER", help="A size; may be repeated.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A file of weights, written by `--as weights`. [default: random weights]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of random weights.")] = 0,
    scale: Annotated[float, typer.Option(help="A constant factor by which the output is multiplied.")] = 1.0,
    target: Annotated[str | None, typer.Option(help="The target of a library: local, or a TVM target.")] = None,
    folder: FolderOption = None,
) -> None:
    """Write an operator as ONNX, torch.export, Python, weights, a compiled library or an operator file.

    Each file is read back and compared. Every format supports all systems, but a whole network has no library.
    """
    if out.is_dir():
        raise SynoError(f"--out: expected a file, found the folder {out}")
    found = load_operator(operator, folder)
    label, value, _ = found
    from syno_lab.codegen.library import SUFFIXES

    kind = form or {".json": "json", **dict.fromkeys(SUFFIXES, "library")}.get(out.suffix)
    if kind in _WITHOUT_WEIGHTS:
        for option, is_given in {"--weights": weights is not None, "--scale": scale != 1.0}.items():
            if is_given:
                raise SynoError(f"{option}: expected another format, found --as {kind}, {_WITHOUT_WEIGHTS[kind]}")
    if target is not None and kind != "library":
        raise SynoError("--target: expected --as library; the other formats run on any machine")
    bound = complete_binding(value, sized(found, bind)) if bind or kind != "json" else None
    if kind == "library":
        facts = _library(value, out, bound or {}, target)
    elif kind == "json":
        facts = _file(value, out)
    else:
        facts = _export(value, out, bound or {}, form, weights, seed, scale)
    say(_line(facts))
    write_json({"label": label, "binding": bound} | facts)


@private.usual()
def _export(
    operator: Operator,
    out: Path,
    bound: dict[str, int],
    form: Target | None,
    weights: Path | None,
    seed: int,
    scale: float,
) -> dict[str, JSON]:
    import torch

    from syno_lab.codegen.export import Format, export, format_of, load_weights
    from syno_lab.codegen.export_check import torch_module

    kind = format_of(out, form)
    if weights is not None and kind is Format.PYTHON:
        raise SynoError(f"--weights: expected a format that holds weights, found --as {kind}")
    if weights is None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            module = torch_module(operator, bound, scale)
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


def _file(operator: Operator, out: Path) -> dict[str, JSON]:
    write_text(out, operator.to_json() + "\n")
    if read_operator(out.read_bytes()) != operator:
        raise SynoError(f"{out}: read back, expected the operator that was written, found another")
    return {"path": str(out), "format": "json", "bytes": out.stat().st_size, "compared_with": "itself"}


@private.usual()
def _library(operator: Operator, out: Path, bound: dict[str, int], target: str | None) -> dict[str, JSON]:
    from syno_lab.codegen.export_check import meaning_of, runs_reference
    from syno_lab.codegen.library import check_library, save_library

    with folder_of(out):
        record = save_library(operator, out, bound, target=target or "local")
    facts: dict[str, Any] = {"path": str(out), "format": "library", "bytes": out.stat().st_size}
    facts |= {"target": record.kind, "machine": record.machine}
    # A library for another machine can be compared only on that machine.
    if record.kind == "llvm" and record.machine == platform.machine() and runs_reference(operator, bound):
        facts |= {"compared_with": meaning_of(operator), "relative_difference": check_library(out)}
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
    differs = f"read back, it differs from the {facts['compared_with']} by"
    if "relative_difference" in facts:
        return f"{line}; {differs} {facts['relative_difference']:.2g} of the output"
    return f"{line}; {differs} {facts['difference']:.2g} where the output is up to {facts['largest']:.2g}"

"""Print a TensorIR function as a short loop nest, and a trace as steps. Imports TVM: for child processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from tvm.ir import Array, Expr
from tvm.runtime import Object
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.schedule import Instruction
from tvm.tirx import ForKind, PrimFunc, Stmt, Var

_INDENT = "  "
_KINDS = {
    ForKind.PARALLEL: "in parallel",
    ForKind.VECTORIZED: "vectorized",
    ForKind.UNROLLED: "unrolled",
    ForKind.THREAD_BINDING: "threads",
}
_PRAGMAS = {
    "pragma_auto_unroll_max_step": "unrolled up to {} steps",
    "software_pipeline_stage": "pipelined, its statements in stages {}",
}


def nest(function: PrimFunc) -> str:
    """Return the loops and statements of ``function`` as text in each block's own indices, without loops of one step.

    The name of a loop shows the block's index to which it belongs: ``i1_0`` and ``i1_3`` are tiles of ``i1``.
    """
    lines: list[str] = []
    _write(function.body, 0, [], lines)
    return "\n".join(lines)


def _write(part: Stmt, depth: int, loops: list[str], lines: list[str]) -> None:
    """Write a statement; ``loops`` are the loops around it that are not written yet, which may share a line."""
    kind = type(part).__name__
    if kind == "For":
        extent = getattr(part.extent, "value", part.extent)
        how = [_KINDS[part.kind]] if part.kind in _KINDS else []
        how += [text.format(_value(part.annotations[key])) for key, text in _PRAGMAS.items() if key in part.annotations]
        if extent != 1 or how:
            loops = [*loops, f"{loop_name(part.loop_var)} < {extent}{''.join(f', {note}' for note in how)}"]
        _write(part.body, depth, loops, lines)
    elif kind == "SBlockRealize" and part.block.name_hint == "root":
        _write(part.block.body, depth, loops, lines)
    else:
        if loops:
            # Serial loops share a line; a loop with an annotation has its own line.
            for is_serial, group in groupby(loops, key=lambda loop: "," not in loop):
                for header in ["; ".join(group)] if is_serial else group:
                    lines.append(f"{_INDENT * depth}for {header}:")
                    depth += 1
        _write_body(part, kind, depth, lines)


def _value(annotation: int | Sequence[int]) -> str:
    """Return an annotation's numbers, separated by spaces, because commas separate the notes of a loop."""
    return " ".join(map(str, annotation)) if isinstance(annotation, Sequence) else str(int(annotation))


def _write_body(part: Stmt, kind: str, depth: int, lines: list[str]) -> None:
    margin = _INDENT * depth
    if kind == "SeqStmt":
        for statement in part.seq:
            _write(statement, depth, [], lines)
    elif kind == "SBlockRealize":
        block = part.block
        if str(part.predicate) not in ("T.bool(True)", "True"):
            lines.append(f"{margin}if {readable(part.predicate)}:")
            depth += 1
        if block.init is not None:
            _write(block.init, depth, [], lines)
            lines[-1] += "   # before the first"
        _write(block.body, depth, [], lines)
    elif kind == "BufferStore":
        target = f"{part.buffer.name}[{', '.join(readable(index) for index in part.indices)}]"
        value = readable(part.value)
        sums = value.startswith(f"{target} + ")
        lines.append(f"{margin}{target} {'+=' if sums else '='} {value.removeprefix(f'{target} + ')}")
    else:  # rare statements: assertions, conditions, lets
        lines += [margin + line for line in readable(part).splitlines()]


def readable(expression: Expr | Stmt) -> str:
    """Return an expression without the marks that only TVMScript's parser needs."""
    text = re.sub(r"T\.(?:float|int)\d+\(([^()]*)\)", r"\1", str(expression))
    return re.sub(r"\bT\.", "", re.sub(r"\bv_(?=\w)", "", text))


def loop_name(variable: Var) -> str:
    """Return a loop's name; the name of a fused loop is shortened to its first and its last part."""
    name = str(variable.name)
    if "fused" not in name:
        return name
    parts = re.sub(r"(?:_fused)+", "", name)
    names = re.findall(r"[A-Za-z]+\d*(?:_\d+)?", parts)
    return name if len(names) < 2 else f"{names[0]}…{names[-1]}"


_POSTPROCESSING = "then TVM's postprocessing:"
_PLACES = {-1: "where it is", -2: "inline"}

#: A function that returns the text of a step from the names of its inputs, its attributes and its decision.
_Words = Callable[[list[str], Sequence[Any], Any], str]

_WORDS: dict[str, _Words] = {
    "Split": lambda names, _, __: f"split {names[0]} into {' × '.join(names[1:])}",
    "Fuse": lambda names, _, __: f"fuse {', '.join(_longer(names))}",
    "Reorder": lambda names, _, __: f"order loops: {', '.join(_longer(names))}",
    "TransformLayout": lambda names, _, __: f"lay a tensor of {names[0]} out as {_map(names[1])}",
    "Parallel": lambda names, _, __: f"run {names[0]} in parallel",
    "Vectorize": lambda names, _, __: f"vectorize {names[0]}",
    "Unroll": lambda names, _, __: f"unroll {names[0]}",
    "Bind": lambda names, attributes, _: f"bind {names[0]} to {attributes[0] if attributes else names[-1]}",
    "ComputeAt": lambda names, _, __: f"compute {names[0]} inside {names[1]}",
    "ReverseComputeAt": lambda names, _, __: f"write {names[0]} back inside {names[1]}",
    "ComputeInline": lambda names, _, __: f"inline {names[0]} where it is read",
    "ReverseComputeInline": lambda names, _, __: f"inline {names[0]} into what it reads",
    "CacheRead": lambda names, attributes, _: f"copy input {attributes[0]} of {names[0]} to {attributes[1]} memory",
    "CacheWrite": lambda names, attributes, _: f"collect the output of {names[0]} in {attributes[1]} memory first",
    "DecomposeReduction": lambda names, _, __: f"set {names[0]} to zero ahead of {names[1]}",
    "RFactor": lambda names, attributes, _: f"partial sums over {names[0]}, in axis {attributes[0]}",
    "Annotate": lambda names, attributes, _: f"mark {names[0]}: {_mark(attributes[0])} = {names[1]}",
    "SampleCategorical": lambda _, attributes, decision: (
        f"draw {attributes[0][int(decision)]} of {', '.join(map(str, attributes[0]))}"
    ),
    "SampleComputeLocation": lambda names, _, decision: (
        f"draw where to compute {names[0]}: {_PLACES.get(int(decision), f'loop {int(decision)}')}"
    ),
    "EnterPostproc": lambda _, __, ___: _POSTPROCESSING,
}
#: Steps without a text: steps that change no loop, and draws of tile sizes, which the text of the split shows.
_SILENT = {"GetSBlock", "GetLoops", "GetChildBlocks", "GetConsumers", "GetProducers", "GetOutputBlocks", "Unannotate"}
_SILENT |= {"SamplePerfectTile"}
_ONE = " (1)"  # loops of one step


def _longer(names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(_ONE)] or names[:1]


def _map(text: str) -> str:
    match = re.search(r"lambda (.*?): (\(.*\))\)", text)
    return f"{match[2]} instead of ({match[1]})" if match else text


def _mark(key: str) -> str:
    return key.removeprefix("meta_schedule.").removeprefix("pragma_")


def replay(schedule: Schedule, trace: Trace) -> tuple[list[str], int]:
    """Apply ``trace`` to ``schedule``; return the steps of the trace as text, and the number of random choices."""
    steps: list[str] = []
    draws = 0

    def describe(instruction: Instruction, inputs: Array, attributes: Array, decision: Object) -> Object:
        nonlocal draws
        kind = str(instruction.kind.name)
        draws += kind.startswith("Sample")
        names = [] if kind in _SILENT else [_name(schedule, item) for item in inputs]
        if names or (kind.startswith(("Sample", "Enter")) and kind not in _SILENT):
            if kind == "Split" and names[0].endswith(_ONE):
                return decision
            plain = list(attributes)
            try:
                drawn = ", drawn" if kind == "Split" and any(type(item).__name__ == "Var" for item in inputs) else ""
                steps.append(_WORDS[kind](names, plain, decision) + drawn)
            except (KeyError, IndexError, TypeError):  # `_WORDS` lacks some rare steps of users' rules
                steps.append(f"{kind}({', '.join([*names, *map(str, plain)])})")
        return decision

    trace.apply_to_schedule(schedule, remove_postproc=False, decision_provider=describe)
    if steps and steps[-1] == _POSTPROCESSING:  # postprocessing without steps is not shown
        steps.pop()
    return steps, draws


def _name(schedule: Schedule, item: Object) -> str:
    """Return the name of a step's input, before the step is applied."""
    kind = type(item).__name__
    try:
        value = schedule.get(item) if kind in ("SBlockRV", "LoopRV", "Var") else item
    except Exception:  # noqa: BLE001 - TVM raises many types: the location is no loop
        return "the top"
    if item is None:
        return "the rest"
    if kind == "LoopRV" and not hasattr(value, "loop_var"):
        return "the top"
    if kind == "SBlockRV":
        return str(value.name_hint)
    if kind == "LoopRV":
        return f"{loop_name(value.loop_var)} ({value.extent})"
    return str(getattr(value, "value", value))

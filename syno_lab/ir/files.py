"""Operators as JSON: a list of steps. Reading replays the steps with the same checks as for a step that a user takes.

Coordinates are numbered in the order of their creation: first the output axes, then the results of each step. A file
holds only data. Reading a file runs only :meth:`State.apply`, which refuses every step that Table 1 does not allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from syno_lab.common.size import Symbols, shape_text
from syno_lab.errors import FormatError, SynoError
from syno_lab.inputs import quoted
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import FORMAT, Operator
from syno_lab.ir.primitives import PRIMITIVES, OwnPrimitive
from syno_lab.ir.spec import MAX_AXES, MAX_STEPS, Spec, Variable
from syno_lab.ir.state import State, Step
from syno_lab.versioned import read_versioned

VERSION = 1
MAX_BYTES = 1 << 20


class StepRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A step in a file: numbers of coordinates, the parameter as text, and the digest of a user's primitive."""

    primitive: str
    operands: list[int] = []
    given: list[int] = []
    parameter: str | None = None
    meaning: str = ""


class OperatorRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The record of an operator file of version 1."""

    format: str
    version: int
    primary: list[str]
    coefficient: list[str]
    input: list[str]
    output: list[str]
    steps: list[StepRecord]
    match: list[int]
    fixed: list[tuple[int, int]] = []
    unordered: list[str] = []


def to_json(operator: Operator) -> str:
    """Write an operator file: shapes, variables with defaults and steps, but no budgets."""
    spec = operator.spec
    number = {c: i for i, c in enumerate(operator.output)}
    steps, state = [], State.root(spec)
    for step in operator.steps:
        steps.append(step_record(step, number.__getitem__))
        for result in state.results(step):
            number[result] = len(number)
        state = state.apply(step)
    declared = {v.name: str(Variable(v.name, v.default)) for v in spec.variables}
    record = OperatorRecord(
        FORMAT,
        VERSION,
        [declared.get(name, name) for name in spec.symbols.primary],
        [declared.get(name, name) for name in spec.symbols.coefficient],
        [str(size) for size in spec.input_shape],
        [str(size) for size in spec.output_shape],
        steps,
        [number[c] for c in operator.inputs],
        list(spec.fixed_io_pairs),
        list(spec.unordered),
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode()


def step_record(step: Step, number: Callable[[Coordinate], int]) -> StepRecord:
    """Convert a step to its record in a file; ``number`` maps coordinates to numbers."""
    return StepRecord(
        step.primitive,
        list(map(number, step.operands)),
        list(map(number, step.given)),
        None if step.parameter is None else str(step.parameter),
        meaning_of(step.primitive),
    )


def from_json(text: str | bytes) -> Operator:
    """Read an operator file. Raises FormatError with one line: the expected and the found value, and the position."""
    record = read_versioned(text, OperatorRecord, what="operator file", name=FORMAT, version=VERSION, most=MAX_BYTES)
    try:
        return _replay(record)
    except FormatError:
        raise
    except SynoError as error:
        raise FormatError(f"operator file: {error}") from None


def meaning_of(primitive: str) -> str:
    """Return the digest of a user's primitive; an empty text for built-in and unknown primitives."""
    entry = PRIMITIVES.get(primitive)
    return entry.meaning if isinstance(entry, OwnPrimitive) else ""


def primitives_of(text: str | bytes) -> tuple[str, ...]:
    """Return the names of the primitives in an operator file, from the output on, without applying the steps.

    Raises FormatError as :func:`from_json` does, except for illegal steps.
    """
    record = read_versioned(text, OperatorRecord, what="operator file", name=FORMAT, version=VERSION, most=MAX_BYTES)
    return tuple([step.primitive for step in record.steps])


def _replay(record: OperatorRecord) -> Operator:
    if len(record.steps) > MAX_STEPS or len(record.output) > MAX_AXES or len(record.input) > MAX_AXES:
        raise FormatError(f"operator file: expected at most {MAX_STEPS} steps and {MAX_AXES} axes")
    spec = Spec.parse(
        shape_text(record.input),
        shape_text(record.output),
        record.primary,
        record.coefficient,
        fixed_io_pairs=record.fixed,
        unordered=record.unordered,
    )
    # Defaults in a file are not a binding: each use of an operator checks the operator for the sizes of this use.
    spec = replace(spec, bindings=())
    state = State.root(spec)
    coordinates: list[Coordinate] = list(state.output)
    for place, item in enumerate(record.steps):
        step = step_of(item, coordinates, spec.symbols, f"operator file: step {place}")
        try:
            after = state.apply(step)
        except SynoError as error:
            raise FormatError(f"operator file: step {place}: {error}") from None
        coordinates.extend(state.results(step))
        state = after
    match = looked_up(record.match, coordinates, "operator file: match")
    if not state.is_match(match):
        raise FormatError("operator file: match: expected one data coordinate for each input axis, of the same size")
    return Operator(state, match)


def step_of(item: StepRecord, numbered: Sequence[Coordinate], symbols: Symbols, where: str) -> Step:
    """Return the step of a record over numbered coordinates. Raises FormatError that begins with ``where``."""
    known = meaning_of(item.primitive)
    if known != item.meaning:
        raise FormatError(
            f"{where}: expected a primitive {quoted(item.primitive)} of one's own with the digest "
            f"{quoted(item.meaning or 'none')}, found {known or 'none'} in this process; syno_lab.add_primitive adds "
            "one, and its digest tells what it computes"
        )
    size = None if item.parameter is None else symbols.size(item.parameter)
    operands, given = (looked_up(numbers, numbered, where) for numbers in (item.operands, item.given))
    return Step(item.primitive, operands, size, given)


def looked_up(numbers: Sequence[int], numbered: Sequence[Coordinate], where: str) -> tuple[Coordinate, ...]:
    """Return the coordinates with these numbers. Raises FormatError that begins with ``where`` for another number."""
    for number in numbers:
        if not 0 <= number < len(numbered):
            expected = f"a coordinate number from 0 to {len(numbered) - 1}"
            raise FormatError(f"{where}: expected {expected}, found {quoted(number)}")
    return tuple([numbered[number] for number in numbers])

"""A record of drawn operators: a small JSON file for drawing the same operators again and comparing them.

A record holds the Sampler's fields, the seed, the version, and the names of the rules. A record also has a digest of
128 bits for every operator in the order of drawing, and the first few operators in full. A record holds only data. A
replay draws with this program's own rules, and checks the operators in a record as it checks every operator file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.effort import Effort, Stop
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import quoted, read_bytes
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.synthesis.fields import SpecFields
from syno_lab.synthesis.rules import RULES, Rule
from syno_lab.synthesis.sampler import Sampler
from syno_lab.version import __version__
from syno_lab.versioned import read_versioned

FORMAT = "syno-lab-search"
VERSION = 1
MAX_BYTES = 1 << 26
WHOLE = 20  # the number of operators in full, to show a difference
_DIGEST_BYTES = 16

Report = Callable[[str, float, str], None]


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """A record of version 1.

    Attributes:
        format: ``syno-lab-search``.
        version: the version of the format.
        syno_lab: the version of the program that drew the operators.
        spec: the Sampler's fields, as in a file for ``syno-lab sample --spec``.
        seed: the seed of the sampler.
        rules: the names of the rules of the draw, in order.
        count: the number of drawn operators.
        exhausted: whether there were no more operators.
        digests: the :func:`digest` of each operator, in the order of drawing.
        operators: the first operators in full, as operator files.
        spread: whether draws spread over the space.
    """

    format: str
    version: int
    syno_lab: str
    spec: SpecFields
    seed: int
    rules: list[str]
    count: int
    exhausted: bool
    digests: list[str]
    operators: list[dict[str, Any]]
    spread: bool


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Attributes:
        compared: the number of equal operators, from the first on.
        difference: the first difference, in one line; None if all operators are equal.
        notes: other differences between the record and this program: its version, its rules.
    """

    compared: int
    difference: str | None
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Return whether the same operators were drawn in the same order."""
        return self.difference is None


def digest(operator: Operator) -> str:
    """Return 32 hexadecimal digits, equal for equal pGraphs (up to names of reductions and the order of steps)."""
    return hashlib.blake2b(repr(operator.key).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def record_search(
    spec: Spec,
    seed: int,
    operators: Iterable[Operator],
    *,
    exhausted: bool = False,
    spread: bool = True,
    rules: Sequence[Rule] = RULES,
) -> Record:
    """Make the record of ``operators``, the first draws of a :class:`Sampler` with these arguments, in this order."""
    drawn = list(operators)
    digests, full = map(digest, drawn), [msgspec.json.decode(operator.to_json()) for operator in drawn[:WHOLE]]
    return Record(
        FORMAT,
        VERSION,
        __version__,
        SpecFields.from_spec(spec),
        seed,
        [rule.name for rule in rules],
        len(drawn),
        exhausted,
        list(digests),
        full,
        spread,
    )


def to_text(record: Record) -> str:
    """Write the text of a record's file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"


def from_text(text: str | bytes) -> Record:
    """Read a record's file. Raises FormatError with one line: the expected value, the found value, the position."""
    record = read_versioned(text, Record, what="search record", name=FORMAT, version=VERSION, most=MAX_BYTES)
    if record.count != len(record.digests):
        raise FormatError(f"search record: expected {record.count} digests, as count says, found {len(record.digests)}")
    if len(record.operators) > record.count:
        raise FormatError(
            f"search record: expected at most {record.count} operators, as count says, found {len(record.operators)}"
        )
    for place, name in enumerate(record.digests):
        if len(name) != 2 * _DIGEST_BYTES or not set(name) <= set("0123456789abcdef"):
            raise FormatError(
                f"search record: digests: expected {2 * _DIGEST_BYTES} hexadecimal digits at {place}, "
                f"found {quoted(name[:40])}"
            )
    return record


def read(path: Path) -> Record:
    """Read a record from a file. Raises FormatError for an unreadable file or a file without a record."""
    try:
        return from_text(read_bytes(path, MAX_BYTES))
    except OSError as error:
        raise FormatError(f"{path}: expected a readable file, found: {error.strerror or error}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def replay(
    record: Record, *, rules: Sequence[Rule] = RULES, report: Report | None = None, should_stop: Stop | None = None
) -> Replay:
    """Draw the operators of ``record`` again, and compare them one by one.

    ``rules`` are the available rules. If the record names other rules, the replay uses the rules that are in both
    lists, and the notes describe the difference. ``should_stop`` is called often; True ends the replay.

    Raises:
        FormatError: the record's spec is invalid, or the record lacks rules of the space.
        EffortError: the replay was stopped, or a limit of memory was exceeded.
    """
    chosen, notes = _same_rules(record, rules)
    try:
        spec = record.spec.spec()
    except SpecError as error:
        raise FormatError(f"search record: spec: {error}") from None
    if record.syno_lab != __version__:
        notes.insert(0, f"the record is of Syno Lab {_shortened(record.syno_lab)}, this is {__version__}")
    try:
        sampler = Sampler.from_spec(
            spec, seed=record.seed, spread=record.spread, rules=chosen, effort=Effort(should_stop=should_stop)
        )
    except SpecError as error:
        raise FormatError(f"search record: {error}") from None
    compared, difference = _compare(record, _operators(sampler), report)
    return Replay(compared, difference, tuple(notes))


def _operators(sampler: Sampler) -> Iterator[Operator]:
    """Yield the sampler's operators; yield nothing if the sampler raises SpecError."""
    with suppress(SpecError):
        yield from sampler.samples()


def _compare(record: Record, drawn: Iterator[Operator], report: Report | None) -> tuple[int, str | None]:
    """Return the number of equal operators from the first on, and the first difference."""
    for place, wanted in enumerate(record.digests):
        operator = next(drawn, None)
        if operator is None:
            return place, f"operator {place}: expected {_wanted(record, place)}, and there are no more to draw"
        drew = digest(operator)
        if drew != wanted:
            return place, f"operator {place}: expected {_wanted(record, place)}, drew {drew}: {operator}"
        if report is not None:
            report("replay", (place + 1) / record.count, f"{place + 1} of {record.count} operators")
    if record.exhausted and next(drawn, None) is not None:
        return record.count, f"expected no more than {record.count} operators, drew another"
    return record.count, None


def _same_rules(record: Record, rules: Sequence[Rule]) -> tuple[tuple[Rule, ...], list[str]]:
    """Choose the rules for ``record`` from the available rules, and note differences."""
    here = {rule.name: rule for rule in rules}
    if record.rules == list(here):
        return tuple(rules), []
    lacking = [name for name in record.rules if name not in here]
    unasked = [name for name in here if name not in record.rules]
    notes = []
    if lacking:
        notes.append(f"the record asked rules that are not here: {', '.join(map(_shortened, lacking))}")
    if unasked:
        notes.append(f"the record did not ask, and neither does the replay: {', '.join(unasked)}")
    if not notes:
        notes.append("the record asked the same rules in another order")
    return tuple(here[name] for name in record.rules if name in here), notes


def _wanted(record: Record, place: int) -> str:
    """Describe the expected operator at ``place``: its digest, and its text if the record holds it in full."""
    name = record.digests[place]
    if place < len(record.operators):
        try:
            return f"{name}: {Operator.from_json(msgspec.json.encode(record.operators[place]).decode())}"
        except SynoError:
            return f"{name} (the operator in the record cannot be read)"
    return name


def _shortened(text: str) -> str:
    """Shorten text from a file to one printable line."""
    return text[:60] if text.isprintable() else repr(text[:60])

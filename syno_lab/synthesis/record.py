"""A record of drawn operators: a small JSON file from which the same operators can be drawn again and compared.

A record holds the Sampler's fields, the seed, the version, the names of the rules, and a digest of 128 bits for every
operator in the order of drawing, with the first few in full. It is data alone: replaying draws with this program's own
rules, and an operator in a record passes the checks that every operator file does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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
WHOLE = 20  # operators kept in full, so that a difference can be shown
_DIGEST_BYTES = 16

Report = Callable[[str, float, str], None]


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """A record of version 1.

    Attributes:
        format: ``syno-lab-search``.
        version: of the format.
        syno_lab: the version of the program that drew.
        spec: the Sampler's fields, as in a file for ``syno-lab sample --spec``.
        seed: of the sampler.
        rules: the names of the rules that were asked, in order.
        count: operators drawn and recorded.
        exhausted: whether there were no more.
        digests: :func:`digest` of each, in the order of drawing.
        operators: the first of them in full, as operator files.
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
    """What drawing again gave.

    Attributes:
        compared: operators that were drawn again and are the same, from the first on.
        difference: the first difference, in one line; None where all are the same.
        notes: what was not as it was for the record: another version, other rules.
    """

    compared: int
    difference: str | None
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the same operators were drawn in the same order."""
        return self.difference is None


def digest(operator: Operator) -> str:
    """32 hexadecimal digits that equal pGraphs share (up to the names of reductions and the order of steps)."""
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
    """The record of ``operators``, which a :class:`Sampler` with these arguments drew first and in this order."""
    digests: list[str] = []
    full: list[dict[str, Any]] = []
    for operator in operators:
        digests.append(digest(operator))
        if len(full) < WHOLE:
            full.append(msgspec.json.decode(operator.to_json()))
    return Record(
        FORMAT,
        VERSION,
        __version__,
        SpecFields.from_spec(spec),
        seed,
        [rule.name for rule in rules],
        len(digests),
        exhausted,
        digests,
        full,
        spread,
    )


def to_text(record: Record) -> str:
    """The text of a record's file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"


def from_text(text: str | bytes) -> Record:
    """Read a record's file. Raises FormatError, one line: what was expected, what was found and where."""
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
    """The record in a file. Raises FormatError when it cannot be read or is not a record."""
    try:
        return from_text(read_bytes(path, MAX_BYTES))
    except OSError as error:
        raise FormatError(f"{path}: expected a readable file, found: {error.strerror or error}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def replay(
    record: Record,
    *,
    rules: Sequence[Rule] = RULES,
    report: Report | None = None,
    should_stop: Stop | None = None,
) -> Replay:
    """Draw again what ``record`` says was drawn, and compare one by one.

    ``rules`` are those at hand. When the record names others, those of its names that are here are asked and the notes
    say what differs; it is tried all the same. ``should_stop`` is asked often.

    Raises:
        FormatError: when the record's spec is not one, or it lacks rows of the space.
        EffortError: when it was stopped, or would take more memory than it may.
    """
    chosen, notes = _same_rules(record, rules)
    try:
        spec = record.spec.spec()
    except SpecError as error:
        raise FormatError(f"search record: spec: {error}") from None
    if record.syno_lab != __version__:
        notes.insert(0, f"the record is of Syno Lab {_shown(record.syno_lab)}, this is {__version__}")
    try:
        sampler = Sampler.from_spec(
            spec, seed=record.seed, spread=record.spread, rules=chosen, effort=Effort(should_stop=should_stop)
        )
    except SpecError as error:
        raise FormatError(f"search record: {error}") from None
    compared, difference = _compare(record, _drawn(sampler), report)
    return Replay(compared, difference, tuple(notes))


def _drawn(sampler: Sampler) -> Iterator[Operator]:
    """What the sampler draws; nothing where it says that there is nothing."""
    try:
        yield from sampler.samples()
    except SpecError:
        return


def _compare(record: Record, drawn: Iterator[Operator], report: Report | None) -> tuple[int, str | None]:
    """How many are the same from the first on, and the first difference."""
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
    """The rules to ask for ``record`` out of those at hand, and what is to be said about them."""
    here = {rule.name: rule for rule in rules}
    if record.rules == list(here):
        return tuple(rules), []
    lacking = [name for name in record.rules if name not in here]
    unasked = [name for name in here if name not in record.rules]
    notes = []
    if lacking:
        notes.append(f"the record asked rules that are not here: {', '.join(map(_shown, lacking))}")
    if unasked:
        notes.append(f"the record did not ask, and neither does the replay: {', '.join(unasked)}")
    if not notes:
        notes.append("the record asked the same rules in another order")
    return tuple(here[name] for name in record.rules if name in here), notes


def _wanted(record: Record, place: int) -> str:
    """What the record has at ``place``: its digest, and the operator where the record holds it in full."""
    name = record.digests[place]
    if place < len(record.operators):
        try:
            return f"{name}: {Operator.from_json(msgspec.json.encode(record.operators[place]).decode())}"
        except SynoError:
            return f"{name} (the operator in the record cannot be read)"
    return name


def _shown(text: str) -> str:
    """Text from a file, fit for one line of a terminal."""
    return text[:60] if text.isprintable() else repr(text[:60])

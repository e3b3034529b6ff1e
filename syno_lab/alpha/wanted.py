"""The wanted properties of a subgraph, as a tuple of lower bounds (αNAS, sections 2.1 and 4.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import msgspec

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Shape
from syno_lab.alpha.pairings import axis_names
from syno_lab.alpha.properties import (
    DEPTH,
    MIXING,
    RELAXATIONS,
    SHAPE,
    Producer,
    Property,
    Relax,
    Table,
    Value,
    depth_property,
    pairing_of,
    relax_of,
)
from syno_lab.common.pairing import Pairing
from syno_lab.common.size import Symbols
from syno_lab.common.wants import RANK, parse_wants
from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.versioned import read_versioned

FORMAT, VERSION, MOST_BYTES = "syno-lab-properties", 1, 1_000_000


@dataclass(frozen=True, init=False)
class Properties:
    """The wanted shape, depth and mixing of a subgraph; its distance is the sum of the three distances (Theorem 4.7).

    Attributes:
        shape, depth, mixing: tables of wanted values; an empty table allows any value. A value in place of a table
            means one input and one output. A matrix may be a sequence of texts such as ``("oa", "xa")``.
        normalised: whether a distance is a share of the wanted value, averaged over pairs of an input and an output, as
            in the authors' published code. If False, a distance is the sum of the paper's distances.
        producer: the kind of operation before the subgraph, see :func:`~syno_lab.alpha.properties.depth_property`.
        length: the number of operations of the subgraph that the properties come from; None without a subgraph.

    Raises SpecError for a wrong value of a property, and for tables that do not fit together.
    """

    shape: Table[Shape]
    depth: Table[int]
    mixing: Table[Pairing]
    normalised: bool
    producer: Producer | None
    length: int | None

    def __init__(
        self,
        shape: Shape | Table[Shape] | None = None,
        depth: int | Table[int] | None = None,
        mixing: Pairing | Sequence[str] | Table[Pairing] | None = None,
        *,
        normalised: bool = False,
        producer: Producer | None = None,
        length: int | None = None,
    ) -> None:
        if producer is not None and producer not in get_args(Producer):
            raise SpecError(f"properties: producer: expected 'linear', 'nonlinear' or None, found {quoted(producer)}")
        if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
            raise SpecError(f"properties: length: expected an integer of 0 or more, found {quoted(length)}")
        tables = {
            "shape": _table(shape, "shape", _read_shape),
            "depth": _table(depth, "depth", _read_depth),
            "mixing": _table(mixing, "mixing", _read_mixing),
        }
        sizes = {name: (len(table), len(table[0])) for name, table in tables.items() if table}
        if len({columns for _, columns in sizes.values()}) > 1 or (
            "depth" in sizes and "mixing" in sizes and sizes["depth"] != sizes["mixing"]
        ):
            actual = ", ".join(f"{name} {rows} x {columns}" for name, (rows, columns) in sizes.items())
            raise SpecError(f"properties: expected tables of the same inputs and outputs, found {actual}")
        if "shape" in sizes and sizes["shape"][0] != 1:
            raise SpecError(f"properties: shape: expected one row, found {sizes['shape'][0]}")
        options = {"normalised": bool(normalised), "producer": producer, "length": length}
        for name, value in (tables | options).items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, graph: Graph, *, normalised: bool = False, producer: Producer | None = None) -> Properties:
        """Return the properties of a graph; the class explains the options."""
        tables = (SHAPE.infer(graph), depth_property(producer).infer(graph), MIXING.infer(graph))
        return cls(*tables, normalised=normalised, producer=producer, length=len(graph.nodes))

    @classmethod
    def of_wishes(cls, text: str, input_shape: Shape) -> Properties:
        """Parse wishes for a chain whose result has the shape of its input; no depth is wanted.

        Args:
            text: wishes such as ``"C>=m, H->W>=o"`` (:func:`syno_lab.common.wants.parse_wants`); the axes are B, H, W,
                C, or S1, S2, … for other numbers of spatial axes. ``C>=m`` means ``C->C>=m``.
            input_shape: (batch, spatial…, channels).

        Raises SpecError for a text without valid wishes, and for a wrong shape.
        """
        shape = _read_shape(input_shape)
        if shape is None:
            raise SpecError(f"properties: input: expected {_EXPECTED['shape']}, found {quoted(input_shape)}")
        names = axis_names(len(shape))
        symbols = Symbols(names, ())
        axes = [symbols.size(name) for name in names]
        marks = [["x"] * len(names) for _ in names]
        for wish in parse_wants(text, axes, axes, symbols):
            marks[wish.axis if wish.output is None else wish.output][wish.axis] = wish.least
        return cls(shape, mixing=tuple(map("".join, marks)))

    def check_size(self, inputs: int, outputs: int) -> None:
        """Check that the tables fit this number of inputs and outputs. Raises SpecError if a table does not fit."""
        for row in self.rows:
            self._check_size(row, inputs, outputs)

    def _check_size(self, row: Property[Any, Any], inputs: int, outputs: int) -> None:
        wanted = self.table(row.name)
        if wanted and (len(wanted), len(wanted[0])) != (1 if row.name == "shape" else inputs, outputs):
            expected = f"a table for {inputs} inputs and {outputs} outputs"
            raise SpecError(f"properties: {row.name}: expected {expected}, found {len(wanted)} x {len(wanted[0])}")

    @property
    def rows(self) -> tuple[Property[Any, Any], ...]:
        """The definitions of the three properties."""
        return (SHAPE, depth_property(self.producer), MIXING)

    def table(self, name: str) -> Table[Any]:
        """Return the table of wanted values of a property."""
        return getattr(self, name)

    def distances(self, graph: Graph) -> dict[str, float]:
        """Return the distances of a graph from the wanted values, by the name of the property.

        Raises SpecError for a graph with other numbers of inputs or outputs than the tables.
        """
        return {row.name: self.apart(row, row.infer(graph)) for row in self.rows}

    def apart(self, row: Property[Any, Any], found: Table[Any]) -> float:
        """Return the distance of a table of values from the wanted table. Raises SpecError if the sizes differ."""
        wanted = self.table(row.name)
        if not wanted:
            return 0.0
        self._check_size(row, len(found), len(found[0]))
        pairs = [
            row.distance(value, target, self.normalised)
            for values, targets in zip(found, wanted, strict=True)
            for value, target in zip(values, targets, strict=True)
            if target is not None
        ]
        return float(sum(pairs)) / (len(pairs) if self.normalised and pairs else 1)

    def distance(self, graph: Graph) -> float:
        """Return the sum of all distances: 0 exactly if all properties are satisfied. Raises as :meth:`distances`."""
        return sum(self.distances(graph).values())

    def satisfied_by(self, graph: Graph) -> bool:
        """Return whether a graph has all wanted properties (Definition 2.3). Raises as :meth:`distances`."""
        return self.distance(graph) == 0

    def relax(self, seed: int | random.Random, rules: Relax | str = "paper") -> Properties:
        """Return randomly mutated properties; ``rules`` are a preset of :data:`RELAXATIONS` or the caller's own rules.

        Raises SpecError for a text that names no preset.
        """
        if isinstance(rules, str) and rules not in RELAXATIONS:
            raise SpecError(f"relax: rules: expected one of {', '.join(RELAXATIONS)}, found {quoted(rules)}")
        rng = seed if isinstance(seed, random.Random) else random.Random(seed)  # noqa: S311 - for choices
        tables: dict[str, Any] = {row.name: row.relax(self.table(row.name), relax_of(rules), rng) for row in self.rows}
        return replace(self, **tables)

    def to_json(self) -> str:
        """Return the text of a properties file, which :meth:`from_json` reads."""
        matrices = ([matrix and tuple(map("".join, matrix.marks)) for matrix in row] for row in self.mixing)
        mixing = tuple(map(tuple, matrices))
        record = _Record(FORMAT, VERSION, **vars(self) | {"mixing": mixing})
        return msgspec.json.encode(record).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Properties:
        """Read a properties file.

        Raises FormatError for a text that is no properties file, SpecError for wrong values of a property.
        """
        read = read_versioned(text, _Record, what="properties file", name=FORMAT, version=VERSION, most=MOST_BYTES)
        fields = msgspec.structs.asdict(read)
        return cls(**{name: fields[name] for name in fields if name not in ("format", "version")})


# -- of a graph --------------------------------------------------------------------------------------------------------


def shape_of(graph: Graph, output: int = 0) -> Shape:
    """Return the shape of an output. Raises SpecError for an unknown output."""
    _check_number("output", output, len(graph.outputs))
    return graph.output_shapes[output]


def depth_of(graph: Graph, source: int = 0, output: int = 0) -> int:
    """Return the depth from an input, ``source``, to an output. Raises SpecError for an unknown input or output."""
    return _of_pair(DEPTH, graph, source, output)


def mixing_of(graph: Graph, source: int = 0, output: int = 0) -> Pairing:
    """Return the pairing of an output with an input, ``source``. Raises SpecError for an unknown input or output."""
    return _of_pair(MIXING, graph, source, output)


def _of_pair(row: Property[Any, Value], graph: Graph, source: int, output: int) -> Value:
    _check_number("input", source, len(graph.inputs))
    _check_number("output", output, len(graph.outputs))
    value = row.infer(graph)[source][output]
    assert value is not None
    return value


def _check_number(what: str, number: int, many: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < many:
        raise SpecError(f"{what}: expected a number from 0 to {many - 1}, found {quoted(number)}")


class _Record(msgspec.Struct, omit_defaults=True):
    """A properties file; a matrix has a text for each row."""

    format: str
    version: int
    shape: tuple[tuple[tuple[int, ...] | None, ...], ...] = ()
    depth: tuple[tuple[int | None, ...], ...] = ()
    mixing: tuple[tuple[tuple[str, ...] | None, ...], ...] = ()
    normalised: bool = False
    producer: Producer | None = None
    length: int | None = None


# -- reading values --------------------------------------------------------------------------------------------------

#: The input of a user: a value, a table of values, or anything else.
_Raw: TypeAlias = "int | str | Pairing | Sequence[_Raw] | None"


def _table(raw: _Raw, name: str, read: Callable[[_Raw], Value | None]) -> Table[Value]:
    """Return a table from a user's value or table. Raises SpecError for any other input."""
    if raw is None:
        return ()
    single = read(raw)
    if single is not None:
        return ((single,),)

    def value_of(cell: _Raw) -> Value | None:
        value = None if cell is None else read(cell)
        if value is None and cell is not None:
            raise SpecError(f"properties: {name}: expected {_EXPECTED[name]}, found {quoted(cell)}")
        return value

    rows = tuple([tuple(map(value_of, _sequence(row, name))) for row in _sequence(raw, name)])
    if rows and (not rows[0] or len(set(map(len, rows))) > 1):
        raise SpecError(f"properties: {name}: expected rows of one length of 1 or more, found {list(map(len, rows))}")
    return rows


_EXPECTED = {
    "shape": "a shape such as (1, 8, 8, 16)",
    "depth": "an integer of 0 or more",
    "mixing": "a matrix such as ('oa', 'xa')",
}


def _sequence(raw: _Raw, name: str) -> Sequence[_Raw]:
    if not isinstance(raw, list | tuple):
        raise SpecError(f"properties: {name}: expected {_EXPECTED[name]}, or a table, found {quoted(raw)}")
    return raw


def _read_shape(raw: _Raw) -> Shape | None:
    if not isinstance(raw, list | tuple) or len(raw) < 2 or not all(positive(size) for size in raw):
        return None
    return tuple(map(int, raw))


def _read_depth(raw: _Raw) -> int | None:
    return 0 if raw == 0 and isinstance(raw, int) and raw is not False else positive(raw)


def _read_mixing(raw: _Raw) -> Pairing | None:
    if isinstance(raw, Pairing):
        return raw
    if not isinstance(raw, list | tuple) or not raw or not all(isinstance(row, str) for row in raw):
        return None
    if not raw[0] or len(set(map(len, raw))) > 1 or not set("".join(raw)) <= set(RANK):
        return None
    return pairing_of(raw, len(raw[0]))

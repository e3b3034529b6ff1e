"""Which output axis is paired with which input axis, and how locally: αNAS's mixing property as a value (section 3.1).

A matrix with a row for each output axis and a column for each input axis. Its marks are ordered x (not paired) < o
(one-to-one) < m (many-to-one) < a (all-to-one); with the larger of two as sum, and ``x`` or the larger of two as
product, they are a commutative semiring. So pairings compose (Lemma 3.6) as matrices do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from syno_lab.common.wants import RANK, Letter, Wish, wants_text
from syno_lab.errors import SpecError
from syno_lab.inputs import aligned

WORDS: dict[Letter, str] = {"x": "not paired", "o": "one-to-one", "m": "many-to-one", "a": "all-to-one"}


@dataclass(frozen=True)
class Pairing:
    """The matrix. Two are equal when their marks are; the names of the axes do not matter.

    Attributes:
        rows: the output axes, by their sizes in symbols.
        columns: the input axes.
        marks: for each output axis the marks of all input axes.
    """

    rows: tuple[str, ...] = field(compare=False)
    columns: tuple[str, ...] = field(compare=False)
    marks: tuple[tuple[Letter, ...], ...]

    @classmethod
    def identity(cls, n: int) -> Pairing:
        """Each of ``n`` axes one-to-one with itself, as an element-wise function has it."""
        names = tuple(map(str, range(n)))
        return cls(names, names, tuple(tuple("o" if k == i else "x" for i in range(n)) for k in range(n)))

    def __matmul__(self, before: Pairing) -> Pairing:
        """A lower bound for this one applied to the output of ``before`` (Lemma 3.6).

        Raises SpecError when ``before`` has not as many output axes as this one has input axes.
        """
        if len(self.columns) != len(before.rows):
            raise SpecError(
                f"mixing: expected {len(self.columns)} output axes to compose with, found {len(before.rows)}"
            )

        def entry(row: Sequence[Letter], column: int) -> Letter:
            return _most(_through(mark, below[column]) for mark, below in zip(row, before.marks, strict=True))

        marks = tuple(tuple(entry(row, i) for i in range(len(before.columns))) for row in self.marks)
        return Pairing(self.rows, before.columns, marks)

    def __or__(self, other: Pairing) -> Pairing:
        """The larger of every two marks, as the sum of two branches has it.

        Raises SpecError when they have different numbers of axes.
        """
        self._check_comparable(other)
        rows = zip(self.marks, other.marks, strict=True)
        return Pairing(self.rows, self.columns, tuple(tuple(map(_more, mine, theirs)) for mine, theirs in rows))

    def __le__(self, other: Pairing) -> bool:
        """The paper's partial order, x < o < m < a in every entry: ``self`` is no more expressive than ``other``.

        Raises SpecError when they have different numbers of axes, which the paper does not compare.
        """
        self._check_comparable(other)
        return not other.excess(self)

    def excess(self, target: Pairing) -> int:
        """How many entries of ``target`` are more than this one's: the distance to it (αNAS, Definition 4.9).

        Raises SpecError when they have different numbers of axes.
        """
        self._check_comparable(target)
        return sum(RANK[theirs] > RANK[mine] for mine, theirs in zip(self._all(), target._all(), strict=True))

    def mark_of(self, wish: Wish) -> Letter:
        """The largest mark that may meet a wish: of its input axis, in the row of its output axis or in any."""
        rows = self.marks if wish.output is None else (self.marks[wish.output],)
        return _most(row[wish.axis] for row in rows)

    def missing(self, wants: Iterable[Wish]) -> tuple[Wish, ...]:
        """The wishes that are not met, in their order."""
        return tuple(wish for wish in wants if RANK[self.mark_of(wish)] < RANK[wish.least])

    def meets(self, wants: Iterable[Wish]) -> bool:
        """Whether every wish is met."""
        return not self.missing(wants)

    def verdict(self, wants: Sequence[Wish]) -> str:
        """One line: whether the wishes are met, and which are missing; empty without wishes."""
        missing = self.missing(wants)
        if not missing:
            return f"meets the wish {wants_text(wants, self.columns, self.rows)}" if wants else ""
        found = (f"{wish.text(self.columns, self.rows)} (it is {WORDS[self.mark_of(wish)]})" for wish in missing)
        return f"misses the wish {', '.join(found)}"

    def lacks(self, wants: Iterable[Wish]) -> frozenset[tuple[int, int]]:
        """The entries (row, column) of which one or all would have to be more: those of the missing wishes."""
        outs = range(len(self.rows))
        return frozenset(
            (out, wish.axis)
            for wish in self.missing(wants)
            for out in (outs if wish.output is None else (wish.output,))
        )

    def text(self, wants: Sequence[Wish] = ()) -> str:
        """The matrix, ``!`` at the entries of missing wishes, then the words of the marks and the verdict."""
        lacks = self.lacks(wants)
        lines = [["out \\ in", *self.columns]]
        for out, (name, row) in enumerate(zip(self.rows, self.marks, strict=True)):
            lines.append([name, *(f"{mark}{'!' * ((out, axis) in lacks)}" for axis, mark in enumerate(row))])
        legend, verdict = ", ".join(f"{mark} {word}" for mark, word in WORDS.items()), self.verdict(wants)
        return "\n".join([*aligned(lines), "", legend, *([verdict] if verdict else [])])

    def html(self, wants: Sequence[Wish] = ()) -> str:
        """The same as an HTML table, with the verdict as its caption; entries of missing wishes are in ``<mark>``."""
        lacks, verdict = self.lacks(wants), self.verdict(wants)
        heads = "".join(f"<th>{escape(name)}</th>" for name in ("out \\ in", *self.columns))
        body = ""
        for out, (name, row) in enumerate(zip(self.rows, self.marks, strict=True)):
            cells = ""
            for axis, mark in enumerate(row):
                shown = f"<mark>{mark}</mark>" if (out, axis) in lacks else mark
                cells += f'<td title="{WORDS[mark]}">{shown}</td>'
            body += f"<tr><th>{escape(name)}</th>{cells}</tr>"
        caption = f"<caption>{escape(verdict)}</caption>" if verdict else ""
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

    def _all(self) -> Iterator[Letter]:
        for row in self.marks:
            yield from row

    def _check_comparable(self, other: Pairing) -> None:
        if (len(self.rows), len(self.columns)) != (len(other.rows), len(other.columns)):
            raise SpecError(
                f"mixing: expected {len(self.rows)} output and {len(self.columns)} input axes to compare with, "
                f"found {len(other.rows)} and {len(other.columns)}"
            )


def _more(one: Letter, other: Letter) -> Letter:
    return one if RANK[one] >= RANK[other] else other


def _most(marks: Iterable[Letter]) -> Letter:
    return max(marks, key=RANK.__getitem__, default="x")


def _through(after: Letter, before: Letter) -> Letter:
    """The mark of two pairings in a row, by way of one axis."""
    return "x" if "x" in (after, before) else _more(after, before)

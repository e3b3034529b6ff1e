"""The mixing property of αNAS (section 3.1): which output axis is paired with which input axis, and how locally.

A pairing is a matrix with a row for each output axis and a column for each input axis. Its marks have the order x (not
paired) < o (one-to-one) < m (many-to-one) < a (all-to-one). The marks are a commutative semiring: the sum of two marks
is the larger mark; the product is ``x`` or the larger mark. So pairings compose (Lemma 3.6) as matrices do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import chain

from syno_lab.common.wants import RANK, Letter, Wish, wants_text
from syno_lab.errors import SpecError
from syno_lab.inputs import aligned

WORDS: dict[Letter, str] = {"x": "not paired", "o": "one-to-one", "m": "many-to-one", "a": "all-to-one"}


@dataclass(frozen=True)
class Pairing:
    """The matrix of marks. Two pairings are equal when their marks are equal; the names of the axes do not matter.

    Attributes:
        rows: the output axes, as symbolic sizes.
        columns: the input axes, as symbolic sizes.
        marks: for each output axis the marks of all input axes.
    """

    rows: tuple[str, ...] = field(compare=False)
    columns: tuple[str, ...] = field(compare=False)
    marks: tuple[tuple[Letter, ...], ...]

    @classmethod
    def identity(cls, n: int) -> Pairing:
        """Return the pairing of an element-wise function: each of ``n`` axes is one-to-one with itself."""
        names = tuple(map(str, range(n)))
        return cls(names, names, tuple(tuple("o" if k == i else "x" for i in range(n)) for k in range(n)))

    def __matmul__(self, before: Pairing) -> Pairing:
        """Return a lower bound of the pairing of a composition: first ``before``, then this pairing (Lemma 3.6).

        Raises SpecError when the number of output axes of ``before`` is not the number of this pairing's input axes.
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
        """Return the larger of every two marks: the pairing of the sum of two branches.

        Raises SpecError when the pairings have different numbers of axes.
        """
        self._check_comparable(other)
        rows = zip(self.marks, other.marks, strict=True)
        return Pairing(self.rows, self.columns, tuple(tuple(map(_more, row, other_row)) for row, other_row in rows))

    def __le__(self, other: Pairing) -> bool:
        """Compare by the paper's partial order: is ``self`` at most as expressive as ``other`` in every entry?

        Raises SpecError when the pairings have different numbers of axes; the paper does not compare them.
        """
        self._check_comparable(other)
        return not other.excess(self)

    def excess(self, target: Pairing) -> int:
        """Count the entries whose mark is larger in ``target``: the distance to ``target`` (αNAS, Definition 4.9).

        Raises SpecError when the pairings have different numbers of axes.
        """
        self._check_comparable(target)
        pairs = zip(chain(*self.marks), chain(*target.marks), strict=True)
        return sum(RANK[wished] > RANK[mark] for mark, wished in pairs)

    def mark_of(self, wish: Wish) -> Letter:
        """Return the mark of the wish's input axis and output axis, or the largest mark if the output axis is None."""
        rows = self.marks if wish.output is None else (self.marks[wish.output],)
        return _most(row[wish.axis] for row in rows)

    def missing(self, wants: Iterable[Wish]) -> tuple[Wish, ...]:
        """Return the wishes that this pairing does not meet, in their order."""
        return tuple(wish for wish in wants if RANK[self.mark_of(wish)] < RANK[wish.least])

    def meets(self, wants: Iterable[Wish]) -> bool:
        """Return whether this pairing meets every wish."""
        return not self.missing(wants)

    def verdict(self, wants: Sequence[Wish]) -> str:
        """Say in one line whether the wishes are met and which are missing; without wishes, return an empty text."""
        missing = self.missing(wants)
        if not missing:
            return f"meets the wish {wants_text(wants, self.columns, self.rows)}" if wants else ""
        unmet = (f"{wish.text(self.columns, self.rows)} (it is {WORDS[self.mark_of(wish)]})" for wish in missing)
        return f"misses the wish {', '.join(unmet)}"

    def lacks(self, wants: Iterable[Wish]) -> frozenset[tuple[int, int]]:
        """Return the entries (row, column) of missing wishes, which need a larger mark."""
        outs = range(len(self.rows))
        return frozenset(
            (out, wish.axis)
            for wish in self.missing(wants)
            for out in (outs if wish.output is None else (wish.output,))
        )

    def text(self, wants: Sequence[Wish] = ()) -> str:
        """Return the matrix as text: ``!`` marks entries of missing wishes; the legend and the verdict follow."""
        lacks = self.lacks(wants)
        lines = [["out \\ in", *self.columns]]
        for out, (name, row) in enumerate(zip(self.rows, self.marks, strict=True)):
            lines.append([name, *(f"{mark}{'!' * ((out, axis) in lacks)}" for axis, mark in enumerate(row))])
        legend, verdict = ", ".join(f"{mark} {word}" for mark, word in WORDS.items()), self.verdict(wants)
        return "\n".join([*aligned(lines), "", legend, *([verdict] if verdict else [])])

    def html(self, wants: Sequence[Wish] = ()) -> str:
        """Return the matrix as an HTML table with the verdict as caption; ``<mark>`` marks missing wishes."""
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

    def _check_comparable(self, other: Pairing) -> None:
        if (len(self.rows), len(self.columns)) != (len(other.rows), len(other.columns)):
            raise SpecError(
                f"mixing: expected {len(self.rows)} output and {len(self.columns)} input axes to compare with, "
                f"found {len(other.rows)} and {len(other.columns)}"
            )


def _more(mark: Letter, other: Letter) -> Letter:
    return mark if RANK[mark] >= RANK[other] else other


def _most(marks: Iterable[Letter]) -> Letter:
    return max(marks, key=RANK.__getitem__, default="x")


def _through(after: Letter, before: Letter) -> Letter:
    """Return the product of two marks: the mark of two consecutive pairings through one axis."""
    return "x" if "x" in (after, before) else _more(after, before)

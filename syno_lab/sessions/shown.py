"""What a page shows of a session, each record written once; :func:`plain` makes the data of it that a browser gets.

The nodes of a picture go by their ids in it: ``c3`` of a pGraph, ``t2`` of a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

Number = float | None


class Node(msgspec.Struct, frozen=True):
    """A node of a picture: ``words``, the ids that are lit with it as ``light``, ``top``: whether a step can use it."""

    words: str
    light: Sequence[str]
    top: bool


class Picture(msgspec.Struct, frozen=True):
    """A state as the stepper draws it: SVG with an id for each node, a description, the nodes by their ids."""

    svg: str
    description: str
    nodes: Mapping[str, Node]


class Item(msgspec.Struct, frozen=True):
    """One candidate in the list of next steps.

    Attributes:
        index: its place among the candidates.
        text: the step in words.
        distance: how far it leads to; None where no operator can be reached then.
        reaches: whether the steps left then suffice for that distance.
        reason: what refuses it, empty for nothing; :class:`Why` says more.
        rule: the name of that rule.
        operands: the nodes that it uses; for a CONTRACTION the shared coordinates.
        given: the nodes that are given to a weight.
        notes: what it makes and changes, in a few words each.
    """

    index: int
    text: str
    distance: Number
    reaches: bool
    reason: str = ""
    rule: str = ""
    operands: Sequence[str] = ()
    given: Sequence[str] = ()
    notes: Sequence[str] | UnsetType = UNSET


class Group(msgspec.Struct, frozen=True):
    """The candidates of one primitive, the nearest first.

    ``more_canonical`` and ``more_pruned`` count those that are not listed, ``unjudged`` those of which it is not known
    yet which of both they are.
    """

    primitive: str
    title: str
    sign: str
    colour: str
    signature: str
    meaning: str
    canonical: Sequence[Item]
    pruned: Sequence[Item]
    more_canonical: int = 0
    more_pruned: int = 0
    unjudged: int = 0


class Why(msgspec.Struct, frozen=True):
    """Why a step is refused.

    Attributes:
        text: the step in words.
        rule: the name of the rule.
        kind: of the rule: ``exact``, ``approximate``, ``space``, ``limit`` or ``your own rule``.
        section: where the paper says so.
        reason: in a sentence, with the share of the elements that differ where the rule is approximate.
        before: the expression as proposed, over wildcards ``#0``, ``#1``, ...
        after: the canonical expression for the same function, with what the wildcards stand for.
        latex: both expressions as LaTeX; empty where the rule has no formula here.
        svg: the same as a picture; empty likewise.
        here: both expressions with the nodes of this state in place of the wildcards, with their sizes.
        instead: what :meth:`.Session.take_instead` does; empty where it can do nothing.
    """

    text: str
    rule: str
    kind: str
    section: str
    reason: str
    before: str = ""
    after: str = ""
    latex: str = ""
    svg: str = ""
    here: str | UnsetType = UNSET
    instead: str | UnsetType = UNSET


class Wish(msgspec.Struct, frozen=True):
    """The distance to what is wished, None for out of reach, and its words."""

    number: Number
    words: Sequence[str]


class Choice(msgspec.Struct, frozen=True):
    """A value that may be wanted: ``note`` says what it does, ``feasible`` whether something leads there."""

    name: str
    text: str
    note: str
    feasible: bool


class Now(msgspec.Struct, frozen=True):
    """What is there, beside what is wanted, as a table."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    marks: Sequence[Sequence[str]]


class Wanted(msgspec.Struct, frozen=True):
    """A table of what is wanted that can be changed.

    Attributes:
        title, corner, rows, columns: of the table, and of its rows and columns.
        wanted: its texts.
        now: what is there.
        lacks: the rows and columns of the entries that are not met.
        words: what the texts mean.
        choices: of each entry.
    """

    title: str
    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    wanted: Sequence[Sequence[str]]
    now: Now
    lacks: Sequence[Sequence[int]]
    words: Mapping[Any, str]
    choices: Sequence[Sequence[Sequence[Choice]]]


class Explanation(msgspec.Struct, frozen=True):
    """How far a state is from an operator.

    Attributes:
        number: the distance; None: out of reach.
        words: in sentences.
        groups: a picture, as SVG.
        wish: where something is wished.
        mixing: of a complete state the pane of its mixing (:func:`syno_lab.pgraphs.panes.reach.mixing_data`).
        aims: where it can be changed what is wanted.
    """

    number: Number
    words: Sequence[str]
    groups: str = ""
    wish: Wish | UnsetType = UNSET
    mixing: Any = UNSET
    aims: Sequence[Wanted] | UnsetType = UNSET


class Used(msgspec.Struct, frozen=True):
    """How much is used of what there is: ``share`` of 1, None where there is nothing to compare with."""

    name: str
    text: str
    share: float | None
    over: bool = False


class Tick(msgspec.Struct, frozen=True):
    """A node that can be ticked for a step by hand."""

    id: str
    text: str
    size: str


class Ticked(msgspec.Struct, frozen=True):
    """One of several steps with the ticked nodes; see :class:`Item` and :class:`Preview`."""

    name: str
    text: str
    legal: bool
    canonical: bool
    distance: Number
    reason: str
    notes: Sequence[str]


class Preview(msgspec.Struct, frozen=True):
    """The step of the ticked nodes, or the ``choices`` where there are several."""

    legal: bool
    canonical: bool
    distance: Number
    text: str
    choices: Sequence[Ticked] | UnsetType = UNSET


class Row(msgspec.Struct, frozen=True):
    """A place in the tree of a session.

    Attributes:
        place, parent: the numbers of the place and of the one before it; None for the first.
        text: what it is called.
        start: whether it is a beginning rather than a step.
        distance: how far it is from there to an operator.
        complete: whether it is an operator.
        level: of indentation.
        branch: whether a branch begins here.
        comment: what the user wrote about it.
    """

    place: int
    parent: int | None
    text: str
    start: bool
    distance: Number
    complete: bool
    level: int = 0
    branch: bool = False
    comment: str = ""


def plain(shown: Any) -> Any:
    """The lists, dictionaries, texts and numbers that a browser gets of a record or of several."""
    return msgspec.to_builtins(shown)

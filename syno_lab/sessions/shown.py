"""The records of what a page shows of a session; :func:`plain` converts a record for the browser.

The name of a node is its id in the picture: ``c3`` in a pGraph, ``t2`` in a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

Number = float | None


class Node(msgspec.Struct, frozen=True):
    """A node of a picture: its ``words``, the ids to highlight (``light``), whether a step can use it (``top``)."""

    words: str
    light: Sequence[str]
    top: bool


class Picture(msgspec.Struct, frozen=True):
    """The stepper's picture of a state: SVG with an id for each node, a description, the nodes by their ids."""

    svg: str
    description: str
    nodes: Mapping[str, Node]


class Item(msgspec.Struct, frozen=True):
    """One candidate in the list of next steps.

    Attributes:
        index: the index among the candidates.
        text: the step in words.
        distance: the distance after the step; None if no operator can be reached then.
        reaches: whether the number of remaining steps is at least the distance.
        reason: the reason of the refusal, empty for a canonical step; :class:`Why` has the details.
        rule: the name of the rule that refuses the step.
        operands: the nodes that the step uses; for a CONTRACTION the shared coordinates.
        given: for a CONTRACTION, the nodes that leave the data and index only the weight.
        notes: what the step creates and changes; each note has a few words.
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
    """The candidates of one primitive, sorted by their distances to an operator.

    ``more_canonical`` and ``more_pruned`` count steps that are not listed; ``unjudged`` counts steps that no rule has
    judged yet.
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
        kind: the kind of the rule: ``exact``, ``approximate``, ``space``, ``limit`` or ``your own rule``.
        section: the section of the paper that describes the rule.
        reason: the reason in a sentence; for an approximate rule, with the share of elements that differ.
        before: the proposed expression, over wildcards ``#0``, ``#1``, ...
        after: the canonical expression for the same function, with the meaning of the wildcards.
        latex: the two expressions as LaTeX; empty if the rule has no formula here.
        svg: the two expressions as a picture; empty if the rule has no formula here.
        here: the two expressions with nodes of this state in place of the wildcards, with their sizes.
        instead: what :meth:`.Session.take_instead` does; empty if it has no replacement.
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
    """The property distance as a number (None if no step can meet the wishes any more) and in words."""

    number: Number
    words: Sequence[str]


class Choice(msgspec.Struct, frozen=True):
    """A possible target value: ``note`` describes its effect; ``feasible`` says whether the value can be reached."""

    name: str
    text: str
    note: str
    feasible: bool


class Now(msgspec.Struct, frozen=True):
    """A table of current values, which a page shows beside the target values."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    marks: Sequence[Sequence[str]]


class Wanted(msgspec.Struct, frozen=True):
    """A table of target values that the user can change.

    Attributes:
        title, corner, rows, columns: the titles of the table, its corner, its rows and its columns.
        wanted: the texts of the target values.
        now: the current values.
        lacks: the rows and columns of the entries whose current value does not satisfy the target value.
        words: the meaning of each text.
        choices: the possible values of each entry.
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
    """The distance from a state to an operator, with an explanation.

    Attributes:
        number: the distance; None if no operator can be reached.
        words: the explanation in sentences.
        groups: a picture of the explanation, as SVG.
        wish: the distance to the wishes, if there are wishes.
        mixing: for a complete state, the pane of its mixing (:func:`syno_lab.pgraphs.panes.reach.mixing_data`).
        aims: the tables of target values, if the user can change them.
    """

    number: Number
    words: Sequence[str]
    groups: str = ""
    wish: Wish | UnsetType = UNSET
    mixing: Any = UNSET
    aims: Sequence[Wanted] | UnsetType = UNSET


class Used(msgspec.Struct, frozen=True):
    """How much of a limit is used: ``share`` is the used part, 1 for all; None without a limit."""

    name: str
    text: str
    share: float | None
    over: bool = False


class Tick(msgspec.Struct, frozen=True):
    """A node that the user can tick to build a step by hand."""

    id: str
    text: str
    size: str


class Ticked(msgspec.Struct, frozen=True):
    """One of several steps that use the ticked nodes; :class:`Item` and :class:`Preview` explain the fields."""

    name: str
    text: str
    legal: bool
    canonical: bool
    distance: Number
    reason: str
    notes: Sequence[str]


class Preview(msgspec.Struct, frozen=True):
    """The step that uses the ticked nodes; ``choices`` if several steps use these nodes."""

    legal: bool
    canonical: bool
    distance: Number
    text: str
    choices: Sequence[Ticked] | UnsetType = UNSET


class Row(msgspec.Struct, frozen=True):
    """A row in the list of a session's places.

    Attributes:
        place, parent: the numbers of the place and of its parent; None for the parent of the first place.
        text: the text of the row.
        start: whether the place is a beginning, not the result of a step.
        distance: the distance from the place to an operator.
        complete: whether the place has an operator.
        level: the level of indentation.
        branch: whether the place is the first place of a branch.
        comment: the user's comment about the place.
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
    """Convert one or several records to lists, dictionaries, texts and numbers for a browser."""
    return msgspec.to_builtins(shown)

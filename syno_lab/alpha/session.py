"""A session of αNAS: a chain synthesised by hand, with its history (:class:`syno_lab.protocol.Session`).

A step appends an operation, or changes what is wanted (:mod:`.changes`); both are undone alike.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isinf
from typing import Any

from syno_lab.alpha import drawing, stepping
from syno_lab.alpha.changes import Change, change_of, plain
from syno_lab.alpha.edits import Variant
from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.alpha.session_files import read_session, to_json
from syno_lab.alpha.synthesis import Answer, Candidate, Draft, greedy, progressive
from syno_lab.alpha.wanted import Properties
from syno_lab.drawing.course import courses_svg
from syno_lab.effort import Effort, Stop
from syno_lab.errors import SpecError, SynoError
from syno_lab.history import Entry as AnyEntry
from syno_lab.history import word_of
from syno_lab.history_tree import Tree
from syno_lab.inputs import quoted
from syno_lab.own_rule import RuledHistory, refusing, told
from syno_lab.session_protocol import Labels, Picture

#: The paper's rule is drawn so often at most: one of six does not satisfy (section 5).
ATTEMPTS = 30
Taken = Operation | Change


@dataclass(frozen=True)
class Entry(AnyEntry):
    """One place in the history; its distance is the sum of those of the properties."""

    def _measure(self, effort: Effort | None) -> float | None:
        return None if isinf(self.state.distance) else float(plain(self.state.distance))


class AlphaSession(RuledHistory[Draft, Taken, Entry]):
    """A draft to step on from, and all that led to it.

    Args:
        start: a draft; or a graph, a variant or an operator that is a chain (begin with its last operation, with its
            own properties wanted).
        known: operators that :meth:`load` finds by name.
    """

    labels = Labels(
        distance="Distance",
        groups="What is missing",
        far="distance #",
        reached="all satisfied",
        suggest="The operation that brings the chain nearest (greedy)",
        finish="Append the nearest operation each time until all is satisfied (greedy), and play that",
        random="Append operations drawn by the paper's rule, the nearer the likelier, and play that",
        reset="Begin again with the input and the same properties wanted; Undo brings back what was",
        more="of the same operation",
        none="Nothing can be appended here.",
        hand_group="",
        hand_title="",
        hand="",
        hand_columns=("", "", ""),
        hand_button="",
        hand_nothing="",
        hand_work="",
        way="looking for the nearest operations",
        random_way="drawing operations",
        strip="Distances",
        offered="offered",
        refused="left out",
        progress="Undo the operations that made no progress",
        graph="chain of operations",
    )

    @property
    def operator(self) -> NetworkOperator:
        """The operator that is shown: the one that was given, or the chain by itself.

        Raises:
            SynoError: when the chain does not satisfy what is wanted.
        """
        if self.entry.operator is None and not self.state.is_complete:
            raise SynoError(f"no operator yet: {stepping.status(self.state)}")
        found: NetworkOperator = self.entry.operator or NetworkOperator.of_graph(self.state.graph())
        return found

    def _judged(self, state: Draft, one: Candidate) -> Candidate:
        """A candidate with the verdict of the user's rules, where it is not left out anyhow."""
        rule = refusing(self.own, state, one.operation) if one.verdict not in stepping.LEFT_OUT else None
        return one if rule is None else replace(one, verdict="refused", reason=rule.reason, rule=rule.name)

    # -- what the history asks ---------------------------------------------------------------------------------------

    def _line(self, start: Any, note: str) -> tuple[Entry, ...]:
        if isinstance(start, Draft):
            draft, operator = start, None
        elif isinstance(start, Graph | Variant | NetworkOperator):
            operator = _operator_of(start)
            graph = operator.graph
            draft = Draft(Properties.of(graph), graph.inputs[0], tuple([node.operation for node in graph.nodes]))
        else:
            raise SpecError(f"expected a Draft, a Graph or an operator to start from, found {quoted(start)}")
        found = [replace(self._beginning(draft), note=note)]
        for operation in draft.chain:
            found.append(self._after(found[-1].state, operation))
        found[-1] = replace(found[-1], operator=operator)
        return tuple(found)

    def _beginning(self, state: Draft) -> Entry:
        return Entry(Draft(state.properties, state.input_shape, others=state.others))

    def _step(self, step: Any) -> Taken:
        found = step.operation if isinstance(step, Candidate) else step
        if not isinstance(found, Operation | Change):
            raise SpecError(f"expected an operation, a candidate or a change, found {quoted(step)}")
        return found

    def _after(self, state: Draft, step: Taken) -> Entry:
        return Entry(step.apply(state) if isinstance(step, Change) else state.apply(step), step)

    def _stays(self, entry: Entry) -> bool:
        return isinstance(entry.step, Change) or super()._stays(entry)

    def _way(self, seconds: float | None, should_stop: Stop | None) -> tuple[Taken, ...]:
        rng = random.Random(0)  # noqa: S311 - equal states get equal suggestions
        return _steps(self.state, greedy(self.state, rng, refuses=self._refuses))

    def random_steps(self, state: Draft, rng: random.Random, *, should_stop: Stop | None = None) -> tuple[Taken, ...]:
        """The rule of section 5 (:func:`.progressive`), drawn again where it gives up."""
        effort = Effort(should_stop=should_stop)
        shortest = _steps(state, greedy(state, rng, refuses=self._refuses))
        length = max(state.properties.length or 0, len(state.chain) + len(shortest))
        for _ in range(ATTEMPTS):
            effort.look("drawing operations")
            answer = progressive(state, rng, length, self._refuses)
            if answer.draft is not None:
                return _steps(state, answer)
        return shortest

    def aimed(self, state: Draft, choice: str) -> Change:
        """See :func:`syno_lab.alpha.changes.change_of`."""
        return change_of(state, choice)

    # -- as text -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """See :func:`syno_lab.alpha.session_files.to_json`."""
        return to_json(self)

    def to_word(self) -> str:
        """The same in one word: :func:`syno_lab.history.word_of`."""
        return word_of(self.to_json())

    def read(self, text: str) -> AlphaSession:
        """See :func:`syno_lab.alpha.session_files.read_session`."""
        return read_session(text, self.known)

    # -- the place that is shown -------------------------------------------------------------------------------------

    def picture(self) -> Picture:
        """The chain, its last operation marked, with the distances of the properties after each."""
        draft = self.state
        graph, last = draft.graph(), len(draft.chain) - 1
        part = Draft(draft.properties, draft.input_shape, others=draft.others)
        notes = {}
        for number, operation in enumerate((*draft.chain, None)):
            notes[number] = [", ".join(f"{name} {plain(far)}" for name, far in part.distances.items())]
            if operation is not None:
                part = part.apply(operation)
        svg = drawing.svg(graph, highlight=[last] if draft.chain else [], notes=notes)
        ends = stepping.ends(draft)
        nodes = {
            name: {"words": words, "light": light, "top": name in ends}
            for name, (words, light) in drawing.parts(graph, notes).items()
        }
        return Picture(svg, drawing.describe(graph), nodes)

    def status(self, seconds: float | None = None) -> str:
        """See :func:`syno_lab.alpha.stepping.status`; nothing of it takes long."""
        return told(stepping.status(self.state), self.absent)

    def strip(self, state: Draft) -> list[dict[str, Any]]:
        """See :func:`syno_lab.alpha.stepping.strip`."""
        return stepping.strip(state)

    def course(self, most: int) -> str:
        """A line for each property, see :func:`syno_lab.drawing.course.courses_svg`."""
        shown, here, first = self.around_here(most)
        lines = {
            name: [None if isinf(far := entry.state.distances[name]) else far for entry in shown]
            for name in stepping.NAMES
        }
        return courses_svg(lines, here, first)

    @cached_property
    def _tree(self) -> Tree:
        return Tree(_said)

    def rows(self, *, should_stop: Stop | None = None) -> list[dict[str, Any]]:
        """See :class:`syno_lab.history.Tree`."""
        return self._tree.rows(self, Effort(should_stop=should_stop))

    # -- next steps --------------------------------------------------------------------------------------------------

    def candidates(self, state: Draft, *, should_stop: Stop | None = None) -> Sequence[Candidate]:
        """All operations with their verdicts (:meth:`.Draft.candidates`), those that are represented among them."""
        return [self._judged(state, one) for one in state.candidates(represented=True)]

    def menu(
        self, state: Draft, found: Sequence[Candidate], chosen: str = "", whole: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """See :func:`syno_lab.alpha.stepping.menu`."""
        return stepping.menu(state, found, chosen, whole)

    def ticks(self, state: Draft) -> list[dict[str, Any]]:
        """Nothing is put together by ticks."""
        return []

    def ticked(self, state: Draft, share: Sequence[str], give: Sequence[str], choice: str = "") -> Taken:
        """Nothing is put together by ticks. Raises SynoError."""
        raise SynoError("αNAS: expected an operation of the list, found ticks")

    def preview(
        self,
        state: Draft,
        found: Sequence[Candidate],
        share: Sequence[str],
        give: Sequence[str],
        *,
        should_stop: Stop | None = None,
    ) -> dict[str, Any]:
        """Nothing is put together by ticks."""
        return {}

    def why(self, state: Draft, candidate: Candidate) -> dict[str, Any]:
        """See :func:`syno_lab.alpha.stepping.why`."""
        return stepping.why(candidate)

    def explain(self, state: Draft, *, should_stop: Stop | None = None) -> dict[str, Any]:
        """See :func:`syno_lab.alpha.stepping.explain`."""
        return stepping.explain(state)


def _said(entry: Entry) -> str:
    step = entry.step
    return step.words(entry.state) if isinstance(step, Change) else str(step)


def _operator_of(start: Graph | Variant | NetworkOperator) -> NetworkOperator:
    if isinstance(start, Graph):
        start = NetworkOperator.of_graph(start)
    operator = NetworkOperator(start) if isinstance(start, Variant) else start
    if not operator.graph.is_chain:
        raise SpecError(
            "αNAS: expected a chain of operations to step through, found a graph with branches; begin with "
            "Draft(Properties.of(graph), shape) to synthesise a chain in its place"
        )
    return operator


def _steps(state: Draft, answer: Answer) -> tuple[Operation, ...]:
    """What an answer appends to a draft. Raises SynoError for none, and for a draft that satisfies all already."""
    if answer.draft is None:
        raise SynoError(f"no operations lead to what is wanted from here: {answer.reason}; undo some steps")
    if state.is_complete:
        raise SynoError("nothing to append: all that is wanted is satisfied already")
    return answer.draft.chain[len(state.chain) :]

"""A session of pGraphs as the stepper shows it: drawn, listed and explained.

It is a :class:`syno_lab.session_protocol.Session`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from syno_lab.codegen import drawing, drawing_menu
from syno_lab.codegen.drawing_distance import explanation_words, groups_svg
from syno_lab.codegen.drawing_links import links
from syno_lab.codegen.drawing_session import session_status
from syno_lab.codegen.text import expressions
from syno_lab.drawing.course import course_svg
from syno_lab.effort import Effort, Stop
from syno_lab.errors import SpecError, SynoError
from syno_lab.history_tree import Tree
from syno_lab.inputs import count_of
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State, Step
from syno_lab.own_rule import told
from syno_lab.pgraphs.panes.reach import mixing_data
from syno_lab.session_protocol import Labels, Picture
from syno_lab.synthesis.candidates import Candidate, Candidates, candidates
from syno_lab.synthesis.distance import distance, explain_distance
from syno_lab.synthesis.instead import Instead, instead
from syno_lab.synthesis.property_distance import explain_property_distance
from syno_lab.synthesis.session import Session
from syno_lab.synthesis.session_text import read_session, to_json, to_word
from syno_lab.synthesis.ways import random_way


class PGraphSession(Session):
    """See :class:`syno_lab.synthesis.session.Session`; and the data of a stepper's page."""

    labels = Labels(
        distance="Shape distance",
        groups="Why: the reshape groups",
        far="distance #",
        reached="complete",
        suggest="The next step of a shortest way to the input",
        finish="Play a shortest way to the input",
        random="Play random canonical steps to an operator",
        reset="Begin again with the output; Undo brings back what was",
        more="farther from the input",
        none="No next step within the budgets.",
        hand_group="SHARE",
        hand_title="CONTRACTION (SHARE)",
        hand="By hand: tick what the new weight shares with the data, and what is given to it",
        hand_columns=("coordinate", "share", "give"),
        hand_button="Contract with a new weight",
        hand_nothing="Nothing is ticked.",
        hand_work="looking at the contraction",
        way="looking for a shortest way to the input",
        random_way="looking for random steps to the input",
    )

    # -- as text -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """See :func:`syno_lab.synthesis.session_text.to_json`."""
        return to_json(self)

    def to_word(self) -> str:
        """See :func:`syno_lab.synthesis.session_text.to_word`."""
        return to_word(self)

    def read(self, text: str) -> PGraphSession:
        """See :func:`syno_lab.synthesis.session_text.read_session`."""
        return read_session(text, self.known, PGraphSession)

    # -- the place that is shown -------------------------------------------------------------------------------------

    def picture(self) -> Picture:
        """The pGraph with its last step marked; a node that a step can use is a coordinate of the data."""
        state = self.state
        shown: State | Operator = self.operator if self.is_complete else state
        latest = [len(state.steps) - 1] if state.steps else []
        svg = drawing.svg(shown, highlight=latest, is_steady=True)
        free = {name for name, c in drawing.coordinate_ids(shown).items() if c in state.data and c not in state.fixed}
        nodes = {
            name: {"words": link.words, "light": list(link.light), "top": name in free}
            for name, link in links(shown, svg).items()
        }
        return Picture(svg, drawing.describe(shown), nodes)

    def status(self, seconds: float | None = None) -> str:
        """See :func:`syno_lab.codegen.drawing_session.session_status`."""
        return told(session_status(self, None if seconds is None else Effort(seconds)), self.absent)

    def course(self, most: int) -> str:
        """See :func:`syno_lab.drawing.course.course_svg`."""
        shown, here, first = self.around_here(most)
        wished = [entry.wished() for entry in shown] if any(entry.state.spec.wants for entry in shown) else None
        return course_svg([entry.distance for entry in shown], here, first, wished)

    @cached_property
    def _tree(self) -> Tree:
        return Tree(lambda entry: drawing.describe_step(entry.state, entry.step))

    def rows(self, *, should_stop: Stop | None = None) -> list[dict[str, Any]]:
        """See :class:`syno_lab.history.Tree`."""
        return self._tree.rows(self, Effort(should_stop=should_stop))

    def strip(self, state: State) -> list[dict[str, Any]]:
        """Nothing: the status says what is left of the budget."""
        return []

    # -- next steps --------------------------------------------------------------------------------------------------

    def candidates(self, state: State, *, should_stop: Stop | None = None) -> Sequence[Candidate]:
        """See :func:`syno_lab.synthesis.candidates.candidates`."""
        return candidates(state, self.rules, should_stop=should_stop)

    def menu(
        self, state: State, found: Sequence[Candidate], chosen: str = "", whole: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """See :func:`syno_lab.codegen.drawing_menu.menu`; of a chosen coordinate the steps that use it."""
        coordinate = drawing.coordinate_ids(state).get(chosen)
        only = None if coordinate is None else drawing_menu.touching(found, coordinate)
        return [msgspec.to_builtins(group) for group in drawing_menu.menu(state, found, only=only, whole=whole)]

    def why(self, state: State, candidate: Candidate) -> dict[str, Any]:
        """See :func:`syno_lab.codegen.drawing_menu.why`."""
        found: dict[str, Any] = msgspec.to_builtins(drawing_menu.why(state, candidate))
        way = instead(self._path(state), candidate.verdict, self.rules)
        return {**found, "instead": "" if way is None else _words(way)}

    def take_instead(self, candidate: Candidate) -> State:
        """The canonical steps in place of a pruned one, as a branch behind the place where they begin."""
        way = instead(self._path(self.state), candidate.verdict, self.rules)
        if way is None:
            return super().take_instead(candidate)
        self.jump(self.position - way.back)
        return self.lay(way.steps)

    def _path(self, state: State) -> list[State]:
        """The states of the steps that lead to the shown place; of another state itself alone."""
        entry = self.entry
        if entry.state is not state:
            return [state]
        path = [state]
        while entry.step is not None and entry.parent is not None:
            entry = self.places[entry.parent]
            path.append(entry.state)
        return path[::-1]

    def explain(self, state: State, *, should_stop: Stop | None = None) -> dict[str, Any]:
        """The shape distance, in sentences, with the reshape groups as SVG; where something is wished, ``wish`` too.

        Of a complete state also ``mixing``, :func:`.mixing_data`: the matrix against the wishes of the spec.
        """
        found = explain_distance(state, should_stop=should_stop)
        groups = groups_svg(found) if found.groups else ""
        data: dict[str, Any] = {"number": found.steps, "words": explanation_words(found), "groups": groups}
        wished = explain_property_distance(state, should_stop=should_stop)
        if wished.served:
            data["wish"] = {"number": wished.steps, "words": wished.words()}
        if state.spec.wants and state.is_complete:
            with suppress(SpecError):  # too large to look at: the status says it
                data["mixing"] = mixing_data(state.operator())
        return data

    def random_steps(self, state: State, rng: random.Random, *, should_stop: Stop | None = None) -> tuple[Step, ...]:
        """See :func:`syno_lab.synthesis.ways.random_way`."""
        return random_way(state, rng, self.rules, should_stop=should_stop).steps

    # -- a contraction put together by hand --------------------------------------------------------------------------

    def ticks(self, state: State) -> list[dict[str, Any]]:
        """See :func:`syno_lab.codegen.drawing_menu.ticks`."""
        return drawing_menu.ticks(state)

    def ticked(self, state: State, share: Sequence[str], give: Sequence[str], choice: str = "") -> Step:
        """See :func:`syno_lab.codegen.drawing_menu.contraction`. Raises SynoError for a name that is none."""
        try:
            return drawing_menu.contraction(state, share, give)
        except KeyError as missing:
            raise SynoError(f"no coordinate {missing} in this pGraph") from None

    def preview(
        self,
        state: State,
        found: Sequence[Candidate],
        share: Sequence[str],
        give: Sequence[str],
        *,
        should_stop: Stop | None = None,
    ) -> dict[str, Any]:
        """Whether the CONTRACTION is legal and canonical, and the distance it leads to."""
        if not share and not give:
            return {}
        step = self.ticked(state, share, give)
        try:
            after = state.apply(step)
        except SynoError as refused:
            return {"legal": False, "canonical": False, "distance": None, "text": str(refused)}
        listed = found.of_contraction(step.operands, step.given) if isinstance(found, Candidates) else None
        if listed is None:
            far, text = distance(after, should_stop=should_stop), "legal, but outside the space of this spec's budgets"
            return {"legal": True, "canonical": False, "distance": far, "text": text}
        verdict = listed.verdict
        return {
            "legal": True,
            "canonical": verdict.canonical,
            "distance": listed.distance,
            "text": verdict.reason or "canonical",
        }


def _words(way: Instead) -> str:
    """What :meth:`PGraphSession.take_instead` does."""
    names = expressions(way.state)
    undone = [f"undo {count_of(way.back, 'step')}"] if way.back else []
    return "; ".join([*undone, *(drawing.describe_step(way.state, step, names) for step in way.steps)]) or "no step"

"""A session of Canvas: a micro-DAG grown by hand, with its history (:class:`syno_lab.session_protocol.Session`)."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from syno_lab.canvas import drawing, growth, stepping
from syno_lab.canvas.aim import Aim, AimedDraft, Taken
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.growth import Candidate, OwnLimit
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.canvas.session_files import read_session, to_json
from syno_lab.canvas.ways import random_way, shortest_way
from syno_lab.drawing.course import course_svg
from syno_lab.effort import Effort, Stop
from syno_lab.errors import SpecError, SynoError
from syno_lab.history import Entry as AnyEntry
from syno_lab.history import word_of
from syno_lab.history_tree import Tree
from syno_lab.inputs import quoted
from syno_lab.own_rule import RuledHistory, refusing, told
from syno_lab.session_protocol import Labels, Picture


@dataclass(frozen=True)
class Entry(AnyEntry):
    """One place in the history; its distance is how many more primitives a kernel needs at least."""

    def _measure(self, effort: Effort | None) -> int | None:
        found: int | None = self.state.needed
        return found


class CanvasSession(RuledHistory[AimedDraft, Taken, Entry]):
    """A draft to step on from, and all that led to it.

    Args:
        start: a draft, a kernel or a fitted kernel (begin with its last step), or a draft with its aim.
        known: operators that :meth:`load` finds by name and :attr:`name` recognises.
    """

    labels = Labels(
        distance="Primitives still needed",
        groups="Why: what is counted",
        far="at least # more",
        reached="complete if it fits",
        suggest="The next step of a shortest way to an operator",
        finish="Play a shortest way to an operator",
        random="Play random steps to an operator, drawn as the sampler draws",
        reset="Begin again with the input; Undo brings back what was",
        more="needing more primitives",
        none="Nothing can be added.",
        hand_group="",
        hand_title="BY HAND",
        hand="Tick one tensor, or both sides of a broadcast, and choose what is done with them",
        hand_columns=("tensor", "LHS", "RHS"),
        hand_button="",
        hand_nothing="Nothing is ticked.",
        hand_work="looking at the ticked tensors",
        way="looking for a shortest way to an operator",
        random_way="looking for random steps to an operator",
        graph="micro-DAG",
    )

    @property
    def operator(self) -> Fitted:
        """The operator that is shown: the one that was given, or the draft's, fitted to the places of its aim.

        Raises:
            SynoError: when the draft is not complete.
        """
        found: Fitted = self.entry.operator or self.state.operator()
        return found

    @property
    def name(self) -> str | None:
        """The known kernel that this is isomorphic to; None for another or an incomplete one."""
        if not self.is_complete:
            return None
        key = self.operator.kernel.key
        return next((name for name, known in self._keys.items() if known == key), None)

    @cached_property
    def _keys(self) -> dict[str, str]:
        normalise = self._places[0].state.aim.normalise
        return {name: Kernel(make().kernel.nodes, normalise).key for name, make in self.known.items()}

    def judged(self, state: AimedDraft, one: Candidate) -> Candidate:
        """A candidate with the verdict of the user's rules, where nothing else refuses it."""
        rule = refusing(self.own, state, Taken(*one[:3])) if one.may_be_taken else None
        return one if rule is None else one._replace(verdict=OwnLimit(rule.name, rule.reason))

    # -- what the history asks ---------------------------------------------------------------------------------------

    def _line(self, start: Any, note: str) -> tuple[Entry, ...]:
        if isinstance(start, AimedDraft):
            aim, nodes = start.aim, start.draft.nodes
        elif isinstance(start, Draft | Kernel):
            aim, nodes = Aim.of(start), start.nodes
        elif isinstance(start, Fitted):
            aim, nodes = Aim.of(start), start.kernel.nodes
        else:
            raise SpecError(f"expected a Draft, a Kernel or a Fitted to start from, found {quoted(start)}")
        found = [Entry(AimedDraft(Draft(), aim), None, note)]
        for primitive, inputs in nodes:
            found.append(self._after(found[-1].state, Taken(primitive, inputs)))
        if isinstance(start, Fitted):
            last = found[-1]
            found[-1] = Entry(last.state, last.step, last.note, start)
        return tuple(found)

    def _loaded(self, operator: Any) -> Any:
        """An operator that was fitted to no place goes on with the places and the budget of the session."""
        aim = self.state.aim
        if isinstance(operator, Fitted) and not operator.places and not aim.is_example:
            return AimedDraft(Draft(operator.kernel.nodes), aim)
        return operator

    def _beginning(self, state: AimedDraft) -> Entry:
        return Entry(AimedDraft(Draft(), state.aim))

    def _step(self, step: Any) -> Taken:
        return step if isinstance(step, Taken) else self.state.step(step)

    def _after(self, state: AimedDraft, step: Taken) -> Entry:
        return Entry(state.apply(step), state.step(step))

    def _way(self, seconds: float | None, should_stop: Stop | None) -> tuple[Taken, ...]:
        return shortest_way(self.state, seconds=seconds, should_stop=should_stop, refuses=self._refuses)

    def random_steps(
        self, state: AimedDraft, rng: random.Random, *, should_stop: Stop | None = None
    ) -> tuple[Taken, ...]:
        """See :func:`syno_lab.canvas.ways.random_way`."""
        return random_way(state, rng, should_stop=should_stop, refuses=self._refuses)

    # -- as text -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """See :func:`syno_lab.canvas.session_files.to_json`."""
        return to_json(self)

    def to_word(self) -> str:
        """The same in one word: :func:`syno_lab.history.word_of`."""
        return word_of(self.to_json())

    def read(self, text: str) -> CanvasSession:
        """See :func:`syno_lab.canvas.session_files.read_session`."""
        return read_session(text, self.known)

    # -- the place that is shown -------------------------------------------------------------------------------------

    def picture(self) -> Picture:
        """The micro-DAG with its last tensor marked: a draft with its leaves, an operator with its output."""
        draft = self.state.draft
        marked = [len(draft.nodes)] if draft.nodes else []
        if self.is_complete:
            operator = self.operator
            svg, said = drawing.svg(operator, highlight=marked), drawing.words(operator)
            description = drawing.describe(operator.kernel)
        else:
            svg, said = drawing.draft_svg(draft, highlight=marked), drawing.draft_words(draft)
            description = drawing.describe_draft(draft)
        lit = drawing.lights(draft, said)
        nodes = {name: {"words": said[name], "light": lit[name], "top": name.startswith("t")} for name in said}
        return Picture(svg, description, nodes)

    def status(self, seconds: float | None = None) -> str:
        """How far the draft is, in one or two sentences; nothing of it takes long."""
        return told(stepping.status(self.state, self.name, self.operator if self.is_complete else None), self.absent)

    def strip(self, state: AimedDraft) -> list[dict[str, Any]]:
        """See :func:`syno_lab.canvas.stepping.strip`."""
        return stepping.strip(state)

    def course(self, most: int) -> str:
        """See :func:`syno_lab.drawing.course.course_svg`."""
        shown, here, first = self.around_here(most)
        return course_svg([entry.distance for entry in shown], here, first, name=self.labels.distance)

    @cached_property
    def _tree(self) -> Tree:
        return Tree(lambda entry: str(entry.step))

    def rows(self, *, should_stop: Stop | None = None) -> list[dict[str, Any]]:
        """See :class:`syno_lab.history.Tree`."""
        return self._tree.rows(self, Effort(should_stop=should_stop))

    # -- next steps --------------------------------------------------------------------------------------------------

    def candidates(self, state: AimedDraft, *, should_stop: Stop | None = None) -> Sequence[Candidate]:
        """Every primitive on every tensor and every broadcast of two (:func:`syno_lab.canvas.growth.candidates`)."""
        effort = Effort(should_stop=should_stop)
        look = lambda: effort.tick("listing the next primitives")  # noqa: E731 - a name for what is asked often
        return [self.judged(state, one) for one in growth.candidates(state.draft, state.aim.room, look=look)]

    def menu(
        self, state: AimedDraft, found: Sequence[Candidate], chosen: str = "", whole: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """See :func:`syno_lab.canvas.stepping.menu`; of a chosen tensor those that use it."""
        return stepping.menu(state, found, chosen, whole)

    def ticks(self, state: AimedDraft) -> list[dict[str, Any]]:
        """See :func:`syno_lab.canvas.stepping.ticks`."""
        return stepping.ticks(state)

    def ticked(self, state: AimedDraft, share: Sequence[str], give: Sequence[str], choice: str = "") -> Taken:
        """The step of ticked tensors: LHS and RHS; of several the one that is called ``choice``."""
        return stepping.ticked(state, share, give, choice)

    def preview(
        self,
        state: AimedDraft,
        found: Sequence[Candidate],
        share: Sequence[str],
        give: Sequence[str],
        *,
        should_stop: Stop | None = None,
    ) -> dict[str, Any]:
        """See :func:`syno_lab.canvas.stepping.preview`."""
        return stepping.preview(state, share, give, lambda one: self.judged(state, one))

    def why(self, state: AimedDraft, candidate: Candidate) -> dict[str, Any]:
        """See :func:`syno_lab.canvas.stepping.why`."""
        if candidate.verdict is None:
            raise SynoError("expected a refused step; this one may be taken, and nothing has anything against it")
        return stepping.why(candidate, candidate.verdict)

    def explain(self, state: AimedDraft, *, should_stop: Stop | None = None) -> dict[str, Any]:
        """See :func:`syno_lab.canvas.stepping.explain`."""
        return stepping.explain(state)

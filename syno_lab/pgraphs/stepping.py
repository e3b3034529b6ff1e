"""The construction of pGraphs step by step, for the sessions and steppers of all systems (:mod:`syno_lab.sessions`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from syno_lab.codegen import drawing
from syno_lab.codegen.drawing_distance import explanation_words, groups_svg
from syno_lab.codegen.drawing_links import links
from syno_lab.codegen.mixing import wish_verdict
from syno_lab.codegen.text import expressions
from syno_lab.common.probe import beside_convolution
from syno_lab.common.wants import wants_text
from syno_lab.drawing.course import course_svg
from syno_lab.effort import Effort, Stop
from syno_lab.errors import EffortError, FormatError, SpecError, SynoError
from syno_lab.inputs import count_of
from syno_lab.ir import files
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.files import StepRecord, looked_up, step_of, step_record
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.operators import KNOWN
from syno_lab.pgraphs import menu as listing
from syno_lab.pgraphs.panes.reach import mixing_data
from syno_lab.pgraphs.probe import probe
from syno_lab.search.branches import Branch, Kind
from syno_lab.sessions.construction import (
    Beginning,
    ByHand,
    Construction,
    Detour,
    Detours,
    Explorable,
    HandLabels,
    Labels,
    Patience,
    Place,
    Reader,
    Records,
)
from syno_lab.sessions.own_rule import OwnRule
from syno_lab.sessions.shown import Explanation, Group, Node, Picture, Preview, Wish
from syno_lab.sessions.text import head_of
from syno_lab.synthesis.candidates import Candidate, Candidates, candidates
from syno_lab.synthesis.distance import distance, explain_distance
from syno_lab.synthesis.fields import SpecFields
from syno_lab.synthesis.orders import recognise
from syno_lab.synthesis.property_distance import explain_property_distance, property_distance
from syno_lab.synthesis.rules import OWN, RULES, Rule
from syno_lab.synthesis.ways import instead, random_way, shortest_way, steps_left


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.PlaceRecord`. ``match`` has the coordinates that match a given operator's input.

    Coordinates are numbered along the session's path: first the output axes, then the results of each step.
    """

    parent: int | None = None
    step: StepRecord | None = None
    spec: int | None = None
    note: str = ""
    match: list[int] | None = None
    comment: str = ""


class SessionRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.SessionRecord`."""

    format: str
    version: int
    specs: list[SpecFields]
    places: list[PlaceRecord]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


def records(places: Sequence[Place[State, Step]]) -> Records:
    """See :meth:`.Construction.records`."""
    specs: list[Spec] = []
    written = []
    coordinates: list[tuple[Coordinate, ...]] = []
    for entry in places:
        if entry.step is None:
            if entry.state.spec not in specs:
                specs.append(entry.state.spec)
            numbered = entry.state.output
            record = PlaceRecord(spec=specs.index(entry.state.spec))
        else:
            assert entry.parent is not None
            numbered = coordinates[entry.parent]
            record = PlaceRecord(step=step_record(entry.step, numbered.index))
            numbered += places[entry.parent].state.results(entry.step)
        if entry.operator is not None:
            record.match = list(map(numbered.index, entry.operator.inputs))
        coordinates.append(numbered)
        written.append(record)
    return Records([[SpecFields.from_spec(spec) for spec in specs]], written)


def reader(construction: Construction[State, Step, Candidate], record: SessionRecord) -> Reader[State, Step]:
    """See :meth:`.Construction.reader`."""
    specs = [fields.spec() for fields in record.specs]
    coordinates: list[tuple[Coordinate, ...]] = []

    def read(one: PlaceRecord, before: Sequence[Place[State, Step]], where: str) -> Place[State, Step]:
        step: Step | None = None
        spec = head_of(one.parent, one.step is not None, one.spec, specs, "a spec", where)
        if spec is not None:
            state = State.root(spec)
            numbered = state.output
        elif one.step is not None:
            last, numbered = before[one.parent or 0].state, coordinates[one.parent or 0]
            step = step_of(one.step, numbered, last.spec.symbols, f"session: {where}")
            state = last.apply(step)
            numbered += last.results(step)
        coordinates.append(numbered)
        operator = None
        if one.match is not None:
            inputs = looked_up(one.match, numbered, f"session: {where}")
            if not state.is_match(inputs):
                raise FormatError(f"session: {where}: match: expected one data coordinate for each input axis")
            operator = Operator(state, inputs)
        return Place(construction, state, step, operator=operator)

    return read


#: The limit of counted matches between data and input in a status.
_MAX_WAYS = 24
PlaceOf = Place[State, Step]


class PGraphConstruction(
    Construction[State, Step, Candidate],
    ByHand[State, Step, Candidate],
    Detours[State, Step, Candidate],
    Explorable[State, Step, Candidate],
):
    """The construction of pGraphs from the output up. A session starts with a spec, a partial pGraph or an operator."""

    labels = Labels(
        distance="Shape distance",
        groups="Why: the reshape groups",
        suggest="The next step of a shortest way to the input",
        finish="Play a shortest way to the input",
        random="Play random canonical steps to an operator",
        reset="Begin again with the output; Undo brings back what was",
        more="farther from the input",
        none="No next step within the budgets.",
        way="looking for a shortest way to the input",
        random_way="looking for random steps to the input",
        graph="pGraph",
    )
    hand = HandLabels(
        group="SHARE",
        title="CONTRACTION (SHARE)",
        text="By hand: tick what the new weight shares with the data, and what is given to it",
        columns=("coordinate", "share", "give"),
        button="Contract with a new weight",
        nothing="Nothing is ticked.",
        work="looking at the contraction",
    )
    rules = RULES
    row = Rule
    known: ClassVar[Mapping[str, Callable[[], Any]]] = KNOWN

    # -- states and steps --------------------------------------------------------------------------------------------

    def knows(self, start: Any) -> bool:
        """Check whether ``start`` is a spec or a partial pGraph."""
        return isinstance(start, Spec | State)

    def begin(self, start: Spec | State | Operator) -> Beginning[State, Step]:
        """Return the first state (the output alone), and the steps from this state to ``start``.

        If the limit of steps is below the number of steps of ``start``, it becomes this number.
        """
        if isinstance(start, Spec):
            return Beginning(State.root(start))
        if len(start.steps) > start.spec.limits.max_primitives:
            limits = replace(start.spec.limits, max_primitives=len(start.steps))
            state = start if isinstance(start, State) else start.state
            state = replace(state, spec=replace(start.spec, limits=limits))
            start = state if isinstance(start, State) else replace(start, state=state)
        return Beginning(State.root(start.spec), start.steps, start if isinstance(start, Operator) else None)

    def operator(self, state: State) -> Operator:
        """Return the operator of the first match between state and input. Raises PrimitiveError without a match."""
        return state.operator()

    def distance(self, state: State, effort: Effort | None = None) -> int | None:
        """Return the shape distance from a state to the input."""
        return distance(state, effort=effort)

    def candidates(self, state: State, rules: Sequence[Rule], should_stop: Stop | None = None) -> Sequence[Candidate]:
        """See :func:`syno_lab.synthesis.candidates.candidates`."""
        return candidates(state, tuple(rules), should_stop=should_stop)

    def way(
        self, state: State, rules: Sequence[Rule], patience: Patience, rng: random.Random | None = None
    ) -> tuple[Step, ...]:
        """See :mod:`syno_lab.synthesis.ways`."""
        if rng is None:
            return shortest_way(state, tuple(rules), **patience._asdict()).steps
        return random_way(state, rng, tuple(rules), **patience._asdict()).steps

    def rule(self, own: OwnRule) -> Rule:
        """Return the user's rule as a Rule that restricts the choice of steps (kind ``space``)."""
        return Rule(own.name, "", "", own.reason, OWN, "space", own.match)

    def loaded(self, operator: Operator, first: State, shown: State) -> Operator:
        """Return the operator; without wishes it gets the wishes of the session's first state, if it has their axes."""
        spec = first.spec
        if operator.spec.wants or not spec.wants:
            return operator
        try:
            own = operator.spec.with_wants(wants_text(spec.wants, spec.input_shape, spec.output_shape))
        except SpecError:
            return operator
        return replace(operator, state=replace(operator.state, spec=own))

    name = staticmethod(recognise)

    # -- as text -----------------------------------------------------------------------------------------------------

    format = "syno-lab-session"
    record = SessionRecord
    readers: ClassVar[Mapping[str, Callable[[str], Any]]] = {files.FORMAT: files.from_json}

    records, reader = staticmethod(records), reader

    # -- pictures and texts ------------------------------------------------------------------------------------------

    def picture(self, place: PlaceOf) -> Picture:
        """Draw the pGraph with its last step highlighted; the next step can use the nodes of data coordinates."""
        state = place.state
        shown: State | Operator = place.built if place.is_complete else state
        latest = [len(state.steps) - 1] if state.steps else []
        svg = drawing.svg(shown, highlight=latest, is_steady=True)
        free = {name for name, c in drawing.coordinate_ids(shown).items() if c in state.data and c not in state.fixed}
        nodes = {name: Node(link.words, list(link.light), name in free) for name, link in links(shown, svg).items()}
        return Picture(svg, drawing.describe(shown), nodes)

    describe = staticmethod(drawing.describe_step)

    def status(self, place: PlaceOf, name: str | None, effort: Effort | None) -> str:
        """Describe the steps so far and the distances; if computing the shape distance takes too long, leave it out."""
        state = place.state
        count = count_of(len(state.steps), "step")
        if place.is_complete:
            ways = sum(1 for _ in islice(state.matches(), _MAX_WAYS + 1))
            this = f"this is {name}" if name else "an operator that has no name here"
            number = f"{ways}" if ways <= _MAX_WAYS else f"more than {_MAX_WAYS}"
            many = f"; one of {number} ways to match the input is shown" if ways > 1 else ""
            verdict = wish_verdict(state.operator())
            return f"Complete after {count}: {this}{many}.{f' It {verdict}.' if verdict else ''}"
        left = f"{steps_left(state)} left in the budget."
        try:
            far = place.measured(effort)
        except EffortError:
            return f"After {count}: the shape distance is not known yet, {left}"
        if far is None:
            return f"After {count}: the input is out of reach within the budgets."
        wished = ""
        if state.spec.wants:
            try:
                wish = _wished(place, effort)
            except EffortError:
                wish = far
            if wish is None:
                return f"After {count}: shape distance {far}, what is wished is out of reach."
            wished = f" property distance {wish},"
        return f"After {count}: shape distance {far},{wished} {left}"

    def course(self, places: Sequence[PlaceOf], here: int, first: int) -> str:
        """Draw the shape distances as SVG, and the property distances if the spec has wishes."""
        wished = [_wished(place) for place in places] if any(place.state.spec.wants for place in places) else None
        return course_svg([place.distance for place in places], here, first, wished)

    def menu(
        self, state: State, found: Sequence[Candidate], chosen: str = "", whole: Collection[str] = ()
    ) -> Sequence[Group]:
        """Call :func:`.menu.menu`; with a ``chosen`` coordinate, list only the steps that use this coordinate."""
        coordinate = drawing.coordinate_ids(state).get(chosen)
        only = None if coordinate is None else listing.touching(found, coordinate)
        return listing.menu(state, found, only=only, whole=whole)

    why = staticmethod(listing.why)

    def instead(self, path: Sequence[State], candidate: Candidate, rules: Sequence[Rule]) -> Detour[Step] | None:
        """See :func:`syno_lab.synthesis.ways.instead`."""
        way = instead(path, candidate.verdict, tuple(rules))
        if way is None:
            return None
        names = expressions(way.state)
        undone = [f"undo {count_of(way.back, 'step')}"] if way.back else []
        words = [*undone, *(drawing.describe_step(way.state, step, names) for step in way.steps)]
        return Detour(way.back, way.steps, "; ".join(words) or "no step")

    def explain(self, state: State, should_stop: Stop | None = None) -> Explanation:
        """Explain the shape distance by the reshape groups; add the mixing matrix of a complete state with wishes."""
        explained = explain_distance(state, should_stop=should_stop)
        wished = explain_property_distance(state, should_stop=should_stop)
        mixing: Any = UNSET
        if state.spec.wants and state.is_complete:
            with suppress(SpecError):  # too large to check, as the status reports
                mixing = mixing_data(state.operator())
        return Explanation(
            explained.steps,
            explanation_words(explained),
            groups_svg(explained) if explained.groups else "",
            Wish(wished.steps, wished.words()) if wished.served else UNSET,
            mixing,
        )

    # -- contractions by hand ----------------------------------------------------------------------------------------

    ticks = staticmethod(listing.ticks)

    def ticked(self, state: State, share: Sequence[str], give: Sequence[str], choice: str = "") -> Step:
        """See :func:`.menu.contraction`. Raises SynoError for an unknown name."""
        try:
            return listing.contraction(state, share, give)
        except KeyError as missing:
            raise SynoError(f"no coordinate {missing} in this pGraph") from None

    def preview(
        self,
        state: State,
        found: Sequence[Candidate],
        share: Sequence[str],
        give: Sequence[str],
        rules: Sequence[Rule],
        should_stop: Stop | None,
    ) -> Preview:
        """Check whether the CONTRACTION is legal and canonical; return this, and the distance after the step."""
        step = self.ticked(state, share, give)
        try:
            after = state.apply(step)
        except SynoError as refused:
            return Preview(legal=False, canonical=False, distance=None, text=str(refused))
        listed = found.of_contraction(step.operands, step.given) if isinstance(found, Candidates) else None
        if listed is None:
            far, text = distance(after, should_stop=should_stop), "legal, but outside the space of this spec's budgets"
            return Preview(legal=True, canonical=False, distance=far, text=text)
        verdict = listed.verdict
        return Preview(
            legal=True, canonical=verdict.canonical, distance=listed.distance, text=verdict.reason or "canonical"
        )

    # -- the space around a state ------------------------------------------------------------------------------------

    def standing(self, state: State) -> Branch:
        """Return the state's branch in the tree: kind ``operator`` or ``open``, and the shape distance."""
        kind, reason = _kind(state)
        words = f"after {count_of(len(state.steps), 'step')}"
        return Branch("", words, kind, distance=distance(state), reason=reason)

    def following(
        self, state: State, rules: Sequence[Rule], pruned: bool, effort: Effort
    ) -> tuple[Sequence[Candidate], Sequence[int]]:
        """Return the next steps, pruned steps included, the nearest to the input first."""
        found = candidates(state, tuple(rules), effort=effort)
        return found, range(len(found))

    def leading(self, state: State) -> Callable[[Candidate], Branch]:
        """Return a function from a next step to its branch; an operator's branch has the score of its probe."""
        names = expressions(state)
        left = state.spec.limits.max_primitives - len(state.steps) - 1

        def branch(candidate: Candidate) -> Branch:
            next_branch = Branch("", drawing.describe_step(state, candidate.step, names), distance=candidate.distance)
            if not candidate.verdict.canonical:
                return replace(next_branch, kind="pruned", reason=candidate.verdict.reason or "")
            if candidate.distance is None:
                return replace(next_branch, kind="dead end", reason="the input is out of reach")
            if candidate.distance > left:
                return replace(next_branch, kind="dead end", reason=f"{count_of(left, 'step')} left are too few")
            if candidate.distance or candidate.verdict.state is None:
                return next_branch
            after = candidate.verdict.state.apply(candidate.step)
            kind, reason = _kind(after)
            score = _score(after.operator()) if kind == "operator" else None
            return replace(next_branch, kind=kind, reason=reason, probe=score)

        return branch


def _kind(state: State) -> tuple[Kind, str]:
    """Return the kind (operator or open) of a state, and why a complete state is no operator of the space."""
    if not state.is_complete:
        return "open", ""
    operator = state.operator()
    return ("operator", "") if operator.meets() else ("open", f"complete, but it {wish_verdict(operator)}")


def _score(operator: Operator) -> float | None:
    """Return the score of an operator's probe in comparison with a convolution; None where the kernel is too large."""
    try:
        result = probe(operator)
    except SynoError:
        return None
    return result.score(beside_convolution(result)[1])


def _wished(place: PlaceOf, effort: Effort | None = None) -> float | None:
    """Return the property distance of a session's place, cached like :meth:`.Place.measured`."""
    return place.kept("wished", lambda: property_distance(place.state, effort))


CONSTRUCTION = PGraphConstruction()

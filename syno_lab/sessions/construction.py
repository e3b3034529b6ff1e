"""How a system's operators are built step by step: a system describes its states, its steps, and their pictures.

Sessions and their files, steppers, menus, traces, the tree of places, the explorer and the pages without a kernel use a
:class:`Construction`; each has one implementation for all systems. The last classes describe abilities that only some
systems have. A construction with such an ability also inherits from the ability's class, and callers check the type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from syno_lab.drawing.course import course_svg
from syno_lab.effort import Effort, Stop
from syno_lab.sessions.shown import Explanation, Group, Picture, Preview, Tick, Used, Why

if TYPE_CHECKING:
    import random

    from syno_lab.search.branches import Branch
    from syno_lab.sessions.own_rule import OwnRule

#: The default limit of computing time for a suggestion or a completion, in seconds.
PATIENCE_S = 4.0

S = TypeVar("S", bound="State")
T = TypeVar("T")
C = TypeVar("C")


class State(Protocol):
    """An immutable state that a construction steps through."""

    @property
    def is_complete(self) -> bool:
        """Return whether the state is an operator."""

    def apply(self, step: Any, /) -> Any:
        """Return the state after a step."""


class Patience(NamedTuple):
    """The limits of a search for steps: ``seconds`` of computing (None: no limit), and a callback ``should_stop``."""

    seconds: float | None = PATIENCE_S
    should_stop: Stop | None = None


class Labels(msgspec.Struct, frozen=True):
    """The stepper's texts for a system: headings, tooltips and progress texts.

    Attributes:
        distance: the heading above the distance from a state to an operator.
        groups: the heading above the explanation of the distance.
        far: the text for the distance of a state, with ``#`` for the number.
        reached: the text for a distance of 0.
        suggest, finish, random, reset: the tooltips of the buttons with these names.
        more: how unlisted steps compare with the listed steps.
        none: the text for a state without a next step.
        way, random_way: the progress texts while a shortest way, or random steps, are computed.
        strip: the heading above the bars that show how much of each limit is used.
        offered, refused: the headings above steps that may be taken, and above steps that a rule refuses.
        progress: the tooltip of the button that undoes steps without progress; empty for a system without the button.
        graph: the word for the picture inside a sentence.
    """

    distance: str = "Distance"
    groups: str = "Why"
    far: str = "distance #"
    reached: str = "complete"
    suggest: str = "The next step of a shortest way to an operator"
    finish: str = "Play a shortest way to an operator"
    random: str = "Play random steps to an operator"
    reset: str = "Begin again; Undo brings back what was"
    more: str = "farther from an operator"
    none: str = "There is no next step."
    way: str = "looking for a shortest way to an operator"
    random_way: str = "looking for random steps to an operator"
    strip: str = "What is used"
    offered: str = "canonical"
    refused: str = "pruned"
    progress: str = ""
    graph: str = "graph"

    @property
    def measure(self) -> str:
        """Return :attr:`distance` as it is written inside a sentence."""
        return self.distance[:1].lower() + self.distance[1:]


class HandLabels(msgspec.Struct, frozen=True):
    """The stepper's texts for steps that the user builds by ticking nodes; empty for a system without such steps.

    Attributes:
        group: the primitive whose group in the menu holds the nodes to tick; empty for a separate group.
        title, text: the title of this separate group, and an instruction for the user.
        columns: the headers of the three columns: the node, and the two ways to use a ticked node.
        button: the label of the button that takes the step; empty where the preview has ``choices``.
        nothing: the text while no node is ticked.
        work: the progress text while the preview is computed.
    """

    group: str = ""
    title: str = ""
    text: str = ""
    columns: tuple[str, str, str] = ("", "", "")
    button: str = ""
    nothing: str = ""
    work: str = ""


class Beginning(NamedTuple, Generic[S, T]):
    """The beginning of a session: the first state, the steps from that state, and the operator passed by the caller."""

    state: S
    steps: Sequence[T] = ()
    operator: Any = None


@dataclass(frozen=True)
class Place(Generic[S, T]):
    """A node in the tree of a session, with its state.

    Attributes:
        construction: the construction of the place's system.
        state: the state at the place.
        step: the step that led to the place; None for a beginning.
        note: how a beginning was made: ``start``, ``reset``, ``open`` or ``load conv2d``; empty after a step.
        operator: the operator that the caller passed, if its last step leads to this place.
        number: the number of the place, in order of creation.
        parent: the number of the parent; None for the first place.
        comment: the user's comment about the place.
    """

    construction: Construction[S, T, Any] = field(compare=False, repr=False)
    state: S
    step: T | None = None
    note: str = ""
    operator: Any = None
    number: int = 0
    parent: int | None = None
    comment: str = ""
    _numbers: dict[str, float | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_complete(self) -> bool:
        """Return whether the state is an operator."""
        return self.operator is not None or bool(self.state.is_complete)

    @property
    def built(self) -> Any:
        """Return the operator from the caller, or the state's operator. Raises SynoError for an incomplete state."""
        return self.operator or self.construction.operator(self.state)

    @property
    def distance(self) -> float | None:
        """Return the distance from the state to an operator, for example in steps; None if it is infinite."""
        return self.measured()

    def measured(self, effort: Effort | None = None) -> float | None:
        """Compute and cache :attr:`distance`. Raises EffortError when the effort does not suffice; retries may work."""
        return self.kept("distance", lambda: self.construction.distance(self.state, effort))

    def kept(self, name: str, measure: Callable[[], float | None]) -> float | None:
        """Return the number ``name`` of the place from the cache; the first call computes the number by ``measure``."""
        if name not in self._numbers:
            self._numbers[name] = measure()
        return self._numbers[name]


class Records(NamedTuple):
    """The records for a file: ``places``, and ``heads`` with at most one list, of the beginnings' specs or aims."""

    heads: Sequence[Sequence[Any]]
    places: Sequence[Any]


#: A function that makes a place from its record, the earlier places, and the place's name in messages.
Reader = Callable[[Any, Sequence[Place[S, T]], str], Place[S, T]]


class Construction(ABC, Generic[S, T, C]):
    """How operators of a system are built: from a state S by steps T, chosen from a list of candidates C.

    States and steps are immutable values; equal states have the same steps. Methods store nothing, so threads can call
    them. Methods with ``should_stop`` or an effort check it often and raise StoppedError or EffortError.
    """

    #: The stepper's texts for this system.
    labels: ClassVar[Labels] = Labels()
    #: The system's rules without the user's own, and the type of a rule.
    rules: ClassVar[tuple[Any, ...]] = ()
    row: ClassVar[type | None] = None
    #: The ``format`` of a session's JSON, and the type of its record, with the fields of :class:`.text.SessionRecord`.
    format: ClassVar[str]
    record: ClassVar[type[Any]]
    #: For each ``format`` of a text that can begin a session, such as an operator's file, the function that reads it.
    readers: ClassVar[Mapping[str, Callable[[str], Any]]]
    #: The known operators that a session loads by name.
    known: ClassVar[Mapping[str, Callable[[], Any]]]

    # -- states and steps --------------------------------------------------------------------------------------------

    @abstractmethod
    def knows(self, start: Any) -> bool:
        """Return whether a session can begin with this value (a spec, a state); operators need no check."""

    @abstractmethod
    def begin(self, start: Any) -> Beginning[S, T]:
        """Return a session's beginning for an operator of the system, or for a value that :meth:`knows` accepts."""

    def step(self, state: S, given: Any) -> T:
        """Convert a candidate, or another form of a step, to a step. Raises SynoError for a value that is no step."""
        return getattr(given, "step", given)

    def apply(self, state: S, step: T) -> S:
        """Return the state after a step, even if a rule refuses the step. Raises PrimitiveError for an illegal step."""
        return state.apply(step)

    @abstractmethod
    def operator(self, state: S) -> Any:
        """Return the operator of a complete state. Raises SynoError for an incomplete state."""

    @abstractmethod
    def distance(self, state: S, effort: Effort | None = None) -> float | None:
        """Return the distance from the state to an operator; None if no operator can be reached."""

    @abstractmethod
    def candidates(self, state: S, rules: Sequence[Any], should_stop: Stop | None = None) -> Sequence[C]:
        """List all next steps, including those that rules refuse."""

    @abstractmethod
    def way(self, state: S, rules: Sequence[Any], patience: Patience, rng: random.Random | None = None) -> Sequence[T]:
        """Return a shortest way to an operator; with ``rng``, a random way. Raises SynoError if no way is found."""

    def rule(self, own: OwnRule) -> Any:
        """Convert a rule of the user's own to the type :attr:`row` of the system's rules, for :meth:`candidates`."""
        return own

    def loaded(self, operator: Any, first: S, shown: S) -> Any:
        """Return an operator with the settings of a session that began with ``first`` and shows ``shown``."""
        return operator

    def name(self, operator: Any, known: Mapping[str, Callable[[], Any]]) -> str | None:
        """Return the operator's name among the known operators; None for an unknown operator."""
        return None

    # -- as text -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def records(self, places: Sequence[Place[S, T]]) -> Records:
        """Return the records of all places of a session."""

    @abstractmethod
    def reader(self, record: Any) -> Reader[S, T]:
        """Return the function that makes the places of a session's :attr:`record`. Raises SynoError for bad heads."""

    # -- pictures and texts ------------------------------------------------------------------------------------------

    @abstractmethod
    def picture(self, place: Place[S, T]) -> Picture:
        """Draw the state of a place, with its last step marked."""

    def describe(self, state: S, step: T) -> str:
        """Describe in words the step that led to a state."""
        return str(step)

    @abstractmethod
    def menu(self, state: S, found: Sequence[C], chosen: str = "", whole: Collection[str] = ()) -> Sequence[Group]:
        """Group the candidates; with a ``chosen`` node of the picture, keep only those that use the node.

        A group with many candidates may list only the nearest; the groups of the primitives in ``whole`` are complete.
        """

    @abstractmethod
    def why(self, state: S, candidate: C) -> Why:
        """Explain why a candidate is refused. Raises SynoError for a candidate that is not refused."""

    def status(self, place: Place[S, T], name: str | None, effort: Effort | None) -> str:
        """Describe a place in one or two sentences; ``name`` is the name of its known operator."""
        if place.is_complete:
            return f"Complete: this is {name or 'an operator that has no name here'}."
        return f"{self.labels.distance}: {_distance_text(place.measured(effort))}."

    def explain(self, state: S, should_stop: Stop | None = None) -> Explanation:
        """Explain how far the state is from an operator."""
        far = self.distance(state, Effort(should_stop=should_stop))
        return Explanation(far, [f"{self.labels.distance}: {_distance_text(far)}."])

    def strip(self, state: S) -> Sequence[Used]:
        """Return how much of each limit is used, from cheap counts."""
        return ()

    def course(self, places: Sequence[Place[S, T]], here: int, first: int) -> str:
        """Draw the distances of the places on a line as SVG; see :func:`.course_svg`."""
        return course_svg([place.distance for place in places], here, first, name=self.labels.distance)


def _distance_text(far: float | None) -> str:
    return "no operator can be reached" if far is None else f"{far:g}"


class ByHand(ABC, Generic[S, T, C]):
    """A construction whose user can combine nodes to a step; the user ticks each node in one of two columns."""

    hand: ClassVar[HandLabels]

    @abstractmethod
    def ticks(self, state: S) -> Sequence[Tick]:
        """Return the nodes that can be ticked."""

    @abstractmethod
    def ticked(self, state: S, share: Sequence[str], give: Sequence[str], choice: str = "") -> T:
        """Return the step of the ticked nodes; ``choice`` names the step where several steps use these nodes.

        Raises SynoError for unknown nodes or choices.
        """

    @abstractmethod
    def preview(
        self,
        state: S,
        found: Sequence[C],
        share: Sequence[str],
        give: Sequence[str],
        rules: Sequence[Any],
        should_stop: Stop | None,
    ) -> Preview:
        """Describe the step that uses the ticked nodes, of which there is at least one."""


class Aiming(ABC, Generic[S, T]):
    """A construction with steps that change the target of the construction."""

    @abstractmethod
    def aimed(self, state: S, choice: str) -> T:
        """Return the step that changes the target to this choice. Raises SynoError for an unknown choice."""

    @abstractmethod
    def is_aim(self, step: T) -> bool:
        """Return whether a step changes the target."""


class Detour(NamedTuple, Generic[T]):
    """The replacement of a refused step: undo ``back`` steps, then take ``steps``; ``words`` describe these moves."""

    back: int
    steps: Sequence[T]
    words: str


class Detours(ABC, Generic[S, T, C]):
    """A construction that can replace some refused steps by canonical steps."""

    @abstractmethod
    def instead(self, path: Sequence[S], candidate: C, rules: Sequence[Any]) -> Detour[T] | None:
        """Return the replacement of a candidate, or None; ``path`` holds the states up to the candidate's state."""


class Explorable(ABC, Generic[S, T, C]):
    """A construction whose states can be explored as a tree; the caller sets the ``key`` of each branch."""

    @abstractmethod
    def standing(self, state: S) -> Branch:
        """Return the facts about a state."""

    @abstractmethod
    def following(
        self, state: S, rules: Sequence[Any], pruned: bool, effort: Effort
    ) -> tuple[Sequence[C], Sequence[int]]:
        """Return the candidates, and the indices of the next steps among them, the most promising first.

        With ``pruned`` False, steps that a rule prunes may be left out.
        """

    @abstractmethod
    def leading(self, state: S) -> Callable[[C], Branch]:
        """Return a function that describes the state after a next step of this state."""


#: The default number of steps that :func:`nearest` lists.
NEAREST = 8


def nearest(menu: Sequence[Mapping[str, Any]], most: int = NEAREST) -> list[dict[str, Any]]:
    """Return the canonical steps of all groups of a menu, sorted by the distance after the step.

    Steps after which the budget suffices for the remaining distance come first. Each entry has the menu's facts about
    the step, and the ``title``, the ``sign`` and the ``colour`` of the step's group.
    """
    steps = [
        {**item, **{name: group[name] for name in ("title", "sign", "colour")}}
        for group in menu
        for item in group["canonical"]
        if item["distance"] is not None
    ]
    return sorted(steps, key=lambda item: (not item["reaches"], item["distance"], item["index"]))[:most]

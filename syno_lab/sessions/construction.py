"""What a system says of building its operators step by step, and of no more: a state, its steps, and how they look.

Sessions and their files, steppers, menus, traces, the tree of places, the explorer and the pages without a kernel are
made from a :class:`Construction`, once for all systems. What only some systems can do are the classes behind it: a
construction that can do it inherits from them too, and is asked by its type.
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

#: Seconds of computing for a suggestion or a completion, unless told.
PATIENCE_S = 4.0

S = TypeVar("S", bound="State")
T = TypeVar("T")
C = TypeVar("C")


class State(Protocol):
    """What a construction steps through: an immutable value."""

    @property
    def is_complete(self) -> bool:
        """Whether it is an operator."""

    def apply(self, step: Any, /) -> Any:
        """The state behind a step."""


class Patience(NamedTuple):
    """How long is looked for a way: ``seconds`` of computing, None for as long as it takes, or until told to stop."""

    seconds: float | None = PATIENCE_S
    should_stop: Stop | None = None


class Labels(msgspec.Struct, frozen=True):
    """What a stepper calls things of a system.

    Attributes:
        distance: how far a state is from an operator, as a heading.
        groups: the heading of its explanation.
        far: the distance of one state, with ``#`` for the number.
        reached: the same where it is 0.
        suggest, finish, random, reset: what these buttons do.
        more: in what the steps that are not listed come after those that are.
        none: there is no next step.
        way, random_way: what is under way while these are found.
        strip: what the bars show.
        offered, refused: what the steps are called that may be taken, and those that have something against them.
        progress: what the button does that undoes what brought nothing nearer; empty for no such button.
        graph: what the picture is called, inside a sentence.
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
        """:attr:`distance` inside a sentence."""
        return self.distance[:1].lower() + self.distance[1:]


class HandLabels(msgspec.Struct, frozen=True):
    """What a stepper calls steps that are ticked by hand; without them it has none.

    Attributes:
        group: the primitive in whose group steps are ticked; empty for a group of its own.
        title, text: the title of such a group, and what the user can do there.
        columns: the heads of the columns: what is ticked, and the two ways to tick it.
        button: takes the ticked step; empty where the preview has ``choices``.
        nothing: nothing is ticked.
        work: what is under way while that is found.
    """

    group: str = ""
    title: str = ""
    text: str = ""
    columns: tuple[str, str, str] = ("", "", "")
    button: str = ""
    nothing: str = ""
    work: str = ""


class Beginning(NamedTuple, Generic[S, T]):
    """What a session begins with: its first state, the steps from there, and the operator that it was given."""

    state: S
    steps: Sequence[T] = ()
    operator: Any = None


@dataclass(frozen=True)
class Place(Generic[S, T]):
    """One place in the history of a session.

    Attributes:
        construction: of its system.
        state: the state there.
        step: the step that led to it, None for a beginning.
        note: why it begins here: ``start``, ``reset``, ``open`` or ``load conv2d``; empty after a step.
        operator: the operator that was given and whose last step ends here, where there was one.
        number: of the place, in order of creation.
        parent: the number of the place before; None for the first.
        comment: what the user wrote about it.
    """

    construction: Construction[S, T, Any] = field(compare=False, repr=False)
    state: S
    step: T | None = None
    note: str = ""
    operator: Any = None
    number: int = 0
    parent: int | None = None
    comment: str = ""
    _kept: dict[str, float | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether the state is an operator."""
        return self.operator is not None or bool(self.state.is_complete)

    @property
    def built(self) -> Any:
        """The operator: the one that was given, or the state's. Raises SynoError where it is none."""
        return self.operator or self.construction.operator(self.state)

    @property
    def distance(self) -> float | None:
        """How far it is from there to an operator, in steps say; None where none can be reached."""
        return self.measured()

    def measured(self, effort: Effort | None = None) -> float | None:
        """As :attr:`distance`, and kept. Raises EffortError where the effort does not suffice; another time it may."""
        return self.kept("distance", lambda: self.construction.distance(self.state, effort))

    def kept(self, name: str, measure: Callable[[], float | None]) -> float | None:
        """A number that belongs to the place, measured once."""
        if name not in self._kept:
            self._kept[name] = measure()
        return self._kept[name]


class Records(NamedTuple):
    """The records of places for a file: ``heads``, what beginnings refer to, in one list or in none, and ``places``."""

    heads: Sequence[Sequence[Any]]
    places: Sequence[Any]


#: Makes a place of its record, of the places before it, and of its name for messages.
Reader = Callable[[Any, Sequence[Place[S, T]], str], Place[S, T]]


class Construction(ABC, Generic[S, T, C]):
    """How operators of a system are built: from a state S by steps T, of which candidates C are listed.

    States and steps are immutable values; equal states have the same steps. Nothing here has a memory, so all of it may
    be called in a thread. What takes ``should_stop`` or an effort asks it often and raises StoppedError or EffortError.
    """

    #: What the stepper calls things of this system.
    labels: ClassVar[Labels] = Labels()
    #: The rules that the system has without the user's, and of which type they are.
    rules: ClassVar[tuple[Any, ...]] = ()
    row: ClassVar[type | None] = None
    #: The ``format`` of a session's JSON, and its record, whose fields are those of :class:`.text.SessionRecord`.
    format: ClassVar[str]
    record: ClassVar[type[Any]]
    #: What reads a text that a session can begin with, by the ``format`` of the text: an operator's file.
    readers: ClassVar[Mapping[str, Callable[[str], Any]]]
    #: The operators that a session loads by name.
    known: ClassVar[Mapping[str, Callable[[], Any]]]

    # -- states and steps --------------------------------------------------------------------------------------------

    @abstractmethod
    def knows(self, start: Any) -> bool:
        """Whether a session can begin with this value (a spec, a state); operators of the system need not be told."""

    @abstractmethod
    def begin(self, start: Any) -> Beginning[S, T]:
        """What a session begins with that is given such a value, a state, or an operator of the system."""

    def step(self, state: S, given: Any) -> T:
        """A step as a session keeps it, of a candidate or what else stands for a step. Raises SynoError for neither."""
        found: T = getattr(given, "step", given)
        return found

    def apply(self, state: S, step: T) -> S:
        """The state behind a step, refused or not. Raises PrimitiveError for an illegal one."""
        found: S = state.apply(step)
        return found

    @abstractmethod
    def operator(self, state: S) -> Any:
        """The operator of a complete state. Raises SynoError for another one."""

    @abstractmethod
    def distance(self, state: S, effort: Effort | None = None) -> float | None:
        """How far it is to an operator; None where none can be reached."""

    @abstractmethod
    def candidates(self, state: S, rules: Sequence[Any], should_stop: Stop | None = None) -> Sequence[C]:
        """All steps that may be taken next, those that rules refuse among them."""

    @abstractmethod
    def way(self, state: S, rules: Sequence[Any], patience: Patience, rng: random.Random | None = None) -> Sequence[T]:
        """The steps of a shortest way to an operator; with ``rng``, random ones. Raises SynoError for none."""

    def rule(self, own: OwnRule) -> Any:
        """A rule of the user's own as :meth:`candidates` takes it: a :attr:`row` where the system has such."""
        return own

    def loaded(self, operator: Any, first: S, shown: S) -> Any:
        """An operator as a session appends it that began with ``first`` and is at ``shown``."""
        return operator

    def name(self, operator: Any, known: Mapping[str, Callable[[], Any]]) -> str | None:
        """The name of the known operator that this is; None for none."""
        return None

    # -- as text -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def records(self, places: Sequence[Place[S, T]]) -> Records:
        """The records of all places of a session."""

    @abstractmethod
    def reader(self, record: Any) -> Reader[S, T]:
        """What reads the places of a session's :attr:`record`. Raises SynoError for bad heads."""

    # -- as a page shows it ------------------------------------------------------------------------------------------

    @abstractmethod
    def picture(self, place: Place[S, T]) -> Picture:
        """The state of a place, drawn, with its last step marked."""

    def describe(self, state: S, step: T) -> str:
        """The step that led to a state, in words."""
        return str(step)

    @abstractmethod
    def menu(self, state: S, found: Sequence[C], chosen: str = "", whole: Collection[str] = ()) -> Sequence[Group]:
        """The candidates in groups; with a ``chosen`` node of the picture, only those that use it.

        Where there are many the groups may hold the first of them; those whose primitives are in ``whole`` hold all.
        """

    @abstractmethod
    def why(self, state: S, candidate: C) -> Why:
        """Why a candidate is refused. Raises SynoError for one that may be taken."""

    def status(self, place: Place[S, T], name: str | None, effort: Effort | None) -> str:
        """Where a place is, in one or two sentences; ``name`` is that of the known operator that it is."""
        if place.is_complete:
            return f"Complete: this is {name or 'an operator that has no name here'}."
        return f"{self.labels.distance}: {_said(place.measured(effort))}."

    def explain(self, state: S, should_stop: Stop | None = None) -> Explanation:
        """How far the state is from an operator, and why."""
        far = self.distance(state, Effort(should_stop=should_stop))
        return Explanation(far, [f"{self.labels.distance}: {_said(far)}."])

    def strip(self, state: S) -> Sequence[Used]:
        """What is used of what there is, cheap to count."""
        return ()

    def course(self, places: Sequence[Place[S, T]], here: int, first: int) -> str:
        """The distances of places along a line, as SVG; see :func:`.course_svg`."""
        return course_svg([place.distance for place in places], here, first, name=self.labels.distance)


def _said(far: float | None) -> str:
    return "no operator can be reached" if far is None else f"{far:g}"


class ByHand(ABC, Generic[S, T, C]):
    """A construction of which steps can be put together from ticked nodes, in two columns: shared and given."""

    hand: ClassVar[HandLabels]

    @abstractmethod
    def ticks(self, state: S) -> Sequence[Tick]:
        """What can be ticked."""

    @abstractmethod
    def ticked(self, state: S, share: Sequence[str], give: Sequence[str], choice: str = "") -> T:
        """The step of ticked nodes; ``choice`` is the name of one where the preview has several.

        Raises SynoError for unknown ones.
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
        """The facts of the step of at least one ticked node."""


class Aiming(ABC, Generic[S, T]):
    """A construction whose steps may change what is wanted, too."""

    @abstractmethod
    def aimed(self, state: S, choice: str) -> T:
        """The step that changes what is wanted, by the name of its choice. Raises SynoError for an unknown one."""

    @abstractmethod
    def is_aim(self, step: T) -> bool:
        """Whether a step changes what is wanted."""


class Detour(NamedTuple, Generic[T]):
    """Steps in place of a refused one: so many steps back, then ``steps``; ``words`` say so."""

    back: int
    steps: Sequence[T]
    words: str


class Detours(ABC, Generic[S, T, C]):
    """A construction that knows canonical steps in place of refused ones."""

    @abstractmethod
    def instead(self, path: Sequence[S], candidate: C, rules: Sequence[Any]) -> Detour[T] | None:
        """The steps in place of a candidate; ``path`` are the states that led to its own. None where none are known."""


class Explorable(ABC, Generic[S, T, C]):
    """A construction of which the explorer shows the space around a state; keys of branches are not set here."""

    @abstractmethod
    def standing(self, state: S) -> Branch:
        """What a state is."""

    @abstractmethod
    def following(self, state: S, rules: Sequence[Any], pruned: bool, effort: Effort) -> Sequence[tuple[int, C]]:
        """The next steps, what leads on first, each with its place among the candidates.

        Those that a rule prunes need not be left out where ``pruned`` is False.
        """

    @abstractmethod
    def leading(self, state: S) -> Callable[[C], Branch]:
        """What says of each next step of a state where it leads."""


#: Steps that are listed across the groups of a menu.
NEAREST = 8


def nearest(menu: Sequence[Mapping[str, Any]], most: int = NEAREST) -> list[dict[str, Any]]:
    """The canonical steps of a menu across its groups, those first after which least is left to do.

    A step that the budget does not allow to go on from comes behind those that it does. Each has the ``title``, the
    ``sign`` and the ``colour`` of its group beside what the menu says of it. Of each group the menu has the nearest.
    """
    found = [
        {**item, **{name: group[name] for name in ("title", "sign", "colour")}}
        for group in menu
        for item in group["canonical"]
        if item["distance"] is not None
    ]
    return sorted(found, key=lambda item: (not item["reaches"], item["distance"], item["index"]))[:most]

"""The protocol of a session: building an operator of any system step by step.

The widgets show a session, and the steppers of all systems are one widget, by these protocols alone;
:meth:`syno_lab.protocol.System.session` begins one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import random

    from syno_lab.effort import Stop


class SessionPlace(Protocol):
    """One place in the history of a session."""

    @property
    def number(self) -> int:
        """Its number, in the order in which places were made."""

    @property
    def parent(self) -> int | None:
        """The number of the place before; None for the first."""

    @property
    def comment(self) -> str:
        """What the user wrote about it."""

    @property
    def state(self) -> Any:
        """The state there."""

    @property
    def distance(self) -> float | None:
        """How far it is from there to an operator; None where none can be reached."""

    @property
    def operator(self) -> Any:
        """The loaded operator whose last step ends here, else None."""


@dataclass(frozen=True)
class Picture:
    """A state as the stepper draws it.

    Attributes:
        svg: an ``<svg>`` element with an id for each node.
        description: a text that describes the picture.
        nodes: by id ``words``, ``light`` (the ids highlighted with it) and ``top`` (whether a step can use it).
    """

    svg: str
    description: str
    nodes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Labels:
    """What a stepper calls things of a system.

    Attributes:
        distance: how far a state is from an operator, as a heading.
        groups: the heading of its explanation.
        far: the distance of one state, with ``#`` for the number.
        reached: the same where it is 0.
        suggest, finish, random, reset: what these buttons do.
        more: in what the steps that are not listed come after those that are.
        none: there is no next step.
        hand_group: the primitive in whose group steps are ticked; empty for a group of its own.
        hand_title, hand: the title of such a group, and what the user can do there; both empty for no such group.
        hand_columns: the heads of the columns: what is ticked, and the two ways to tick it.
        hand_button: takes the ticked step; empty where the preview has ``choices``.
        hand_nothing: nothing is ticked.
        hand_work, way, random_way: what is under way while that is found.
        strip: what the bars show.
        offered, refused: what the steps are called that may be taken, and those that have something against them.
        progress: what the button does that undoes what brought nothing nearer; empty for no such button.
        graph: what the picture is called, inside a sentence.
    """

    distance: str
    groups: str
    far: str
    reached: str
    suggest: str
    finish: str
    random: str
    reset: str
    more: str
    none: str
    hand_group: str
    hand_title: str
    hand: str
    hand_columns: tuple[str, str, str]
    hand_button: str
    hand_nothing: str
    hand_work: str
    way: str
    random_way: str
    strip: str = "What is used"
    offered: str = "canonical"
    refused: str = "pruned"
    progress: str = ""
    graph: str = "pGraph"

    @property
    def measure(self) -> str:
        """:attr:`distance` inside a sentence."""
        return self.distance[:1].lower() + self.distance[1:]


class Session(Protocol):
    """Building an operator step by step, as the stepper does it, with a history that is a tree of places.

    Methods with a ``state`` change nothing and may be called in a thread, while the session moves on; those with
    ``should_stop`` ask it often, and raise StoppedError once it says so. All others are called one at a time.
    """

    @property
    def labels(self) -> Labels:
        """What the stepper calls things of this system."""

    @property
    def state(self) -> Any:
        """The state at the place that is shown."""

    @property
    def is_complete(self) -> bool:
        """Whether the state is an operator."""

    @property
    def operator(self) -> Any:
        """The operator that is built. Raises SynoError where the state is none."""

    @property
    def known(self) -> Mapping[str, Callable[[], Any]]:
        """The operators that :meth:`load` finds by name."""

    def restrict(self, rules: Sequence[Any]) -> None:
        """Have rules of the user's own refuse steps, beside those of the system.

        Lists show the steps that they refuse with the reason; suggestions and random ways have none of them.

        Args:
            rules: functions of a state and a step (:func:`syno_lab.own_rule.own_rule`), or rows of the system's own.

        Raises:
            CodeError: for what is no rule.
            SpecError: two rules have one name, or the system's sessions take none.
        """

    # -- the history

    @property
    def places(self) -> Sequence[SessionPlace]:
        """All places by their numbers."""

    @property
    def place(self) -> int:
        """The number of the place that is shown."""

    @property
    def entry(self) -> SessionPlace:
        """The place that is shown."""

    @property
    def history(self) -> Sequence[SessionPlace]:
        """The places that undo and redo move along, the shown one among them."""

    def ahead(self, place: int) -> int | None:
        """The place behind a place that redo goes to; None where there is none."""

    def behind(self, step: Any) -> int | None:
        """The place behind the shown one that a step or a candidate has led to; None where it was not taken."""

    def copy(self) -> Session:
        """The same places, to move on by themselves."""

    def apply(self, step: Any) -> Any:
        """Take a step or a candidate and return the new state. Raises SynoError for an illegal one."""

    def undo(self) -> Any:
        """Back by one place. Raises SynoError at the beginning."""

    def redo(self) -> Any:
        """Forth by one place. Raises SynoError at the end."""

    def undo_to_progress(self) -> Any:
        """Back over the steps that brought nothing nearer. Raises SynoError where there are none."""

    def reset(self) -> Any:
        """Begin again; undo brings the old state back."""

    def jump(self, position: int) -> Any:
        """To a place of :attr:`history` by its position. Raises SynoError where there is none."""

    def go(self, place: int) -> Any:
        """To any place by its number. Raises SynoError where there is none."""

    def comment(self, text: str) -> None:
        """Write about the place that is shown. Raises SynoError for a text that is too long."""

    def take_instead(self, candidate: Any) -> Any:
        """Take the canonical steps in place of a pruned one. Raises SynoError where none are known."""

    def load(self, operator: Any, *, at_start: bool = False) -> Any:
        """Append the steps of an operator, or of a known one by its name; ``at_start`` stays at the first."""

    def lay(self, steps: Sequence[Any], at_start: bool = False) -> Any:
        """Append steps; ``at_start`` stays, to play them by redo."""

    # -- as text

    def to_json(self) -> str:
        """The whole session as JSON."""

    def to_word(self) -> str:
        """The same in one word."""

    def read(self, text: str) -> Any:
        """Read a session from such a text, or from an operator's JSON; this session stays. Raises FormatError."""

    def graft(self, other: Any) -> Any:
        """Append all places of another session below this place, and go to its current place."""

    # -- being helped

    def look_ahead(self, *, should_stop: Stop | None = None) -> None:
        """Find the shortest way that :meth:`take_suggestion` and :meth:`finish` take from here. Raises SynoError."""

    def take_suggestion(self) -> Any:
        """Take the first step of that way."""

    def finish(self, *, at_start: bool = False) -> Any:
        """Append the whole way; ``at_start`` stays, to play it by redo."""

    def random_steps(self, state: Any, rng: random.Random, *, should_stop: Stop | None = None) -> Sequence[Any]:
        """Random steps to an operator. Raises SynoError where none is found."""

    # -- as the stepper shows it

    def picture(self) -> Picture:
        """The shown state, drawn."""

    def status(self, seconds: float | None = None) -> str:
        """The place of the session, in one or two sentences, without facts that take longer than ``seconds``."""

    def strip(self, state: Any) -> list[dict[str, Any]]:
        """What is used of what there is, cheap to count: ``name``, ``text``, ``share`` or None, and ``over``."""

    def candidates(self, state: Any, *, should_stop: Stop | None = None) -> Sequence[Any]:
        """All steps that may be taken next, pruned ones with their reasons among them."""

    def menu(
        self, state: Any, found: Sequence[Any], chosen: str = "", whole: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """The candidates in groups, as plain data; with a ``chosen`` node of the picture, only those that use it.

        Where there are many the groups may hold the first of them; those whose primitives are in ``whole`` hold all.
        """

    def ticks(self, state: Any) -> list[dict[str, Any]]:
        """The coordinates that the user can combine into a step: ``id``, ``text``, ``size``; [] for none."""

    def ticked(self, state: Any, share: Sequence[str], give: Sequence[str], choice: str = "") -> Any:
        """The step of ticked coordinates; ``choice`` is the name of one where the preview has several.

        Raises SynoError for unknown ones.
        """

    def preview(
        self,
        state: Any,
        found: Sequence[Any],
        share: Sequence[str],
        give: Sequence[str],
        *,
        should_stop: Stop | None = None,
    ) -> dict[str, Any]:
        """The facts of :meth:`ticked`: ``legal``, ``canonical``, ``distance``, ``text``; {} for no coordinate.

        Of several steps ``choices`` has for each its ``name``, ``reason`` and ``notes`` too.
        """

    def why(self, state: Any, candidate: Any) -> dict[str, Any]:
        """Why a candidate is pruned, as plain data. Raises SynoError for a canonical one.

        Where :meth:`take_instead` can be asked for, ``instead`` says what it does.
        """

    def explain(self, state: Any, *, should_stop: Stop | None = None) -> dict[str, Any]:
        """How far the state is from an operator: ``number`` (None: out of reach), ``words``, ``groups`` (SVG).

        For wishes ``wish`` has the ``number`` and the ``words`` of the distance to what is wished. Where it can be
        changed what is wanted, ``aims`` has tables: of each the ``title``, the ``corner``, the names of its ``rows``
        and ``columns``, the texts that are ``wanted`` there, ``now`` with a title, rows, columns and ``marks`` of its
        own, the entries that it ``lacks``, ``words`` for its texts, and for each entry ``choices`` with ``name``,
        ``text``, ``note`` and ``feasible``.
        """

    def aimed(self, state: Any, choice: str) -> Any:
        """The step that changes what is wanted, by the name of its choice. Raises SynoError for an unknown one."""

    def course(self, most: int) -> str:
        """The distances along :attr:`history` around the place that is shown, at most so many, as SVG."""

    def rows(self, *, should_stop: Stop | None = None) -> list[dict[str, Any]]:
        """The tree of all places as plain data."""


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

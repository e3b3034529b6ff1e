"""The tree of a search as plain data, and how a step in it is valued: it can be shown while it grows, written as JSON.

A :class:`Place` is one way down from the root. What is known of the state there is a :class:`Record`, one for all
places with the same key (transpositions), so what is learned on one way counts on the others. How often a way was taken
is counted for itself: what was tried elsewhere has not been tried here (Childs, Brodeur and Kocsis, Transpositions and
move groups in Monte Carlo tree search, 2008, the rule UCT2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Any

from syno_lab.errors import SearchError
from syno_lab.search.descent import Facts
from syno_lab.search.protocol import Child, State, Step

NO_PARENT = -1


# -- how a step is valued --------------------------------------------------------------------------------------------
#
# Letters as in the papers: N visits of the parent, n visits of the step, Q its value, A the value of its actions
# wherever they were taken (all moves as first, AMAF), m how often they were. Values are scaled so that the worst reward
# told so far is 0 and the best is 1.


@dataclass(frozen=True)
class Choice:
    """The counts and values of a step.

    Attributes:
        visits: n, the searches through it from here; those outstanding, and those that found nothing, are counted.
        parent_visits: N, those of its parent, likewise.
        mean: Q in [0, 1], the mean reward of the state it leads to; outstanding and fruitless searches count as 0.
        best: the best reward below it, in [0, 1].
        action_visits: m.
        action_mean: A in [0, 1].
    """

    visits: int
    parent_visits: int
    mean: float
    best: float
    action_visits: int
    action_mean: float


Select = Callable[[Choice], float]


def uct(exploration: float = 0.1, best_share: float = 0.3) -> Select:
    """``Q + c*sqrt(ln N / n)``, infinite for n = 0 (Kocsis and Szepesvári, Bandit based Monte-Carlo planning, 2006).

    Args:
        exploration: c.
        best_share: w in ``(1 - w)*mean + w*best``, what stands for Q: search is for one best operator, not for a mean
            (Schadd and others, Single-player Monte-Carlo tree search, 2008, add a variance for the same reason).

    Raises SearchError for a negative exploration, or a share outside [0, 1].
    """
    return _score(exploration, best_share, 0.0)


def rave(exploration: float = 0.1, best_share: float = 0.3, equivalence: float = 20.0) -> Select:
    """``(1 - b)*Q + b*A + c*sqrt(ln N / n)`` with ``b = sqrt(k / (3*n + k))``, or 0 where m = 0.

    Gelly and Silver, Monte-Carlo tree search and rapid action value estimation in computer Go, 2011, section 4.3, with
    the hand-selected schedule; k, the equivalence, is the number of visits at which Q and A weigh the same.
    Raises SearchError for a negative exploration, a share outside [0, 1], or an equivalence that is not positive.
    """
    if not equivalence > 0:
        raise SearchError(f"equivalence: expected a positive number of visits, found {equivalence}")
    return _score(exploration, best_share, equivalence)


def _score(exploration: float, best_share: float, equivalence: float) -> Select:
    if not exploration >= 0:
        raise SearchError(f"exploration: expected 0 or more, found {exploration}")
    if not 0 <= best_share <= 1:
        raise SearchError(f"best_share: expected a share from 0 to 1, found {best_share}")

    def score(choice: Choice) -> float:
        if not choice.visits:
            return inf
        value = (1 - best_share) * choice.mean + best_share * choice.best
        if equivalence and choice.action_visits:
            share = sqrt(equivalence / (3 * choice.visits + equivalence))
            value = (1 - share) * value + share * choice.action_mean
        return value + exploration * sqrt(log(max(1, choice.parent_visits)) / choice.visits)

    return score


# -- the tree --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """How often, and what came of it."""

    count: int = 0
    total: float = 0.0

    def add(self, reward: float) -> None:
        """One more reward."""
        self.count += 1
        self.total += reward

    @property
    def mean(self) -> float:
        """The mean reward; 0 where there is none."""
        return self.total / self.count if self.count else 0.0


@dataclass
class Record:
    """The record of a state, the same for all ways that lead to it.

    Attributes:
        rewards: of the operators below.
        best: the highest of them.
        outstanding: searches below that wait for a reward.
        fruitless: searches below that came to a dead end, a refused operator or a known one.
        actions: rewards by the actions taken below (AMAF).
    """

    rewards: Tally = field(default_factory=Tally)
    best: float = 0.0
    outstanding: int = 0
    fruitless: int = 0
    actions: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))


@dataclass
class Place:
    """One way down from the root.

    Attributes:
        number: its place in the list of the tree.
        parent: the number of its parent, or ``NO_PARENT``.
        step: the last step; None at the root.
        state: where it is.
        record: what is known of that state.
        visits: searches through here, by this way, that have ended with a reward.
        outstanding: those that wait for one.
        fruitless: those that found no operator.
        children: numbers of the places below, in the order in which they were found.
        untried: children of the state that are no places yet; None until they are asked for.
        is_closed: nothing is left to be asked for below.
    """

    number: int
    parent: int
    step: Step | None
    state: State
    record: Record
    visits: int = 0
    outstanding: int = 0
    fruitless: int = 0
    children: list[int] = field(default_factory=list)
    untried: list[Child] | None = None
    is_closed: bool = False

    @property
    def searches(self) -> int:
        """All searches through here."""
        return self.visits + self.outstanding + self.fruitless


class Tree:
    """All places, and the rewards' range.

    Args:
        root: the first state.
        facts: dead ends; added to.
    """

    def __init__(self, root: State, facts: Facts) -> None:
        self.facts = facts
        self.places: list[Place] = []
        self.records: dict[Hashable, Record] = {}
        self.worst: float | None = None
        self.best: float | None = None
        self.add(NO_PARENT, None, root)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def root(self) -> Place:
        """The place where every search begins."""
        return self.places[0]

    def add(self, parent: int, step: Step | None, state: State) -> Place:
        """A new place below ``parent``."""
        place = Place(len(self.places), parent, step, state, self.records.setdefault(state.key, Record()))
        self.places.append(place)
        if parent != NO_PARENT:
            self.places[parent].children.append(place.number)
        return place

    def child(self, place: Place, name: str) -> Place | None:
        """The place below that a step of this name leads to; None where there is none yet."""
        for number in place.children:
            found = self.places[number]
            if found.step is not None and found.step.name == name:
                return found
        return None

    def close(self, place: Place) -> None:
        """Nothing is left below; its parents close with it where it was the last."""
        while True:
            place.is_closed = True
            if not place.state.is_complete and all(self.is_dead(self.places[i]) for i in place.children):
                self.facts.dead.add(place.state.key)
            if place.parent == NO_PARENT:
                return
            parent = self.places[place.parent]
            # Untried children that turned out none were taken off the list.
            if parent.untried is None or parent.untried or not all(self.places[i].is_closed for i in parent.children):
                return
            place = parent

    def is_dead(self, place: Place) -> bool:
        """Whether no operator can be completed from there."""
        return place.state.key in self.facts.dead

    def tell(self, reward: float) -> None:
        """Widen the range of rewards."""
        self.worst = reward if self.worst is None else min(self.worst, reward)
        self.best = reward if self.best is None else max(self.best, reward)

    def scaled(self, reward: float) -> float:
        """A reward within the range told so far, as a number from 0 to 1."""
        if self.worst is None or self.best is None or self.best == self.worst:
            return 0.5
        return min(1.0, max(0.0, (reward - self.worst) / (self.best - self.worst)))

    def estimate(self, actions: Iterable[str], record: Record) -> Tally:
        """The scaled value of a step by its actions, as ``record`` knows them: a mean of theirs, as sure as the least.

        The count is 0 where one of them is not known.
        """
        tallies = [record.actions.get(action) for action in actions]
        known = [tally for tally in tallies if tally is not None]
        if not known or len(known) < len(tallies):
            return Tally()
        count = min(tally.count for tally in known)
        return Tally(count, count * sum(self.scaled(tally.mean) for tally in known) / len(known))

    def choice(self, place: Place, parent: Place, knower: Record, virtual_loss: float) -> Choice:
        """What a policy sees of ``place``; ``knower``: whose knowledge of actions is asked."""
        rewards = place.record.rewards
        # Those outstanding count as losses until they are told, so that the next search goes elsewhere.
        lost = virtual_loss * place.record.outstanding + place.record.fruitless
        number = rewards.count + lost
        assert place.step is not None
        actions = self.estimate(place.step.actions, knower)
        return Choice(
            visits=place.searches,
            parent_visits=parent.searches,
            mean=rewards.count * self.scaled(rewards.mean) / number if number else 0.0,
            best=self.scaled(place.record.best) if rewards.count else 0.0,
            action_visits=actions.count,
            action_mean=actions.mean,
        )

    def to_json(self) -> dict[str, Any]:
        """The tree as data for ``json.dumps``: a list of places, parents before children.

        ``step`` is the name of the last step, and ``steps`` how many steps of an operator it is. ``record`` tells which
        places share what is known; ``mean`` and ``best`` are rewards, None where there is none;
        ``distance`` is the fewest steps that may lead to the end, None where the space knows no such bound.
        """
        numbers: dict[int, int] = {}
        places = []
        for place in self.places:
            rewards = place.record.rewards
            places.append(
                {
                    "number": place.number,
                    "parent": place.parent,
                    "step": None if place.step is None else place.step.name,
                    "record": numbers.setdefault(id(place.record), len(numbers)),
                    "visits": place.visits,
                    "outstanding": place.outstanding,
                    "fruitless": place.fruitless,
                    "mean": rewards.mean if rewards.count else None,
                    "best": place.record.best if rewards.count else None,
                    "is_complete": place.state.is_complete,
                    "is_closed": place.is_closed,
                    "is_dead": self.is_dead(place),
                    "distance": getattr(place.state, "distance", None),
                    "steps": 0 if place.step is None else place.step.steps,
                }
            )
        return {"format": "syno-lab search tree", "version": 1, "places": places}

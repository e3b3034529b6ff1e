"""The tree of a search as plain data, and the value of a step in the tree; the tree can be shown and written as JSON.

A :class:`Place` is a node of the tree: one path from the root. A :class:`Record` holds the statistics of a state; all
nodes with one key (transpositions) share the record, so they learn together. Each node counts its own visits, because a
search may have tried a step at one node and not at another. Counting by node is the rule UCT2 of Childs, Brodeur and
Kocsis, Transpositions and move groups in Monte Carlo tree search, 2008.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import Any

from syno_lab.search.asking import check_numbers
from syno_lab.search.descent import Facts
from syno_lab.search.protocol import Child, State, Step

NO_PARENT = -1


# -- the value of a step ---------------------------------------------------------------------------------------------
#
# Letters as in the papers: N visits of the parent, n visits of the step, Q its value. A is the value of the step's
# actions wherever they were taken (all moves as first, AMAF), and m is how often they were taken. Values are scaled:
# the worst reward so far is 0 and the best reward is 1.


@dataclass(frozen=True)
class Choice:
    """The counts and values of a step.

    Attributes:
        visits: n, the searches through the step from this node; outstanding and fruitless searches count too.
        parent_visits: N, the searches through the parent; outstanding and fruitless searches count too.
        mean: Q in [0, 1], the mean reward of the state after the step; outstanding and fruitless searches count as 0.
        best: the best reward below the step, in [0, 1].
        action_visits: m.
        action_mean: A, the value of the step's actions, in [0, 1].
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
        best_share: w in ``(1 - w)*mean + w*best``, which replaces Q. A search needs one good operator, not a good mean.
            Schadd and others (Single-player Monte-Carlo tree search, 2008) add a variance for the same reason.

    Raises SearchError for a negative exploration, or a share outside [0, 1].
    """
    return _score(exploration, best_share, 0.0)


def rave(exploration: float = 0.1, best_share: float = 0.3, equivalence: float = 20.0) -> Select:
    """Return the policy ``(1 - b)*Q + b*A + c*sqrt(ln N / n)`` with ``b = sqrt(k / (3*n + k))``, or b = 0 if m = 0.

    The formula is the hand-selected schedule in section 4.3 of Gelly and Silver, Monte-Carlo tree search and rapid
    action value estimation in computer Go, 2011. At k visits (the equivalence), Q and A have equal weights. Raises
    SearchError for a negative exploration, a share outside [0, 1], or an equivalence that is not positive.
    """
    check_numbers(("equivalence", equivalence, equivalence > 0, "a positive number of visits"))
    return _score(exploration, best_share, equivalence)


def _score(exploration: float, best_share: float, equivalence: float) -> Select:
    check_numbers(
        ("exploration", exploration, exploration >= 0, "0 or more"),
        ("best_share", best_share, 0 <= best_share <= 1, "a share from 0 to 1"),
    )

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
    """The number and the sum of rewards."""

    count: int = 0
    total: float = 0.0

    def add(self, reward: float) -> None:
        """Add one reward."""
        self.count += 1
        self.total += reward

    @property
    def mean(self) -> float:
        """Return the mean reward; 0 without rewards."""
        return self.total / self.count if self.count else 0.0


@dataclass
class Record:
    """The statistics of a state; all nodes of the state share the record.

    Attributes:
        rewards: the rewards of the operators below the state.
        best: the highest reward below the state.
        outstanding: the number of searches through the state that wait for a reward.
        fruitless: the number of searches through the state that met a dead end, a refused or a known operator.
        actions: the rewards by action, of all actions taken below the state (AMAF).
    """

    rewards: Tally = field(default_factory=Tally)
    best: float = 0.0
    outstanding: int = 0
    fruitless: int = 0
    actions: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))


@dataclass
class Place:
    """A node of the tree: one path of steps from the root.

    Attributes:
        number: the index of the node in the list of the tree.
        parent: the number of its parent, or ``NO_PARENT``.
        step: the last step; None at the root.
        state: the state after the last step.
        record: the statistics of the state.
        visits: the number of searches through the node that have ended with a reward.
        outstanding: the number of searches through the node that wait for a reward.
        fruitless: the number of searches through the node that found no operator.
        children: the numbers of the nodes below, in the order of their creation.
        untried: the children of the state that are no nodes yet; None until the search first needs them.
        is_closed: whether no operator below the node is left to ask for.
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
        """Return the number of all searches through the node."""
        return self.visits + self.outstanding + self.fruitless

    def to_try(self) -> list[Child]:
        """Return the children of the state that are no nodes yet; changes of the list stay."""
        if self.untried is None:
            self.untried = list(self.state.children())
        return self.untried


class Tree:
    """The tree of a search: all nodes, and the range of rewards.

    Args:
        root: the first state.
        facts: the known dead ends; the tree adds more.
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
        """Return the node where every search begins."""
        return self.places[0]

    def add(self, parent: int, step: Step | None, state: State) -> Place:
        """Add a node below ``parent``."""
        place = Place(len(self.places), parent, step, state, self.records.setdefault(state.key, Record()))
        self.places.append(place)
        if parent != NO_PARENT:
            self.places[parent].children.append(place.number)
        return place

    def child(self, place: Place, name: str) -> Place | None:
        """Return the child node after the step of this name; None if the tree does not have it yet."""
        below = (self.places[number] for number in place.children)
        return next((child for child in below if child.step is not None and child.step.name == name), None)

    def close(self, place: Place) -> None:
        """Close an exhausted node, and then each parent whose last open child was closed."""
        while True:
            place.is_closed = True
            if not place.state.is_complete and all(self.is_dead(self.places[i]) for i in place.children):
                self.facts.dead.add(place.state.key)
            if place.parent == NO_PARENT:
                return
            parent = self.places[place.parent]
            # ``untried`` no longer contains children that yielded no step.
            if parent.untried is None or parent.untried or not all(self.places[i].is_closed for i in parent.children):
                return
            place = parent

    def is_dead(self, place: Place) -> bool:
        """Return whether no operator can be completed from the node."""
        return place.state.key in self.facts.dead

    def tell(self, reward: float) -> None:
        """Widen the range of rewards to include this reward."""
        self.worst = reward if self.worst is None else min(self.worst, reward)
        self.best = reward if self.best is None else max(self.best, reward)

    def scaled(self, reward: float) -> float:
        """Scale a reward to a number from 0 (the worst reward so far) to 1 (the best reward so far)."""
        if self.worst is None or self.best is None or self.best == self.worst:
            return 0.5
        return min(1.0, max(0.0, (reward - self.worst) / (self.best - self.worst)))

    def estimate(self, actions: Iterable[str], record: Record) -> Tally:
        """Estimate a step's scaled value from its actions in ``record``: the mean of their values, and the least count.

        The count is 0 if an action is not known.
        """
        tallies = [record.actions.get(action) for action in actions]
        known = [tally for tally in tallies if tally is not None]
        if not known or len(known) < len(tallies):
            return Tally()
        count = min(tally.count for tally in known)
        return Tally(count, count * sum(self.scaled(tally.mean) for tally in known) / len(known))

    def choice(self, place: Place, parent: Place, knower: Record, virtual_loss: float) -> Choice:
        """Return the counts and values of ``place`` for a policy; the record ``knower`` has the values of actions."""
        rewards = place.record.rewards
        # Outstanding searches count as losses until their rewards are told, so that the next search goes elsewhere.
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
        """Return the tree as data for ``json.dumps``: a list of nodes, parents before children.

        ``step`` is the name of the last step, and ``steps`` the number of building steps that it stands for. Nodes with
        equal ``record`` share their statistics. ``mean`` and ``best`` are rewards, None without rewards. ``distance``
        is a lower bound of the number of steps to an operator, None if the space has no such bound.
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

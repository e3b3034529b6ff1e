"""Monte Carlo tree search over a space of operators (Syno, section 7.2), in four verbs over plain data.

``select`` goes down the tree, ``expand`` adds one place, ``simulate`` goes on at random to an operator, ``backup``
takes its reward up again. Accuracy is the reward; FLOPs and the other budgets are the space's own hard limits. Every
operator is asked for once: places below which nothing is left are closed, dead ends with them. By default it is UCT:
the tree decides, and descents below it are random.

- Progressive widening: a place that was searched n times has ``ceil(width * n**growth)`` open children at most (Coulom,
  Computing Elo ratings of move patterns in the game of Go, 2007; Chaslot and others, 2008).
- RAVE (an option: :data:`RAVE` with :func:`.tree.rave`): actions are valued wherever they were taken, as the
  nearest ancestor knows them that has enough rewards (GRAVE: Cazenave, Generalized rapid action value estimation,
  2015); at random descents as the root knows them (MAST: Finnsson and Björnsson, Simulation-based approach to general
  game playing, 2008). Of a few children drawn by weight the new one is chosen by its actions.
- Virtual loss (an option): what is outstanding counts as a loss until it is told, so the next search goes elsewhere
  (Chaslot, Winands and van den Herik, Parallel Monte-Carlo tree search, 2008). Without it, it counts as a visit alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import Any

from syno_lab.search.asking import Measures, Search, check_numbers
from syno_lab.search.descent import claim, descend, pop_weighted
from syno_lab.search.protocol import State, Step, Trail
from syno_lab.search.tree import Place, Record, Select, Tree, uct


@dataclass(frozen=True)
class Settings:
    """How a tree is searched.

    Attributes:
        width: open children of a place searched once.
        growth: how they grow with the number of searches: an exponent from 0 to 1.
        looks: children that are looked at before one is taken by what its actions are worth, when a place is added and
            in random descents; 1: the one drawn by weight.
        temperature: of that choice; infinite: by chance alone.
        trust: rewards from which on a place's own knowledge of actions is asked, not an ancestor's.
        virtual_loss: how many losses an outstanding operator counts for.

    Raises SearchError for numbers that make no sense.
    """

    width: float = 1.5
    growth: float = 0.5
    looks: int = 1
    temperature: float = 0.05
    trust: int = 10
    virtual_loss: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(
            ("width", self.width, self.width > 0, "a positive number"),
            ("growth", self.growth, 0 <= self.growth <= 1, "a number from 0 to 1"),
            ("looks", self.looks, self.looks >= 1, "1 or more"),
            ("temperature", self.temperature, self.temperature > 0, "a positive number"),
            ("trust", self.trust, self.trust >= 0, "0 or more"),
            ("virtual_loss", self.virtual_loss, self.virtual_loss >= 0, "0 or more"),
        )


#: With values of actions.
RAVE = Settings(looks=8)


def select(tree: Tree, policy: Select, settings: Settings, rng: random.Random) -> list[Place]:
    """The places from the root to the one to be expanded; to one that has just been closed where nothing is left."""
    place = tree.root
    path = [place]
    knower = place.record
    while True:
        if place.untried is None:
            place.untried = list(place.state.children())
        for number in place.children:
            child = tree.places[number]
            if not child.is_closed and tree.is_dead(child):  # found dead on another way
                child.is_closed = True
        choices = [tree.places[i] for i in place.children if not tree.places[i].is_closed]
        if place.untried and len(choices) < ceil(settings.width * (place.searches + 1) ** settings.growth):
            return path
        if not choices:
            tree.close(place)
            return path
        if place.record.rewards.count >= settings.trust:
            knower = place.record
        scores = [policy(tree.choice(child, place, knower, settings.virtual_loss)) for child in choices]
        highest = max(scores)
        place = rng.choice([c for c, score in zip(choices, scores, strict=True) if score == highest])
        path.append(place)


def expand(tree: Tree, place: Place, settings: Settings, rng: random.Random, knower: Record) -> Place | None:
    """A new place below ``place``; None where nothing new is open there, which closes it if that was the last."""
    if place.is_closed:
        return None
    assert place.untried is not None
    looked: list[tuple[Any, Sequence[Step]]] = []
    while place.untried and len(looked) < settings.looks:
        child = pop_weighted(place.untried, rng)
        steps = [step for step in child.steps() if step.state.is_complete or tree.facts.is_open(step.state)]
        if steps:
            looked.append((child, steps))
    if not looked:
        if all(tree.places[i].is_closed for i in place.children):
            tree.close(place)
        return None
    firsts = [steps[0] for _, steps in looked]
    chosen = firsts.index(prefer(tree, firsts, settings, rng, knower))
    place.untried += [child for i, (child, _) in enumerate(looked) if i != chosen]
    opened = []
    for step in looked[chosen][1]:
        added = tree.add(place.number, step, step.state)
        added.is_closed = not tree.facts.is_open(step.state)
        if not added.is_closed:
            opened.append(added)
    if opened:
        return opened[0]
    tree.close(tree.places[-1])
    return None


def prefer(tree: Tree, steps: Sequence[Step], settings: Settings, rng: random.Random, knower: Record) -> Step:
    """One of ``steps`` by chance, likelier where its actions were worth more: Gibbs sampling at a temperature.

    An estimate counts two rewards more, those of the mean, so that one lucky reward does not decide.
    """
    if len(steps) == 1 or knower.rewards.count == 0:
        return steps[0]  # drawn by weight
    middle = tree.scaled(knower.rewards.mean)
    values = []
    for step in steps:
        known = tree.estimate(step.actions, knower)
        values.append((2 * middle + known.total) / (2 + known.count))
    highest = max(values)
    (step,) = rng.choices(steps, [exp((value - highest) / settings.temperature) for value in values])
    return step


def simulate(
    tree: Tree, start: Place, settings: Settings, rng: random.Random, knower: Record
) -> tuple[Step, ...] | None:
    """Steps from a place to a complete state; none where it is one, None where a descent comes to nothing."""
    if start.state.is_complete:
        return ()

    def choose(steps: Sequence[Step]) -> Step:
        return prefer(tree, steps, settings, rng, knower)

    return descend(start.state, rng, tree.facts, prefer=choose, width=settings.looks)


def backup(tree: Tree, path: Sequence[Place], steps: Sequence[Step], reward: float) -> None:
    """Tell the places of ``path`` the reward of the operator at the end of ``steps``, which begin at the root."""
    tree.tell(reward)
    for depth, place in enumerate(path):
        place.visits += 1
        record = place.record
        record.rewards.add(reward)
        record.best = max(record.best, reward)
        below = dict.fromkeys(action for step in steps[depth:] for action in step.actions)
        for action in below:
            record.actions[action].add(reward)


class MonteCarloTreeSearch(Search):
    """Monte Carlo tree search.

    Args:
        root: the space.
        rng: the only source of chance.
        policy: the value of a step in ``select``; None: UCT.
        settings: widening, virtual loss and the rest.
        observe: called with the tree whenever it has grown or learned, for those who want to show it.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        policy: Select | None = None,
        settings: Settings | None = None,
        observe: Callable[[Tree], None] | None = None,
    ) -> None:
        super().__init__(root, rng)
        self.policy = uct() if policy is None else policy
        self.settings = Settings() if settings is None else settings
        self.tree = Tree(root, self.facts)
        self._observe = observe
        self._paths: dict[Hashable, list[Place]] = {}

    def _propose(self) -> tuple[Trail, Any] | None:
        tree = self.tree
        while not tree.root.is_closed and not self._should_stop():
            path = select(tree, self.policy, self.settings, self.rng)
            knower = self._knower(path)
            added = expand(tree, path[-1], self.settings, self.rng, knower)
            if added is not None:
                path.append(added)
                rest = simulate(tree, added, self.settings, self.rng, knower)
                if rest is not None:
                    steps = (*(place.step for place in path if place.step is not None), *rest)
                    operator = claim(steps[-1].state, self.facts, self._known)
                    if added.state.is_complete:  # it is asked for at once
                        tree.close(added)
                    if operator is not None:
                        trail = Trail(steps)
                        self._enter(trail, path)
                        return trail, operator
                if not added.is_closed and not self.facts.is_open(added.state):
                    tree.close(added)
            for place in path:
                place.fruitless += 1
                place.record.fruitless += 1
        return None

    def _knower(self, path: Sequence[Place]) -> Record:
        """Whose knowledge of actions is asked: the last that has enough of it, else the root's."""
        for place in reversed(path):
            if place.record.rewards.count >= self.settings.trust:
                return place.record
        return path[0].record

    def _mark(self, path: Sequence[Place], by: int) -> None:
        for place in path:
            place.outstanding += by
            place.record.outstanding += by

    def _expect(self, trail: Trail) -> None:
        self._enter(trail, self._path(trail))

    def _enter(self, trail: Trail, path: list[Place]) -> None:
        """``trail`` is outstanding, and counts at the places of ``path``."""
        self._paths[trail.end.key] = path
        self._mark(path, 1)
        self._show()

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        path = self._paths.pop(trail.end.key)
        self._mark(path, -1)
        backup(self.tree, path, trail.steps, reward)
        self._show()

    def _release(self, trail: Trail) -> None:
        self._mark(self._paths.pop(trail.end.key), -1)
        self._show()

    def _path(self, trail: Trail) -> list[Place]:
        """The places along a trail, and one more: as if the tree had been searched there."""
        tree = self.tree
        place = tree.root
        path = [place]
        for step in trail.steps:
            found = tree.child(place, step.name)
            if found is None:
                if place.untried is None:
                    place.untried = list(place.state.children())
                for child in place.untried:
                    steps = child.steps()
                    if any(other.name == step.name for other in steps):
                        place.untried.remove(child)
                        for other in steps:
                            tree.add(place.number, other, other.state).is_closed = not self.facts.is_open(other.state)
                        found = tree.child(place, step.name)
                        break
                if found is not None:
                    path.append(found)
                    if found.is_closed:
                        tree.close(found)
                break
            place = found
            path.append(place)
            if place.state.is_complete:
                tree.close(place)
        return path

    def _show(self) -> None:
        if self._observe is not None:
            self._observe(self.tree)

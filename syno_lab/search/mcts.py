"""Monte Carlo tree search over a space of operators (Syno, section 7.2), as four functions over plain data.

``select`` goes down the tree, ``expand`` adds one node, ``simulate`` continues at random to an operator, ``backup``
passes the reward to all nodes on the way. The reward is the accuracy; FLOPs and other budgets are hard limits of the
space. The search asks for each operator once. Dead ends, and nodes with nothing left below, are closed. The default
policy is UCT: in the tree, values of nodes choose the path; below the tree, steps are random.

* Progressive widening: a node with n searches has at most ``ceil(width * n**growth)`` open children (Coulom, Computing
  Elo ratings of move patterns in the game of Go, 2007; Chaslot and others, 2008).
* RAVE (optional: :data:`RAVE` with :func:`.tree.rave`) values an action wherever it was taken. Values of actions are
  those of the nearest ancestor with enough rewards (GRAVE: Cazenave, Generalized rapid action value estimation, 2015).
  Random descents use the root's values (MAST: Finnsson and Björnsson, Simulation-based approach to general game
  playing, 2008). The values choose the new child among a few children that are drawn by weight.
* Virtual loss (optional): an outstanding operator counts as a loss, and not only as a visit, until its reward is told.
  The next search then takes another path (Chaslot, Winands and van den Herik, Parallel Monte-Carlo tree search, 2008).
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import Any

from syno_lab.search.asking import Measures, Search, check_numbers
from syno_lab.search.descent import claim, descend, pop_weighted
from syno_lab.search.protocol import State, Step, Trail
from syno_lab.search.tree import Place, Record, Select, Tree, uct


@dataclass(frozen=True)
class Settings:
    """The settings of a tree search.

    Attributes:
        width: the number of open children of a node after one search.
        growth: the number of open children grows with the number of searches to this power, from 0 to 1.
        looks: the number of drawn children, one of which is chosen by values of actions: for a new node, in descents.
            With ``looks`` = 1, the weight alone decides.
        temperature: the temperature of the random choice by values of actions; infinity means a uniform choice.
        trust: the least number of rewards with which a node uses its own values of actions instead of an ancestor's.
        virtual_loss: the number of losses that an outstanding operator counts for.

    Raises SearchError for numbers out of range.
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


#: The settings for searches with values of actions.
RAVE = Settings(looks=8)


def select(tree: Tree, policy: Select, settings: Settings, rng: random.Random) -> list[Place]:
    """Return the nodes from the root to the node to expand, or to a node that was just closed as exhausted."""
    place = tree.root
    path = [place]
    knower = place.record
    while True:
        for number in place.children:
            child = tree.places[number]
            child.is_closed = child.is_closed or tree.is_dead(child)  # a search through another node found a dead end
        choices = [tree.places[i] for i in place.children if not tree.places[i].is_closed]
        if place.to_try() and len(choices) < ceil(settings.width * (place.searches + 1) ** settings.growth):
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
    """Add a node below ``place``; return None if no new child is open, and close ``place`` if it is exhausted."""
    if place.is_closed:
        return None
    looked: list[tuple[Any, Sequence[Step]]] = []
    while place.to_try() and len(looked) < settings.looks:
        child = pop_weighted(place.to_try(), rng)
        steps = [step for step in child.steps() if step.state.is_complete or tree.facts.is_open(step.state)]
        if steps:
            looked.append((child, steps))
    if not looked:
        if all(tree.places[i].is_closed for i in place.children):
            tree.close(place)
        return None
    firsts = [steps[0] for _, steps in looked]
    chosen = firsts.index(prefer(tree, firsts, settings, rng, knower))
    place.to_try().extend(child for i, (child, _) in enumerate(looked) if i != chosen)
    added = [tree.add(place.number, step, step.state) for step in looked[chosen][1]]
    for node in added:
        node.is_closed = not tree.facts.is_open(node.state)
    if opened := [node for node in added if not node.is_closed]:
        return opened[0]
    tree.close(tree.places[-1])
    return None


def prefer(tree: Tree, steps: Sequence[Step], settings: Settings, rng: random.Random, knower: Record) -> Step:
    """Draw one of ``steps``; more valuable actions make a step likelier (Gibbs sampling at a temperature).

    Each estimate counts two more rewards with the mean value, so that one lucky reward does not decide.
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
    """Return random steps from a node to a complete state; () if the node is complete, None if the descent fails."""
    if start.state.is_complete:
        return ()

    def choose(steps: Sequence[Step]) -> Step:
        return prefer(tree, steps, settings, rng, knower)

    return descend(start.state, rng, tree.facts, prefer=choose, width=settings.looks)


def backup(tree: Tree, path: Sequence[Place], steps: Sequence[Step], reward: float) -> None:
    """Add the reward to all nodes of ``path``; ``steps`` lead from the root to the operator."""
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
        policy: the function that ``select`` uses to value a step; None means UCT.
        settings: the settings for widening, virtual loss and values of actions.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        policy: Select | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(root, rng)
        self.policy = uct() if policy is None else policy
        self.settings = Settings() if settings is None else settings
        self.tree = Tree(root, self.facts)
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
                    if added.state.is_complete:  # the operator is proposed at once
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
        """Return the record whose values of actions apply: the last of ``path`` with enough rewards, or the root's."""
        sure = (place.record for place in reversed(path) if place.record.rewards.count >= self.settings.trust)
        return next(sure, path[0].record)

    def _mark(self, path: Sequence[Place], by: int) -> None:
        for place in path:
            place.outstanding += by
            place.record.outstanding += by

    def _expect(self, trail: Trail) -> None:
        self._enter(trail, self._path(trail))

    def _enter(self, trail: Trail, path: list[Place]) -> None:
        """Mark ``trail`` as outstanding, and count it at the nodes of ``path``."""
        self._paths[trail.end.key] = path
        self._mark(path, 1)

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        path = self._paths.pop(trail.end.key)
        self._mark(path, -1)
        backup(self.tree, path, trail.steps, reward)

    def _release(self, trail: Trail) -> None:
        self._mark(self._paths.pop(trail.end.key), -1)

    def _path(self, trail: Trail) -> list[Place]:
        """Return the nodes along a trail, and add the next node to the tree, as a search would."""
        tree = self.tree
        place = tree.root
        path = [place]
        for step in trail.steps:
            next_place = tree.child(place, step.name)
            if next_place is None:
                for child in place.to_try():
                    steps = child.steps()
                    if any(other.name == step.name for other in steps):
                        place.to_try().remove(child)
                        for other in steps:
                            tree.add(place.number, other, other.state).is_closed = not self.facts.is_open(other.state)
                        next_place = tree.child(place, step.name)
                        break
                if next_place is not None:
                    path.append(next_place)
                    if next_place.is_closed:
                        tree.close(next_place)
                break
            place = next_place
            path.append(place)
            if place.state.is_complete:
                tree.close(place)
        return path

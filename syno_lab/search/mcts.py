"""Monte Carlo tree search over a space of operators (Syno, section 7.2), in four verbs over plain data.

``select`` goes down the tree, ``expand`` adds one place, ``simulate`` goes on at random to an operator, ``backup``
takes its reward up again. Accuracy is the reward; FLOPs and the other budgets are the space's own hard limits. Every
operator is asked for once: places below which nothing is left are closed, dead ends with them.

- Progressive widening: a place that was searched n times has ``ceil(width * n**growth)`` open children at most (Coulom,
  Computing Elo ratings of move patterns in the game of Go, 2007; Chaslot and others, 2008). Of a few children drawn by
  weight the new one is chosen by its actions.
- Actions are valued wherever they were taken (RAVE), as the nearest ancestor knows them that has enough rewards (GRAVE:
  Cazenave, Generalized rapid action value estimation, 2015); at random descents as the root knows them (MAST: Finnsson
  and Björnsson, Simulation-based approach to general game playing, 2008).
- Descents cost little beside a training: several are made, from the place that the tree leads to and some from the root
  by chance alone, and the operator is taken that promises most by its actions and traits
  (:mod:`syno_lab.search.estimate`). Those by chance keep the search from staying where the first rewards were; those
  not taken are compared again.
- A share of the questions explores, whatever is promised. The estimate is sure of regions where it has seen little, and
  wrong where rewards hang on what its words do not say; a search that follows it alone stays in the first region that
  pays. Half of that share takes an operator by chance alone, so that the search is never slower than random search by
  more than a constant factor (Hutter, Hoos and Leyton-Brown, Sequential model-based optimization for general algorithm
  configuration, 2011, interleave such draws; Falkner, Klein and Hutter, BOHB, 2018, make a third of them). The other
  half takes what the estimate knows least about (MacKay, Information-based objective functions for active data
  selection, 1992).
- Virtual loss: what is outstanding counts as a loss until it is told, so the next search goes elsewhere (Chaslot,
  Winands and van den Herik, Parallel Monte-Carlo tree search, 2008).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import Any

import numpy as np

from syno_lab.errors import SearchError
from syno_lab.search.asking import Search
from syno_lab.search.descent import claim, descend, pop_weighted
from syno_lab.search.estimate import Bag, Estimate, Portrait, bag
from syno_lab.search.policies import Select, rave
from syno_lab.search.protocol import State, Step, Trail
from syno_lab.search.tree import Place, Record, Tree


@dataclass(frozen=True)
class Settings:
    """How a tree is searched.

    Attributes:
        width: open children of a place searched once.
        growth: how they grow with the number of searches: an exponent from 0 to 1.
        looks: children that are looked at before one is taken, when a place is added and in random descents.
        temperature: of the choice among those looked at by what their actions are worth; infinite: by chance alone.
        trust: rewards from which on a place's own knowledge of actions is asked, not an ancestor's.
        virtual_loss: how many losses an outstanding operator counts for.
        is_sharing: whether states with one key share what is known (transpositions).
        completions: how many descents are made from a new place, of which the most promising operator is taken.
        strays: how many descents are made from the root by chance alone, whose operators are compared with those.
        kept: how many of the operators drawn and not taken are compared again at the next question.
        bound: how many standard deviations a promise is above what is expected.
        chance: share of the questions after the first reward that are answered by chance alone, by the first stray.
        unknown: share of them answered with the operator whose reward is least known, of all that are compared.

    Raises:
        SearchError: for numbers that make no sense.
    """

    width: float = 1.5
    growth: float = 0.5
    looks: int = 8
    temperature: float = 0.05
    trust: int = 10
    virtual_loss: float = 1.0
    is_sharing: bool = True
    completions: int = 8
    strays: int = 24
    kept: int = 500
    bound: float = 2.0
    chance: float = 1 / 6
    unknown: float = 1 / 6

    def __post_init__(self) -> None:
        for name, is_right, expected in (
            ("width", self.width > 0, "a positive number"),
            ("growth", 0 <= self.growth <= 1, "a number from 0 to 1"),
            ("looks", self.looks >= 1, "1 or more"),
            ("temperature", self.temperature > 0, "a positive number"),
            ("trust", self.trust >= 0, "0 or more"),
            ("completions", self.completions >= 1, "1 or more"),
            ("strays", self.strays >= 0, "0 or more"),
            ("kept", self.kept >= 0, "0 or more"),
            ("bound", self.bound >= 0, "0 or more"),
            ("virtual_loss", self.virtual_loss >= 0, "0 or more"),
            ("chance", 0 <= self.chance <= 1, "a share from 0 to 1"),
            ("unknown", 0 <= self.unknown <= 1 - self.chance, "a share from 0 to what chance leaves"),
        ):
            if not is_right:
                raise SearchError(f"{name}: expected {expected}, found {getattr(self, name)}")


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
            tree.tally(record, action).add(reward)


class MonteCarloTreeSearch(Search):
    """Monte Carlo tree search.

    Args:
        root: the space.
        rng: the only source of chance.
        policy: the value of a step in ``select``.
        settings: widening, virtual loss and the rest.
        prior: a number for an operator, greater where more is expected of it, before any reward: the mean of the
            estimate (:mod:`.estimate`). Rewards decide how much it counts.
        observe: called with the tree whenever it has grown or learned, for those who want to show it.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        policy: Select | None = None,
        settings: Settings | None = None,
        prior: Callable[[Any], float] | None = None,
        observe: Callable[[Tree], None] | None = None,
    ) -> None:
        super().__init__(root, rng)
        self.policy = rave() if policy is None else policy
        self.settings = Settings() if settings is None else settings
        self.tree = Tree(root, self.facts, self.settings.is_sharing)
        self._prior = prior
        self._observe = observe
        self._estimate = Estimate()
        self._paths: dict[Hashable, list[Place]] = {}
        self._kept: dict[Hashable, tuple[Step, ...]] = {}  # drawn and not taken, the most promising first
        self._traits: dict[Hashable, tuple[Bag, float]] = {}  # and the prior

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to be asked for."""
        return self.tree.root.is_closed

    def _propose(self) -> tuple[Trail, Any] | None:
        tree, settings, rng = self.tree, self.settings, self.rng
        toss = rng.random()
        is_unknown_wanted = settings.chance <= toss < settings.chance + settings.unknown
        if toss < settings.chance and self.told and not tree.root.is_closed:
            for steps in self._strays(set()):
                operator = claim(steps[-1].state, self.facts, self._known)
                if operator is not None:
                    trail = Trail(steps)
                    self._enter(trail, self._path(trail))
                    return trail, operator
        while not tree.root.is_closed and not self._should_stop():
            path = select(tree, self.policy, settings, rng)
            knower = self._knower(path)
            added = expand(tree, path[-1], settings, rng, knower)
            if added is not None:
                path.append(added)
                before = tuple(place.step for place in path if place.step is not None)
                trails = [(*before, *rest) for rest in self._completions(added, knower)]
                within = {id(steps) for steps in trails}
                if not added.state.is_complete:  # which is asked for at once, and closed
                    trails += self._strays({steps[-1].state.key for steps in trails})
                    trails = self._with_kept(trails)
                for steps in self._in_order(trails, is_unknown_wanted):
                    operator = claim(steps[-1].state, self.facts, self._known)
                    if added.state.is_complete:
                        tree.close(added)
                    if operator is not None:
                        trail = Trail(steps)
                        self._enter(trail, path if id(steps) in within else self._path(trail))
                        return trail, operator
                if not added.is_closed and not self.facts.is_open(added.state):
                    tree.close(added)
            for place in path:
                place.fruitless += 1
                place.record.fruitless += 1
        return None

    @property
    def _compares(self) -> bool:
        """Whether there is anything to compare operators by before they are evaluated."""
        return bool(self.told) or self._prior is not None

    def _completions(self, place: Place, knower: Record) -> list[tuple[Step, ...]]:
        """Different ways on from a place to complete states; none where descents come to nothing."""
        found: dict[Hashable, tuple[Step, ...]] = {}
        for _ in range(self.settings.completions):
            rest = simulate(self.tree, place, self.settings, self.rng, knower)
            if rest is None:
                break
            found.setdefault(rest[-1].state.key if rest else None, rest)
            if not rest or not self._compares:  # nothing to choose, or nothing to choose by
                break
        return list(found.values())

    def _strays(self, known: set[Hashable]) -> Iterator[tuple[Step, ...]]:
        """Different ways by chance alone from the root to complete states that are not ``known``; added to it."""
        for _ in range(self.settings.strays if self._compares else 0):
            steps = descend(self.root, self.rng, self.facts, should_stop=self._should_stop)
            if steps is not None and steps[-1].state.key not in known:
                known.add(steps[-1].state.key)
                yield steps

    def _with_kept(self, trails: list[tuple[Step, ...]]) -> list[tuple[Step, ...]]:
        """``trails`` and those drawn before that nobody has asked for."""
        fresh = {steps[-1].state.key for steps in trails}
        old = (steps for key, steps in self._kept.items() if key not in fresh and key not in self.facts.ended)
        return [*trails, *old]

    def _in_order(self, trails: list[tuple[Step, ...]], is_unknown_wanted: bool) -> list[tuple[Step, ...]]:
        """The most promising first; before them, where it is wanted, the one of which least is known.

        With a prior, those that are no operators of the space are left out.
        """
        if self._prior is not None:
            trails = [steps for steps in trails if self._is_there(steps[-1].state)]
        if len(trails) < 2:
            return trails
        waiting = [self._portrait(trail.steps) for _, trail in self._waiting.values()]
        mean, deviation = self._estimate.beliefs([self._portrait(steps) for steps in trails], waiting)
        order = np.argsort(-(mean + self.settings.bound * deviation), kind="stable").tolist()
        if is_unknown_wanted and self.told:
            order.insert(0, order.pop(order.index(int(deviation.argmax()))))
        found = [trails[i] for i in order]
        self._kept = {steps[-1].state.key: steps for steps in found[1 : 1 + self.settings.kept]}
        wanted = self._kept.keys() | self._paths.keys() | {found[0][-1].state.key}
        self._traits = {key: traits for key, traits in self._traits.items() if key in wanted}
        return found

    def _is_there(self, end: State) -> bool:
        """Whether a complete state is an operator of the space; one that is not is not met again."""
        if end.key in self._traits or end.operator() is not None:
            return True
        self.facts.ended.add(end.key)
        return False

    def _portrait(self, steps: Sequence[Step]) -> Portrait:
        """What the estimate is shown of an operator; traits and prior are asked for once while it is compared."""
        end = steps[-1].state
        known = self._traits.get(end.key)
        if known is None:
            prior = 0.0 if self._prior is None else self._prior(end.operator())
            known = self._traits[end.key] = Counter(end.traits()), prior
        return Portrait(bag(steps), *known)

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

    def _learn(self, trail: Trail, reward: float) -> None:
        path = self._paths.pop(trail.end.key)
        self._mark(path, -1)
        backup(self.tree, path, trail.steps, reward)
        self._estimate.add(self._portrait(trail.steps), reward)
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

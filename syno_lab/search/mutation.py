"""Operators made from an earlier one: its steps after a place grown anew, or one step changed and the rest followed.

A search knows a step only by its words (:attr:`syno_lab.protocol.SearchStep.words`): steps are *alike* in the share of
their words that they have in common, and *neighbours* where one word of one stands for one word of the other, such as
another size of one operand.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from syno_lab.protocol import SearchStep
from syno_lab.search.descent import Facts, descend
from syno_lab.search.protocol import State, Step

#: The least share of words that a step has in common with the old one that it is taken for.
LEAST_ALIKE = 1 / 3

#: Chooses the step that is taken for an old one among those that are open; None for none.
Match = Callable[[Sequence[Step], SearchStep], Step | None]


def open_steps(state: State, facts: Facts) -> list[Step]:
    """All steps from ``state`` that may still lead to something."""
    return [step for child in state.children() for step in child.steps() if facts.is_open(step.state)]


def regrown(
    root: State, steps: Sequence[Step], place: int, rng: random.Random, facts: Facts
) -> tuple[Step, ...] | None:
    """The first ``place`` steps, and random ones from there; None where this attempt comes to nothing."""
    before = tuple(steps[:place])
    rest = descend(before[-1].state if before else root, rng, facts)
    return None if rest is None else (*before, *rest)


def followed(
    taken: Sequence[Step], old: Iterable[SearchStep], match: Match, rng: random.Random, facts: Facts
) -> tuple[Step, ...] | None:
    """``taken``, then the ``old`` steps as far as ``match`` finds them, then random ones; None where that fails."""
    found = list(taken)
    for step in old:
        again = match([one for child in found[-1].state.children() for one in child.steps()], step)
        if again is None or not facts.is_open(again.state):
            break
        found.append(again)
    if found[-1].state.is_complete:
        return tuple(found)
    return regrown(found[-1].state, found, len(found), rng, facts)


def mutated(root: State, steps: Sequence[Step], rng: random.Random, facts: Facts) -> tuple[Step, ...] | None:
    """The steps grown anew from a random place, or with another step there, each as often.

    They lead to a complete state that was not met before; None where this attempt gives none.
    """
    place = rng.randrange(len(steps))
    if rng.random() < 0.5:
        return regrown(root, steps, place, rng, facts)
    before = tuple(steps[:place])
    at = before[-1].state if before else root
    others = [step for step in open_steps(at, facts) if step.name != steps[place].name]
    if not others:
        return None
    return followed((*before, rng.choice(others)), steps[place + 1 :], same, rng, facts)


def same(steps: Sequence[Step], old: SearchStep) -> Step | None:
    """The step that does what ``old`` did, the same one if it can be; None where there is none."""
    found = [step for step in steps if step.actions == old.actions]
    return next((step for step in found if step.name == old.name), found[0] if found else None)


def most_alike(steps: Sequence[Step], old: SearchStep) -> Step | None:
    """The step that is most like ``old``, the same one if it can be; None where all are too different."""
    exact = same(steps, old)
    if exact is not None or not steps:
        return exact
    shares = [alike(step, old) for step in steps]
    highest = max(shares)
    return steps[shares.index(highest)] if highest >= LEAST_ALIKE else None


def alike(first: SearchStep, second: SearchStep) -> float:
    """The share of their words that two steps have in common, from 0 to 1; 1 for two without words."""
    x, y = _words(first), _words(second)
    most = (x | y).total()
    return (x & y).total() / most if most else 1.0


def neighbours(steps: Iterable[Step], old: SearchStep) -> list[Step]:
    """The ``steps`` in which one word stands for one of ``old``'s."""
    words = _words(old)
    total = words.total()
    found = []
    for step in steps:
        others = _words(step)
        if others.total() == total and (words - others).total() == 1:
            found.append(step)
    return found


def _words(step: SearchStep) -> Counter[str]:
    found: Counter[str] = Counter()
    for word, number in step.counted:
        found[word] += number
    return found

"""Ways from a draft to an operator: a shortest one, to suggest the next step, and a random one, to complete it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from syno_lab.canvas.aim import AimedDraft, Taken
from syno_lab.canvas.growth import Growing, Room, candidates
from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.matching import matches
from syno_lab.canvas.primitives import BROADCASTS
from syno_lab.effort import Effort, Stop
from syno_lab.errors import OverTimeError, PrimitiveError, SynoError, TooLargeError
from syno_lab.sessions.construction import PATIENCE_S

_WHAT = "looking for a way to an operator"
#: Of the time for a shortest way this share is for the proof; the rest is for one that is drawn.
_PROOF = 0.5
#: A random way has so many primitives more than it needs at most, and its kernel about so many at most.
_MORE, _MANY = 4, 12
#: At a dead end a random way goes back by so many steps, at most so often.
_BACK, _RETURNS = 2, 3
_REFUSALS = 30  # steps that the user's rules refuse before a random way is begun anew

Refuses = Callable[[AimedDraft, Taken], bool]


def _never(state: AimedDraft, step: Taken) -> bool:
    return False


def shortest_way(
    state: AimedDraft,
    *,
    seconds: float | None = PATIENCE_S,
    should_stop: Stop | None = None,
    refuses: Refuses = _never,
) -> tuple[Taken, ...]:
    """A shortest way of steps that nothing refuses; where the time does not suffice for that, a short one.

    Args:
        state: where to begin.
        seconds: of computing; None for as long as it takes.
        should_stop: asked often.
        refuses: whether rules of the user's own refuse a step.

    Raises:
        StoppedError: when ``should_stop`` said so.
        SynoError: for a state that is an operator already, and where no way is found.
    """
    if state.is_complete:
        raise SynoError("nothing to suggest: this is an operator already")
    done, needed = len(state.draft.nodes), _needed(state)
    try:
        effort = Effort(None if seconds is None else _PROOF * seconds, should_stop)
        for last in range(done + needed, state.aim.room.primitives + 1):
            found = _nearest(state, last, effort, refuses)
            if found is not None:
                return found
        raise SynoError(_nothing(state))
    except (OverTimeError, TooLargeError):
        pass
    rest = None if seconds is None else (1 - _PROOF) * seconds
    rng = random.Random(0)  # noqa: S311 - equal states get equal suggestions
    return _drawn(state, rng, (needed, needed + _MORE), Effort(rest, should_stop), refuses)


def random_way(
    state: AimedDraft,
    rng: random.Random,
    *,
    seconds: float | None = PATIENCE_S,
    should_stop: Stop | None = None,
    refuses: Refuses = _never,
) -> tuple[Taken, ...]:
    """Random steps to an operator, at least one, drawn as a sampler draws (:meth:`.Growing.grow`).

    Args:
        state: where to begin; an operator may be one too.
        rng: chance.
        seconds: of computing; None for as long as it takes.
        should_stop: asked often.
        refuses: whether rules of the user's own refuse a step.

    Raises:
        StoppedError: when ``should_stop`` said so.
        SynoError: where no way is found.
    """
    needed = _needed(state)
    most = max(needed + _MORE, _MANY - len(state.draft.nodes))
    return _drawn(state, rng, (needed, most), Effort(seconds, should_stop), refuses)


def _needed(state: AimedDraft) -> int:
    """The fewest steps of a way, at least one."""
    if state.needed is None or not state.left:
        raise SynoError(_nothing(state))
    return max(1, state.needed)


def _nearest(state: AimedDraft, last: int, effort: Effort, refuses: Refuses) -> tuple[Taken, ...] | None:
    """A way to an operator of ``last`` primitives; None where there is none."""
    room = replace(state.aim.room, primitives=last)
    for one in candidates(state.draft, room, look=lambda: effort.tick(_WHAT)):
        if not one.may_be_taken:
            continue
        effort.look(_WHAT)
        step = Taken(*one[:3])
        if refuses(state, step):
            continue
        after = state.apply(one)
        rest: tuple[Taken, ...] | None = () if after.is_complete else None
        if len(after.draft.nodes) < last:
            rest = _nearest(after, last, effort, refuses)
        if rest is not None:
            return (step, *rest)
    return None


def _drawn(
    state: AimedDraft, rng: random.Random, lengths: tuple[int, int], effort: Effort, refuses: Refuses
) -> tuple[Taken, ...]:
    """Random steps, so many, to an operator."""
    least, most = lengths
    room, done = state.aim.room, len(state.draft.nodes)
    try:
        while True:
            effort.look(_WHAT)
            last = done + rng.randint(least, max(least, min(most, state.left)))
            fewest = max(room.fcs[0], state.growing.fcs)
            fcs = rng.randint(fewest, max(fewest, min(room.fcs[1], fewest + 2)))
            steps = _walk(state, rng, replace(room, primitives=last), fcs, effort, refuses)
            if steps is not None:
                return steps
    except (OverTimeError, TooLargeError):
        raise SynoError(_nothing(state)) from None


def _walk(
    state: AimedDraft, rng: random.Random, room: Room, fcs: int, effort: Effort, refuses: Refuses
) -> tuple[Taken, ...] | None:
    drafts, steps, returns, refusals = [state.draft], list[Taken](), 0, 0
    growing = Growing(room, state.draft.nodes, state.draft.shapes)
    while growing.left:
        effort.tick(_WHAT)
        grown = growing.grow(rng, fcs)
        if grown is None:
            returns += 1
            if returns > _RETURNS or len(steps) < _BACK:
                return None
            del drafts[-_BACK:], steps[-_BACK:]
            grown = Growing(room, drafts[-1].nodes, drafts[-1].shapes)
        else:
            after = grown.draft()
            step = step_between(drafts[-1], after)
            if refuses(AimedDraft(drafts[-1], state.aim), step):
                refusals += 1
                if refusals > _REFUSALS:
                    return None
                growing = Growing(room, drafts[-1].nodes, drafts[-1].shapes)
                continue
            drafts.append(after)
            steps.append(step)
        growing = grown
    return tuple(steps) if AimedDraft(drafts[-1], state.aim).is_complete else None


def step_between(before: Draft, after: Draft) -> Taken:
    """The step that leads from a draft to one with a primitive more."""
    primitive, inputs = after.nodes[-1]
    if primitive.name not in BROADCASTS or before.nodes == after.nodes[:-1]:
        return Taken(primitive, inputs)
    for match in matches(*[before.shapes[number] for number in inputs]):
        step = Taken(primitive, inputs, match.substitution)
        try:
            if match.parameter == primitive.parameter and before.apply(step) == after:
                return step
        except PrimitiveError:
            continue
    raise PrimitiveError(f"expected a draft of one step more, found {after.nodes[-1]} behind another one")


def _nothing(state: AimedDraft) -> str:
    if state.too_much is not None:
        return f"no operator can come of this draft: {state.too_much}; undo some steps"
    if state.needed is None or not state.left:
        lacks = max(1, state.growing.needs().number, state.short)
        return f"expected room for at least {lacks} more primitives, found {state.left}; undo some steps"
    return f"no way to an operator was found from here in {state.left} steps; undo some"

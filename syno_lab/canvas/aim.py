"""Limits of a kernel that is built by hand, drafts with limits, and paths from a draft to an operator (section 6)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from syno_lab.canvas.filling import Solution, solve
from syno_lab.canvas.fitted import Fitted, fill
from syno_lab.canvas.growth import Candidate, Growing, candidates
from syno_lab.canvas.kernel import MOST_NODES, Draft, Kernel, Taken
from syno_lab.canvas.places import NO_BUDGET, Budget, Place, group_choices_of
from syno_lab.canvas.primitives import BROADCASTS, Primitive
from syno_lab.canvas.rules import LeastCosts, Room
from syno_lab.effort import Effort
from syno_lab.errors import OverTimeError, PrimitiveError, SpecError, SynoError, TooLargeError
from syno_lab.sessions.construction import Patience

#: Limits for building by hand: only the number of nodes is limited, so the rules alone refuse steps.
FREE_HAND = Room(MOST_NODES, width=MOST_NODES, fcs=(0, MOST_NODES), must_mix=False)
#: A layer in the middle of a residual network, for the costs of a draft without a network.
EXAMPLE = Place(64, 64, 28, 28)


def candidates_of(draft: Draft, room: Room = FREE_HAND) -> list[Candidate]:
    """List every primitive on every tensor and every broadcast of two tensors, each with its verdict."""
    return list(candidates(draft, room))


def why_dead(draft: Draft, room: Room = FREE_HAND) -> str | None:
    """Return in one line why a draft cannot become a kernel within the limits ``room``; None if no reason is known.

    None does not prove that the draft can be completed: the needed primitives are counted, not tried.
    """
    growing = Growing(room, draft.nodes, draft.shapes)
    needed = growing.needs().number
    if draft.is_complete and not needed:
        return None
    if needed > growing.left:
        merges = growing.needs().merges
        of_them = f", {merges} of them among {', '.join(BROADCASTS)}" if merges else ""
        return f"expected at most {max(growing.left, 0)} more primitives, found at least {needed} needed{of_them}"
    return None


@dataclass(frozen=True)
class Aim:
    """The places, the budget and the limits for which a kernel is built."""

    places: tuple[Place, ...] = (EXAMPLE,)  # The convolutions that the kernel replaces.
    budget: Budget = NO_BUDGET  # The budget for the costs of all layers together.
    groups: tuple[int, ...] = group_choices_of((EXAMPLE,))  # The numbers of groups (G) to try.
    room: Room = FREE_HAND  # The limits of the kernel.
    fewest: int = 1  # The least number of primitives.
    normalise: bool = False  # Whether results of FCs are normalised (:class:`.Kernel`).
    is_example: bool = True  # Whether ``places`` is only an example, to which no kernel is fitted.

    @classmethod
    def of(cls, start: Draft | Kernel | Fitted) -> Aim:
        """Return the aim of a session that starts with this value: an operator's places, or an example place."""
        if isinstance(start, Kernel):
            return cls(normalise=start.normalise)
        if isinstance(start, Fitted):
            if not start.places:
                return cls(groups=(start.groups,), normalise=start.kernel.normalise)
            return cls(start.places, groups=(start.groups,), normalise=start.kernel.normalise, is_example=False)
        return cls()

    @classmethod
    def within(cls, places: tuple[Place, ...], budget: Budget, groups: tuple[int, ...], room: Room, **more: Any) -> Aim:
        """Return the aim with these values; its limits refuse primitives that exceed the budget at the least sizes."""
        has_limits = budget.max_flops is not None or budget.max_params is not None
        costs = LeastCosts(places, budget, *(groups or (1,))) if has_limits else None
        return cls(places, budget, groups, replace(room, costs=costs), **more)

    def fitted(self, kernel: Kernel) -> Fitted | str:
        """Return the kernel as an operator with the first number of groups that fits; or the reason why none fits."""
        choices = self.groups if "G" in kernel.variables else (1,)
        if not choices:
            return "the channels of the places have no common divisor, so there is no number for G"
        if self.is_example:
            return Fitted(kernel, choices[0])
        results = [fill(kernel, self.places, self.budget, groups) for groups in choices]
        return next((result for result in results if isinstance(result, Fitted)), results[0])


@dataclass(frozen=True)
class AimedDraft:
    """An immutable draft with its aim; each change returns a new one."""

    draft: Draft
    aim: Aim

    def step(self, step: Taken | Candidate | Primitive | str) -> Taken:
        """Return the step for a candidate, or for a primitive on the last tensor (also as text: ``"fc x0"``).

        Raises PrimitiveError where the step does not apply.
        """
        if isinstance(step, Candidate):
            step = step.taken
        node = self.draft.apply(step).nodes[-1]
        return Taken(*node, step.substitution if isinstance(step, Taken) else None)

    def apply(self, step: Taken | Primitive | str) -> AimedDraft:
        """Return the draft with one more primitive: see :meth:`.Draft.apply`."""
        return AimedDraft(self.draft.apply(step), self.aim)

    # -- distance ----------------------------------------------------------------------------------------------------

    @cached_property
    def growing(self) -> Growing:
        """The draft with its counts of primitives and costs; callers must not change this object."""
        return Growing(self.aim.room, self.draft.nodes, self.draft.shapes)

    @property
    def left(self) -> int:
        """The number of primitives that may still be added."""
        return max(0, self.growing.left)

    @property
    def short(self) -> int:
        """The number of primitives by which the draft is below the required least number."""
        return max(0, self.aim.fewest - len(self.draft.nodes))

    @cached_property
    def too_much(self) -> str | None:
        """The limit that the draft exceeds, in one line, or None; no further step can undo the excess."""
        growing, room = self.growing, self.aim.room
        if growing.left < 0:
            return f"it has {len(self.draft.nodes)} primitives, and may have {room.primitives}"
        if growing.fcs > room.fcs[1]:
            return f"it has {growing.fcs} FCs, and may have {room.fcs[1]}"
        costs = growing.costs
        if costs is not None and (growing.flops > costs.most_flops or growing.params > costs.most_params):
            return "the kernel is over the budget even with the least sizes"
        return None

    @cached_property
    def needed(self) -> int | None:
        """The least number of further primitives (a lower bound); None where the draft cannot become a kernel."""
        number = max(self.growing.needs().number, self.short)
        return None if self.too_much is not None or number > self.left else number

    # -- as an operator ----------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether the draft is an operator that fits its places within the budget."""
        return isinstance(self._result, Fitted)

    @property
    def why_incomplete(self) -> str | None:
        """The reason why the draft is no operator, in one line, or None."""
        return self._result if isinstance(self._result, str) else None

    def operator(self) -> Fitted:
        """Return the operator; the budget fixes its dynamic variables. Raises SynoError for an incomplete draft."""
        if isinstance(self._result, str):
            raise SynoError(self._result)
        return self._result

    @cached_property
    def _result(self) -> Fitted | str:
        if self.needed != 0:
            how = self.too_much or f"at least {max(self.growing.needs().number, self.short)} more primitives are needed"
            return self.draft.why_incomplete or f"no kernel yet: {how}"
        try:
            return self.aim.fitted(self.draft.kernel(normalise=self.aim.normalise))
        except (PrimitiveError, SpecError) as error:
            return str(error)

    @cached_property
    def base(self) -> Solution | str:
        """The base solution with its costs for all layers, even of an incomplete draft; or why it does not exist."""
        # A complete draft's output variable is solved first; an incomplete draft is counted as if it were a kernel.
        draft = self.draft.kernel().draft if self.draft.is_complete else self.draft
        kernel = Kernel._of(draft, self.aim.normalise)
        groups = self.aim.groups if "G" in kernel.variables else (1,)
        if not groups:
            return "the channels of the places have no common divisor"
        results = [solve(kernel, self.aim.places, NO_BUDGET, number) for number in groups]
        return next((result for result in results if isinstance(result, Solution)), results[0])


# -- paths from a draft to an operator: a shortest path to suggest a step, a random path to complete a draft -----------

_WHAT = "looking for a way to an operator"
#: The share of the time for finding a path that is provably shortest; the rest is for a random path.
_PROOF = 0.5
#: A random path has at most `_MORE` primitives beyond the needed number, and its kernel about `_MANY` at most.
_MORE, _MANY = 4, 12
#: The number of steps that a random path removes at a dead end, and the limit of removals in a path.
_BACK, _RETURNS = 2, 3
_REFUSALS = 30  # steps that the user's rules refuse before a random path starts again

Refuses = Callable[[AimedDraft, Taken], bool]
_PATIENCE = Patience()


def _never(state: AimedDraft, step: Taken) -> bool:
    return False


def shortest_way(state: AimedDraft, patience: Patience = _PATIENCE, refuses: Refuses = _never) -> tuple[Taken, ...]:
    """Return a shortest path of allowed steps to an operator; if the time is too short, return a short path.

    ``refuses`` returns whether the user's own rules refuse a step. Raises StoppedError on a request to stop; SynoError
    for a state that is an operator already, and where no path is found.
    """
    if state.is_complete:
        raise SynoError("nothing to suggest: this is an operator already")
    done, needed = len(state.draft.nodes), _needed(state)
    seconds, should_stop = patience
    try:
        effort = Effort(None if seconds is None else _PROOF * seconds, should_stop)
        for last in range(done + needed, state.aim.room.primitives + 1):
            way = _nearest(state, last, effort, refuses)
            if way is not None:
                return way
        raise SynoError(_nothing(state))
    except (OverTimeError, TooLargeError):
        pass
    rest = None if seconds is None else (1 - _PROOF) * seconds
    rng = random.Random(0)  # noqa: S311 - equal states get equal suggestions
    return _drawn(state, rng, (needed, needed + _MORE), Effort(rest, should_stop), refuses)


def random_way(
    state: AimedDraft, rng: random.Random, patience: Patience = _PATIENCE, refuses: Refuses = _never
) -> tuple[Taken, ...]:
    """Draw random steps to an operator, at least one, as a sampler does (:meth:`.Growing.grow`).

    See :func:`shortest_way`; the state may be an operator already.
    """
    needed = _needed(state)
    most = max(needed + _MORE, _MANY - len(state.draft.nodes))
    return _drawn(state, rng, (needed, most), Effort(*patience), refuses)


def _needed(state: AimedDraft) -> int:
    """Return the least number of steps of a path to an operator, at least 1."""
    if state.needed is None or not state.left:
        raise SynoError(_nothing(state))
    return max(1, state.needed)


def _nearest(state: AimedDraft, last: int, effort: Effort, refuses: Refuses) -> tuple[Taken, ...] | None:
    """Return a path to an operator of ``last`` primitives, or None."""
    room = replace(state.aim.room, primitives=last)
    for candidate in candidates(state.draft, room, look=lambda: effort.tick(_WHAT)):
        if not candidate.may_be_taken:
            continue
        effort.look(_WHAT)
        if refuses(state, candidate.taken):
            continue
        after = state.apply(candidate.taken)
        rest: tuple[Taken, ...] | None = () if after.is_complete else None
        if len(after.draft.nodes) < last:
            rest = _nearest(after, last, effort, refuses)
        if rest is not None:
            return (candidate.taken, *rest)
    return None


def _drawn(
    state: AimedDraft, rng: random.Random, lengths: tuple[int, int], effort: Effort, refuses: Refuses
) -> tuple[Taken, ...]:
    """Draw random steps to an operator; ``lengths`` bounds their number."""
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
            step = grown.last
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


def _nothing(state: AimedDraft) -> str:
    if state.too_much is not None:
        return f"no operator can come of this draft: {state.too_much}; undo some steps"
    if state.needed is None or not state.left:
        lacks = max(1, state.growing.needs().number, state.short)
        return f"expected room for at least {lacks} more primitives, found {state.left}; undo some steps"
    return f"no way to an operator was found from here in {state.left} steps; undo some"

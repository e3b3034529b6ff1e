"""What a kernel is grown for by hand, a draft with that aim, and ways from it to an operator (Canvas, section 6)."""

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

#: A kernel without limits but the number of nodes: by hand, rules alone say what makes no sense.
FREE_HAND = Room(MOST_NODES, width=MOST_NODES, fcs=(0, MOST_NODES), must_mix=False)
#: A layer in the middle of a residual network: what costs are said of where no network is given.
EXAMPLE = Place(64, 64, 28, 28)


def candidates_of(draft: Draft, room: Room = FREE_HAND) -> list[Candidate]:
    """Every primitive on every tensor and every broadcast of two, with the rule or limit that refuses it."""
    return list(candidates(draft, room))


def why_dead(draft: Draft, room: Room = FREE_HAND) -> str | None:
    """Why no kernel can come of a draft within the room, in one line; None where none is known.

    A draft that cannot be finished may still give None: the primitives that it needs are counted, not tried.
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
    """What a kernel is grown for."""

    places: tuple[Place, ...] = (EXAMPLE,)  # the convolutions that it replaces
    budget: Budget = NO_BUDGET  # for all of them
    groups: tuple[int, ...] = group_choices_of((EXAMPLE,))  # the numbers that G may have
    room: Room = FREE_HAND  # what it may become
    fewest: int = 1  # primitives that it has at least
    normalise: bool = False  # whether results of FCs are normalised (:class:`.Kernel`)
    is_example: bool = True  # whether the places are an example, to which the operator is not fitted

    @classmethod
    def of(cls, start: Draft | Kernel | Fitted) -> Aim:
        """The aim of what a session begins with: an operator's places, or an example."""
        if isinstance(start, Kernel):
            return cls(normalise=start.normalise)
        if isinstance(start, Fitted):
            if not start.places:
                return cls(groups=(start.groups,), normalise=start.kernel.normalise)
            return cls(start.places, groups=(start.groups,), normalise=start.kernel.normalise, is_example=False)
        return cls()

    @classmethod
    def within(cls, places: tuple[Place, ...], budget: Budget, groups: tuple[int, ...], room: Room, **more: Any) -> Aim:
        """The aim of these; its room gets the least costs where there is a budget."""
        has_limits = budget.max_flops is not None or budget.max_params is not None
        costs = LeastCosts(places, budget, *(groups or (1,))) if has_limits else None
        return cls(places, budget, groups, replace(room, costs=costs), **more)

    def fitted(self, kernel: Kernel) -> Fitted | str:
        """The operator of a finished kernel, with the first number of groups that fits; or why there is none."""
        choices = self.groups if "G" in kernel.variables else (1,)
        if not choices:
            return "the channels of the places have no common divisor, so there is no number for G"
        if self.is_example:
            return Fitted(kernel, choices[0])
        found = [fill(kernel, self.places, self.budget, groups) for groups in choices]
        return next((one for one in found if isinstance(one, Fitted)), found[0])


@dataclass(frozen=True)
class AimedDraft:
    """A draft, and the aim that it is grown for; each change gives a new one."""

    draft: Draft
    aim: Aim

    def step(self, step: Taken | Candidate | Primitive | str) -> Taken:
        """A step as it is kept: of a candidate, or of a primitive on the last tensor, also as text: ``"fc x0"``.

        Raises PrimitiveError where it does not apply.
        """
        if isinstance(step, Candidate):
            step = step.taken
        node = self.draft.apply(step).nodes[-1]
        return Taken(*node, step.substitution if isinstance(step, Taken) else None)

    def apply(self, step: Taken | Primitive | str) -> AimedDraft:
        """The draft with one primitive more: see :meth:`.Draft.apply`."""
        return AimedDraft(self.draft.apply(step), self.aim)

    # -- how far it is -----------------------------------------------------------------------------------------------

    @cached_property
    def growing(self) -> Growing:
        """With the counts of its growth; it is not to be changed."""
        return Growing(self.aim.room, self.draft.nodes, self.draft.shapes)

    @property
    def left(self) -> int:
        """How many primitives may still be added."""
        return max(0, self.growing.left)

    @property
    def short(self) -> int:
        """How many primitives it lacks to have the fewest."""
        return max(0, self.aim.fewest - len(self.draft.nodes))

    @cached_property
    def too_much(self) -> str | None:
        """What the draft has too much of to become a kernel, in one line; None for nothing."""
        growing, room = self.growing, self.aim.room
        if growing.left < 0:
            return f"it has {len(self.draft.nodes)} primitives, and may have {room.primitives}"
        if growing.fcs > room.fcs[1]:
            return f"it has {growing.fcs} FCs, and may have {room.fcs[1]}"
        costs = growing.costs
        if costs is not None and (growing.flops > costs.most_flops or growing.params > costs.most_params):
            return "it is over the budget even with the least sizes"
        return None

    @cached_property
    def needed(self) -> int | None:
        """How many more primitives a kernel needs at least (a lower bound); None where none can come of the draft."""
        number = max(self.growing.needs().number, self.short)
        return None if self.too_much is not None or number > self.left else number

    # -- as an operator ----------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether it is an operator that fits its places within the budget."""
        return isinstance(self._made, Fitted)

    @property
    def why_incomplete(self) -> str | None:
        """What it lacks, in one line."""
        return self._made if isinstance(self._made, str) else None

    def operator(self) -> Fitted:
        """The operator; its dynamic variables are filled up to the budget. Raises SynoError where it is none."""
        if isinstance(self._made, str):
            raise SynoError(self._made)
        return self._made

    @cached_property
    def _made(self) -> Fitted | str:
        if self.needed != 0:
            how = self.too_much or f"at least {max(self.growing.needs().number, self.short)} more primitives are needed"
            return self.draft.why_incomplete or f"no kernel yet: {how}"
        try:
            return self.aim.fitted(self.draft.kernel(normalise=self.aim.normalise))
        except (PrimitiveError, SpecError) as error:
            return str(error)

    @cached_property
    def base(self) -> Solution | str:
        """The base solution at all places, and what it costs, finished or not; or why there is none."""
        # A variable of the output is solved; the costs of a draft are counted as a kernel's.
        draft = self.draft.kernel().draft if self.draft.is_complete else self.draft
        kernel = Kernel._of(draft, self.aim.normalise)
        groups = self.aim.groups if "G" in kernel.variables else (1,)
        if not groups:
            return "the channels of the places have no common divisor"
        found = [solve(kernel, self.aim.places, NO_BUDGET, number) for number in groups]
        return next((one for one in found if isinstance(one, Solution)), found[0])


# -- ways from a draft to an operator: a shortest one, to suggest the next step, and a random one, to complete it ------

_WHAT = "looking for a way to an operator"
#: Of the time for a shortest way this share is for the proof; the rest is for one that is drawn.
_PROOF = 0.5
#: A random way has so many primitives more than it needs at most, and its kernel about so many at most.
_MORE, _MANY = 4, 12
#: At a dead end a random way goes back by so many steps, at most so often.
_BACK, _RETURNS = 2, 3
_REFUSALS = 30  # steps that the user's rules refuse before a random way is begun anew

Refuses = Callable[[AimedDraft, Taken], bool]
_PATIENCE = Patience()


def _never(state: AimedDraft, step: Taken) -> bool:
    return False


def shortest_way(state: AimedDraft, patience: Patience = _PATIENCE, refuses: Refuses = _never) -> tuple[Taken, ...]:
    """A shortest way of steps that nothing refuses; where the time does not suffice for that, a short one.

    ``refuses`` says whether rules of the user's own refuse a step. Raises StoppedError when it was told to stop;
    SynoError for a state that is an operator already, and where no way is found.
    """
    if state.is_complete:
        raise SynoError("nothing to suggest: this is an operator already")
    done, needed = len(state.draft.nodes), _needed(state)
    seconds, should_stop = patience
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
    state: AimedDraft, rng: random.Random, patience: Patience = _PATIENCE, refuses: Refuses = _never
) -> tuple[Taken, ...]:
    """Random steps to an operator, at least one, drawn as a sampler draws (:meth:`.Growing.grow`).

    See :func:`shortest_way`; it may begin with an operator too.
    """
    needed = _needed(state)
    most = max(needed + _MORE, _MANY - len(state.draft.nodes))
    return _drawn(state, rng, (needed, most), Effort(*patience), refuses)


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
        if refuses(state, one.taken):
            continue
        after = state.apply(one.taken)
        rest: tuple[Taken, ...] | None = () if after.is_complete else None
        if len(after.draft.nodes) < last:
            rest = _nearest(after, last, effort, refuses)
        if rest is not None:
            return (one.taken, *rest)
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

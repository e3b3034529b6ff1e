"""A session of Canvas as plain data for the stepper: lists, counts and texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from syno_lab.canvas.aim import AimedDraft, Taken
from syno_lab.canvas.drawing import colour_of, sign_of
from syno_lab.canvas.filling import Solution
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.growth import SUBSTITUTION, Candidate, Limit, OwnLimit, candidates_of
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES
from syno_lab.canvas.rules import Rule
from syno_lab.effort import Stop
from syno_lab.errors import PrimitiveError, SynoError
from syno_lab.inputs import count_of, quoted
from syno_lab.sessions.shown import Explanation, Group, Item, Preview, Tick, Ticked, Used, Why

#: The limits of a primitive's shown allowed candidates, of its shown refused candidates, and of computed distances.
SHOWN, JUDGED = 40, 200


def status(state: AimedDraft, name: str | None, operator: Fitted | None) -> str:
    """Describe in one or two sentences the primitives that a draft still needs, or the operator that it is."""
    count = count_of(len(state.draft.nodes), "primitive")
    if operator is not None:
        this = f"this is {name}" if name else "an operator that has no name here"
        filled = ""
        if operator.places:
            flops, params = operator.spent
            filled = f" Filled, it has {_short(flops)} FLOPs and {_short(params)} parameters at all places."
        return f"Complete after {count}: {this}.{filled}"
    branches = f" {count_of(len(state.draft.leaves), 'branch', 'branches')}."
    if state.needed is None:
        why = state.too_much or "the primitives left are not enough"
        return f"After {count}: no operator can come of this, as {why}.{branches}"
    needs = f"at least {state.needed} more needed" if state.needed else state.why_incomplete or ""
    return f"After {count}: {needs}, {state.left} left.{branches}"


def strip(state: AimedDraft) -> list[Used]:
    """Return the numbers of primitives and branches, and the costs of the base solution for all layers.

    Each cost is a share of the budget, or of the replaced convolutions' cost where there is no budget.
    """
    room, aim = state.aim.room, state.aim
    done, width, base = len(state.draft.nodes), state.growing.width, state.base
    merges = f", {count_of(width - 1, 'branch', 'branches')} to merge" if width > 1 else ""
    share = done / max(1, room.primitives)
    rows = [Used("primitives", f"{done} of at most {room.primitives}{merges}", share, share > 1)]
    if isinstance(base, str):
        return [*rows, Used("costs", f"unknown: {base}", None)]
    where = "an example place" if aim.is_example else count_of(sum(place.layers for place in aim.places), "layer")
    own = (sum(place.flops for place in aim.places), sum(place.params for place in aim.places))
    limits = (aim.budget.max_flops, aim.budget.max_params)
    for name, used, most, convolution in zip(("FLOPs", "parameters"), base.spent, limits, own, strict=True):
        of, whose = (convolution, "the convolution's") if most is None else (most, "the budget of")
        text = f"{_short(used)}, {100 * used / of:.2g} % of {whose} {_short(of)} in {where}"
        rows.append(Used(name, text, used / of, most is not None and used / of > 1))
    return rows


def explain(state: AimedDraft, should_stop: Stop | None = None) -> Explanation:
    """Explain the least number of further primitives in sentences; the number is a lower bound."""
    needs = state.growing.needs()
    words = []
    if needs.merges:
        leaves = ", ".join(f"t{number}" for number in state.draft.leaves)
        words.append(f"{count_of(needs.merges, 'broadcast')} to merge the branches {leaves}, or to get the image back.")
    if needs.fcs:
        words.append(f"{count_of(needs.fcs, 'FC')}, as a kernel must have {state.aim.room.fcs[0]} at least.")
    if needs.mixing:
        words.append("1 primitive that reads along H, W or both, as a kernel must read neighbours along both.")
    if needs.others:
        words.append(f"{count_of(needs.others, 'primitive')} of those that a kernel must have.")
    if needs.image > needs.fcs + needs.mixing:
        words.append("1 primitive that makes a tensor of C·H·W elements.")
    if state.short > needs.number:
        words.append(f"{count_of(state.short, 'primitive')} to have the fewest, {state.aim.fewest}.")
    number = state.needed
    if number is None:
        words.append(f"No operator can come of it: {state.too_much or 'there is no room for so many'}.")
    else:
        words.append(f"At least {count_of(number, 'primitive')} more; {state.left} may be added.")
    base = state.base
    if isinstance(base, Solution):
        words += _solutions(state, base)
    return Explanation(number, words)


def _solutions(state: AimedDraft, base: Solution) -> Iterable[str]:
    names = [f"x{number}" for number in state.draft.variables]
    for place, numbers in zip(base.places, base.numbers, strict=True):
        if numbers and len(numbers) == len(names):
            solved = ", ".join(f"{name} = {number}" for name, number in zip(names, numbers, strict=True))
            yield f"Base solution at {place}: {solved}."


def menu(state: AimedDraft, found: Sequence[Candidate], chosen: str = "", whole: Collection[str] = ()) -> list[Group]:
    """Group the candidates by primitive; candidates after which the fewest primitives are needed come first.

    The notes of an item list the tensors that the step makes or changes, with their shapes before and after.

    Args:
        state: the draft whose candidates are listed.
        found: all candidates; an item's ``index`` is its position in this list.
        chosen: the id of a tensor; only candidates that use the tensor are listed; empty: all candidates.
        whole: primitives, by name, whose candidates are all listed; of others, at most :data:`SHOWN` are listed.
    """
    only = int(chosen[1:]) if chosen[:1] == "t" and chosen[1:].isdecimal() else None
    by_name: dict[str, list[int]] = {}
    for index, candidate in enumerate(found):
        if only is None or only in candidate.inputs:
            by_name.setdefault(candidate.primitive.name, []).append(index)
    return [_group(state, found, name, by_name[name], name in whole) for name in PRIMITIVES if name in by_name]


def _group(state: AimedDraft, found: Sequence[Candidate], name: str, indices: list[int], is_whole: bool) -> Group:
    allowed = [index for index in indices if found[index].may_be_taken]
    refused = [index for index in indices if not found[index].may_be_taken]
    judged = allowed if is_whole else allowed[:JUDGED]
    far = {index: _far(state, found[index]) for index in judged}
    nearest = sorted(judged, key=lambda index: (far[index] is None, far[index] or 0, index))
    most = None if is_whole else SHOWN
    kind = PRIMITIVES[name]
    canonical = [_item(state, index, found[index], far[index]) for index in nearest[:most]]
    pruned = [_item(state, index, found[index], _far(state, found[index])) for index in refused[:most]]
    return Group(
        name,
        name,
        sign_of(name),
        colour_of(name),
        kind.signature,
        kind.meaning,
        canonical,
        pruned,
        len(allowed) - len(canonical),
        len(refused) - len(pruned),
    )


def _far(state: AimedDraft, candidate: Candidate) -> int | None:
    try:
        return state.apply(candidate.taken).needed
    except PrimitiveError:
        return None


def _item(state: AimedDraft, index: int, candidate: Candidate, far: int | None) -> Item:
    reason, rule = ("", "") if candidate.verdict is None else (str(candidate.verdict), candidate.verdict.name)
    operands = [f"t{number}" for number in dict.fromkeys(candidate.inputs)]
    return Item(index, str(candidate), far, far is not None, reason, rule, operands, notes=notes(state, candidate))


def notes(state: AimedDraft, candidate: Candidate) -> list[str]:
    """Return the tensors that a substitution changes, with both shapes, then the new tensor with its shape."""
    draft = state.draft
    result = f"t{len(draft.shapes)}: {candidate.shape}"
    if candidate.substitution is None:
        return [result]
    try:
        after = draft.apply(candidate.taken)
    except PrimitiveError:
        return []
    changed = [
        f"t{number}: {before} → {shape}"
        for number, (before, shape) in enumerate(zip(draft.shapes, after.shapes, strict=False))
        if before is not shape
    ]
    return [*changed, f"t{len(draft.shapes)}: {after.shapes[-1]}"]


def why(state: AimedDraft, candidate: Candidate) -> Why:
    """Return the reason for refusing a candidate, without formulas. Raises SynoError for an allowed candidate."""
    verdict = candidate.verdict
    if verdict is None:
        raise SynoError("expected a refused step; this one may be taken")
    section = verdict.source.partition("section ")[2] if isinstance(verdict, Rule) else ""
    reason = f"{verdict.sentence[:1].upper()}{verdict.sentence[1:].rstrip('.')}."
    return Why(str(candidate), verdict.name, _kind(verdict), section, reason)


def _kind(verdict: Rule | Limit) -> str:
    if isinstance(verdict, Rule):
        return "exact" if verdict.exact else "approximate"
    return "your own rule" if isinstance(verdict, OwnLimit) else "limit"


def ticks(state: AimedDraft) -> list[Tick]:
    """Return the tensors by their ids in the picture, with their sources and shapes."""
    draft = state.draft
    nodes = ["input", *map(str, draft.nodes)]
    return [Tick(f"t{number}", f"t{number} = {nodes[number]}", str(shape)) for number, shape in enumerate(draft.shapes)]


def _on_ticked(state: AimedDraft, share: Sequence[str], give: Sequence[str]) -> list[Candidate]:
    """Return the candidates for one selected tensor (as LHS or RHS), or for a broadcast of two tensors.

    Raises SynoError for an unknown tensor, and for more than one tensor on a side.
    """
    ids = {f"t{number}": number for number in range(len(state.draft.shapes))}
    for name in (*share, *give):
        if name not in ids:
            raise SynoError(f"no tensor {quoted(name)} in this draft")
    if len(share) > 1 or len(give) > 1:
        side, many = ("LHS", share) if len(share) > 1 else ("RHS", give)
        raise SynoError(f"expected one tensor at most on each side, found {', '.join(many)} for {side}")
    inputs = tuple([ids[name] for name in (*share, *give)])
    names = [name for name in PRIMITIVES if (name in BROADCASTS) == (len(inputs) == 2)]
    include = state.aim.room.include
    return [one for name in names if inputs and name in include for one in candidates_of(state.growing, name, inputs)]


def ticked(state: AimedDraft, share: Sequence[str], give: Sequence[str], choice: str = "") -> Taken:
    """Return the selected tensors' step with the text ``choice``. Raises SynoError where no step has this text."""
    candidates = _on_ticked(state, share, give)
    step = next((candidate for candidate in candidates if str(candidate) == choice), None)
    if step is None:
        expected = ", ".join(map(str, candidates[:6])) or "other tensors, as no step applies to these"
        raise SynoError(f"expected one of {expected}{', …' if len(candidates) > 6 else ''}; found {quoted(choice)}")
    return step.taken


def preview(
    state: AimedDraft, share: Sequence[str], give: Sequence[str], judged: Callable[[Candidate], Candidate]
) -> Preview:
    """Return the steps for the selected tensors; ``judged`` adds the verdict of the user's rules to a candidate."""
    try:
        candidates = [judged(candidate) for candidate in _on_ticked(state, share, give)]
    except SynoError as refused:
        return Preview(legal=False, canonical=False, distance=None, text=str(refused), choices=())
    choices = [
        Ticked(
            str(candidate),
            str(candidate),
            candidate.verdict is not SUBSTITUTION,
            candidate.may_be_taken,
            _far(state, candidate),
            "" if candidate.verdict is None else str(candidate.verdict),
            notes(state, candidate),
        )
        for candidate in candidates
    ]
    choices.sort(key=lambda choice: not choice.canonical)
    distances = [choice.distance for choice in choices if choice.canonical and choice.distance is not None]
    shapes = " onto ".join(str(state.draft.shapes[int(name[1:])]) for name in (*share, *give))
    text = f"{count_of(len(choices), 'step')} with {shapes}" if choices else f"Nothing can be done with {shapes}."
    return Preview(
        any(choice.legal for choice in choices),
        any(choice.canonical for choice in choices),
        min(distances, default=None),
        text,
        choices,
    )


def _short(number: int) -> str:
    """Return a number with three digits: ``1.23 M``."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.3g} {letter}"
    return str(number)

"""The next steps of a state as grouped text, for the list beside its picture.

Coordinates have the names of the picture (``c3``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import chain, islice

from syno_lab.codegen.drawing import coordinate_ids, describe_step
from syno_lab.codegen.text import expressions
from syno_lab.drawing.formula import formula_svg
from syno_lab.drawing.style import primitive_look
from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State, Step
from syno_lab.sessions.shown import Group, Item, Tick, Why
from syno_lab.synthesis.candidates import Candidate, Candidates, Verdict
from syno_lab.synthesis.rules import OWN
from syno_lab.synthesis.ways import steps_left

COUNTED = 1 << 14  # The limit of points for comparing an approximate rule's two sides; it takes a millisecond.
SHOWN = 40  # The limit of a primitive's listed canonical steps, and also of its listed pruned steps.
JUDGED = 200  # The limit of a primitive's steps with checked rules, nearest first; a state takes milliseconds.
_WILDCARD = re.compile(r"#(\d+)")
ORDER = ("REDUCE", "SHARE", "UNFOLD", "SPLIT", "MERGE", "SHIFT", "STRIDE", "EXPAND")


def why(state: State, candidate: Candidate) -> Why:
    """Return why a step is pruned; imports matplotlib. Raises PrimitiveError if the step is canonical."""
    verdict = candidate.verdict
    if verdict.rejected_by is None:
        raise PrimitiveError("expected a pruned step; this one is canonical, and no rule has anything against it")
    names = expressions(state)
    latex, after = verdict.latex or "", _after(verdict, names)
    words = f"{verdict.before} becomes {after}"
    is_own = verdict.rejected_by.section == OWN
    return Why(
        describe_step(state, candidate.step, names),
        verdict.rejected_by.name,
        OWN if is_own else verdict.rejected_by.kind,
        "" if is_own else verdict.rejected_by.section,
        _reason(state, verdict),
        verdict.before or "",
        after,
        latex,
        formula_svg(latex, words) if latex else "",
        _here(verdict, names),
    )


def touching(found: Sequence[Candidate], coordinate: Coordinate) -> list[int]:
    """Return the indices of the candidates that use a coordinate."""
    return [i for i, candidate in enumerate(found) if coordinate in candidate.operands or coordinate in candidate.given]


def menu(
    state: State,
    found: Sequence[Candidate],
    shown: int = SHOWN,
    only: Sequence[int] | None = None,
    whole: Container[str] = (),
) -> list[Group]:
    """List the candidate steps of a state by primitive; the primitives have the usual order of a synthesis.

    Args:
        state: the state before the steps.
        found: all candidates; the ``index`` of an item in the result is an index in this list.
        shown: the limits of listed canonical and pruned steps of a primitive; other steps are counted.
        only: the indices of the candidates to list; None lists all.
        whole: primitives whose candidates are all listed; of any other, at most :data:`JUDGED` are checked.
    """
    names, ids = expressions(state), {c: name for name, c in coordinate_ids(state).items()}
    rank = {name: place for place, name in enumerate(ORDER)}
    places = _places(found, only)
    groups = []
    for primitive in sorted(places, key=lambda name: (rank.get(name, len(rank)), name)):
        indices = places[primitive]
        is_whole = primitive in whole
        most = None if is_whole else shown
        ordered = [(index, found[index]) for index in (indices if is_whole else islice(indices, JUDGED))]
        canonical = [pair for pair in ordered if pair[1].verdict.canonical]
        pruned = [pair for pair in ordered if not pair[1].verdict.canonical]
        card, look = PRIMITIVES[primitive].card, primitive_look(primitive)
        groups.append(
            Group(
                primitive,
                "CONTRACTION (SHARE)" if primitive == "SHARE" else primitive,
                look.sign,
                look.border,
                card.signature,
                card.top_down,
                [_item(state, index, candidate, names, ids) for index, candidate in canonical[:most]],
                [_item(state, index, candidate, names, ids) for index, candidate in pruned[:most]],
                0 if is_whole else max(0, len(canonical) - shown),
                0 if is_whole else max(0, len(pruned) - shown),
                len(indices) - len(ordered),
            )
        )
    return groups


def ticks(state: State) -> list[Tick]:
    """Return the data coordinates that a CONTRACTION may use, each with its name, expression and size."""
    names, free = expressions(state), set(state.data) - state.fixed
    return [
        Tick(name, names[coordinate], coordinate.size.pretty)
        for name, coordinate in coordinate_ids(state).items()
        if coordinate in free and coordinate.node.primitive != "STRIDE"
    ]


def contraction(state: State, share: Sequence[str], give: Sequence[str]) -> Step:
    """Return the CONTRACTION of the named coordinates, unchecked. Raises KeyError for an unknown name."""
    ids = coordinate_ids(state)
    return Step("SHARE", tuple(ids[name] for name in share), given=tuple(ids[name] for name in give))


def _places(found: Sequence[Candidate], only: Sequence[int] | None) -> dict[str, list[int]]:
    """Return the indices of the candidates of each primitive, the candidates nearest to the input first."""
    if only is None and isinstance(found, Candidates):
        return {name: list(chain(*ranges)) for name, ranges in found.places().items()}
    places: dict[str, list[int]] = {}
    every = range(len(found)) if only is None else only
    for index, candidate in sorted(((index, found[index]) for index in every), key=lambda pair: _nearness(*pair)):
        places.setdefault(candidate.primitive, []).append(index)
    return places


def _nearness(index: int, candidate: Candidate) -> tuple[bool, int, int]:
    return candidate.distance is None, candidate.distance or 0, index


def _item(
    state: State, index: int, candidate: Candidate, names: dict[Coordinate, str], ids: dict[Coordinate, str]
) -> Item:
    verdict, far, step = candidate.verdict, candidate.distance, candidate.step
    changed = (*step.operands, *step.given), step.operands if step.primitive == "SHARE" else state.results(step)
    before, after = (", ".join(c.size.pretty for c in some) or "—" for some in changed)
    return Item(
        index,
        describe_step(state, candidate.step, names),
        far,
        far is not None and far <= steps_left(state) - 1,
        verdict.reason or "",
        verdict.rule or "",
        [ids[c] for c in candidate.operands],
        [ids[c] for c in candidate.given],
        [f"{before} → {after}"],
    )


def _reason(state: State, verdict: Verdict) -> str:
    """Return the rule's reason; where counting is fast, add the share of elements that the rewrite changes."""
    reason, rewrite = verdict.reason or "", verdict.rewrite
    for binding in state.spec.binding_maps[:1]:
        if rewrite is not None and rewrite.points(binding) <= COUNTED and verdict.differing is not None:
            reason += f" Here {verdict.differing:.1%} of the elements differ."
    return reason


def _here(verdict: Verdict, names: dict[Coordinate, str]) -> str:
    """Return the rule's rewrite as text, with the state's coordinates in place of wildcards."""
    rewrite = verdict.rewrite
    if rewrite is None or not rewrite.bottoms:
        return ""

    def named(found: re.Match[str]) -> str:
        name = names[rewrite.bottoms[int(found[1])]]
        return name if name.isidentifier() else f"({name})"

    before, after = (_WILDCARD.sub(named, text) for text in rewrite.texts())
    sizes = "; ".join(f"{names[c]} is of size {c.size.pretty}" for c in rewrite.bottoms)
    return f"{before} → {after}, where {sizes}"


def _after(verdict: Verdict, names: dict[Coordinate, str]) -> str:
    """Return the canonical expression as text, and the coordinate of each wildcard."""
    rewrite = verdict.rewrite
    if rewrite is None or not rewrite.bottoms:
        return verdict.after or ""
    wildcards = ", ".join(f"#{number} = {names[c]}" for number, c in enumerate(rewrite.bottoms))
    return f"{verdict.after} with {wildcards}"

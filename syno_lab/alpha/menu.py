"""The stepper's data for a session of αNAS: lists of steps, tables of wanted and present values, and texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isinf

from syno_lab.alpha import drawing
from syno_lab.alpha.changes import plain, possible, said, wanted, wanted_mixing
from syno_lab.alpha.pairings import axis_names
from syno_lab.alpha.properties import PROPERTIES
from syno_lab.alpha.synthesis import Candidate, Draft, hopeless_words
from syno_lab.common.pairing import WORDS
from syno_lab.common.wants import RANK
from syno_lab.effort import Stop
from syno_lab.errors import SynoError
from syno_lab.inputs import count_of
from syno_lab.sessions.shown import Choice, Explanation, Group, Item, Now, Used, Wanted, Why

#: The limit of an operation's offered candidates in the menu, and also of the operation's left-out candidates.
SHOWN = 40
NAMES = tuple(row.name for row in PROPERTIES)
#: For each verdict that leaves a candidate out: the name of the reason, and the section of the paper.
LEFT_OUT = {"represented": ("representative", "4.5"), "infeasible": ("feasibility", "4.4.4"), "refused": ("", "")}


def status(state: Draft) -> str:
    """Describe the distances of a draft, or the costs of a complete draft, in one or two sentences."""
    count = count_of(len(state.chain), "operation")
    if not state.is_complete:
        far = ", ".join(f"{name} {plain(distance)}" for name, distance in state.distances.items())
        hopeless = f" From here {hopeless_words(state)}; undo some steps." if isinf(state.distance) else ""
        return f"After {count}: distance {plain(state.distance)} ({far}).{hopeless}"
    graph = state.graph()
    costs = f"{graph.flops():,} FLOPs, {graph.params():,} parameters"
    return f"Complete after {count}: all that is wanted is satisfied. {costs}."


def strip(state: Draft) -> list[Used]:
    """Return the distance of each property, and the sum, as shares of the distances at the chain's input."""
    start = Draft(state.properties, state.input_shape, others=state.others)
    rows = [(name, state.distances[name], start.distances[name]) for name in NAMES]
    return [_strip(*row) for row in (*rows, ("sum", state.distance, start.distance))]


def _strip(name: str, distance: float, start: float) -> Used:
    most = distance if isinf(start) else max(start, distance)
    share = 1.0 if isinf(distance) else distance / most if most else 0.0
    text = "out of reach" if isinf(distance) else f"distance {plain(distance)}"
    return Used(name, f"{text}, {plain(start)} at the input", share)


def explain(state: Draft, should_stop: Stop | None = None) -> Explanation:
    """Return the missing properties in sentences, and tables of wanted and present values."""
    words = [
        f"{name}: {_missing(state, name)}: distance {plain(distance)}."
        for name, distance in state.distances.items()
        if distance
    ]
    return Explanation(
        None if isinf(state.distance) else plain(state.distance),
        words or ["Nothing is missing: all that is wanted is satisfied."],
        aims=[_values(state), _matrices(state)],
    )


def explain_distance(state: Draft) -> str:
    """List the missing properties, each in a line; then the properties that no operations can satisfy any more."""
    words = list(explain(state).words)
    if isinf(state.distance):
        words.append(f"From here {hopeless_words(state)}.")
    return "\n".join(words)


def _missing(state: Draft, name: str) -> str:
    if name != "mixing":
        return f"{said(wanted(state, name))} is wanted, found {said(state.values[name])}"
    aim, lacks = wanted_mixing(state), _lacks(state)
    if len(lacks) == len(aim.rows) * len(aim.columns):
        return f"{len(aim.rows)} x {len(aim.columns)} axes are wanted, found another number"
    entries = (f"{aim.columns[axis]}->{aim.rows[out]}>={aim.marks[out][axis]}" for out, axis in lacks)
    return f"these entries are too small, wanted are {', '.join(entries)}"


def _lacks(state: Draft) -> list[list[int]]:
    """Return the entries whose wanted mark is above the draft's mark; all entries where the numbers of axes differ."""
    if wanted(state, "mixing") is None:
        return []
    aim, now = wanted_mixing(state).marks, state.values["mixing"].marks
    fits = (len(aim), len(aim[0])) == (len(now), len(now[0]))
    return [
        [out, axis]
        for out, row in enumerate(aim)
        for axis, mark in enumerate(row)
        if not fits or RANK[mark] > RANK[now[out][axis]]
    ]


def _values(state: Draft) -> Wanted:
    """Return the tables of wanted and of present values for shape and depth."""
    names = [name for name in NAMES if name != "mixing"]
    return Wanted(
        "Wanted shape and depth",
        "property",
        names,
        ["value"],
        [[said(wanted(state, name))] for name in names],
        Now("Shape and depth of the chain", names, ["value"], [[said(state.values[name])] for name in names]),
        [[number, 0] for number, name in enumerate(names) if state.distances[name]],
        {},
        [[_choices(state, name)] for name in names],
    )


def _matrices(state: Draft) -> Wanted:
    aim, now = wanted_mixing(state), state.values["mixing"]
    columns, rows = axis_names(len(state.input_shape)), axis_names(len(state.shape))
    return Wanted(
        "Wanted mixing",
        "out \\ in",
        aim.rows,
        aim.columns,
        aim.marks,
        Now("Mixing of the chain", rows, columns, now.marks),
        _lacks(state),
        WORDS,
        [[_choices(state, "mixing", (out, axis)) for axis in range(len(aim.columns))] for out in range(len(aim.rows))],
    )


def _choices(state: Draft, name: str, entry: tuple[int, int] | None = None) -> list[Choice]:
    return [
        Choice(
            option.change.key,
            said(option.change.value),
            f"{'another' if option.kind == 'other' else option.kind}, {option.effect}",
            option.is_feasible,
        )
        for option in possible(state, name, entry)
    ]


def menu(state: Draft, found: Sequence[Candidate], chosen: str = "", whole: Collection[str] = ()) -> list[Group]:
    """Group the candidates by operation, in the order of ``found``; an item's ``index`` is its index in ``found``.

    The notes of an item are the candidate's verdict and how the candidate changes each distance.

    Args:
        state: the draft whose candidates are listed.
        found: all candidates.
        chosen: the id of a part of the picture; the list is empty unless steps continue from this part.
        whole: operations with all candidates listed; for other operations :data:`SHOWN` is the limit.
    """
    if chosen and chosen not in ends(state):
        return []
    by_name: dict[str, list[int]] = {}
    for index, candidate in enumerate(found):
        by_name.setdefault(candidate.operation.name, []).append(index)
    return [_group(state, found, name, indices, name in whole) for name, indices in by_name.items()]


def ends(state: Draft) -> tuple[str, ...]:
    """Return the ids of the parts of the picture that the next operation follows: the output and the last node."""
    last = len(state.chain) - 1
    return ("out0", f"n{last}" if state.chain else "t0")


def _group(state: Draft, found: Sequence[Candidate], name: str, indices: list[int], is_whole: bool) -> Group:
    offered = [index for index in indices if found[index].verdict not in LEFT_OUT]
    left_out = [index for index in indices if found[index].verdict in LEFT_OUT]
    most = None if is_whole else SHOWN
    row = found[indices[0]].operation.row
    sign, _, colour = drawing.LOOKS[drawing.kind_of(found[indices[0]].operation, state.shape)]
    kind = {True: "linear", False: "not linear", None: "does not count for the depth"}[row.linear]
    return Group(
        name,
        name,
        sign,
        colour,
        f"{name}({', '.join(row.choices)})",
        kind,
        [_item(state, index, found[index]) for index in offered[:most]],
        [_item(state, index, found[index]) for index in left_out[:most]],
        len(offered[most:]) if most else 0,
        len(left_out[most:]) if most else 0,
    )


def _item(state: Draft, index: int, candidate: Candidate) -> Item:
    is_left_out = candidate.verdict in LEFT_OUT
    verdict = f"{candidate.verdict}: {candidate.reason}" if is_left_out else candidate.verdict
    return Item(
        index,
        str(candidate.operation),
        None if isinf(candidate.distance) else plain(candidate.distance),
        not isinf(candidate.distance),
        candidate.reason if is_left_out else "",
        candidate.rule or LEFT_OUT[candidate.verdict][0] if is_left_out else "",
        ends(state),
        notes=[verdict, ", ".join(_change(state, candidate, name) for name in NAMES)],
    )


def _change(state: Draft, candidate: Candidate, name: str) -> str:
    """Return the change of a distance by a candidate, as text: ``Δ shape -1``."""
    before, after = state.distances[name], candidate.distances[name]
    if isinf(before) or isinf(after):
        return f"{name} {plain(after)}"
    return f"Δ {name} {after - before:+g}" if after != before else f"Δ {name} 0"


def why(state: Draft, candidate: Candidate) -> Why:
    """Return why a candidate is left out, without formulas. Raises SynoError for a candidate that is not left out."""
    if candidate.verdict not in LEFT_OUT:
        raise SynoError("expected an operation that is left out; this one may be taken")
    rule, section = LEFT_OUT[candidate.verdict]
    kind = "your own rule" if candidate.rule else "exact"
    reason = f"{candidate.reason[:1].upper()}{candidate.reason[1:].rstrip('.')}."
    return Why(str(candidate.operation), candidate.rule or rule, kind, section, reason)

"""Canonical steps in place of pruned ones, against what both ways compute."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.sessions.session import Session
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.rules import rejecting_rule
from syno_lab.synthesis.ways import instead

SPEC = Spec.parse("[C, H]", "[D, H]", ["C=4", "D=6", "H=4"], ["k=3", "s=2"], max_primitives=6)


def as_operators(state: State) -> list[Operator]:
    """What a state computes, from its own data in every order."""

    def ordered(order: tuple[Coordinate, ...]) -> Operator:
        spec = replace(state.spec, input_shape=tuple(c.size for c in order), fixed_io_pairs=(), wants=())
        return Operator(replace(state, spec=spec), order)

    return list(map(ordered, permutations(state.data)))


def test_both_ways_compute_the_same() -> None:
    root = State.root(SPEC)
    _, h = root.output
    blocks = root.apply(Step("REDUCE", (), SPEC.symbols.size("k"))).apply(Step("MERGE", (h,), SPEC.symbols.size("s")))
    path, checked = [root], Counter[str]()
    for step in blocks.steps:
        path.append(path[-1].apply(step))
    for n in range(1, len(path) + 1):
        for candidate in list(candidates(path[n - 1]))[:150]:
            rule = candidate.verdict.rejected_by
            way = None if rule is None else instead(path[:n], candidate.verdict)
            if rule is None or way is None or rule.kind != "exact" or checked[rule.name] >= 2:
                continue
            state = path[n - 1 - way.back]
            for step in way.steps:
                if step in way.canonical:
                    assert rejecting_rule(state, step) is None
                state = state.apply(step)
            assert state == way.state
            binding = SPEC.binding_maps[0]
            (wanted, *_) = as_operators(path[n - 1].apply(candidate))
            prints = {one.fingerprint(binding) for one in as_operators(state)}
            assert wanted.fingerprint(binding) in prints, (rule.name, candidate)
            checked[rule.name] += 1
    assert checked, "some rule is looked at"


def test_the_session_takes_it_as_a_branch() -> None:
    session = Session(SPEC)
    h = session.state.output[1]
    session.apply(Step("MERGE", (h,), SPEC.symbols.size("s")))
    high, low = session.state.data[-2:]
    pruned = next(
        one
        for one in candidates(session.state)
        if one.verdict.rule == "split-undoes-merge"
        and instead([State.root(SPEC), session.state], one.verdict) is not None
    )
    way = instead([State.root(SPEC), session.state], pruned.verdict)
    assert way is not None
    assert {high, low} <= set(session.state.data)
    why = session.why(session.state, pruned)
    assert why["here"].count("→") == 1
    assert why["instead"].startswith(f"undo {way.back} step" if way.back else tuple("CDEMRSU"))
    places = len(session.places)
    session.take_instead(pruned)
    assert session.state == way.state
    assert session.places[:places][1].step is not None, "what was taken before is still there"
    canonical = next(one for one in candidates(session.state) if one.verdict.canonical)
    with pytest.raises(SynoError, match="no known canonical steps replace this step"):
        session.take_instead(canonical)

"""Rules of the user's own in all steppers: what they refuse is listed with the reason, and never suggested."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from syno_widgets import Explorer, Stepper

import syno_lab as sl
from syno_lab.alpha import Draft as Chain
from syno_lab.alpha import Graph, Properties, Rel, operation
from syno_lab.canvas.places import Place
from syno_lab.canvas.sampler import Sampler as KernelSampler
from syno_lab.errors import CodeError, FormatError, SpecError
from syno_lab.operators import conv2d

SHAPE = (2, 8, 8, 16)
CHAIN = Graph.chain(SHAPE, (operation("conv", features=Rel(2)), operation("relu")))


def no_windows(state: Any, step: Any) -> bool:
    """A window costs too much here.

    More words than the reason.
    """
    return step.primitive == "UNFOLD" and step.operands[0].size == state.spec.symbols.size("H")


def no_relu(state: Any, step: Any) -> bool:
    """A kernel is to be linear."""
    return step.primitive.name == "relu"


def no_conv(state: Any, step: Any) -> bool:
    """Convolutions are known."""
    return step.name == "conv"


def no_gift(state: Any, step: Any) -> bool:
    return any(one.size == state.spec.symbols.size("C_out") for one in step.given)


def no_shift(state: Any, step: Any) -> bool:
    return step.primitive.name in ("shift", "group")


def perhaps(state: Any, step: Any) -> Any:
    return None


def broken(state: Any, step: Any) -> bool:
    return state.nothing


def listed(stepper: Stepper) -> dict[str, dict[str, Any]]:
    """All steps by their words, as the menu has them."""
    session = stepper.session
    names = {group["primitive"] for group in stepper.menu}
    return {
        item["text"]: {**item, "canonical": kind == "canonical"}
        for group in session.menu(session.state, stepper.candidates, "", names)
        for kind in ("canonical", "pruned")
        for item in group[kind]
    }


def with_window(stepper: Stepper) -> Stepper:
    """The stepper with a window at hand: behind REDUCE k_1."""
    k = stepper.state.spec.symbols.size("k_1")
    stepper.apply(next(one for one in stepper.candidates if one.primitive == "REDUCE" and one.parameter == k))
    return stepper


def ask_why(stepper: Stepper, index: int) -> dict[str, Any]:
    stepper.handle({"kind": "why", "index": index, "request": 1, "revision": stepper.revision})
    assert stepper.error == ""
    return dict(stepper.why)


def kernels() -> KernelSampler:
    return KernelSampler([Place(8, 8, 4, 4)])


STARTS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], bool], str, str]] = {
    "pGraphs": (lambda: conv2d().spec, no_windows, "UNFOLD i_H, ", "A window costs too much here."),
    "Canvas": (kernels, no_relu, "relu(", "A kernel is to be linear."),
    "αNAS": (lambda: Chain(Properties.of(CHAIN), SHAPE), no_conv, "conv", "Convolutions are known."),
}


@pytest.mark.parametrize("system", STARTS)
def test_what_a_rule_refuses_is_listed_with_its_reason(system: str) -> None:
    start, rule, words, reason = STARTS[system]
    name = rule.__name__.replace("_", "-")
    plain, ruled = Stepper(start(), seed=1), Stepper(start(), seed=1, rules=[rule])
    if system == "pGraphs":
        for stepper in (plain, ruled):
            with_window(stepper)
    elif system == "Canvas":
        for stepper in (plain, ruled):
            stepper.apply(next(one for one in stepper.candidates if one.primitive.name == "fc"))
    before, after = listed(plain), listed(ruled)
    assert before.keys() == after.keys()
    changed = {text for text in before if before[text]["canonical"] != after[text]["canonical"]}
    assert changed, "the rule refuses something here"
    for text, item in after.items():
        if text in changed:
            assert text.startswith(words)
            assert (item["canonical"], item["rule"], reason in item["reason"]) == (False, name, True)
        elif text.startswith(words):
            assert not item["canonical"], "what the lab refuses keeps the lab's reason"
            assert item["rule"] == before[text]["rule"]
    why = ask_why(ruled, after[sorted(changed)[0]]["index"])
    assert (why["rule"], why["kind"], why["section"], why["reason"]) == (name, "your own rule", "", reason)
    # It can be taken all the same, and the copy that a page plays has the rule too.
    page = ruled.session.copy()
    again = page.candidates(page.state)
    assert any(item["rule"] == name for group in page.menu(page.state, again) for item in group["pruned"])
    ruled.handle(
        {"kind": "step", "index": after[sorted(changed)[0]]["index"], "request": 2, "revision": ruled.revision}
    )
    assert ruled.error == ""
    assert ruled.session.position == plain.session.position + 1


@pytest.mark.parametrize(("system", "rule"), [("pGraphs", no_gift), ("Canvas", no_shift), ("αNAS", no_conv)])
def test_suggestions_and_random_ways_keep_the_rule(system: str, rule: Callable[[Any, Any], bool]) -> None:
    start = STARTS[system][0]
    refused = {True: 0, False: 0}
    for seed in range(6):
        for is_ruled in refused:
            stepper = Stepper(start(), seed=seed, rules=[rule] if is_ruled else [])
            if seed % 2:
                stepper.complete_at_random()
            else:
                stepper.finish()
            assert stepper.session.is_complete
            refused[is_ruled] += sum(
                rule(before.state, place.step) for before, place in pairwise(stepper.session.history)
            )
    assert refused[False], "without the rule there are such steps"
    assert not refused[True]


def test_a_row_is_a_rule_too_and_a_file_has_one(tmp_path: Path) -> None:
    row = sl.Rule("no-unfold", "X[i + j]", "X[i]", "No windows at all.", "6.1", "exact", lambda *_: True, ("UNFOLD",))
    file = tmp_path / "rules.py"
    file.write_text(
        'def no_reduce(state, step):\n    """Nothing is summed."""\n    return step.primitive == "REDUCE"\n'
    )
    stepper = Stepper(conv2d().spec, rules=[row, f"{file}:no_reduce", *sl.RULES])
    items = listed(stepper)
    assert {one["rule"] for text, one in items.items() if text.startswith("REDUCE")} == {"no-reduce"}
    assert Stepper.of("conv2d", rules=[row]).session.rules[-1] is row
    with_window(stepper)
    unfold = next(one for text, one in listed(stepper).items() if text.startswith("UNFOLD") and one["rule"] == row.name)
    why = ask_why(stepper, unfold["index"])
    assert (why["kind"], why["section"], why["before"]) == ("exact", "6.1", "X[i + j]")


@pytest.mark.parametrize("system", STARTS)
def test_rules_that_are_none_are_refused_in_one_line(system: str) -> None:
    start = STARTS[system][0]
    with pytest.raises(CodeError, match=r"rules: expected a function written with def, or .*, found 3"):
        Stepper(start(), rules=[3])
    with pytest.raises(CodeError, match="expected a function written with def"):
        Stepper(start(), rules=[lambda state, step: False])
    with pytest.raises(SpecError, match="rules: expected a different name for each rule, found 'perhaps' twice"):
        Stepper(start(), rules=[perhaps, perhaps])
    for rule, said in ((perhaps, "expected True or False, found None"), (broken, "AttributeError: .*'nothing'")):
        with pytest.raises(CodeError, match=f"{rule.__name__} of .*: {said}"):
            Stepper(start(), rules=[rule])


def test_a_rule_that_fails_later_is_said_in_place() -> None:
    def late(state: Any, step: Any) -> bool:
        return state.steps[3] is None if len(state.steps) > 0 else False

    stepper = Stepper(conv2d().spec, rules=[late])
    stepper.handle({"kind": "step", "index": 0, "request": 1, "revision": stepper.revision})
    assert re.search(r"^late of .*: IndexError: .*\(test_own_rule\.py, line \d+\)$", stepper.error)
    assert stepper.unlisted == stepper.error
    assert len(stepper.state.steps) == 1, "the step was taken, and its picture is there"
    assert stepper.menu == []


def test_the_stepper_of_the_manual(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "own-rule.md").read_text(encoding="utf-8")
    function, _, shown = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"sl": sl, "__name__": "__main__"}
    exec(function + shown, names)
    stepper = names["stepper"]
    refused = [one for one in listed(stepper).values() if one["rule"] == "no-roll-of-channels"]
    assert refused
    assert {one["reason"] for one in refused} == {"Channels have no neighbours."}
    assert all(one["text"].startswith("SHIFT i_C_out") for one in refused)


@pytest.mark.parametrize("system", STARTS)
def test_a_text_says_which_rules_it_was_built_with(system: str) -> None:
    start, rule, _, _ = STARTS[system]
    name = rule.__name__.replace("_", "-")
    ruled = Stepper(start(), seed=1, rules=[rule])
    ruled.apply(ruled.candidates[0])
    said = f"This session was built with the rule '{name}', which is not here"
    assert said not in ruled.status
    word = ruled.word
    opened = Stepper.of(word)
    assert said in opened.status
    assert opened.session.absent == (name,)
    assert Stepper.of(opened.word).session.absent == (name,), "it is handed on"
    opened.undo()
    assert said in opened.status, "at every place"
    assert opened.session.copy().absent == (name,)
    # With the rule given there is nothing to say, and a text that needs none says nothing.
    again = Stepper.of(word, rules=[rule])
    assert (again.session.absent, "built with" in again.status) == ((), False)
    assert '"rules"' not in Stepper(start(), seed=1).session.to_json()
    # The same by opening the text in a stepper that is there: one without the rule, and one that has it.
    for rules, absent in (([], (name,)), ([rule], ())):
        stepper = Stepper(start(), seed=1, rules=rules)
        stepper.open_text(word)
        assert (stepper.session.absent, said in stepper.status) == (absent, bool(absent))


def test_many_absent_rules_and_long_names_are_said_in_one_line() -> None:
    stepper = Stepper(conv2d().spec)
    text = json.loads(stepper.session.to_json())
    text["rules"] = ["a", "b", "b", "line\nbreak", "z" * 500, "e"]
    status = Stepper.of(json.dumps(text)).status
    assert "with the rules 'a', 'b', 'line\\nbreak' and 2 more, which are not here" in status
    assert "\n" not in status
    text["rules"] = "a"
    with pytest.raises(FormatError, match=r"Expected `array`, got `str` - at `\$\.rules`"):
        Stepper.of(json.dumps(text))


def no_reduce(state: Any, step: Any) -> bool:
    """Nothing is summed."""
    return step.primitive == "REDUCE"


@pytest.mark.parametrize("system", ["pGraphs", "Canvas"])
def test_the_space_around_a_state_has_the_rule_too(system: str) -> None:
    start: Any
    if system == "pGraphs":
        start, rule, words = conv2d().spec, no_reduce, "REDUCE "
    else:  # behind an FC, since nothing non-linear comes first
        begun = Stepper(kernels())
        start, rule, words = (
            begun.apply(next(one for one in begun.candidates if one.primitive.name == "fc")),
            no_relu,
            "relu(",
        )
    explorer = Explorer(start, rules=[rule], depth=1)
    plain = Explorer(start, depth=1)
    name, reason = rule.__name__.replace("_", "-"), rule.__doc__
    assert reason is not None
    try:
        assert explorer.wait(120)
        assert plain.wait(120)
        before, after = ({row["text"]: row for row in one.table} for one in (plain, explorer))
        changed = {text for text in before if (before[text]["kind"] == "pruned") != (after[text]["kind"] == "pruned")}
        assert changed
        assert all(text.startswith(words) for text in changed)
        assert not [text for text, row in after.items() if text.startswith(words) and row["kind"] != "pruned"]
        assert all(reason in after[text]["reason"] for text in changed), after
        # The rule stays where another space is looked at, and in the stepper that opens there.
        stepper = explorer.step_from(explorer.table[0]["key"])
        assert stepper.session.own_names == (name,)
        explorer.look_around(explorer.table[0]["key"])
        assert explorer.wait(120)
        explorer.pruned = False
        assert explorer.wait(120)
        assert not [row["text"] for row in explorer.table if row["text"].startswith(words)]
    finally:
        explorer.close()
        plain.close()
    with pytest.raises(CodeError, match=r"rules: expected a function written with def, or .*, found 3"):
        Explorer(start, rules=[3])


def test_a_rule_that_fails_is_said_in_the_explorer() -> None:
    explorer = Explorer(conv2d().spec, rules=[broken])
    try:
        assert explorer.wait(120)
        assert re.search(r"^broken of .*: AttributeError: .*'nothing'", explorer.error)
    finally:
        explorer.close()

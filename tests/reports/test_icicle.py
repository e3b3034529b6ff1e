"""What branches, as data: the tree of a search, the space around a state, and the boxes of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from known_trees import known_search, small_spec

from syno_lab.common.probe import beside_convolution
from syno_lab.drawing.style import PRIMITIVE_LOOKS
from syno_lab.errors import StoreError
from syno_lab.ir.state import State
from syno_lab.operators import conv2d
from syno_lab.pgraphs.probe import probe
from syno_lab.reports import LabReader
from syno_lab.reports.icicle import NARROWEST, Box, icicle, icicle_sketch, listed, parse_filter, way_to
from syno_lab.reports.trees import improvements, moment, read_tree, replayed, tree_file, trial_below
from syno_lab.search.branches import Branch
from syno_lab.sessions.around import MOST_STEPS, Around
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.distance import distance


class Letters:
    """Words over ``abc`` up to a length: the weight of a word is its number of ``a`` plus one."""

    root = "-"

    def __init__(self, length: int, letters: str = "abc") -> None:
        self.length, self.letters = length, letters

    def branch(self, key: str) -> Branch:
        return Branch(key, key, "operator" if len(key) > self.length else "open", reward=key.count("a") / 10)

    def above(self, key: str) -> str | None:
        return key[:-1] or None

    def below(self, key: str) -> Sequence[str]:
        return [key + letter for letter in self.letters] if len(key) <= self.length else []

    def weight(self, key: str) -> float:
        return 1.0 + key.count("a")


def boxes(found: list[Box]) -> dict[str, Box]:
    return {box.key: box for box in found if box.key}


def test_children_stand_side_by_side_below_their_parent() -> None:
    found = icicle(Letters(3), "-", 3).boxes
    assert len(found) == 1 + 3 + 9 + 27
    placed = boxes(found)
    for key, box in placed.items():
        children = [placed[child] for child in Letters(3).below(key) if child in placed]
        left = box.left
        for child in children:
            assert child.level == box.level + 1
            assert child.left == pytest.approx(left, abs=1e-5)
            left += child.width
        if children:
            assert left == pytest.approx(box.left + box.width, abs=1e-5)
    spare = 1 - 3 * NARROWEST
    assert placed["-a"].width == pytest.approx(NARROWEST + spare * 2 / 4, abs=1e-5)
    assert placed["-b"].width == pytest.approx(NARROWEST + spare * 1 / 4, abs=1e-5)


def test_what_has_no_room_shares_a_box() -> None:
    letters = "".join(chr(0x4E00 + number) for number in range(300))
    found = icicle(Letters(1, letters), "-", 1)
    assert found.places == 301
    more = [box for box in found.boxes if box.kind == "more"]
    assert len(more) == 1
    assert more[0].text == f"{300 - (len(found.boxes) - 2)} more"
    assert min(box.width for box in found.boxes) >= NARROWEST - 1e-5
    assert max(box.left + box.width for box in found.boxes) <= 1 + 1e-5


def test_a_filter_keeps_the_way_to_what_fits() -> None:
    found = icicle(Letters(3), "-", 3, wanted="aba")
    assert set(boxes(found.boxes)) == {"-", "-a", "-ab", "-aba"}
    assert found.matches == 1
    assert {box.key for box in icicle(Letters(3), "-", 3, wanted="reward>=0.3").boxes} == {"-", "-a", "-aa", "-aaa"}
    assert [row["key"] for row in listed(Letters(3), "-a", "reward>=0.2")] == ["-aa"]
    assert [one["key"] for one in way_to(Letters(3), "-ab")] == ["-", "-a", "-ab"]


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        ("unfold k_1", True),
        ("UNFOLD shift", False),
        ("distance<=2", True),
        ("distance<2", False),
        ("searches=6 visits>3 outstanding<2", True),
        ("reward>0.5", False),
        ("best>0", False),  # not known
        ("probe>0.5", True),
        ("probe>0.7", False),
        ("kind=dead", True),
        ("kind=pruned", False),
        ("distance<many", False),  # a word
        ("reason", True),
    ],
)
def test_filters(wanted: str, is_wanted: bool) -> None:
    branch = Branch("1", "UNFOLD i_H, k_1", "dead end", 4, 1, 1, 0.5, None, 2, "for a reason", 0.6)
    assert parse_filter(wanted)(branch) is is_wanted


def test_the_sketch_is_whole_and_safe() -> None:
    hostile = Letters(1, "<&\x00")
    text = icicle_sketch(icicle(hostile, "-", 1), 'a "quoted" <title>')
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'a "quoted" <title>'
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any((one or "").startswith("-<") for one in titles)


# -- the tree of a search ----------------------------------------------------------------------------------------------


def test_the_tree_of_a_search(tmp_path: Path) -> None:
    with known_search(tmp_path, 12) as search, LabReader(tmp_path) as reader:
        tree = read_tree(tree_file(tmp_path, "mine"))
        places = search.search.tree.places
        assert len(tree) == len(places)
        rows = reader.read().of("search:mine")
        for place in places:
            branch = tree.branch(str(place.number))
            assert branch.searches == place.searches
            assert branch.distance == place.state.distance  # type: ignore[attr-defined]
            assert (branch.kind == "dead end") == search.search.tree.is_dead(place)
            below = [places[int(key)].searches for key in tree.below(str(place.number))]
            assert below == sorted(below, reverse=True)
            assert sum(below) <= branch.searches
        # A place's pGraph is read off an operator below it: its size is what the names say.
        seen = 0
        for row in rows:
            if row.steps:
                for length in range(len(row.steps) + 1):
                    found = trial_below(rows, row.steps[:length])
                    assert found is not None
                    assert found.steps[:length] == row.steps[:length]
                    assert (found.accuracy or 0) >= (row.accuracy or 0)
                seen += 1
        assert seen == 12
        assert trial_below(rows, ("never",)) is None
        assert tree.summary().startswith(f"{places[0].searches} searches, {len(places)} places, ")
        with pytest.raises(KeyError):
            tree.branch("100000")
        with pytest.raises(KeyError):
            tree.below("x")


def test_places_of_a_tree_know_how_many_steps_lead_to_them(tmp_path: Path) -> None:
    with known_search(tmp_path, 60) as search:
        tree, ends = read_tree(tree_file(tmp_path, "mine")), 0
        for place in search.search.tree.places:
            if place.state.is_complete and (operator := place.state.operator()) is not None:
                assert tree.steps_taken(str(place.number)) == len(operator.steps)
                ends += 1
        assert ends


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "expected JSON of syno-lab search tree version 1"),
        (
            '{"format": "another", "version": 1, "places": []}',
            "expected format 'syno-lab search tree', found 'another'",
        ),
        ('{"format": "syno-lab search tree", "version": 2, "places": []}', "expected version 1, found 2; use the Syno"),
        ('{"format": "syno-lab search tree", "version": 1, "places": []}', "expected at least one place"),
        ("cycle", "place 1: expected its number and a parent before it"),
    ],
)
def test_a_broken_tree_is_refused(tmp_path: Path, content: str, said: str) -> None:
    with known_search(tmp_path, 3):
        file = tree_file(tmp_path, "mine")
    if content == "cycle":
        data = json.loads(file.read_text())
        data["places"][1]["parent"] = 1
        content = json.dumps(data)
    file.write_text(content)
    with pytest.raises(StoreError, match=said):
        read_tree(file)


def test_no_tree_and_names_that_lead_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="only Monte Carlo tree searches have a tree"):
        read_tree(tree_file(tmp_path, "none"))
    with pytest.raises(StoreError, match="has no folder of its own"):
        tree_file(tmp_path, "../other")


def test_boxes_say_their_primitive() -> None:
    state = State.root(small_spec())
    around = Around(state)
    around.grow(1)
    for box in icicle(around, "start", 1, colour="primitive").boxes[1:]:
        name = {"CONTRACTION": "SHARE"}.get(first := around.branch(box.key).text.split()[0], first)
        look = PRIMITIVE_LOOKS[name]
        assert box.edge == look.border
        assert box.short.endswith(f"{look.sign} {first}".strip())
        assert box.sign == look.sign
        assert box.fill == (look.fill if box.kind != "dead end" else "#c8c8c8")
    words = {box.key: box for box in icicle(Letters(1), "-", 1, best=("-", "-b")).boxes}
    assert [key for key, box in words.items() if box.is_best] == ["-", "-b"]
    assert words["-a"].edge == ""


def test_a_narrow_choice_of_a_number_of_steps_says_the_number() -> None:
    class Choices(Letters):
        def branch(self, key: str) -> Branch:
            return replace(super().branch(key), text=f"at most {len(key) + 3} steps")

    (box,) = [one for one in icicle(Choices(2), "-", 1).boxes if one.key == "-a"]
    assert (box.text, box.short, box.sign) == ("at most 5 steps", "≤ 5 steps", "≤5")


# -- the trials, one after the other -----------------------------------------------------------------------------------


def test_the_trials_are_replayed(tmp_path: Path) -> None:
    with known_search(tmp_path, 30), LabReader(tmp_path) as reader:
        trials = replayed(reader.read().rows)
    assert [row.number for row in trials] == list(range(len(trials)))
    accuracies = [row.accuracy or 0.0 for row in trials]
    assert improvements(trials) == [n + 1 for n, a in enumerate(accuracies) if a > max(accuracies[:n], default=-1.0)]
    before: dict[str, tuple[str | None, str]] = {}
    for upto in range(1, len(trials) + 1):
        found = moment(trials, upto)
        tree = found.tree
        # Brute force: a place for each beginning of the trials' steps, with the trials that begin so.
        ways = {row.steps[:length] for row in trials[:upto] for length in range(len(row.steps) + 1)}
        assert len(tree) == len(ways)
        for number in range(len(tree)):
            names = tree.names(str(number))
            through = [row.accuracy or 0.0 for row in trials[:upto] if row.steps[: len(names)] == names]
            branch = tree.branch(str(number))
            assert branch.visits == len(through)
            assert branch.reward == pytest.approx(sum(through) / len(through))
            assert branch.best == max(through)
            assert (branch.kind == "operator") == (names in [row.steps for row in trials[:upto]])
        best = max(trials[:upto], key=lambda row: row.accuracy or 0.0)
        assert tree.names(found.best[-1]) == best.steps
        assert [tree.above(key) for key in found.best] == [None, *found.best[:-1]]
        assert found.words.startswith(f"After trial {upto} of {len(trials)}: trial {upto - 1} with accuracy ")
        # A place that was there keeps its number, and its place among its siblings.
        now = {str(n): (tree.above(str(n)), tree.branch(str(n)).text) for n in range(len(tree))}
        assert before.items() <= now.items()
        before = now
    assert list(moment(trials, 1).tree.below("0")) == ["1"]
    with pytest.raises(ValueError, match="expected 1 to 30 trials, found 31"):
        moment(trials, 31)


def test_trials_without_a_value_are_replayed_too(tmp_path: Path) -> None:
    with known_search(tmp_path, 3), LabReader(tmp_path) as reader:
        trials = [replace(row, accuracy=None, state="waiting") for row in replayed(reader.read().rows)]
    found = moment(trials, 2)
    assert found.best == ()
    assert found.words == "After trial 2 of 3: trial 1, waiting, without accuracy; none has accuracy yet."
    assert found.tree.branch("0").fruitless == 2


# -- the space around a state ------------------------------------------------------------------------------------------


def test_the_space_around_a_state() -> None:
    state = State.root(small_spec())
    around = Around(state)
    assert around.below("start") == ()
    while around.grow(2):
        pass
    found = candidates(state)
    assert len(around.below("start")) == len(found)
    for key in around.below("start"):
        branch, one = around.branch(key), found[int(key)]
        assert (branch.kind == "pruned") == (not one.verdict.canonical)
        assert branch.reason == (one.verdict.reason or branch.reason)
        after = around.state_at(key)
        assert after == state.apply(one.step)
        assert branch.distance == one.distance == distance(after)
        assert (branch.probe is not None) == (branch.kind == "operator")
        if branch.probe is not None:
            mine = probe(after.operator())
            assert branch.probe == mine.score(beside_convolution(mine)[1])
            assert f"probe {branch.probe:.2f}" in branch.words
        if branch.kind == "pruned":
            assert around.below(key) == ()
        elif branch.kind == "open":
            assert len(around.below(key)) == len(candidates(after)) > 0
            assert all(around.above(child) == key for child in around.below(key))
    kinds = [around.branch(key).kind for key in around.below("start")]
    assert kinds == sorted(kinds, key=["operator", "open", "dead end", "pruned"].index)
    assert around.summary().endswith("operators.")
    plain = Around(state, pruned=False)
    plain.grow(1)
    assert [around.branch(key).text for key in plain.below("start")] == [
        plain.branch(k).text for k in plain.below("start")
    ]


def test_an_operator_is_found_where_it_is_one_step_away() -> None:
    operator = conv2d()
    state = State.root(operator.spec)
    for step in operator.steps[:-1]:
        state = state.apply(step)
    around = Around(state)
    around.grow(1)
    ends = [key for key in around.below("start") if around.branch(key).kind == "operator"]
    assert operator.state in [around.state_at(key) for key in ends]
    assert all(around.state_at(key).is_complete for key in ends)
    with pytest.raises(KeyError):
        around.state_at("100000")


def test_of_many_next_steps_the_nearest_to_the_input_are_shown() -> None:
    operator = conv2d()
    state = State.root(operator.spec)
    for step in operator.steps[:3]:
        state = state.apply(step)
    found = candidates(state)
    assert len(found) > MOST_STEPS
    around = Around(state)
    around.grow(1)
    assert {int(key) for key in around.below("start")} == set(range(MOST_STEPS))
    assert f"; {len(found) - MOST_STEPS:,} more steps, none of them nearer to the input, are not" in around.summary()

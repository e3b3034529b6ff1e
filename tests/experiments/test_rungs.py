"""A search in rungs: the plan, who goes on, and that a stopped one goes on as if it had not stopped.

Trainings are stood in for by a function whose measures are known, and whose seconds drive the clock.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import pytest
from clocked_trainings import RUNGS, InTurn, Known, chosen, worth
from hypothesis import given
from hypothesis import strategies as st
from known_trainings import TRAINING

from syno_lab.errors import SearchError, SpecError
from syno_lab.experiments import SearchSettings, Stopped, TuningChoice, plan
from syno_lab.experiments.agreement import Ceiling
from syno_lab.experiments.evidence import hindrance
from syno_lab.experiments.in_rungs import SHARES, _evidence, run_in_rungs, verdict
from syno_lab.experiments.plan import FINALISTS, plan_for
from syno_lab.experiments.rung_worker import LocalWorkers
from syno_lab.experiments.survivors import Score, survivors
from syno_lab.experiments.validate_proxy import RESULT_FILE, Validation
from syno_lab.experiments.watching import STATUS_FILE
from syno_lab.models.rungs import Rung
from syno_lab.reports.progress import finals_table, plan_table, progress_of
from syno_lab.reports.searched import Evidence, Point, Searched, searched
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE, CONFIRM, FINAL, RIVALS, TIMES, TIMING, RungTraining
from syno_lab.trial import Comparison, TrialOutcome, TrialRequest, sentence
from syno_lab.trial.examples import examples_of

FIRST, SECOND, NETWORK = (rung.name for rung in RUNGS)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings take no time here, but draws do."""
    monkeypatch.setattr("syno_lab.experiments.plan.DRAWS_SHARE", 0.005)


def search(folder: Path, known: Known, asked: SearchSettings, *, place: str = "board", **more: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    with Store.open(folder) as store:
        return run_in_rungs(
            asked,
            store,
            lambda log: LocalWorkers(asked, log, folder / place / "rungs", train=known),
            folder=folder / place,
            clock=known.clock,
            **more,
        )


def trained(known: Known) -> Counter[tuple[Any, ...]]:
    return Counter((r.operator, str(r.options), r.steps, r.holdout is None, r.seed) for r in known.requests)


def test_the_best_go_on_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    known, asked = Known(), chosen()
    result = search(tmp_path, known, asked)
    assert max(trained(known).values()) == 1
    with Store.open(tmp_path) as store:
        log = store.search(asked.name, asked.identity)
        worths = {trial.number: worth(trial.operator) for trial in log.trials()}
        ratio = {one["number"]: one["replaced_ratio"] for one in result["recorded"]}
        queue = log.rungs.trainings()
    on = {
        name: {one.number for one in queue if one.rung == name} - {BASELINE} for name in (FIRST, SECOND, NETWORK, FINAL)
    }
    assert len(on[FIRST]) > 3 * len(on[SECOND]) >= 3 * len(on[NETWORK]) >= 3 * len(on[FINAL]) > 0
    assert on[FIRST] >= on[SECOND] >= on[NETWORK] >= on[FINAL]
    for name, share in SHARES.items():
        within = [number for number in worths if ratio[number] <= share]
        if within:  # noise is a hundredth, so the best of a share is at most that far from the best that there is
            best = result["best"][name]["number"]
            assert worths[best] > max(worths[number] for number in within) - 0.06
            assert best in on[FINAL]
    # The finals: every seed, all training images; rungs: held-out images, seeds of their own.
    for request in known.requests:
        is_final = request.keep_predictions
        assert is_final == (request.seed in asked.seeds)
        assert (request.holdout is None) == is_final
    assert result["time"]["wall_s"] <= 60 * 2 * 1.1
    check_times_and_rivals(result, queue, tmp_path)
    shares = result["time"]["shares"]
    assert sum(shares.values()) == pytest.approx(1)
    # Each stage of the funnel has no more operators than the one before it.
    draws, rungs = result["funnel"]["draws"], result["funnel"]["rungs"]
    names = (FIRST, SECOND, NETWORK, FINAL)
    stages = [draws[name] for name in ("drawn", "wished", "affordable")] + [rungs[name]["begun"] for name in names]
    assert stages == sorted(stages, reverse=True)
    assert [name for name in rungs if name != CONFIRM] == list(names)
    again = {one.number for one in queue if one.rung == NETWORK and one.seed >= RUNGS[-1].seeds}
    assert rungs.get(CONFIRM, {"begun": 0})["begun"] == len(again)
    assert {result["finalists"][name] for name in result["finalists"]} == on[FINAL]


def check_times_and_rivals(result: dict[str, Any], queue: list[RungTraining], folder: Path) -> None:
    """The finalists and their rivals have times beside the baseline's; rivals are trained once and are no trials."""
    first = result["comparisons"][next(iter(SHARES))]
    chief = result["finalists"][next(iter(SHARES))]
    rivals = [one for one in queue if one.part == RIVALS]
    assert {one.number for one in rivals} == {chief}
    assert all((one.seed, one.state) == (100, "finished") for one in rivals)
    parts = {part["name"]: part for part in result["plan"]["parts"]}
    assert 0 < len(rivals) <= parts[RIVALS]["trainings"]
    assert parts[RIVALS]["seconds"] <= 0.2 * 60 * 2 * 2
    assert parts[TIMES]["seconds"] == pytest.approx(0.02 * 60 * 2 * 2)
    assert sum(part["seconds"] for part in parts.values()) == pytest.approx(60 * 2 * 2)
    assert len(result["rivals"]) == len(rivals)
    assert len(result["rivals"]) + len(result["not_compared"]) == 3
    words = ", ".join(f"{title} {Comparison.from_dict(one).texts[0]}" for title, one in result["rivals"].items())
    assert result["verdict"] == f"{sentence(Comparison.from_dict(first))}; rivals on one seed: {words}"
    compared = [*result["comparisons"].values(), *result["rivals"].values()]
    assert all(one["baseline_times"] == result["baseline"]["times"] for one in compared)
    assert all({"forward", "step-batch"} <= set(one["times"]) and min(one["times"].values()) > 0 for one in compared)
    assert all(one["seeds"] == [100] for one in result["rivals"].values())
    with Store.open(folder) as store:
        (log,) = store.searches()
        numbers = {number for number in result["finalists"].values() if log.milliseconds("step-batch").get(number)}
        assert numbers == set(result["finalists"].values())
        assert log.milliseconds("step-batch")[chief] == first["times"]["step-batch"]
    table = finals_table(result)
    assert table.heads[-1] == "ms of a training step, one example / a batch"
    shown = {str(row[0]): row for row in table.rows}
    assert all(any(name.startswith(f"rival: {title}, ") for name in shown) for title in result["rivals"])
    step = result["baseline"]["times"]["step-batch"]
    assert str(shown["baseline"][-1]).endswith(f"{step:.3g}")


def test_the_finalists_are_the_best_of_those_with_more_seeds(tmp_path: Path) -> None:
    asked = chosen(minutes=5, seeds=(100, 101, 102, 103))
    with Store.open(tmp_path) as store:
        log = store.search(asked.name, asked.identity)
        workers = InTurn(asked, log)
        result = run_in_rungs(
            asked, store, lambda _: workers, folder=tmp_path / "board", clock=lambda: workers.now, sleep=workers.sleep
        )
        queue = log.rungs.trainings()
    # No worker stands idle: a baseline that waited takes the time until the last training on a rung has ended, which
    # takes up to 1.4 times as long as a baseline's 10 s.
    for spans in workers.spans:
        gaps = [after[0] - before[1] for before, after in pairwise(spans)]
        assert max(gaps) < 4.3 < min(end - begin for begin, end, rung in spans if rung in (NETWORK, FINAL))
    ratio = {one["number"]: one["replaced_ratio"] for one in result["recorded"]}
    again = {one.number for one in queue if one.rung == NETWORK and one.seed >= RUNGS[-1].seeds}
    assert len(again) > 1
    means = {n: fmean(one.measure or 0.0 for one in queue if (one.number, one.rung) == (n, NETWORK)) for n in again}
    known_ones = {one["number"] for one in result["recorded"] if one["known"]}
    for name, share in SHARES.items():
        among = [number for number in again - known_ones if ratio[number] <= share]
        assert not among or result["best"][name]["number"] == max(among, key=means.__getitem__)
    if among := again & known_ones:
        assert result["finalists"]["known"] == max(among, key=means.__getitem__)


def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    known, stops = Known(), [3, 12, 30, 40]
    result: dict[str, Any] = {}
    while not result:
        after = stops.pop(0) if stops else 10**9
        try:
            result = search(
                tmp_path / "parts", known, chosen(name="whole"), should_stop=lambda n=after: len(known.requests) >= n
            )
        except Stopped:
            continue
    assert len(stops) < 2
    funnel = result["funnel"]["draws"]
    assert funnel["drawn"] >= funnel["wished"] >= funnel["affordable"] >= len(result["recorded"])
    assert max(trained(known).values()) == 1
    assert result["time"]["wall_s"] <= 60 * 2 * 1.1
    assert all(found["begun"] for found in result["funnel"]["rungs"].values())
    assert len(result["baseline"]["accuracies"]) == 2


def test_a_search_that_has_ended_goes_on_with_more_minutes(tmp_path: Path) -> None:
    """Each part begins again with the time that is new: operators that are new climb the rungs beside the old ones."""
    known, said = Known(), []
    first = search(tmp_path, known, chosen(name="it"))
    rows = len(known.requests)
    # The same minutes, or hardly more: one line says why nothing is trained, and which minutes are enough.
    for minutes in (2.0, 2.01):
        same = search(tmp_path, known, chosen(name="it", minutes=minutes), report=lambda _, line: said.append(line))
        assert len(known.requests) == rows
        assert same["end"] == said[-1]
        words = r"nothing more is trained, because more operators and their finals take (\S+) (s|minutes) and \S+ \2 "
        takes = re.match(words, said[-1])
        assert takes is not None
        assert float(takes[1]) >= 1
        assert [same[part] for part in ("best", "finalists", "verdict")] == [
            first[part] for part in ("best", "finalists", "verdict")
        ]
    enough = float(said[-1].split("--minutes ")[1].split()[0])
    assert 2.01 < enough <= 3
    asked = chosen(name="it", minutes=enough)
    with pytest.raises(Stopped):  # a stop in the new time loses nothing
        search(tmp_path, known, asked, should_stop=lambda: len(known.requests) >= rows + 40)
    more = search(tmp_path, known, asked)
    assert max(trained(known).values()) == 1
    assert more["trials"] > first["trials"]
    assert more["recorded"][: first["trials"]] != []
    for name in (FIRST, SECOND, NETWORK):
        assert more["funnel"]["rungs"][name]["trained"] > first["funnel"]["rungs"][name]["trained"]
    new = {one["number"] for one in more["recorded"]} - {one["number"] for one in first["recorded"]}
    with Store.open(tmp_path) as store:
        queue = store.search("it", chosen(name="it").identity).rungs.trainings()
    for name in (SECOND, NETWORK):
        assert new & {one.number for one in queue if one.rung == name}, "new operators go on too"
    finals = {one.number for one in queue if one.rung == FINAL} - {BASELINE}
    assert set(more["finalists"].values()) <= finals
    assert first["time"]["wall_s"] < more["time"]["wall_s"] <= 60 * enough * 1.1
    assert more["end"] == "its minutes are used"


def test_a_search_goes_on_with_the_measures_that_it_began_with(tmp_path: Path) -> None:
    """The first rung ranks by the training loss as it is declared, and by the other one in the plan."""
    known, asked = Known(), chosen(name="it")

    def measured() -> list[float]:
        with Store.open(tmp_path) as store:
            rows = store.search("it", asked.identity).rungs.trainings(FIRST)
        found = [one for one in rows if one.number != BASELINE and one.state == "finished"]
        return [-math.log(one.measure or 0.0) / one.outcome["train_loss"] for one in found]

    with pytest.raises(Stopped):
        search(tmp_path, known, asked, should_stop=lambda: sum(one.steps == 40 for one in known.requests) > 3)
    begun = measured()
    assert begun == pytest.approx([1] * len(begun))
    status = json.loads((tmp_path / "board" / STATUS_FILE).read_text())
    for part in status["plan"]["parts"]:
        if "measure" in part:
            part["measure"] = "loss"
    (tmp_path / "board" / STATUS_FILE).write_text(json.dumps(status))
    result = search(tmp_path, known, asked)
    assert measured() == pytest.approx([1] * len(begun) + [0.5] * (len(measured()) - len(begun)))
    assert len(measured()) > len(begun)
    assert [part.get("measure") for part in result["plan"]["parts"] if part["name"] == FIRST] == ["loss"]


def test_what_fails_does_not_go_on(tmp_path: Path) -> None:
    class Failing(Known):
        def __call__(self, request: TrialRequest, *, folder: Path, **more: Any) -> TrialOutcome:
            outcome = super().__call__(request, folder=folder, **more)
            if request.operator is not None and request.steps == 40 and worth(request.operator) > 0.5:
                return TrialOutcome(state="timeout", reason="too slow", wall_s=1.0)
            return outcome

    known = Failing()
    result = search(tmp_path, known, chosen())
    assert any(one["state"] == "timeout" for one in result["recorded"])
    for request in known.requests:
        is_rival = request.keep_predictions and request.time_limit_s is not None
        if request.operator is not None and request.steps != 40 and not is_rival:
            assert worth(request.operator) <= 0.5


def test_a_search_without_anything_new_says_so(tmp_path: Path) -> None:
    class Hopeless(Known):
        def __call__(self, request: TrialRequest, *, folder: Path, **more: Any) -> TrialOutcome:
            if request.operator is not None:
                return TrialOutcome(state="diverged", reason="loss is no number", wall_s=1.0)
            return super().__call__(request, folder=folder, **more)

    result = search(tmp_path, Hopeless(), chosen(trials=6))
    assert result["verdict"] == "no new operator was found"
    assert result["best"] == dict.fromkeys(SHARES)


def test_a_baseline_that_does_not_train_ends_the_search(tmp_path: Path) -> None:
    class Broken(Known):
        def __call__(self, request: TrialRequest, *, folder: Path, **more: Any) -> TrialOutcome:
            return TrialOutcome(state="failed", reason="no data there")

    with pytest.raises(SearchError, match=r"expected the baseline to be trained on .*no data there"):
        search(tmp_path, Broken(), chosen())


class Learned(Known):
    """A baseline that is right on nearly all test images; its right answers depend on the seed."""

    def __call__(self, request: TrialRequest, *, folder: Path, **more: Any) -> TrialOutcome:
        outcome = super().__call__(request, folder=folder, **more)
        if not request.keep_predictions:
            return outcome
        labels = examples_of(request).test_labels
        is_wrong = np.random.default_rng([request.seed, request.operator is None]).random(len(labels)) < 0.03
        return msgspec.structs.replace(outcome, predictions=((labels + is_wrong) % 10).tolist())


def test_the_baseline_is_trained_before_any_operator(tmp_path: Path) -> None:
    known = Learned()
    result = search(tmp_path, known, chosen(anyway=False, seeds=(100, 101, 102, 103), minutes=4))
    rows = [(request.operator is None, request.keep_predictions, request.seed) for request in known.requests]
    first = next(place for place, row in enumerate(rows) if not row[0])
    assert {seed for _, is_final, seed in rows[:first] if is_final} >= {100, 101}
    evidence = searched(result).evidence
    assert evidence is not None
    assert (evidence.trainings, evidence.seeds, evidence.is_at_chance, evidence.gain) == (2, 4, False, None)
    assert evidence.value == pytest.approx(0.97, abs=0.03)
    assert 0.01 < evidence.least < 0.1
    assert plan_table(progress_of(result, "s")).title.endswith(str(evidence))
    assert [part["trainings"] for part in result["plan"]["parts"] if part["name"] == "baseline"] == [4]


def test_where_nothing_can_be_learned_the_search_says_so(tmp_path: Path) -> None:
    known, said = Known(), r"^the baseline is not measurably better than a guess: .* use epochs=8.*give --anyway"
    with pytest.raises(SearchError, match=said) as found:
        search(tmp_path, known, chosen(anyway=False))
    assert "\n" not in str(found.value)
    assert all(request.operator is None for request in known.requests)
    status = json.loads((tmp_path / "board" / STATUS_FILE).read_text())
    assert status["evidence"]["is_at_chance"]
    result = search(tmp_path, known, chosen())
    assert result["trials"] > 0
    assert max(trained(known).values()) == 1


def test_what_hinders_a_search_says_what_helps() -> None:
    shown: dict[str, Any] = {"value": 0.5, "chance": 0.2, "examples": 60, "seeds": 5, "trainings": 2}
    asked = chosen()
    assert hindrance(asked, Evidence(**shown, least=0.09)) == ""
    rising, finished = (Evidence(**shown, least=0.12, gain=gain) for gain in (0.06, 0.01))
    assert hindrance(asked, rising) == (
        "60 test examples on 5 seeds detect no difference below 12 points; use epochs=8, 90 test examples or more seeds"
    )
    assert "epochs" not in hindrance(asked, finished)
    assert "accuracy 0.500 of 2 trainings, chance 0.200; not finished: +6.0 points" in str(rising)
    assert str(finished).endswith("finished at this length; 60 test examples and 5 seeds can tell 12.0 points")


def test_a_backbone_without_proxies_is_refused(tmp_path: Path) -> None:
    asked = chosen(training=TrialRequest(backbone="gpt2", data="digits"))
    with pytest.raises(SpecError, match="gpt2"):
        search(tmp_path, Known(), asked)


EACH = {FIRST: 2.0, SECOND: 8.0, NETWORK: 80.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"minutes": None, "trials": 5}, "rungs: expected the minutes of the search"),
        ({"untrained": True}, "rungs: expected a search that trains"),
        ({"tuning": TuningChoice(within=1.0)}, "rungs: expected no tuning beside them"),
    ],
)
def test_what_rungs_cannot_do_is_refused_at_once(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SearchError, match=said):
        chosen(**changes)


def test_rungs_that_nothing_proves_are_not_used(tmp_path: Path) -> None:
    text = TrialRequest(backbone="gpt_tiny", data="digits")
    asked, said = chosen(training=text), []
    place = tmp_path / "searches" / "s"
    rungs, uses_probe = _evidence(asked, place, Searched(), lambda fraction, line: said.append(line))
    assert ([rung.name for rung in rungs], uses_probe) == (["network"], True)
    assert all("no validation shows that it ranks operators of gpt_tiny" in line for line in said)
    # A continued search keeps what it began with.
    parts = plan.PlanPart(FIRST, 2, 1.0, 2.0, "loss"), plan.PlanPart(NETWORK, 2, 1.0, 2.0)
    earlier = Searched(plan=plan.Plan(1.0, 1, parts), uses_probe=False)
    rungs, uses_probe = _evidence(chosen(), place, earlier, lambda fraction, line: None)
    assert ([rung.name for rung in rungs], uses_probe) == ([FIRST, NETWORK], False)
    # A damaged file may have lost the network itself, without which nothing can be searched.
    damaged = searched({"plan": {"parts": [{"name": FIRST}, {"trainings": 2}]}}).plan
    assert damaged is not None
    assert plan.as_begun(rungs, damaged) == plan.as_begun(rungs, None) == rungs


def test_a_probe_that_ranks_no_better_than_flops_chooses_nothing(tmp_path: Path) -> None:
    asked, said = chosen(trials=8), []
    wrong = Validation(
        backbone=TRAINING.backbone,
        data=TRAINING.data,
        system=asked.system,
        training=TRAINING.to_dict(),
        seeds=[0],
        rungs=[],
        agreements=[],
        ceiling=Ceiling(),
        used=[FIRST, SECOND],
        unused=["probe"],
        operators=[],
        counted=0,
        drawn=0,
        states={},
        machine="this one",
        full_cpu_s=0.0,
        cpu_s=0.0,
        wall_s=0.0,
    )
    place = tmp_path / "validations" / "wrong"
    place.mkdir(parents=True)
    (place / RESULT_FILE).write_bytes(msgspec.json.encode(wrong))
    result = search(tmp_path, Known(), asked, report=lambda fraction, line: said.append(line), place="searches/s")
    assert said[0] == "the probe is not used: its validation ranks no better than FLOPs or parameters"
    assert not result["uses_probe"]
    assert result["funnel"]["draws"]["probed"] == 0


def test_a_verdict_before_the_finals_names_the_operator_that_was_not_compared() -> None:
    best = {"0.4": None, "0.25": Point(number=7)}
    expected = "trial 7 led on the last rung, but was not compared with the baseline"
    assert verdict(best, {}, {}) == f"not trained enough to tell: {expected}"
    assert verdict(dict.fromkeys(best), {}, {}) == "no new operator was found"


class TestPlan:
    def test_it_uses_all_minutes(self) -> None:
        plan = plan_for(30, 2, RUNGS, EACH, 5)
        assert plan.minutes == pytest.approx(30)
        counts = {part.name: part.trainings for part in plan.parts}
        assert counts["finals"] == 5 * FINALISTS
        assert counts["baseline"] == 5
        assert counts[FIRST] > counts[SECOND] > counts[NETWORK] >= 2
        for part in plan.parts:
            assert part.trainings * part.each_s <= part.seconds * (1 + 1e-9)

    def test_one_rung_alone(self) -> None:
        plan = plan_for(30, 1, [Rung("network")], {"network": 10.0}, 0)
        assert plan.minutes == pytest.approx(30)

    @pytest.mark.parametrize("minutes", [0.1, 5, 15])
    def test_too_few_minutes_say_how_many_are_needed(self, minutes: float) -> None:
        with pytest.raises(SearchError, match=rf"^minutes: expected at least [\d.]+.*found {minutes:g}") as found:
            plan_for(minutes, 2, RUNGS, EACH, 5)
        assert "\n" not in str(found.value)
        needed = float(str(found.value).split("at least ")[1].split()[0].rstrip(","))
        assert needed > minutes


@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(-3, 3)), max_size=30),
    st.integers(0, 40),
)
def test_survivors(found: list[tuple[float, float]], count: int) -> None:
    scores = [Score(number, ratio, value) for number, (ratio, value) in enumerate(found)]
    shares = (0.4, 0.25)
    taken = survivors(scores, count, shares)
    assert len(set(taken)) == len(taken) == min(count, len(scores))
    best = {
        share: max((one for one in scores if one.ratio <= share), key=lambda one: one.value, default=None)
        for share in shares
    }
    if count >= len(shares):
        for one in best.values():
            assert one is None or any(
                scores[number].value >= one.value and scores[number].ratio <= 0.4 for number in taken
            )
    # Nobody who was left out is better and cheaper than somebody who was taken.
    out = [one for one in scores if one.number not in taken]
    for one in out:
        for number in taken:
            other = scores[number]
            assert not (one.value > other.value and one.ratio < other.ratio)


def test_different_kinds_go_on() -> None:
    values = {"a": (2.0, 1.9, 1.8, 1.7), "b": (1.45, 0.2), "c": (1.2,), "d": (-2.0,)}
    found = [(kind, value) for kind, row in values.items() for value in row]
    scores = [Score(number, 0.2, value, kind) for number, (kind, value) in enumerate(found)]
    taken = survivors(scores, 4, (0.25,))
    # Each one of a kind costs the next one half: 2.0, then 1.45 beside 1.4, then 1.4, then 1.2 beside 0.8.
    assert [found[number] for number in taken] == [("a", 2.0), ("b", 1.45), ("a", 1.9), ("c", 1.2)]
    assert sorted(survivors(scores, 9, (0.25,))) == list(range(8))


def test_timing_is_no_rung() -> None:
    assert not {TIMING, FINAL} & {rung.name for rung in RUNGS}


def test_other_systems_go_through_the_rungs(tmp_path: Path) -> None:
    both = "syno-lab-operator,syno-lab-canvas"
    asked = chosen(system=both, coefficients=None, limits={"max_primitives": 4}, starts_with_known=True)
    known = Known()
    result = search(tmp_path, known, asked)
    assert max(trained(known).values()) == 1
    assert {one["system"] for one in result["recorded"]} == {"pGraphs", "Canvas"}
    assert {"pGraphs", "Canvas"} >= {one["system"] for one in result["front"]} != set()
    draws = result["funnel"]["draws"]
    assert draws["drawn"] >= draws["wished"] >= draws["affordable"] >= len(result["recorded"])
    assert draws["probed"] > 0, "each system has a probe that tells something of the layers"
    for name, best in result["best"].items():
        assert best is None or best["replaced_ratio"] <= SHARES[name]
    finals = finals_table(result)
    # Which of them come so far depends on how many are trained in the time; each says of which system it is.
    systems = {f"trial {one['number']} ({one['system']})" for one in result["recorded"]}
    systems |= {one["known"] for one in result["recorded"] if one["known"]}
    assert {name for row in finals.rows if not (name := str(row[0])).startswith("rival: ")} - {"baseline"} <= systems
    assert len(finals.rows) > 1


def test_a_short_plan_trains_others_beside_known_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer trainings than twice the known operators they take turns: else nothing might be discovered."""
    usual = plan.RUNG_SHARES
    monkeypatch.setattr(plan, "RUNG_SHARES", (usual[0] * 2.4 / 105, *usual[1:]))
    result = search(tmp_path, Known(), chosen(starts_with_known=True))
    parts = {part["name"]: part.get("trainings") for part in result["plan"]["parts"]}
    first = [bool(one["known"]) for one in result["recorded"]]
    assert sum(first) == 2
    assert parts[FIRST] < 4
    assert first[:3] == [True, False, True]


def test_operators_that_fail_alike_end_the_search_with_their_reason(tmp_path: Path) -> None:
    class Failing(Known):
        def __call__(self, request: TrialRequest, **how: Any) -> TrialOutcome:
            outcome = super().__call__(request, **how)
            if request.operator is None or request.operator in self.endings:
                return outcome
            reason = f"the network: ValueError: {len(self.requests)} (net.py, line 12)"
            return TrialOutcome(state="failed", reason=reason, work_s=outcome.work_s, seed=request.seed)

    known = Failing()
    with pytest.raises(
        SearchError, match=r"operators failed alike.*: the network: ValueError: \d+ \(net.py, line 12\)"
    ):
        search(tmp_path / "failed", known, chosen())
    assert len({request.operator for request in known.requests} - {None}) < 30
    with Store.open(tmp_path / "failed") as store:
        reasons = {one.outcome["reason"] for one in store.search(chosen().name, chosen().identity).rungs.trainings()
                   if one.state == "failed"}  # fmt: skip
    assert len(reasons) >= 5

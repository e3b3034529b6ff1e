"""Searches for operators of a backbone: what is trained, told and kept, and that a killed one goes on as if it had not.

Trainings are stood in for by a function whose rewards are known, but for one search that trains for real.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import scipy.stats
import torch
from known_trainings import TRAINING, Known, accuracy, settings
from torch.utils._python_dispatch import TorchDispatchMode

from syno_lab import operators
from syno_lab.codegen.torch_module import to_torch
from syno_lab.errors import FormatError, SearchError, SpecError, StoreError, TrainingError
from syno_lab.experiments import (
    RESULT_FILE,
    SHARES,
    STATUS_FILE,
    TREE_FILE,
    Driver,
    SearchSettings,
    Space,
    Standing,
    Stopped,
    Times,
    read_json,
    run_here,
)
from syno_lab.experiments.watching import Board
from syno_lab.ir.operator import Operator
from syno_lab.pgraphs.traits import stored_elements
from syno_lab.search import (
    EstimateSearch,
    MonteCarloTreeSearch,
    RandomSearch,
    RegularizedEvolution,
)
from syno_lab.store import Store
from syno_lab.trial import costs_of


def drive(folder: Path, known: Known, chosen: SearchSettings, **more: Any) -> Driver:
    folder.mkdir(exist_ok=True)
    with Store.open(folder) as store:
        log = store.search(chosen.name, chosen.identity)
        driver = Driver(chosen, Space(chosen), log, known, Board(folder / "board"), **more)
        driver.run()
        return driver


def trials_in(folder: Path, chosen: SearchSettings) -> list[Any]:
    with Store.open(folder) as store:
        return store.search(chosen.name, chosen.identity).trials()


# -- the space -------------------------------------------------------------------------------------------------------


def test_no_operator_is_above_the_limit_and_costs_are_those_of_a_trial(tmp_path: Path) -> None:
    chosen = settings(max_replaced_ratio=0.3)
    known, space = Known(), Space(chosen)
    drive(tmp_path, known, chosen)
    most = space.baseline.flops - 0.7 * space.replaced_flops
    trials = trials_in(tmp_path, chosen)
    assert len(trials) == 12
    for trial in trials:
        request = msgspec.structs.replace(TRAINING, operator=trial.operator)
        assert (trial.flops, trial.params) == costs_of(request)
        assert trial.flops <= most
    # The limit does refuse: without it some would be above.
    free = settings(max_replaced_ratio=100.0, name="free", method="random")
    drive(tmp_path, Known(), free)
    assert any(trial.flops > most for trial in trials_in(tmp_path, free))


def test_a_limit_of_the_replaced_layers_is_one_of_these_alone(tmp_path: Path) -> None:
    chosen = settings(max_replaced_ratio=0.3, weight_limits="primary", method="random")
    driver = drive(tmp_path, Known(), chosen)
    space = Space(chosen)
    stays = space.baseline.flops - sum(site.flops for site in space.sites)
    trials = trials_in(tmp_path, chosen)
    shares = [(trial.flops - stays) / space.replaced_flops for trial in trials]
    assert len(trials) == 12
    assert max(shares) <= 0.3
    assert space.limits == "within 30% of the replaced layers' FLOPs"
    # The best is named within shares of the same FLOPs, under names of their own.
    told = driver.standing.said(Times()).best
    assert list(told) == ["replaced_0.4", "replaced_0.25"]
    for name, share in SHARES.items():
        within = [trial for trial, found in zip(trials, shares, strict=True) if found <= share]
        best = max(within, key=lambda trial: trial.accuracy)
        assert told[name].number == best.number
        assert told[name].replaced_ratio == pytest.approx(shares[trials.index(best)])
        assert told[name].flops_ratio == best.flops / space.baseline.flops
    assert list(Standing(100, 1).said(Times()).best) == ["half", "quarter"]


def stored_by_torch(operator: Operator, binding: dict[str, int]) -> int:
    """Elements of the tensors that PyTorch makes in a forward pass; views make none.

    Windows that an element-wise product reads where they are count as the copy that a matrix product makes of them.
    A sum by slices counts as the one pooling that it is: its last addition counts, what it adds up before does not.
    """

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.made = 0
            self.sums: dict[int, torch.Tensor] = {}  # kept, so that no other tensor takes their place

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if not function.is_view and "_unsafe_view" not in str(function):
                self.made += result.numel()
            if function is torch.ops.aten.add.Tensor:
                for term in args:
                    before = self.sums.pop(term.untyped_storage().data_ptr(), None)
                    self.made -= 0 if before is None else before.numel()
                self.sums[result.untyped_storage().data_ptr()] = result
            if function is torch.ops.aten.mul.Tensor:
                self.made += sum(
                    a.numel() for a in args if a.numel() > a.untyped_storage().nbytes() // a.element_size()
                )
            return result

    module, x = to_torch(operator, binding), torch.zeros(operator.input_sizes(binding))
    with torch.no_grad(), Count() as count:
        module(x)
    return count.made


@pytest.mark.parametrize(
    ("operator", "sizes", "stored"),
    [
        # A convolution and a matrix product store their result alone.
        (operators.conv2d(), {"C_in": 8, "C_out": 4, "H": 6, "W": 5, "k_1": 3}, 4 * 6 * 5),
        (operators.matmul(), {"M": 6, "K": 8, "N": 4}, 6 * 4),
    ],
)
def test_library_calls_store_their_results(operator: Operator, sizes: dict[str, int], stored: int) -> None:
    binding = {"N": 1, **sizes}
    assert stored_elements(operator, binding) == stored_by_torch(operator, binding) == stored


def test_the_memory_traffic_of_operators_is_about_what_torch_stores() -> None:
    space = Space(settings(limits={"max_primitives": 7}, max_replaced_ratio=2.0))
    search = space.search(settings(method="random"))
    site = space.sites[1]
    counted, told = [], []
    for _ in range(12):
        candidate = search.ask()
        assert candidate is not None
        binding = candidate.operator.complete_binding(site.binding())
        told.append(stored_elements(candidate.operator, binding))
        counted.append(stored_by_torch(candidate.operator, binding))
    # Sums and reordered copies are not told of, which are no more than what they are made from.
    assert all(few <= many for few, many in zip(told, counted, strict=True))
    assert scipy.stats.spearmanr(told, counted).statistic > 0.8


def test_no_operator_is_above_the_limit_of_memory_traffic(tmp_path: Path) -> None:
    known = Known()
    chosen = settings(max_traffic_ratio=2.0, max_replaced_ratio=2.0, method="random")
    drive(tmp_path, known, chosen)
    space = Space(chosen)
    assert all(space.traffic(Operator.from_json(trial.operator)) <= 2.0 for trial in trials_in(tmp_path, chosen))
    free = settings(max_replaced_ratio=2.0, name="free", method="random")
    drive(tmp_path, Known(), free)
    assert any(space.traffic(Operator.from_json(trial.operator)) > 2.0 for trial in trials_in(tmp_path, free))
    assert space.traffic(operators.conv2d()) >= 1.0
    with pytest.raises(SpecError, match="expected an operator for every layer, found one that does not fit"):
        space.traffic(operators.matmul())


def test_every_operator_fits_every_layer_that_is_replaced() -> None:
    space = Space(settings())
    candidate = space.search(settings()).ask()
    assert candidate is not None
    assert len(space.operators.spec.bindings) == len({tuple(site.binding().items()) for site in space.sites}) > 1
    assert space.costs(candidate.operator) is not None


def test_a_limit_below_what_stays_is_refused() -> None:
    with pytest.raises(SpecError, match=r"max_replaced_ratio: expected a share that leaves .* found 1e-12 of the"):
        Space(settings(max_replaced_ratio=1e-12))


def test_a_backbone_with_nothing_to_replace_is_refused() -> None:
    training = msgspec.structs.replace(TRAINING, options={"leave": ["*"]})
    with pytest.raises(SpecError, match="expected something to replace in this"):
        Space(settings(training=training))


# -- the loop --------------------------------------------------------------------------------------------------------


def test_what_is_told_is_in_the_store(tmp_path: Path) -> None:
    chosen = settings()
    driver = drive(tmp_path, Known(), chosen)
    trials = trials_in(tmp_path, chosen)
    assert [(Operator.from_json(trial.operator), trial.reward) for trial in trials] == driver.search.told
    assert all(trial.accuracy == accuracy(trial.operator) for trial in trials)
    best = max(trials, key=lambda trial: trial.accuracy or 0.0)
    found = driver.standing.best(1.0)
    assert found is not None
    assert (found.number, found.accuracy, found.params) == (best.number, best.accuracy, best.params)
    assert driver.standing.states == {"finished": 12}


@pytest.mark.parametrize("method", ["estimate", "mcts", "random", "evolution"])
def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path: Path, method: Any) -> None:
    chosen = settings(method=method)
    whole = drive(tmp_path / "whole", Known(), chosen)
    known = Known()
    for killed_after in (5, 8):
        with pytest.raises(Stopped):
            drive(tmp_path / "killed", known, chosen, should_stop=lambda most=killed_after: len(known.begun) >= most)
    driver = drive(tmp_path / "killed", known, chosen)
    assert driver.search.told == whole.search.told
    assert driver.standing.states == whole.standing.states


def test_what_was_under_way_is_taken_up_and_none_is_told_twice(tmp_path: Path) -> None:
    chosen = settings(workers=4)
    known = Known(at_once=False)
    with pytest.raises(Stopped):
        drive(tmp_path, known, chosen, should_stop=lambda: len(known.begun) >= 4)
    assert [trial.state for trial in trials_in(tmp_path, chosen)] == ["waiting"] * 4
    for name in reversed(list(known.begun)):  # they end while nobody looks, the last first
        known.end(name)
    known.at_once = True
    driver = drive(tmp_path, known, chosen)
    trials = trials_in(tmp_path, chosen)
    assert len(trials) == len(known.begun) == driver.standing.total == 12
    assert sorted(trial.position for trial in trials) == list(range(12))


def test_failures_are_told_as_nothing_and_the_search_goes_on(tmp_path: Path) -> None:
    chosen = settings(trials=6)
    endings = {
        1: {"state": "diverged", "reason": "the loss is nan", "accuracy": None},
        2: {"state": "oom", "reason": "out of memory", "accuracy": None},
        3: {"state": "pruned", "reason": "0.1 after epoch 1", "accuracy": 0.1, "curve": [{"accuracy": 0.1}]},
        4: {"state": "timeout", "reason": "more than 60 s", "accuracy": None},
    }
    driver = drive(tmp_path, Known(endings=endings), chosen)
    trials = trials_in(tmp_path, chosen)
    assert [trial.state for trial in trials] == ["finished", "diverged", "oom", "pruned", "timeout", "finished"]
    assert [trial.reward for trial in trials][1:5] == [0.0, 0.0, 0.1, 0.0]
    assert trials[1].reason == "the loss is nan"
    shown = driver.standing.said(driver.times)
    assert shown.pruned_share == pytest.approx(1 / 6)
    assert shown.last_failure == "trial 4: timeout: more than 60 s"
    # One that was pruned is never the best.
    assert {best.number for share in (0.5, 1.0) if (best := driver.standing.best(share))} <= {0, 5}


def test_a_training_whose_job_was_cancelled_is_marked_and_not_told(tmp_path: Path) -> None:
    class Cancelling(Known):
        def end(self, name: str) -> None:
            if name.endswith(" 1"):
                self.begun[name][1].cancel()
                self.begun[name][1].set_running_or_notify_cancel()
            else:
                super().end(name)

    chosen = settings(trials=4)
    driver = drive(tmp_path, Cancelling(), chosen)
    trials = trials_in(tmp_path, chosen)
    assert [trial.state for trial in trials] == ["finished", "interrupted", "finished", "finished", "finished"]
    assert len(driver.search.told) == 4
    assert driver.search.outstanding == ()


def test_rules_for_early_termination_see_earlier_curves(tmp_path: Path) -> None:
    known = Known()
    chosen = settings(training=msgspec.structs.replace(TRAINING, stopping={"rule": "canvas"}), trials=3)
    drive(tmp_path, known, chosen)
    requests = [request for request, _ in known.begun.values()]
    curves = [[value / 2, value] for value in (accuracy(str(request.operator)) for request in requests)]
    assert [request.rivals for request in requests] == [[], curves[:1], curves[:2]]


def test_a_trial_may_take_twice_as_long_as_the_baseline(tmp_path: Path) -> None:
    known = Known()
    drive(tmp_path, known, settings(trials=1), baseline_s=100.0)
    assert [(request.time_limit_s, request.gives_up) for request, _ in known.begun.values()] == [(200.0, True)]


class Watched(Board):
    """Says when it was first written: all that can be begun has been by then."""

    is_shown = False

    def show(self, *given: Any, **more: Any) -> None:
        super().show(*given, **more)
        self.is_shown = True


@pytest.mark.parametrize(("workers", "outstanding"), [(1, 1), (2, 3)])
def test_several_hands_have_the_next_operator_before_one_is_free(
    tmp_path: Path, workers: int, outstanding: int
) -> None:
    chosen, known, board = settings(workers=workers), Known(at_once=False), Watched(tmp_path / "board")
    with Store.open(tmp_path) as store:
        log = store.search(chosen.name, chosen.identity)
        driver = Driver(chosen, Space(chosen), log, known, board, should_stop=lambda: board.is_shown)
        with pytest.raises(Stopped):
            driver.run()
        assert len(driver.search.outstanding) == outstanding
        assert len(known.begun) == len(log.trials()) == workers  # nobody knows of one that is not begun
    for name in list(known.begun):
        known.end(name)
    known.at_once = True
    again = drive(tmp_path, known, chosen)
    assert again.standing.total == len(known.begun) == 12


@pytest.mark.parametrize("workers", [1, 3])
def test_overhead_is_what_free_hands_wait(tmp_path: Path, workers: int) -> None:
    clock = iter(range(10**6))
    chosen = settings(trials=1, workers=workers)
    driver = drive(tmp_path, Known(), chosen, clock=lambda: float(next(clock)), cpu_clock=lambda: 0.0)
    times = driver.times
    assert times.asking_s > 0
    assert times.store_s > 0
    assert times.held_s == workers * (times.asking_s + times.store_s)
    shown = driver.standing.said(times)
    assert shown.overhead_s_per_trial == times.held_s


@pytest.mark.parametrize("is_known", [False, True])
def test_making_a_search_ready_is_overhead(tmp_path: Path, is_known: bool) -> None:
    clock = iter(range(10**6))
    chosen = settings(workers=3, starts_with_known=is_known)
    with Store.open(tmp_path) as store:
        log = store.search(chosen.name, chosen.identity)
        board = Board(tmp_path / "board")
        driver = Driver(chosen, Space(chosen), log, Known(), board, clock=lambda: float(next(clock)))
    assert driver.times.asking_s == 1  # from one look at the clock to the next
    assert driver.times.held_s == 3


def test_overhead_while_all_hands_are_busy_is_processor_time(tmp_path: Path) -> None:
    chosen, board = settings(), Watched(tmp_path / "board")
    clock = iter(range(10**6))
    with Store.open(tmp_path) as store:
        log = store.search(chosen.name, chosen.identity)
        driver = Driver(chosen, Space(chosen), log, Known(at_once=False), board, should_stop=lambda: board.is_shown)
        driver.clock, driver.cpu_clock = lambda: float(next(clock)), lambda: 1000.0 * board.is_shown
        with pytest.raises(Stopped):
            driver.run()
    # The first writing of the board is the only thing that took 1,000 s of a processor; a training was under way.
    before = driver.times.held_s - 1000.0
    assert 0 < before < driver.times.asking_s + driver.times.store_s


def test_the_time_of_a_search_is_kept_over_kills_and_ends_it(tmp_path: Path) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    driver = drive(tmp_path, Known(), settings(trials=None, minutes=2.0), clock=clock)
    assert driver.times.search_s >= 120
    assert driver.end_reason == "2 minutes are over"
    assert read_json(tmp_path / "board" / STATUS_FILE) is not None


def test_a_space_that_is_used_up_ends_the_search(tmp_path: Path) -> None:
    chosen = settings(trials=10_000, limits={"max_primitives": 3}, max_replaced_ratio=5.0)
    driver = drive(tmp_path, Known(), chosen)
    assert driver.end_reason == "every operator of the space is evaluated"
    assert 0 < driver.standing.total < 10_000


def test_the_tree_is_shown(tmp_path: Path) -> None:
    driver = drive(tmp_path, Known(), settings(method="mcts", tree="uct"))
    shown = read_json(tmp_path / "board" / TREE_FILE)
    assert shown == json.loads(json.dumps(driver.search.tree.to_json()))
    assert shown is not None
    assert shown["places"][0]["visits"] == 12


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings_are_plain_data() -> None:
    chosen = settings(minutes=3.0, occurrences={"C_in": 2})
    assert SearchSettings.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({}, EstimateSearch),
        ({"method": "mcts", "tree": "uct"}, MonteCarloTreeSearch),
        ({"method": "mcts", "tree": "rave", "virtual_loss": 1.5}, MonteCarloTreeSearch),
        ({"method": "evolution"}, RegularizedEvolution),
        ({"method": "random"}, RandomSearch),
    ],
)
def test_each_method_is_the_search_of_its_name(changes: dict[str, Any], made: type) -> None:
    chosen = settings(**changes)
    search = Space(chosen).search(chosen)
    assert type(search) is made
    assert SearchSettings.from_dict(chosen.to_dict()).identity == chosen.identity
    if isinstance(search, MonteCarloTreeSearch):
        assert chosen.identity["tree"] == changes["tree"]
        assert search.settings.virtual_loss == changes.get("virtual_loss", 0.0)
        assert search.settings.looks == (8 if changes["tree"] == "rave" else 1)


def test_a_wish_is_a_setting() -> None:
    plain, derived = settings(), settings(wants="derived")
    assert derived.identity == {**plain.identity, "wants": "derived"}
    assert Space(plain).operators.wants == ""
    large = settings(wants="derived", limits={"max_primitives": 8})
    assert Space(large).operators.wants == "C_in>=m, H>=m, W>=m"
    with pytest.raises(SpecError, match="it takes at least 6 steps, found max_primitives 4"):
        Space(derived)
    assert Space(settings(wants="H≥m", limits={"max_primitives": 8})).operators.wants == "H>=m"


def test_other_settings_are_another_search(tmp_path: Path) -> None:
    drive(tmp_path, Known(), settings(trials=2))
    drive(tmp_path, Known(), settings(trials=3, workers=2))  # only its end and its hands
    with pytest.raises(StoreError, match=r"max_replaced_ratio was 0\.4, is 0\.5"):
        drive(tmp_path, Known(), settings(max_replaced_ratio=0.5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": None}, "expected minutes or trials"),
        ({"trials": 0}, "trials: expected 1 or more, found 0"),
        ({"minutes": float("nan")}, "minutes: expected a number above 0, found nan"),
        ({"max_replaced_ratio": 0.0}, "max_replaced_ratio: expected a number above 0, found 0.0"),
        ({"max_traffic_ratio": 0.0}, "max_traffic_ratio: expected a number above 0, found 0.0"),
        ({"workers": 0}, "workers: expected 1 or more, found 0"),
        ({"seeds": (1, 1)}, "seeds: expected seeds that differ, found 1, 1"),
        ({"name": "a/b"}, "name: expected a name that can be one of a folder"),
        ({"tree": "rave"}, "tree: expected the method mcts beside rave, found estimate"),
        ({"virtual_loss": 1.0}, "virtual_loss: expected the method mcts; leave it out"),
        ({"method": "mcts", "tree": "rave", "virtual_loss": -1.0}, "virtual_loss: expected 0 or more"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        settings(**changes)


def test_a_rule_that_there_is_not_is_refused() -> None:
    with pytest.raises(TrainingError, match="stopping: expected a rule among"):
        settings(training=msgspec.structs.replace(TRAINING, stopping={"rule": "luck"}))


def test_junk_is_no_settings() -> None:
    with pytest.raises(FormatError, match="expected the settings of a search"):
        SearchSettings.from_dict({"trials": 3})


# -- for real --------------------------------------------------------------------------------------------------------


def test_a_search_from_the_baseline_to_the_comparison(tmp_path: Path) -> None:
    training = msgspec.structs.replace(
        TRAINING, train_images=200, test_images=100, epochs=1, stopping={"rule": "canvas", "theta": 0.5}
    )
    chosen = settings(training=training, trials=3, seeds=(0, 1))
    result = run_here(chosen, tmp_path)
    assert result["trials"] == 3
    assert len(result["baseline"]["accuracies"]) == 2
    for share, one in result["comparisons"].items():
        best = result["best"][share]
        assert one["flops_ratio"] == pytest.approx(best["flops_ratio"])
        assert one["interval"]["low"] <= one["operator"] - one["baseline"] <= one["interval"]["high"]
        assert len(one["by_seed"]) == 2
    assert result["best"]["replaced_0.4"] is not None
    (folder,) = (tmp_path / "searches").iterdir()
    assert read_json(folder / RESULT_FILE) == json.loads(json.dumps(result))
    again = run_here(chosen, tmp_path)  # everything is known: nothing is trained
    for key in ("trials", "states", "best", "baseline", "comparisons", "front"):
        assert again[key] == result[key]

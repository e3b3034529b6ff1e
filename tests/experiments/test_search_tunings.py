"""What a search tunes while it goes on: which trials, what their latency is, and that none is tuned twice or lost.

Trainings are stood in for; tunings too, but for one search whose tunings are real jobs on a real board.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from known_trainings import TRAINING, Known, accuracy, settings

from syno_lab import operators
from syno_lab.errors import JobError, SearchError, SpecError, TrackerError, TuningError
from syno_lab.experiments import (
    RESULT_FILE,
    STATUS_FILE,
    Driver,
    JobRunner,
    LocalRunner,
    Running,
    SearchSettings,
    Space,
    Stopped,
    TuningChoice,
    Tunings,
    read_json,
    run_search,
)
from syno_lab.experiments.tunings import Layer, baseline_layers, layers_of
from syno_lab.experiments.watching import Board
from syno_lab.ir.operator import Operator
from syno_lab.jobs import Lab
from syno_lab.models.slot import costs
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.store import SearchLog, Store
from syno_lab.systems import builders
from syno_lab.trial import TrialRequest, survey_of
from syno_lab.trial.backbone import sites_of
from syno_lab.tuning import TuningResult, TuningTask, local_board

TARGET = "local:1"
#: With accuracies that are spread evenly this tunes about half of the trials.
BASELINE, WITHIN = 0.9, 40.0


def layer_ms(operator: str, binding: Mapping[str, int]) -> float:
    """A latency that depends on the operator and on every size."""
    return sum(size * (place + 1) for place, size in enumerate(sorted(binding.values()))) / (1 + len(operator))


class KnownTunings:
    """A runner of tunings that knows what comes out, at once or at :meth:`end`."""

    def __init__(self, *, at_once: bool = True, failing: tuple[int, ...] = ()) -> None:
        self.at_once, self.failing = at_once, failing
        self.begun: dict[str, tuple[Mapping[str, Any], Future[dict[str, Any]]]] = {}

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        assert name not in self.begun, f"{name} is begun twice"
        self.begun[name] = (params, Future())
        if self.at_once:
            self.end(name)
        return Running(self.begun[name][1], 7)

    def find(self, name: str, params: Mapping[str, Any]) -> Running | None:
        return Running(self.begun[name][1], 7) if name in self.begun else None

    def end(self, name: str) -> None:
        params, future = self.begun[name]
        tasks = params["tasks"]
        done = [
            {"label": task["label"], "latency_ms": layer_ms(task["operator"], task["binding"]), "trials": 3}
            | {"preset": "quick", "conditions": "threads=1", "tvm_version": "0"}
            for task in tasks
        ]
        failed = {}
        if name in [f"search: trial {number} on {TARGET}" for number in self.failing]:
            failed = {done.pop()["label"]: "every candidate failed"}
        future.set_result({"results": done, "failed": failed})


class KnownNetworks(KnownTunings):
    """The same for whole networks; a network's latency depends on its operator. Says when two are tuned at once."""

    def submit(self, name: str, params: Mapping[str, Any]) -> Running:
        assert all(future.done() for _, future in self.begun.values()), "two networks at once"
        return super().submit(name, params)

    def end(self, name: str) -> None:
        params, future = self.begun[name]
        number = name.removeprefix("search: trial ").partition(" ")[0]
        if number.isdecimal() and int(number) in self.failing:
            future.set_exception(TuningError("none of 3 functions was tuned"))
            return
        assert "tasks" not in params
        request = TrialRequest.from_dict(params["network"])
        known = {"of": "whole network", "functions": 3, "trials": 9, "where": "this machine"}
        future.set_result(known | {"latency_ms": network_ms(request.operator)})


def network_ms(operator: str | None) -> float:
    """The latency of the network with an operator: the longer its text, the slower."""
    return 1.0 + len(operator or "") / 1000


def drive(
    folder: Path, known: Known, tuners: Any, within: float = WITHIN, choice: TuningChoice | None = None, **more: Any
) -> tuple[Driver, Tunings]:
    folder.mkdir(exist_ok=True)
    chosen = settings(trials=more.pop("trials", 12))
    with Store.open(folder) as store:
        log = store.search(chosen.name, chosen.identity)
        space = Space(chosen)
        tunings = Tunings(
            choice or TuningChoice(within=within, target=TARGET, of="layers"), chosen.name, BASELINE, space, log, tuners
        )
        driver = Driver(chosen, space, log, known, Board(folder / "board"), tunings=tunings, **more)
        driver.run()
        tunings.look()
        return driver, tunings


def open_log(store: Store) -> SearchLog:
    chosen = settings()
    return store.search(chosen.name, chosen.identity)


# -- which, and how much ---------------------------------------------------------------------------------------------


def test_trials_within_the_margin_are_tuned_and_their_latency_is_the_sum_over_the_replaced_layers(
    tmp_path: Path,
) -> None:
    tuners = KnownTunings()
    _, tunings = drive(tmp_path, Known(), tuners)
    sites = sites_of(settings().training)
    with Store.open(tmp_path) as store:
        log = open_log(store)
        latencies, trials = log.latencies(TARGET), log.trials()
        front = log.front(("accuracy", "latency_ms"), TARGET)
    wanted = {t.number for t in trials if accuracy(t.operator) >= BASELINE - WITHIN / 100}
    assert set(latencies) == wanted
    assert 2 < len(wanted) < len(trials)  # the margin chooses
    for number, found in latencies.items():
        operator = Operator.from_json(trials[number].operator)
        each = zip(sites, costs(operator, sites), strict=True)
        wanted_ms = sum(site.calls * layer_ms(trials[number].operator, place.binding or {}) for site, place in each)
        assert found["latency_ms"] == pytest.approx(wanted_ms)
        assert found["of"] == "replaced layers"
        assert found["job"] == 7
        assert sum(layer["calls"] for layer in found["layers"]) == len(sites) > len(found["layers"])
    assert [point["number"] for point in tunings.front()] == [trial.number for trial in front]
    assert len(tuners.begun) == len(wanted) + 1


@pytest.mark.parametrize(
    ("backbone", "options", "data"),
    [
        ("resnet20", {}, "digits"),
        ("gpt_tiny", {"context": 16}, "text"),
        ("resnet18", {"strides": "shape"}, "digits"),
        ("resnext29_2x64d", {"strides": "shape"}, "digits"),
    ],
)
def test_the_baseline_s_layers_do_its_work(backbone: str, options: dict[str, Any], data: str, tmp_path: Path) -> None:
    """As operators they have the FLOPs that the layers themselves have, strides and positions among them."""
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be " * 200)
    request = TrialRequest(backbone=backbone, options=options, data=str(text) if data == "text" else data)
    sites = sites_of(request)
    layers = baseline_layers(sites)
    flops = 0
    for layer in layers:
        operator = Operator.from_json(layer.operator)
        flops += layer.calls * operator.flops(operator.complete_binding(layer.binding))
    assert flops == sum(site.flops for site in sites) <= survey_of(request).flops
    assert len({layer.name for layer in layers}) == len(layers)


def test_layers_that_are_no_operator_of_ours_are_named() -> None:
    sites = sites_of(settings().training)
    with pytest.raises(SpecError, match=r"^conv1: expected a square convolution without dilation whose stride divides"):
        baseline_layers([replace(sites[0], name="conv1", dilation=(2, 2))])


def test_a_task_names_its_builder() -> None:
    usual = Layer("conv1", operators.conv2d().to_json(), {"H": 8}, 2)
    builder = "syno_lab.codegen.tvm_target:lower_json"
    assert usual.task == {"label": "conv1", "operator": usual.operator, "binding": {"H": 8}, "builder": builder}
    other = replace(usual, operator=nas_pte_1().to_json())
    assert other.task["builder"] == "syno_lab.nas_pte.tvm:lower_json"
    for layer in (usual, other):
        assert TuningTask(**layer.task).builder in builders()


def test_an_operator_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SpecError, match="expected an operator from"):
        layers_of(operators.pixel_shuffle(), sites_of(settings().training), "pool")


# -- whole networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_whole_networks_are_tuned_one_after_another(tmp_path: Path, at_once: bool) -> None:
    tuners = KnownNetworks(at_once=at_once, failing=(3,))
    choice = TuningChoice(within=100.0, target=TARGET)
    driver, tunings = drive(tmp_path, Known(), tuners, choice=choice, trials=6)
    if not at_once:
        assert len(tuners.begun) == 1, "the others wait for the baseline"
        with Store.open(tmp_path) as store:
            tunings._log = open_log(store)
            while waiting := [name for name, (_, future) in tuners.begun.items() if not future.done()]:
                for name in waiting:
                    tuners.end(name)
                tunings.look()
    assert driver.standing.total == 6
    assert tunings.failed == {3: "none of 3 functions was tuned"}
    assert tunings.baseline_ms == network_ms(None)
    with Store.open(tmp_path) as store:
        log = open_log(store)
        found, sums = log.latencies("network@" + TARGET), log.latencies(TARGET)
        texts = [trial.operator for trial in log.trials()]
    assert sums == {}, "sums of layers are another measure"
    assert {number: one["latency_ms"] for number, one in found.items()} == {
        number: network_ms(text) for number, text in enumerate(texts) if number != 3
    }
    told = tunings.said()
    assert (told.of, told.stored_as, told.scheduler) == ("whole network", "network@" + TARGET, "gradient")
    assert told.baseline_facts["where"] == "this machine"
    assert "least whole network" in tunings.line()


def along_the_front(folder: Path, known: Known, tuners: KnownNetworks, **more: Any) -> tuple[Driver, list[Any]]:
    """A search whose objective is the latency, and what the search was told, in order."""
    choice = TuningChoice(within=None, target=TARGET)
    chosen = settings(trials=6, method="pareto", objectives=("params", "latency"), tuning=choice)
    folder.mkdir(exist_ok=True)
    with Store.open(folder) as store:
        log = store.search(chosen.name, chosen.identity)
        space = Space(chosen)
        tunings = Tunings(choice, chosen.name, None, space, log, tuners)
        driver = Driver(chosen, space, log, known, Board(folder / "board"), tunings=tunings, **more)
        driver.run()
        return driver, log.trials()


def test_the_latency_of_the_network_is_an_objective(tmp_path: Path) -> None:
    known = Known(endings={2: {"state": "diverged", "accuracy": None}})
    driver, trials = along_the_front(tmp_path / "whole", known, KnownNetworks(failing=(4,)))
    for trial in trials:
        has_latency = trial.number not in (2, 4)  # one did not train, of one the tuning failed
        assert (trial.outcome or {}).get("network_ms") == (network_ms(trial.operator) if has_latency else None)
    members = {one.operator.to_json(): one.measures for one in driver.search.members}
    for trial in trials:
        wanted = network_ms(trial.operator) if trial.number not in (2, 4) else None
        assert members[trial.operator].get("latency") == wanted
        assert "latency-pytorch" not in members[trial.operator]
    # Killed between a training and its tuning, it goes on with the tuning, and trains nothing twice.
    known, tuners = Known(), KnownNetworks(at_once=False)
    with pytest.raises(Stopped):
        along_the_front(tmp_path / "killed", known, tuners, should_stop=lambda: len(known.begun) > 0)
    tuners.end("search: the baseline on " + TARGET)
    tuners.at_once = True
    _, trials = along_the_front(tmp_path / "killed", known, tuners)
    assert [(one.outcome or {})["network_ms"] for one in trials] == [network_ms(one.operator) for one in trials]
    assert len(known.begun) == len(trials) == len(tuners.begun) - 1 == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tuning": None}, "objectives: expected a tuning for latency, the network's time in TVM"),
        ({"tuning": TuningChoice(within=1.0)}, "to be tuned for latency, found a margin of accuracy"),
        ({"tuning": TuningChoice(within=None, of="layers")}, "to be tuned for latency, found sums of layers"),
        ({"objectives": ("flops",)}, "tuning: expected a margin, or the objective latency, found neither"),
    ],
)
def test_what_the_objective_latency_needs(changes: dict[str, Any], message: str) -> None:
    given = {"method": "pareto", "objectives": ("latency",), "seeds": (0,), "tuning": TuningChoice(within=None)}
    with pytest.raises(SearchError, match=message):
        settings(**{**given, **changes})
    kept = settings(**given)
    assert SearchSettings.from_dict(msgspec.to_builtins(kept)) == kept
    other = settings(**given | {"tuning": TuningChoice(within=None, target="local:1")})
    assert other.identity != kept.identity, "the search's course follows from where it is measured"


# -- while the search goes on ----------------------------------------------------------------------------------------


def test_a_tuning_that_fails_leaves_its_reason_and_the_search_goes_on(tmp_path: Path) -> None:
    _, whole = drive(tmp_path / "whole", Known(), KnownTunings())
    bad = whole.front()[0]["number"]
    driver, tunings = drive(tmp_path / "failing", Known(), KnownTunings(failing=(bad,)))
    assert driver.standing.total == 12
    assert tunings.failed.keys() == {bad}
    assert tunings.failed[bad].endswith(": every candidate failed")
    assert tunings.latency_ms(bad) is None
    assert bad not in [point["number"] for point in tunings.front()]
    assert f"trial {bad} was not tuned: " in tunings.line()
    shown = read_json(tmp_path / "failing" / "board" / STATUS_FILE)
    assert shown is not None
    assert shown["tuning"]["failed"] == {str(bad): tunings.failed[bad]}


def test_a_tuning_whose_job_failed_or_was_cancelled(tmp_path: Path) -> None:
    class Broken(KnownTunings):
        def end(self, name: str) -> None:
            future = self.begun[name][1]
            if "baseline" in name:
                future.set_exception(JobError("job 3 (tune) is poisoned: no device"))
            else:
                future.cancel()
                future.set_running_or_notify_cancel()

    driver, tunings = drive(tmp_path, Known(), Broken())
    assert driver.standing.total == 12
    assert tunings.baseline_reason == "job 3 (tune) is poisoned: no device"
    assert set(tunings.failed.values()) == {"its job was cancelled"}
    assert tunings.front() == []


def test_a_search_does_not_wait_for_its_tunings_and_finish_does(tmp_path: Path) -> None:
    tuners = KnownTunings(at_once=False)
    driver, tunings = drive(tmp_path, Known(), tuners)
    assert driver.standing.total == 12
    assert len(tunings.said().under_way) == len(tuners.begun) - 1 > 2
    assert not tunings.finish(lambda fraction, line: None, lambda: True)
    for name in tuners.begun:
        tuners.end(name)
    with Store.open(tmp_path) as store:  # the driver's own is closed
        tunings._log = open_log(store)
        assert tunings.finish(lambda fraction, line: None, lambda: False)
        assert len(open_log(store).latencies(TARGET)) == len(tuners.begun) - 1


def test_a_killed_search_tunes_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    _, whole = drive(tmp_path / "whole", Known(), KnownTunings())
    known, tuners = Known(), KnownTunings(at_once=False)
    for killed_after in (4, 8):
        with pytest.raises(Stopped):
            drive(tmp_path / "killed", known, tuners, should_stop=lambda most=killed_after: len(known.begun) >= most)
        for name, (_, future) in tuners.begun.items():  # they end while nobody looks
            if not future.done():
                tuners.end(name)
    tuners.at_once = True
    _, tunings = drive(tmp_path / "killed", known, tuners)
    assert tunings.front() == whole.front()
    assert tunings.said() == whole.said()
    before = len(tuners.begun)
    again, again_tunings = drive(tmp_path / "killed", known, tuners)  # all is known: nothing is asked for
    assert (len(tuners.begun), again_tunings.front()) == (before, whole.front())
    assert again.standing.total == 12


def test_a_search_that_is_gone_on_with_may_be_tuned_anew(tmp_path: Path) -> None:
    known, tuners = Known(), KnownTunings()
    _, few = drive(tmp_path, known, tuners, within=5.0)
    _, more = drive(tmp_path, known, tuners, within=100.0)
    assert few.said().tuned < more.said().tuned == 12
    other = TuningChoice(within=100.0, target="jetson-orin-nano-cpu", tracker="127.0.0.1:9190", trials=5, of="layers")
    _, there = drive(tmp_path, known, tuners, choice=other)
    assert there.said().tuned == 12
    params = tuners.begun["search: trial 0 on jetson-orin-nano-cpu"][0]
    assert (params["tracker"], params["key"], params["trials"]) == ("127.0.0.1:9190", "jetson-orin-nano-cpu", 5)


def test_the_result_of_a_search_that_tunes(tmp_path: Path) -> None:
    training = msgspec.structs.replace(TRAINING, train_images=64, test_images=50, epochs=1)
    chosen = settings(
        training=training, trials=2, seeds=(0,), tuning=TuningChoice(within=100.0, target=TARGET, of="layers")
    )
    tuners = KnownTunings(failing=(1,))

    class TunesByKnowing(LocalRunner):
        """Trainings for real, and tunings whose outcomes are known."""

        def submit(self, name: str, work: Any) -> Running:
            return super().submit(name, work) if isinstance(work, TrialRequest) else tuners.submit(name, work)

    with Store.open(tmp_path) as store, TunesByKnowing(tmp_path / "trainings") as runner:
        result = run_search(chosen, store, runner, folder=tmp_path / "board")
        log = store.search(chosen.name, chosen.identity)
        latency = log.latencies(TARGET)[0]["latency_ms"]
    assert result["tuning"]["tuned"] == 1
    assert result["tuning"]["least_accuracy"] == pytest.approx(result["baseline"]["accuracy"] - 1)
    assert [trial["latency_ms"] for trial in result["recorded"]] == [latency, None]
    assert [(point["number"], point["latency_ms"]) for point in result["tuning"]["front"]] == [(0, latency)]
    assert list(result["tuning"]["failed"]) == ["1"]
    assert result["tuning"]["baseline_ms"] > 0
    assert read_json(tmp_path / "board" / RESULT_FILE) == result
    shown = read_json(tmp_path / "board" / STATUS_FILE)
    assert shown is not None
    assert (shown["phase"], shown["tuning"]) == ("done", result["tuning"])


# -- for real --------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_tunings_are_jobs_of_the_lab(tmp_path: Path) -> None:
    with local_board("bench", threads=1) as board, Lab.open(tmp_path / "lab", slots=1) as lab:
        options = {"width": 4, "blocks": 1, "match": ["stage1*"]}  # one size, twice: tuning takes its time
        training = msgspec.structs.replace(TRAINING, options=options)
        chosen = settings(training=training, trials=1, max_replaced_ratio=5.0)
        space = Space(chosen)
        log = lab.store.search(chosen.name, chosen.identity)
        choice = TuningChoice(
            within=100.0,
            target=TARGET,
            tracker=f"{board.host}:{board.port}",
            key=board.key,
            trials=1,
            of="layers",
        )
        tunings = Tunings(choice, chosen.name, BASELINE, space, log, JobRunner(lab))
        Driver(chosen, space, log, Known(), Board(tmp_path / "board"), tunings=tunings).run()
        assert tunings.finish(lambda fraction, line: None, lambda: False)
        jobs = {job.name: job for job in lab.jobs(kind="tune")}
        assert jobs.keys() == {f"search: {what} on {TARGET}" for what in ("the baseline", "trial 0")}
        assert all(job.state == "finished" for job in jobs.values()), [job.reason for job in jobs.values()]
        found = log.latencies(TARGET)[0]
        job = jobs[f"search: trial 0 on {TARGET}"]
        assert job.result is not None
        measured = {one.label: one for one in map(TuningResult.from_dict, job.result["results"])}
        calls = {layer["name"]: layer["calls"] for layer in found["layers"]}
        assert found["latency_ms"] == pytest.approx(sum(calls[name] * one.latency_ms for name, one in measured.items()))
        assert [layer["calls"] for layer in found["layers"]] == [2]
        assert all(one.verified for one in measured.values())
        assert found["job"] == job.id
        assert [trial.number for trial in log.front(("accuracy", "latency_ms"), TARGET)] == [0]
        assert tunings.baseline_ms is not None
        assert tunings.baseline_ms > 0
        # Another process finds them done; what was cancelled is tuned again.
        again = Tunings(choice, chosen.name, BASELINE, space, log, JobRunner(lab))
        again.finish(lambda fraction, line: None, lambda: False)
        assert again.baseline_ms == tunings.baseline_ms
        assert len(lab.jobs(kind="tune")) == 2
        assert JobRunner(lab).find(job.name, {**job.params, "trials": 2}) is None
        lab.shutdown()


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"within": -1.0}, SearchError, "tune within: expected percentage points from 0 to 100, found -1.0"),
        ({"within": float("nan")}, SearchError, "tune within: expected percentage points"),
        ({"trials": 0}, SearchError, "tuning trials: expected 1 or more, found 0"),
        ({"key": "board"}, SearchError, "expected a tracker beside the key 'board', found none"),
        ({"target": "no such thing"}, TuningError, "expected a target among local"),
        ({"preset": "fast"}, TuningError, "expected a preset among quick, normal, thorough, found 'fast'"),
        ({"tracker": "here"}, TrackerError, "expected the tracker's address as host:port, found 'here'"),
    ],
)
def test_choices_that_make_no_sense(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TuningChoice(**{"within": 1.0, **changes})


def test_tuning_needs_a_baseline() -> None:
    choice = TuningChoice(within=1.0)
    with pytest.raises(SearchError, match="tuning: expected seeds to train the baseline on, found none"):
        settings(tuning=choice)
    chosen = settings(tuning=choice, seeds=(0,))
    assert SearchSettings.from_dict(msgspec.to_builtins(chosen)) == chosen
    assert chosen.identity == settings(seeds=(0,)).identity  # what is tuned does not change a search's course

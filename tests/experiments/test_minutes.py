"""A search keeps to its minutes: what it takes to time a training, and trainings that are slower than planned."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from clocked_trainings import InTurn, Known, chosen
from torch import nn
from torch.utils.data import TensorDataset

from syno_lab.errors import SearchError
from syno_lab.experiments.in_rungs import run_in_rungs
from syno_lab.experiments.own import with_data, with_layers, with_model
from syno_lab.experiments.rung_worker import TIMING_STEPS, LocalWorkers, request_for
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE, FINAL, TIMING, RungTraining
from syno_lab.training.limits import projected_s
from syno_lab.trial import TrialOutcome, TrialRequest, run_trial


def search(folder: Path, known: Known, asked: Any) -> dict[str, Any]:
    with Store.open(folder) as store:
        board = folder / "board"
        return run_in_rungs(
            asked,
            store,
            lambda log: LocalWorkers(asked, log, board / "rungs", train=known),
            folder=board,
            clock=known.clock,
        )


class SlowToTime(Known):
    """Trainings whose timing gives up, as each batch takes 3 s."""

    def __call__(self, request: TrialRequest, *, folder: Path, **more: Any) -> TrialOutcome:
        if request.operator is None and request.gives_up:
            assert request.time_limit_s == 12  # a tenth of two minutes
            reason = f"projected {3 * (request.steps or 0)} s of 12 s allowed, after 4 of {request.steps} batches"
            return TrialOutcome(state="timeout", reason=reason, work_s=12.0)
        return super().__call__(request, folder=folder, **more)


def test_a_timing_that_takes_too_long_says_the_minutes_that_are_needed(tmp_path: Path) -> None:
    known = SlowToTime()
    with pytest.raises(SearchError, match=r"^minutes: expected at least [\d.]+, found 2: the finals take") as refused:
        search(tmp_path, known, chosen())
    assert "\n" not in str(refused.value)
    # 46 batches of 3 s, and the tests of two epochs; two seeds of the baseline, and of two operators 1.4 times as slow.
    needed = float(str(refused.value).split("at least ")[1].split(",")[0])
    assert 1 < needed / (2 * (1 + 2 * 1.4) * 46 * 3 / 0.6 / 2 / 60) < 1.2
    assert not any(request.operator for request in known.requests)


class SlowFinals(InTurn):
    """Finals of operators that take more than twice as long as is planned."""

    def __call__(self, request: TrialRequest, *, folder: Path, **more: Any) -> TrialOutcome:
        outcome = super().__call__(request, folder=folder, **more)
        is_slow = request.keep_predictions and request.operator is not None
        return msgspec.structs.replace(outcome, work_s=42.0) if is_slow else outcome


def test_finals_that_are_slower_than_planned_end_with_the_minutes_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syno_lab.experiments.plan.DRAWS_SHARE", 0.005)
    asked = chosen(minutes=2.5, seeds=(100, 101, 102), trials=8)
    with Store.open(tmp_path) as store:
        log = store.search(asked.name, asked.identity)
        workers = SlowFinals(asked, log)
        how: dict[str, Any] = {"folder": tmp_path / "board", "clock": lambda: workers.now, "sleep": workers.sleep}
        found = run_in_rungs(asked, store, lambda _: workers, **how)
        rows = log.rungs.trainings(FINAL)
        open_ = [row for row in rows if not row.is_ended]
        assert open_
        assert found["time"]["wall_s"] <= 60 * 2.5 * 1.05
        assert found["end"] == f"its minutes were over before {len(open_)} of {len(rows)} trainings of the finals"
        assert found["comparisons"], found["not_compared"]
        for one in found["comparisons"].values():
            assert one["seeds"] == [100, 101, 102][: len(one["seeds"])]
        # More minutes end them, also too few for other operators: all finalists then have all seeds.
        little = run_in_rungs(msgspec.structs.replace(asked, minutes=3.5), store, lambda _: workers, **how)
        assert all(row.is_ended for row in log.rungs.trainings(FINAL)), little["end"]
        more = run_in_rungs(msgspec.structs.replace(asked, minutes=9.0), store, lambda _: workers, **how)
    assert {tuple(one["seeds"]) for one in more["comparisons"].values()} == {(100, 101, 102)}
    assert more["time"]["wall_s"] <= 60 * 9 * 1.05


def test_rungs_of_own_networks_are_timed_by_their_batches_alone(tmp_path: Path) -> None:
    """A training of some batches tells how long 40 and 156 of them take; it gives up where the limit is too short."""
    pairs = TensorDataset(torch.randn(64, 16), torch.arange(64) % 4)
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    training, _ = with_layers(
        with_data(with_model(TrialRequest(backbone="", batch_size=8, threads=1), net), (pairs,) * 2)
    )
    asked = chosen(training=training, minutes=2.0)
    request = request_for(asked, baseline_on(TIMING), None, None)
    assert (request.steps, request.time_limit_s, request.gives_up) == (TIMING_STEPS, 12, True)
    short = run_trial(msgspec.structs.replace(request, time_limit_s=1e-9), folder=tmp_path / "short")
    assert short.state == "timeout"
    rung = request_for(asked, baseline_on("156 steps"), None, None)
    assert (rung.steps, rung.time_limit_s) == (156, None)
    assert math.isclose(projected_s("projected 33.4 s of 24 s allowed, after 4 of 20 batches") or 0, 33.4)
    assert projected_s("its time of 24 s was over") is None


def baseline_on(rung: str) -> RungTraining:
    return RungTraining(BASELINE, rung, 0, 0, "taken", None, None, {})

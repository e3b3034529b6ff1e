"""The times of networks, measured in turns: a network that waits is slower, and every network runs in each round."""

from __future__ import annotations

import time

import msgspec
import torch
from torch import Tensor, nn

from syno_lab.models.registry import offer
from syno_lab.store.latencies import TIMES, latency_title
from syno_lab.store.outcomes import Comparison, Interval
from syno_lab.store.verdicts import sentence, slower, speed_of
from syno_lab.trial import TrialRequest
from syno_lab.trial.backbone import build
from syno_lab.trial.meter import FEWEST_ROUNDS, MOST_ROUNDS, times_in_turns

CALLS: list[tuple[str, bool, int]] = []


class Waits(nn.Module):
    """A small network that says when it runs, and waits before a forward pass of one example."""

    def __init__(self, name: str, wait_s: float, norm: bool = False) -> None:
        super().__init__()
        self.name, self.wait_s = name, wait_s
        self.layer = nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(10) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        CALLS.append((self.name, self.training, len(x)))
        if not self.training and len(x) == 1:
            time.sleep(self.wait_s)
        out: Tensor = self.norm(self.layer(x.flatten(1)))
        return out


def request(name: str, wait_s: float, *, norm: bool = False) -> TrialRequest:
    offer(f"own:{name}", lambda: Waits(name, wait_s, norm))
    options = {"kinds": ["linear"]}
    # Two threads: the clock of the wall.
    made = TrialRequest(backbone=f"own:{name}", data="digits", options=options, batch_size=7, threads=2)
    build(made)  # counts the layers, which runs the network
    CALLS.clear()
    return made


def test_networks_run_in_turns_and_one_that_waits_is_slower() -> None:
    threads = torch.get_num_threads()
    times = times_in_turns({"base": request("base", 0.0), "slow": request("slow", 0.6)}, 0.0)
    assert torch.get_num_threads() == threads
    assert [*times] == ["base", "slow"]
    for by_name in times.values():
        assert list(by_name) == list(TIMES)
        assert all(value > 0 for value in by_name.values())
    base, slow = times["base"], times["slow"]
    assert slow["forward"] > 600
    assert slower(slow, base, *TIMES)
    assert slower(slow, base, "forward")
    assert not slower(base, slow, "forward")
    assert not slower(base, base, *TIMES)
    assert speed_of(slow, base).startswith("slower: ")
    assert "x in a forward pass of one example, " in speed_of(slow, base)
    assert speed_of(base, base) == (
        "not slower: 1.00x in a forward pass of one example, 1.00x in a training step of a batch"
    )
    assert speed_of({}, base) == speed_of(base, {}) == ""
    # Each network runs each kind once before the rounds, and once in each round: no network runs again before all have.
    kinds = [(False, 1), (False, 7), (True, 1), (True, 7)]
    assert sorted(CALLS[:8]) == sorted((name, *kind) for name in ("base", "slow") for kind in kinds)
    rounds = [CALLS[start : start + 8] for start in range(8, len(CALLS), 8)]
    assert len(rounds) == FEWEST_ROUNDS  # as the limit is 0 s
    assert all(sorted(one) == sorted(CALLS[:8]) for one in rounds)


def test_times_have_a_largest_number_of_rounds() -> None:
    times_in_turns({"base": request("base", 0.0)}, 60.0)
    assert len(CALLS) == 4 * (1 + MOST_ROUNDS)


def test_a_network_that_cannot_train_on_one_example_has_no_such_time() -> None:
    times = times_in_turns({"norm": request("norm", 0.0, norm=True)}, 0.0)["norm"]
    assert list(times) == [name for name in TIMES if name != "step"]


def test_a_verdict_says_the_times() -> None:
    by = Interval(difference=-0.01, low=-0.03, high=0.01)
    plain = Comparison(interval=by, over_seeds=by, seeds=(1, 2), within=2.0, examples=100, verdict="undecided")
    assert "slower" not in sentence(plain)
    base = {"forward": 2.0, "forward-batch": 20.0, "step": 6.0, "step-batch": 60.0}
    own = {"forward": 3.0, "forward-batch": 10.0, "step": 3.0, "step-batch": 30.0}
    timed = msgspec.structs.replace(plain, times=own, baseline_times=base)
    assert sentence(timed) == (
        f"{sentence(plain)}; slower: 1.50x in a forward pass of one example, 0.50x in a training step of a batch"
    )
    assert Comparison.from_dict(timed.to_dict()) == timed
    assert len({latency_title(name) for name in TIMES}) == len(TIMES)

"""Finals: seeds of their own, all training images, and one machine."""

from concurrent.futures import Future

import msgspec
import pytest
from known_trainings import settings

from syno_lab.errors import SearchError
from syno_lab.experiments import Running
from syno_lab.experiments.finals import baselines_beside, train_on_seeds
from syno_lab.trial import TrialOutcome, TrialRequest


class Here:
    """A runner on a machine; every training finishes."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.begun: dict[str, TrialRequest] = {}

    def find(self, name: str, request: TrialRequest) -> Running | None:
        return None

    def submit(self, name: str, request: TrialRequest) -> Running:
        self.begun[name] = request
        future: Future[dict] = Future()
        future.set_result({"state": "finished", "accuracy": 0.5, "machine": self.machine, "seed": request.seed})
        return Running(future)


def silent(fraction: float, message: str) -> None:
    pass


def test_finals_train_on_all_images_and_are_measured_on_the_test_images():
    chosen = settings(seeds=(1000, 1001))
    training = msgspec.structs.replace(chosen.training, holdout=0.2, stopping={"rule": "canvas"}, rivals=[[0.1]])
    chosen = msgspec.structs.replace(chosen, training=training)
    here = Here("A")
    found = train_on_seeds(chosen, "the best", {"it": None}, here, silent, lambda: False)
    assert [outcome.seed for outcome in found["it"]] == [1000, 1001]
    for request in here.begun.values():
        assert (request.holdout, request.stopping, request.rivals, request.keep_predictions) == (None, None, [], True)


def test_a_baseline_from_another_machine_is_trained_again():
    chosen = settings(seeds=(0, 1))
    here = Here("B")

    def trained(*machines: str) -> list[TrialOutcome]:
        return [TrialOutcome(state="finished", machine=machine) for machine in machines]

    said: list[str] = []

    def beside(baselines, operators):
        return baselines_beside(
            chosen, baselines, operators, here, lambda _, message: said.append(message), lambda: False
        )

    same = trained("B", "B")
    assert beside(same, {"it": trained("B", "B")}) is same
    unknown = trained("", "")
    assert beside(unknown, {"it": trained("B", "B")}) is unknown
    assert beside(same, {}) is same
    assert not here.begun
    assert [one.machine for one in beside(trained("A", "A"), {"it": trained("B", "B")})] == ["B", "B"]
    assert "the baseline was trained on another machine, so it is trained again on B" in said
    assert list(here.begun) == ["search: baseline on B, seed 0", "search: baseline on B, seed 1"]
    with pytest.raises(SearchError, match="found some on A and some on B"):
        beside(same, {"it": trained("A", "B")})

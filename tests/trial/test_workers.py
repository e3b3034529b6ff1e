"""Worker processes for trials: the outcomes of the same process, and a crash or a hang that the rest survive."""

import os
import signal
import threading
import time

import msgspec
import pytest

from syno_lab import operators
from syno_lab.jobs import JobFailed, JobStopped
from syno_lab.trial import TrialRequest, TrialWorker, TrialWorkers, run_trial, run_trials
from syno_lab.trial.job import run_several


class Context:
    """What a trial's job asks of its context."""

    def __init__(self, folder, *, stops=False) -> None:
        self.folder, self._stops = folder, stops

    def report(self, fraction, message="") -> None:
        pass

    def log(self, line) -> None:
        pass

    def should_stop(self) -> bool:
        return self._stops


TIMES = ("wall_s", "cpu_s", "work_s", "peak_mib", "resumed")


def asked(**changes) -> TrialRequest:
    values = {
        "backbone": "resnet20",
        "options": {"width": 4, "blocks": 1},
        "train_images": 64,
        "test_images": 32,
        "steps": 2,
        "threads": 1,
    }
    return TrialRequest(**(values | changes))


def plain(outcome):
    content = {key: value for key, value in outcome.to_dict().items() if key not in TIMES}
    content["curve"] = [{key: value for key, value in row.items() if key != "seconds"} for row in content["curve"]]
    return content


def test_one_process_gives_the_outcomes_that_separate_ones_give(tmp_path):
    requests = [
        asked(),
        asked(operator=operators.conv1x1().to_json(), seed=3),
        asked(data=str(tmp_path / "nothing")),
        asked(holdout=0.25, channels_last=True),
        asked(),
    ]
    said = []
    found = list(run_trials(requests, folder=tmp_path / "in-one", report=lambda *words: said.append(words)))
    assert [one.state for one in found] == ["finished", "finished", "failed", "finished", "finished"]
    for number, (request, outcome) in enumerate(zip(requests, found, strict=True)):
        assert plain(run_trial(request, folder=tmp_path / f"alone-{number}")) == plain(outcome)
    assert said[-1] == (1.0, "trial 5 of 5")
    # A later call finds them, to the second.
    again = list(run_trials(requests[:2], folder=tmp_path / "in-one"))
    assert again == found[:2]


def test_a_crash_is_an_outcome_and_the_next_trial_has_a_new_process(tmp_path):
    with TrialWorker(tmp_path / "log") as worker:
        assert worker.run(asked(), folder=tmp_path / "0").state == "finished"
        pid = worker._process.pid

        def strike() -> None:
            # The request is on its way once the folder is there.
            while not (tmp_path / "1").exists():
                time.sleep(0.001)
            os.kill(pid, signal.SIGSEGV)

        thread = threading.Thread(target=strike)
        thread.start()
        crashed = worker.run(asked(steps=100_000), folder=tmp_path / "1")
        thread.join()
        assert (crashed.state, crashed.reason) == ("failed", "its process was killed by SIGSEGV")
        assert worker.run(asked(), folder=tmp_path / "2").state == "finished"


def test_a_trial_that_does_not_end_is_ended(tmp_path):
    with TrialWorker(tmp_path / "log") as worker:
        worker.run(asked(), folder=tmp_path / "0")
        late = worker.run(asked(steps=1_000_000), folder=tmp_path / "1", deadline_s=0.5)
        assert (late.state, late.reason) == ("timeout", "no answer from its process in 0.5 s, so it was ended")
        stops = iter([False, False, True])
        stopped = worker.run(asked(steps=1_000_000), folder=tmp_path / "2", should_stop=lambda: next(stops))
        assert stopped.state == "interrupted"
        assert worker.run(asked(), folder=tmp_path / "3", should_stop=lambda: True).reason == "before it began"


def test_two_workers_take_trials_in_turn(tmp_path):
    from syno_lab.experiments import LocalEvaluators

    with (
        TrialWorkers(2, tmp_path / "log") as pool,
        LocalEvaluators(tmp_path / "trainings", 2, train=pool.run) as evaluators,
    ):
        running = [evaluators.submit(f"search: trial {seed}", asked(seed=seed)) for seed in range(3)]
        outcomes = [one.future.result() for one in running]
        assert evaluators.find("search: trial 1").future.result()["accuracy"] == outcomes[1]["accuracy"]
    assert [one["state"] for one in outcomes] == ["finished"] * 3
    alone = run_trial(asked(seed=2), folder=tmp_path / "alone")
    assert alone.loss == outcomes[2]["curve"][-1]["test_loss"]


def test_several_trials_are_one_job(tmp_path):
    requests = [asked(seed=seed).to_dict() for seed in (0, 1)]
    result = run_several({"requests": requests}, Context(tmp_path))
    assert [one["seed"] for one in result["outcomes"]] == [0, 1]
    for params in ({}, {"requests": []}, {"requests": [{"backbone": 3}]}):
        with pytest.raises(JobFailed, match="expected a"):
            run_several(params, Context(tmp_path))
    with pytest.raises(JobStopped, match="stopped on request"):
        run_several({"requests": [msgspec.to_builtins(asked(seed=9))]}, Context(tmp_path, stops=True))

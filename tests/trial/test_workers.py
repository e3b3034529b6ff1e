"""Worker processes for trials: the outcomes of the same process, and a crash or a hang that the rest survive."""

import os
import signal
import threading
import time
from functools import partial

import msgspec
import pytest
from known_trainings import TRAINING, settings
from small_trials import small_trial

from syno_lab import operators
from syno_lab.errors import TrainingError
from syno_lab.experiments import LocalRunner
from syno_lab.experiments.rung_worker import work
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE, FINAL, TIMING
from syno_lab.trial import TrialWorker, TrialWorkers, run_trial

TIMES = ("wall_s", "cpu_s", "work_s", "peak_mib", "resumed")


asked = partial(small_trial, train_images=64, steps=2)


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
    with TrialWorker(tmp_path / "log") as worker:
        found = [worker.run(request, folder=tmp_path / str(number)) for number, request in enumerate(requests)]
        os.kill(worker._process.pid, signal.SIGINT)  # Ctrl-C in a terminal reaches it too
        again = worker.run(requests[0], folder=tmp_path / "0")
    assert [one.state for one in found] == ["finished", "finished", "failed", "finished", "finished"]
    for number, (request, outcome) in enumerate(zip(requests, found, strict=True)):
        assert plain(run_trial(request, folder=tmp_path / f"alone-{number}")) == plain(outcome)
    assert again == found[0]  # it finds the outcome, to the second


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


def test_a_process_that_cannot_train_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("syno_lab.trial.workers._prepare", divmod)  # fails, as an import of torch may
    with TrialWorker(tmp_path / "log") as worker:
        for _ in range(2):
            with pytest.raises(TrainingError, match=r"expected a process for trials, found it .*divmod expected 2"):
                worker.run(asked(), folder=tmp_path / "trial")


def test_two_workers_take_trials_in_turn(tmp_path):
    with (
        TrialWorkers(2, tmp_path / "log") as pool,
        LocalRunner(tmp_path / "trainings", 2, train=pool.run) as runner,
    ):
        running = [runner.submit(f"search: trial {seed}", asked(seed=seed)) for seed in range(3)]
        outcomes = [one.future.result() for one in running]
        assert runner.find("search: trial 1", asked(seed=1)).future.result()["accuracy"] == outcomes[1]["accuracy"]
    assert [one["state"] for one in outcomes] == ["finished"] * 3
    alone = run_trial(asked(seed=2), folder=tmp_path / "alone")
    assert alone.loss == outcomes[2]["curve"][-1]["test_loss"]


def test_a_search_in_rungs_goes_on_after_a_crash(tmp_path):
    # The baseline's final training is far too long to end; the one behind it in the queue is short.
    asked = settings(training=msgspec.structs.replace(TRAINING, epochs=1000), rungs=True, minutes=1.0, seeds=(5,))
    with Store.open(tmp_path) as store, TrialWorker(tmp_path / "log") as worker:
        log = store.search(asked.name, asked.identity)
        log.rungs.queue(BASELINE, FINAL, 5, 0)
        log.rungs.queue(BASELINE, TIMING, 0, 1)

        def strike() -> None:
            while not any((tmp_path / "rungs").rglob("checkpoint*")):
                time.sleep(0.001)
            os.kill(worker._process.pid, signal.SIGSEGV)

        thread = threading.Thread(target=strike)
        thread.start()
        trained = work(asked, log, tmp_path / "rungs", "one", train=worker.run, should_stop=lambda: False, idle_s=0.5)
        thread.join()
        crashed, timed = log.rungs.trainings()
    assert trained == 2
    assert (crashed.state, crashed.outcome["reason"]) == ("failed", "its process was killed by SIGSEGV")
    assert timed.state == "finished"

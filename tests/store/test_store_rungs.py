"""The queue of a search in rungs: each training is given out once, recorded once, and survives deaths."""

from __future__ import annotations

import threading
from pathlib import Path

from syno_lab.operators import conv2d
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE, MOST_DEATHS, TAKEN, WAITING


def test_trainings_are_taken_by_priority_and_recorded_once(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        rungs = store.search("s", {}).rungs
        assert rungs.queue(BASELINE, "final", 0, 9)
        assert rungs.queue(0, "first", 0, 1)
        assert rungs.queue(1, "first", 0, 1)
        assert not rungs.queue(1, "first", 0, 0)
        first = rungs.take("a")
        second = rungs.take("b")
        last = rungs.take("b")
        assert [one and one.number for one in (first, second, last)] == [0, 1, BASELINE]
        assert first is not None
        assert rungs.take("c") is None
        rungs.record(first, {"state": "finished", "accuracy": 0.5}, 0.25)
        rungs.record(first, {"state": "failed"}, None)
        (kept,) = [one for one in rungs.trainings("first") if one.number == 0]
        assert (kept.state, kept.measure, kept.outcome["accuracy"]) == ("finished", 0.25, 0.5)
        assert kept.is_ended
        assert rungs.holders() == {"b"}
        states = sorted((one.rung, one.state) for one in rungs.trainings())
        assert states == [("final", "taken"), ("first", "finished"), ("first", "taken")]


def test_what_a_dead_process_had_taken_is_given_out_again_and_fails_in_the_end(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        rungs = store.search("s", {}).rungs
        rungs.queue(3, "first", 0, 1)
        for death in range(MOST_DEATHS):
            one = rungs.take(f"worker {death}")
            assert one is not None
            assert rungs.release(f"worker {death}") == 1
        assert rungs.take("another") is None
        (one,) = rungs.trainings()
        assert one.state == "failed"
        assert one.outcome["reason"] == f"its process died {MOST_DEATHS} times"


def test_a_pause_is_no_death(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        rungs = store.search("s", {}).rungs
        rungs.queue(3, "first", 0, 1)
        for _ in range(3 * MOST_DEATHS):
            one = rungs.take("worker")
            assert one is not None
            rungs.record(one, {"state": "interrupted"}, None)
        assert rungs.trainings()[0].state == "waiting"
        rungs.take("worker")
        rungs.release("worker", is_dead=False)
        assert rungs.trainings()[0].state == "waiting"


def test_no_training_is_given_to_two(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        rungs = store.search("s", {}).rungs
        for number in range(40):
            rungs.queue(number, "first", 0, number % 3)
    taken: list[int] = []

    def work(name: str) -> None:
        with Store.open(tmp_path) as own:
            queue = own.search("s", {}).rungs
            while (one := queue.take(name)) is not None:
                taken.append(one.number)
                queue.record(one, {"state": "finished"}, one.number / 40)

    threads = [threading.Thread(target=work, args=(f"worker {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(40))


def test_searches_have_queues_of_their_own(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        one, other = store.search("one", {}), store.search("other", {})
        one.add("f", conv2d().to_json(), [], 1, 1)
        one.rungs.queue(0, "first", 0, 1)
        assert other.rungs.take("a") is None
        assert one.rungs.take("a") is not None


def test_what_is_read_again_and_again_is_up_to_date(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store, Store.open(tmp_path) as elsewhere:
        asking, working = store.search("s", {}).rungs, elsewhere.search("s", {}).rungs
        assert asking.current() == []
        for seed in range(3):
            asking.queue(BASELINE, "final", seed, 1)
            assert asking.current() == asking.trainings()
        one = working.take("a")
        assert one is not None
        assert [each.state for each in asking.current()] == [TAKEN, WAITING, WAITING]
        working.record(one, {"state": "finished", "accuracy": 0.5}, 0.5)
        assert asking.current() == working.trainings()
        assert asking.current()[0].measure == 0.5

"""What takes long in a widget: beside the main thread, shown, cancelled, and the latest request wins."""

from __future__ import annotations

import _thread
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from syno_widgets import Explorer, OperatorView, Stepper
from syno_widgets.view import View

from syno_lab.effort import end_if
from syno_lab.errors import SynoError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.operators import conv2d
from syno_lab.synthesis.space import proposals
from syno_lab.synthesis.ways import Way, random_way

MOST_S = 60.0  # of the clock, on a machine however busy


#: Threads of tests in other files that are not over yet.
_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the kernel, but that nothing is over before it is asked about."""
    _others.update(threading.enumerate())
    monkeypatch.setattr("syno_widgets.view.GRACE_S", 0.0)
    monkeypatch.setattr("syno_widgets.working.GRACE_S", 0.0)
    monkeypatch.setattr("syno_widgets.stepper._FIRST_S", MOST_S)


@pytest.fixture
def large() -> Spec:
    """12 coefficients: the next steps of three REDUCEs take 20 seconds of computing to list."""
    return Spec.parse(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N: 0", "C_in: 3", "C_out: 4", "H: 0", "W: 0"],
        [f"k_{i}={i + 2}: 2" for i in range(12)],
        max_primitives=20,
        fixed_io_pairs=[(0, 0)],
    )


@pytest.fixture
def stepper() -> Iterator[Stepper]:
    made = Stepper(Spec.parse("[C, H]", "[D, H]", ["C=8: 1", "D=8: 0", "H=8: 0"], ["k=3: 1"], max_primitives=4), seed=3)
    yield made
    made.close()


def until(what: Callable[[], Any]) -> None:
    end = time.monotonic() + MOST_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def send(view: View, kind: str, number: int, **more: Any) -> None:
    revision = {"revision": view.revision} if isinstance(view, Stepper) and kind != "cancel_work" else {}
    view.handle({"kind": kind, "request": number, **revision, **more})


def workers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("syno-lab ") and one not in _others]


def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The search for random steps goes on until it is told to stop; the event says that it is under way."""
    begun = threading.Event()

    def search(state: State, rng: Any, rules: Any, *, seconds: float, should_stop: Callable[[], bool]) -> Way:
        begun.set()
        while True:
            end_if(should_stop, "looking for a way")  # one way of a small space may end before it asks
            random_way(state, rng, rules, seconds=seconds, should_stop=should_stop)

    monkeypatch.setattr("syno_lab.pgraphs.stepping.random_way", search)
    return begun


def test_a_long_list_is_made_beside_the_main_thread_and_cancelled(large: Spec) -> None:
    state = State.root(large)
    for _ in range(3):
        state = state.apply(next(step for step in proposals(state) if step.primitive == "REDUCE"))
    begun = time.thread_time()
    stepper = Stepper.__new__(Stepper)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("syno_widgets.stepper._FIRST_S", 0.0)
        stepper.__init__(state)  # type: ignore[misc]
    try:
        assert stepper.svg.startswith("<svg"), "the picture does not wait"
        assert stepper.running["what"] == "listing the next steps"
        assert abs(stepper.running["since"] - time.time()) < MOST_S
        assert (stepper.menu, stepper.unlisted) == ([], "They are being listed.")
        # The main thread is free: it answers at once, and has computed next to nothing.
        send(stepper, "step", 1, index=0)
        assert (stepper.answered, stepper.error) == (1, "the list has changed since that choice; choose again")
        assert time.thread_time() - begun < 2.0
        (worker,) = workers()
        computing = time.process_time()
        send(stepper, "cancel_work", 2)
        assert (stepper.answered, stepper.error, stepper.running) == (2, "cancelled: listing the next steps", {})
        worker.join(MOST_S)
        assert not worker.is_alive()
        assert time.process_time() - computing < 1.0
        assert stepper.unlisted == "They were not listed, as that was cancelled."
        assert stepper.state == state
        # What is asked next is carried out: the place before has few enough.
        send(stepper, "go", 3, index=0)
        assert stepper.state.steps == ()
    finally:
        stepper.close()


def test_what_is_cancelled_changes_nothing(stepper: Stepper, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (stepper.svg, stepper.menu, stepper.tree, stepper.line, stepper.word, stepper.revision)
    with monkeypatch.context() as patch:
        begun = endless(patch)
        send(stepper, "random", 1)
        assert begun.wait(MOST_S)
        assert stepper.running["what"] == "looking for random steps to the input"
        assert stepper.answered == 0
        send(stepper, "cancel_work", 2)
        until(lambda: not workers())
    assert (stepper.error, stepper.running) == ("cancelled: looking for random steps to the input", {})
    assert (stepper.svg, stepper.menu, stepper.tree, stepper.line, stepper.word, stepper.revision) == before
    # It goes on, and a seed gives what it gives without what was cancelled.
    stepper.complete_at_random()
    assert stepper.error == ""
    other = Stepper(stepper.state.spec, seed=3)
    assert other.complete_at_random().steps == stepper.state.steps


def test_the_latest_request_wins(stepper: Stepper, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = endless(monkeypatch)
    send(stepper, "random", 1)
    assert begun.wait(MOST_S)
    send(stepper, "load", 2, name="conv2d")
    until(lambda: not workers())
    assert (stepper.answered, stepper.error, stepper.running) == (2, "", {})
    assert stepper.status == "Complete after 6 steps: this is conv2d."
    assert len(stepper.tree) == 8
    assert stepper.unlisted == ""


def test_work_that_fails_is_one_line(stepper: Stepper, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(*_: Any, **__: Any) -> Way:
        raise RuntimeError("a defect\nof two lines")

    monkeypatch.setattr("syno_lab.pgraphs.stepping.random_way", fail)
    send(stepper, "random", 1)
    until(lambda: stepper.answered == 1)
    assert stepper.error == "RuntimeError: a defect"
    assert "Traceback" in caplog.text
    with pytest.raises(RuntimeError, match="a defect"):
        stepper.complete_at_random()
    until(lambda: not workers())
    assert stepper.running == {}


def test_an_interrupt_of_the_cell_cancels(stepper: Stepper, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (stepper.word, stepper.svg)
    begun = endless(monkeypatch)

    def interrupt() -> None:
        assert begun.wait(MOST_S)
        _thread.interrupt_main()

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        stepper.complete_at_random()
    other.join()
    until(lambda: not workers())
    assert ((stepper.word, stepper.svg), stepper.running) == (before, {})
    monkeypatch.undo()
    assert stepper.suggest().steps


def test_the_page_cancels_what_a_cell_waits_for(stepper: Stepper, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = endless(monkeypatch)

    def cancel() -> None:
        assert begun.wait(MOST_S)
        stepper.handle({"kind": "cancel_work", "request": 1})

    other = threading.Thread(target=cancel)
    other.start()
    with pytest.raises(SynoError, match="stopped while"):
        stepper.complete_at_random()
    other.join()


def test_who_watches_a_trait_may_ask_for_more(stepper: Stepper) -> None:
    """An observer runs under the view's lock: what it asks for is done there and then."""
    seen: list[int] = []

    def back(change: dict[str, Any]) -> None:
        if change["new"] and not seen:
            seen.append(len(stepper.undo().steps))

    stepper.observe(back, "place")
    assert stepper.suggest().steps == ()
    assert seen == [0]
    assert (stepper.place, len(stepper.line), stepper.unlisted) == (0, 2, "")


# -- the other views ---------------------------------------------------------------------------------------------------


def test_a_pane_is_cancelled_and_worked_out_later() -> None:
    """The receptive field of all elements of an output of 10,000 x 10,000 has 9 * 10^8 terms: minutes."""
    sizes = {"N": 1, "C_in": 1, "C_out": 1, "H": 10_000, "W": 10_000, "k_1": 3}
    view = OperatorView(conv2d(), binding=sizes, pane="reach", element=":, :, :, :")
    until(lambda: view.running)
    assert (view.running["what"], view.pane_reach["state"]) == ("working out reach", "working")
    gc.collect()  # what other tests have left would be looked through in between: seconds
    computing = time.process_time()
    view.handle({"kind": "cancel_work", "request": 7})
    assert (view.answered, view.error, view.running) == (7, "cancelled: working out reach", {})
    until(lambda: not workers())
    assert time.process_time() - computing < 1.0
    assert view.pane_reach["state"] == "closed"
    view.handle({"kind": "bind", "request": 8, "binding": {**sizes, "H": 5, "W": 5}})
    view.handle({"kind": "work", "request": 9, "pane": "reach"})
    assert view.error == ""
    assert view.read("reach", MOST_S)["text"].startswith("Y[:, :, :, :] reads 25 of 25")
    view.close()


def test_tvm_ends_with_the_pane_that_waits_for_it() -> None:
    others = set(psutil.Process().children())  # of tests before this one

    def children() -> set[psutil.Process]:
        return set(psutil.Process().children()) - others

    view = OperatorView(conv2d(), pane="tir")
    until(children)
    view.cancel()
    until(lambda: not workers())
    assert not children()
    assert (view.pane_tir["state"], view.running) == ("closed", {})
    view.close()


def test_a_space_is_looked_at_no_further(large: Spec) -> None:
    explorer = Explorer(large, depth=3)
    try:
        until(lambda: explorer.running)
        assert explorer.running["what"] == "looking at the space"
        computing = time.process_time()
        explorer.handle({"kind": "cancel_work", "request": 1})
        until(lambda: not workers())
        assert time.process_time() - computing < 1.0
        assert (explorer.error, explorer.running) == ("cancelled: looking at the space", {})
        explorer.colour = "reward"
        assert not workers(), "what was cancelled begins again only where more is asked for"
        explorer.depth = 1
        until(lambda: explorer.running)
    finally:
        explorer.close()
    until(lambda: not workers())

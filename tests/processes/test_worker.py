"""A call in a process of its own: what it gives, and one line for each way in which it can fail."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.processes.worker import CrashedError, Worker, once

pytestmark = pytest.mark.cold


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leaves() -> None:
    sys.stderr.write("no room\n")
    sys.stderr.flush()
    os._exit(1)


def refuses() -> None:
    raise SynoError("expected this, found that")


def is_away() -> None:
    raise TrackerError("nobody listens")


def echoes(say: Callable[[str], None], hear: Callable[[], str], count: int) -> None:
    for number in range(count):
        say(f"number {number}?")
        say(hear())


def dies(say: Callable[[str], None], hear: Callable[[], str]) -> None:
    say("the last word")
    killed()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_a_call_gives_its_value_and_leaves_nothing() -> None:
    assert once("a quotient", divmod, 7, 2, deadline_s=60, has_tvm=False) == (3, 1)
    folder = once("a folder", tempfile.gettempdir, deadline_s=60, has_tvm=False)
    assert folder != tempfile.gettempdir()
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("killed", r"^it: killed: the process was killed by SIGKILL, as the system does where memory runs out$"),
        ("leaves", r"^it: leaves: the process ended with exit status 1, saying 'no room'$"),
        ("refuses", r"^it: expected this, found that$"),
    ],
)
def test_a_call_that_fails_is_one_line(name: str, line: str) -> None:
    import test_worker as of_a_process

    with pytest.raises(TuningError, match=line):
        once("it", getattr(of_a_process, name), deadline_s=60, has_tvm=False)


def test_a_tracker_that_is_away_is_told_as_such() -> None:
    import test_worker as of_a_process

    with pytest.raises(TrackerError, match=r"^nobody listens$"):
        once("it", of_a_process.is_away, deadline_s=60, has_tvm=False)


def test_a_talk_goes_both_ways_and_a_call_may_follow(tmp_path: Path) -> None:
    import test_worker as of_a_process

    with closing(Worker(tmp_path / "log", has_tvm=False)) as worker:
        heard = []
        for said in worker.talk(of_a_process.echoes, 2, period_s=0.05):
            if said is not None and said.endswith("?"):
                worker.tell(f"it is {said.rstrip('?')}")
            elif said is not None:
                heard.append(said)
        assert heard == ["it is number 0", "it is number 1"]
        assert worker.call(divmod, 7, 2, deadline_s=60) == (3, 1)
        with pytest.raises(CrashedError, match=r"^dies: the process was killed by SIGKILL$"):
            assert [one for one in worker.talk(of_a_process.dies, period_s=0.05) if one] == ["the last word"]
        assert worker.call(divmod, 9, 2, deadline_s=60) == (4, 1)


def test_a_talk_whose_worker_another_thread_closes_fails_as_if_killed(tmp_path: Path) -> None:
    import test_worker as of_a_process

    worker = Worker(tmp_path / "log", has_tvm=False)
    talk = worker.talk(of_a_process.echoes, 1, period_s=0.05)
    assert next(one for one in talk if one) == "number 0?"
    worker.close()  # between two words; a pool does so at any time
    with pytest.raises(CrashedError, match=r"^echoes: the process was killed by SIGKILL$"):
        next(talk)


class SlowLink:
    """Takes its time to close, and counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1
        time.sleep(0.1)


def test_threads_that_close_a_worker_close_its_pipe_once(tmp_path: Path) -> None:
    # The second would close a number that may be another file's by then.
    worker, link = Worker(tmp_path / "log", has_tvm=False), SlowLink()
    worker._link = link  # type: ignore[assignment]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: worker.close(), range(4)))
    assert link.closed == 1

"""Code of the user's own that does not come to its end: a line says so, and it is ended; nothing else is."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from syno_lab import patience
from syno_lab.errors import CodeError, SpecError
from syno_lab.patience import patient
from syno_lab.user_code import user_code


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SAYS_S", 0.05)
    monkeypatch.setattr(patience, "MOST_S", 0.5)
    monkeypatch.setattr(patience, "_AGAIN_S", 0.1)


@pytest.mark.parametrize("text", ["time.sleep(1000)", "while True: pass", "threading.Event().wait()"])
def test_a_file_that_hangs_is_told_of_and_ended(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(f"import threading, time\n{text}\ndef make(): pass\n")
    with pytest.raises(CodeError) as refusal:
        user_code(f"{file}:make").function()
    assert str(refusal.value) == f"{file}: expected an end within 0 s, found none; it was interrupted"
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"{file} has run for 0 s; Ctrl-C ends it"
    assert len(said) <= 5  # each after twice the time of the one before


def test_code_that_takes_no_interrupt_is_interrupted_again() -> None:
    interrupted = 0

    def hang() -> None:
        nonlocal interrupted
        while interrupted < 3:
            try:
                time.sleep(1000)
            except KeyboardInterrupt:
                interrupted += 1
        raise KeyboardInterrupt

    with pytest.raises(SpecError, match="the network: expected an end"), patient("the network", SpecError):
        hang()
    assert interrupted == 3


def test_ctrl_c_and_the_code_s_own_errors_pass_through() -> None:
    with pytest.raises(KeyboardInterrupt), patient("it"):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), patient("it"):
        raise ZeroDivisionError
    with patient("it"):
        pass
    for thread in threading.enumerate():
        if thread.name == "patience":
            thread.join(10)
            assert not thread.is_alive()


def test_in_another_thread_only_the_line_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    ended = []

    def run() -> None:
        with patient("it"):
            time.sleep(0.8)  # longer than the deadline
        ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ended
    assert capsys.readouterr().err.splitlines()[0] == "it has run for 0 s"  # Ctrl-C ends no other thread


def test_a_closed_stream_takes_no_deadline_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(CodeError, match="it: expected an end"), patient("it"):
        time.sleep(1000)


def test_a_child_that_the_code_forks_does_not_go_on(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with patient("it"):
        child = os.fork()
        begun.touch()
    # Only the process that was asked comes here: else the child would run the rest of the tests.
    assert os.waitpid(child, 0)[1] == 0
    assert begun.exists()

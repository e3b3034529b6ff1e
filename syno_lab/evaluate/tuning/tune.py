"""Tune one operator: the side that never imports TVM, and outlives whatever TVM does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syno_lab.errors import TrackerError, TuningError
from syno_lab.evaluate.tuning.process import describe_exit, end_group, last_line, start_child
from syno_lab.evaluate.tuning.targets import check_target
from syno_lab.evaluate.tuning.tracker import check_tracker, parse_address
from syno_lab.evaluate.tuning.values import TuningProgress, TuningResult, TuningTask

#: How often ``should_stop`` is asked, in seconds.
_POLL_S = 0.1
#: The part of the deadline that the search may use; the rest is for measuring the best again.
_SEARCH_SHARE = 0.8


class TuningStopped(TuningError):  # noqa: N818 - not a failure: the caller asked for it
    """The caller's ``should_stop`` said so."""


def tune(
    task: TuningTask,
    *,
    tracker: tuple[str, int] | str,
    key: str,
    target: str = "local",
    trials: int = 16,
    seed: int = 0,
    work_dir: str | os.PathLike[str],
    on_progress: Callable[[TuningProgress], None] | None = None,
    deadline_s: float = 900.0,
    should_stop: Callable[[], bool] | None = None,
    wait_s: float = 30.0,
    session_s: float = 20.0,
    records: str | os.PathLike[str] | None = None,
) -> TuningResult:
    """Search for the fastest schedule of ``task`` in ``trials`` measurements on a device behind an RPC tracker.

    One child process does it all (with its workers) and is killed as a group when it is done, when ``deadline_s``
    seconds are over, when ``should_stop`` returns True and on every exception, Ctrl-C included. At four fifths of the
    deadline the search ends with what it has. ``target`` is a name in :data:`TARGETS`, a TVM tag or a JSON object.
    A log named after the label is left in ``work_dir``. ``wait_s`` is how long a busy device is waited for and
    ``session_s`` how long one candidate may hold it, upload included. ``records`` is a folder to which the schedules
    are added as MetaSchedule's own database, for compiling with them later (:func:`save_library
    <syno_lab.codegen.library.save_library>`, :mod:`syno_lab.evaluate.tuning.network`).

    Raises :class:`TrackerError` for the tracker and the device, :class:`TuningStopped`, and :class:`TuningError` for
    all else; each is one line and comes before the deadline.
    """
    started = time.monotonic()
    if trials < 1 or deadline_s <= 0:
        raise TuningError(f"{task.label}: expected at least one trial and second, found {trials} and {deadline_s}")
    check_target(target)
    host, port = parse_address(tracker)
    check_tracker(host, port, key, min(5.0, deadline_s), need_free=False)
    folder = Path(work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', task.label)[:80] or 'tuning'}.log"
    with tempfile.TemporaryDirectory(prefix=".tuning-", dir=folder, ignore_cleanup_errors=True) as scratch:
        request = {
            "task": task.request(),
            "tracker": [host, port],
            "key": key,
            "target": target,
            "trials": trials,
            "seed": seed,
            "log": str(log.resolve()),
            "budget_s": _SEARCH_SHARE * deadline_s,
            "wait_s": min(wait_s, deadline_s),
            "session_s": min(session_s, deadline_s),
            "records": None if records is None else str(Path(records).resolve()),
        }
        with _Child(request, log, str(Path(scratch).resolve())) as child:
            answer = _follow(child, task, trials, started, deadline_s, on_progress, should_stop)
    try:
        answer["history"] = tuple((int(trial), float(best)) for trial, best in answer["history"])
        return TuningResult(label=task.label, seed=seed, seconds=time.monotonic() - started, **answer)
    except (TypeError, KeyError, ValueError) as error:
        raise TuningError(f"{task.label}: the tuning process gave a result that is not one ({error})") from None


class _Child:
    """The tuning process as a context: it gets its request, gives lines, and is gone afterwards."""

    def __init__(self, request: dict[str, Any], log: Path, scratch: str) -> None:
        self.log = log
        with contextlib.ExitStack() as stack:
            read_request, write_request = os.pipe()
            self._reports, write_reports = os.pipe()
            stack.callback(os.close, read_request)
            stack.callback(os.close, write_reports)
            output = stack.enter_context(log.open("wb"))
            self.process: subprocess.Popen[bytes] = start_child(
                "syno_lab.evaluate.tuning.child",
                [str(read_request), str(write_reports)],
                log=output,
                pass_fds=[read_request, write_reports],
                environment={"TMPDIR": scratch},
            )
            self._request = (write_request, json.dumps(request).encode())
        self._rest = b""

    def __enter__(self) -> _Child:
        descriptor, data = self._request
        try:
            with os.fdopen(descriptor, "wb") as pipe, contextlib.suppress(BrokenPipeError):
                pipe.write(data)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self.process)
        os.close(self._reports)

    def lines(self, timeout_s: float) -> list[dict[str, Any]] | None:
        """The messages that came within the timeout; None when there will be no more."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reports, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return []
        data = os.read(self._reports, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def _follow(
    child: _Child,
    task: TuningTask,
    trials: int,
    started: float,
    deadline_s: float,
    on_progress: Callable[[TuningProgress], None] | None,
    should_stop: Callable[[], bool] | None,
) -> dict[str, Any]:
    trial, known = 0, {"target": "", "tvm_version": ""}
    while True:
        left = started + deadline_s - time.monotonic()
        if left <= 0:
            raise TuningError(f"{task.label}: no result after {deadline_s:g} s and {trial} trials; see {child.log}")
        if should_stop is not None and should_stop():
            raise TuningStopped(f"{task.label}: stopped on request after {trial} trials")
        messages = child.lines(min(left, _POLL_S))
        if messages is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(2)
            said = last_line(child.log)
            raise TuningError(
                f"{task.label}: the tuning process ended ({describe_exit(child.process.returncode)}) after "
                f"{trial} trials{f', saying {said!r}' if said else ''}; see {child.log}"
            )
        for message in messages:
            match message.pop("event"):
                case "start":
                    known = {"target": message["target"], "tvm_version": message["tvm"]}
                case "trial":
                    trial = message["trial"]
                    if on_progress is not None:
                        pace = (time.monotonic() - started) / trial
                        on_progress(TuningProgress(task.label, trials=trials, seconds_per_trial=pace, **message))
                case "error":
                    kind = TrackerError if message["tracker"] else TuningError
                    raise kind(f"{task.label}: {message['message']}")
                case "result":
                    return message | known

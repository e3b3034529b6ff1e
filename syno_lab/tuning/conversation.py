"""The conversation with a process that tunes or measures: requests to it, messages from it, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from syno_lab.processes.process import describe_exit, end_group, last_line, start_child


class Conversation:
    """A process of ``module`` as a context manager: it takes and gives lines; at the end it and its workers are killed.

    Its output goes to the end of ``log``; ``environment`` is added to ours.
    """

    def __init__(self, module: str, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with contextlib.ExitStack() as stack:
            read_request, self._requests = os.pipe()
            self._reports, write_reports = os.pipe()
            stack.callback(os.close, read_request)
            stack.callback(os.close, write_reports)
            output = stack.enter_context(log.open("ab"))
            self.process: subprocess.Popen[bytes] = start_child(
                module,
                [str(read_request), str(write_reports)],
                log=output,
                pass_fds=[read_request, write_reports],
                environment=environment,
            )
        self._rest = b""

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self.process)
        os.close(self._reports)
        os.close(self._requests)

    def send(self, message: Any) -> None:
        """Send one line to the process; if it has died, :meth:`messages` notices."""
        data = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._requests, data) :]

    def messages(self, period_s: float) -> Iterator[dict[str, Any] | None]:
        """Every message, and None after each ``period_s`` seconds without one; ends with the process's last message."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reports, selectors.EVENT_READ)
            while True:
                if not selector.select(period_s):
                    yield None
                    continue
                data = os.read(self._reports, 1 << 16)
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)
                yield None

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """The next message of a process that gives one for each request; ``{"error": …}`` if none comes in time."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._reports, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return {"error": "not done before the deadline"}
                data = os.read(self._reports, 1 << 16)
                if not data:
                    ended, said = self.last_words()
                    return {"error": f"its process ended ({ended}{said})"}
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def last_words(self) -> tuple[str, str]:
        """How the process ended, and its last line (``, saying '…'``; empty where it wrote none)."""
        deadline = time.monotonic() + 2
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        said = last_line(self.log)
        return describe_exit(self.process.returncode), f", saying {said!r}" if said else ""

"""The parent of the process in which tests use TVM: one child for many tasks, and a new one when it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, str(Path(__file__).parent.parent / "codegen" / "tvm_child.py"))
SECONDS = 240.0  # for one task, far above what any needs


class Child:
    """Answers of ``tvm_child.py``; a context manager. ``started`` counts how often a process had to be started."""

    def __init__(self, command: Sequence[str] = COMMAND, seconds: float = SECONDS) -> None:
        self.command, self.seconds = command, seconds
        self.started = 0
        self._process: subprocess.Popen[str] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._said.close()

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """The answer to one task; ``{"failure": text}`` where the task raised, died or did not end."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(self.seconds, process.kill)
        late.start()
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            assert answer.pop("torch") is False, "the TVM process has imported torch"
            return answer
        code = process.wait()
        self._said.seek(0)
        last = self._said.read()[-3000:].decode(errors="replace")
        self._end()
        return {"failure": f"the TVM process ended with {code}\n{last}"}

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._said.seek(0)
            self._said.truncate()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"},
            )
            self.started += 1
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def ask(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer for each task, in order."""
    with Child() as child:
        return [child.ask(task) for task in tasks]

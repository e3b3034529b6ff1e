"""The kernel "Syno Lab" as Jupyter runs it: jobs go on when it is killed or restarted (T4 of the research notes)."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from syno_widgets import kernelspec

from syno_lab.jobs import JobRecord, Lab

WITHIN_S = 200


class Kernel:
    """A running kernel and a client of it."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = self._connect()

    def _connect(self) -> BlockingKernelClient:
        client = self.manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=WITHIN_S)
        return client

    def restart(self) -> None:
        """As the button in Jupyter does."""
        self.client.stop_channels()
        self.manager.restart_kernel()
        self.client = self._connect()

    def kill(self) -> None:
        """Without a word to anybody."""
        pid = self.manager.provisioner.pid
        os.kill(pid, signal.SIGKILL)
        self.client.stop_channels()
        deadline = time.monotonic() + WITHIN_S
        while self.manager.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def run(self, code: str) -> str:
        """What a cell prints."""
        said: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                said.append(content["text"])
            if message["msg_type"] == "error":
                said.append(f"{content['ename']}: {content['evalue']}\n")

        self.client.execute_interactive(code, timeout=WITHIN_S, output_hook=hear)
        return "".join(said)


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Callable[[str], Kernel]]:
    """Start kernels by name: ``syno-lab``, installed for this test, or ``python3``."""
    kernelspec.install(prefix=str(tmp_path))
    finder = KernelSpecManager(kernel_dirs=[str(tmp_path / "share" / "jupyter" / "kernels")])
    started: list[Kernel] = []

    def begin(name: str = kernelspec.NAME) -> Kernel:
        # Pipes instead of ports that another could take.
        pipes = {"transport": "ipc", "ip": f"{short}/kernel-{len(started)}"}
        manager = KernelManager(kernel_name=name, kernel_spec_manager=finder, **pipes)
        manager.start_kernel(cwd=str(tmp_path), env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")})
        started.append(Kernel(manager))
        return started[-1]

    with tempfile.TemporaryDirectory(prefix="syno") as short:  # names of pipes have at most 107 characters
        yield begin
        for kernel in started:
            kernel.client.stop_channels()
            if kernel.manager.is_alive():
                kernel.manager.shutdown_kernel(now=True)


def until(lab: Lab, number: int, is_so: Callable[[JobRecord], bool]) -> JobRecord:
    """A job once it is as wanted."""
    deadline = time.monotonic() + WITHIN_S
    while not is_so(record := lab.job(number).record()):
        assert time.monotonic() < deadline, record
        time.sleep(0.05)
    return record


def submit(gate: Path) -> str:
    return f"job = lab.submit('gate', {{'gate': {str(gate)!r}}}); print(job.id)"


def test_jobs_go_on_when_the_kernel_is_killed_or_restarted(
    start: Callable[..., Kernel], folder: Path, tmp_path: Path
) -> None:
    kernel = start()
    assert kernel.manager.kernel_spec.display_name == "Syno Lab"
    info = kernel.client.kernel_info(reply=True, timeout=WITHIN_S)["content"]
    assert info["implementation"] == "syno-lab"
    assert kernel.run("print(lab)") == f"<the lab in {folder}>\n"
    assert not folder.exists(), "a notebook that asks for no job leaves nothing behind"

    assert kernel.run(submit(tmp_path / "first")) == "1\n"
    with Lab.open(folder, start=False) as lab:
        before = until(lab, 1, lambda record: record.progress == 0.5)
        kernel.restart()
        assert "JobHandle(1, 'gate', running)" in kernel.run("print(lab.job(1))")
        # The second is killed so early that the job may not have left it. It is in the store all the same.
        assert kernel.run(submit(tmp_path / "second")) == "2\n"
        kernel.kill()
        # Both are let go only now, when the kernels that submitted them are gone.
        for name in ("first", "second"):
            (tmp_path / name).write_text(f"after the {name} kernel")
        assert until(lab, 1, lambda record: record.is_ended).started == before.started
        kernel = start()  # and nobody asks it for anything
        until(lab, 2, lambda record: record.is_ended)

    found = kernel.run("print([(j.id, j.state, j.attempt, j.result['read']) for j in lab.jobs()])")
    assert found == f"{[(1, 'finished', 1, 'after the first kernel'), (2, 'finished', 1, 'after the second kernel')]}\n"


def test_any_kernel_does_after_load_ext(start: Callable[..., Kernel], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "gate").write_text("open")
    kernel = start("python3")
    assert "Traceback" not in kernel.run("%load_ext syno_lab")
    kernel.run(submit(tmp_path / "gate"))
    assert kernel.run("print(job.wait(60).result['read'])") == "open\n"
    assert kernel.run("%syno show 1").splitlines()[:2] == ["id:           1", "kind:         gate"]
    assert kernel.run("%syno list").splitlines()[1].split()[:4] == ["1", "gate", "finished", "100"], (
        "no colours, no HTML"
    )
    assert "no job 7 in" in kernel.run("%syno cancel 7").splitlines()[-1]


def test_a_file_beside_the_notebook_takes_no_module_s_place(start: Callable[..., Kernel], tmp_path: Path) -> None:
    for name in ("random.py", "syno_widgets.py", "typing.py"):
        (tmp_path / name).write_text("raise RuntimeError('mine')")
    (tmp_path / "helper.py").write_text("value = 3")
    kernel = start()
    assert kernel.run("import helper; print(helper.value)") == "3\n"
    assert kernel.run("%load_ext syno_lab") == "", "notebooks that any kernel runs say so"
    assert kernel.run("import sys; print(sys.executable)") == f"{sys.executable}\n"

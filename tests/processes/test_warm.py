"""A forked process has and does what a started process has and does (``tests/warm.py``)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm

pytestmark = [
    pytest.mark.warm,
    pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="only processes of pytest-xdist fork"),
]

FACTS = """
FACT = "in the main module"
import json, os, sys, tempfile
pid = os.getpid()
shown = [entry for entry in open("/proc/self/environ", "rb").read().split(b"\\0") if entry.startswith(b"MINE=")]
os.write(int(sys.argv[1]), b"through a pipe")
print(json.dumps({
    "parent": os.getppid(), "is_leader": os.getsid(0) == pid, "group": os.getpgrp() if os.getsid(0) != pid else 0,
    "arguments": sys.argv, "folder": os.getcwd(), "path": sys.path[0], "mine": os.environ["MINE"], "umask": os.umask(0),
    "temporary": tempfile.gettempdir(), "variables": sorted(os.environ), "shown": shown[0].decode(),
    "input": sys.stdin.read(), "name": __name__, "file": globals().get("__file__"),
    "main": sys.modules["__main__"].FACT,
    "command": [word for word in open("/proc/self/cmdline").read().split("\\0") if word],
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3],
}))
print("an error", file=sys.stderr)
"""


THREADS = """
import atexit, threading, time
atexit.register(print, "last")
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
print("first")
"""


def ran(program: str, *arguments: str, file: Path | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a program by ``python -c``, or as the file in which it stands."""
    words = ["-c", program] if file is None else [str(file)]
    return subprocess.run(
        [sys.executable, *words, *arguments], capture_output=True, text=True, check=False, timeout=120, **how
    )


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize("is_leader", [False, True])
def test_it_has_what_a_started_one_has(is_leader: bool, is_file: bool, tmp_path: Path) -> None:
    file = tmp_path / "program.py" if is_file else None
    if file is not None:
        file.write_text(FACTS)
    found = []
    for commands in ("programs", "none"):
        reader, writer = os.pipe()
        with warm.forking(commands):
            done = ran(
                FACTS,
                str(writer),
                file=file,
                input="said",
                cwd=tmp_path,
                env={**os.environ, "MINE": "so", "TMPDIR": str(tmp_path)},
                umask=0o27,
                pass_fds=[writer],
                start_new_session=is_leader,
            )
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert pipe.read() == "through a pipe"
        assert (done.returncode, done.stderr) == (0, "an error\n")
        facts = json.loads(done.stdout)
        assert facts["arguments"].pop() == facts["command"].pop() == str(writer)
        found.append(facts)
    assert found[0] == found[1]
    assert found[0]["parent"] == os.getpid()
    assert found[0]["umask"] == 0o27
    assert found[0]["temporary"] == str(tmp_path)


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(3)",
        "raise SystemExit('in words')",
        "assert False",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os; os.abort()",
        THREADS,
    ],
)
def test_it_ends_as_a_started_one_ends(program: str) -> None:
    forked = ran(program)
    with warm.forking("none"):
        started = ran(program)
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    if "SIGSEGV" not in program:  # TVM, which only the fork has imported, writes a backtrace
        assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_it_is_a_fork_that_has_torch_and_can_fork_others() -> None:
    program = "import sys; print('torch' in sys.modules)"
    inner = f"import subprocess, sys; print(subprocess.run([sys.executable, '-c', {program!r}], stdout=-1).stdout)"
    assert ran(program).stdout == "True\n"
    assert "False" in ran(inner).stdout, "only the test's own programs are forked"
    with warm.forking("none"):
        assert ran(program).stdout == "False\n"


def test_with_a_safe_path_it_is_a_fork_too() -> None:
    words = [sys.executable, "-P", "-c", "import sys; print('torch' in sys.modules, sys.path[0] == '', *sys.argv)", "x"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "True False -c x\n"


@pytest.mark.tvm
def test_tvm_takes_its_number_of_threads_from_the_fork_s_own_environment() -> None:
    program = """
from syno_lab.processes.light import import_tvm
print(import_tvm().get_global_func("runtime.NumThreads")())
"""
    for threads in ("1", "2"):
        assert ran(program, env={**os.environ, "TVM_NUM_THREADS": threads}).stdout == f"{threads}\n"


def test_without_its_nursery_it_is_started() -> None:
    pids = ran("import os; print(os.getppid())").stdout, str(os.getpid())
    assert pids[0].strip() == pids[1]
    (nursery,) = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_nursery(entry))
    os.kill(nursery, signal.SIGKILL)
    try:
        assert ran("import sys; print('torch' in sys.modules)").stdout == "False\n"
    finally:
        warm.install()
    assert ran("import sys; print('torch' in sys.modules)").stdout == "True\n"


def is_nursery(process: Path) -> bool:
    """Whether it is this process's own nursery."""
    with contextlib.suppress(OSError):
        command = (process / "cmdline").read_bytes().split(b"\0")
        return warm.__file__.encode() in command and str(os.getpid()).encode() in command
    return False

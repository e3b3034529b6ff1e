"""The lab's own Dask: a scheduler and a worker, started detached by Dask's own commands, found again by a file.

One worker process serves the whole machine: it only looks after the processes of jobs, in a thread for each. Both end
when the lab says so, and by themselves after idling. A cluster that somebody else started is used by its address.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syno_lab.errors import JobError
from syno_lab.evaluate.jobs import alive
from syno_lab.evaluate.tuning.process import cores, last_line

FILE_NAME = "cluster.json"
#: Seconds within which a scheduler must have started; imports on a busy machine are slow.
START_S = 60.0
#: A slot is so many cores.
CORES_A_SLOT = 2
IDLE_MINUTES = 10.0
#: Threads of a worker beyond its slots, in which drivers begin; they give them back at once.
SPARE_THREADS = 4


@dataclass(frozen=True)
class Settings:
    """How a lab's own cluster is started.

    Attributes:
        slots: how many jobs train at a time; None: what the folder's cluster had last, at first one for every two
            cores.
        gpus: how many GPUs jobs may ask for, as the resource ``GPU``; None: as last time, at first none.
        idle_minutes: how long scheduler and worker stay without a job; None: as last time, at first 10.

    Raises:
        JobError: for numbers that make no sense.
    """

    slots: int | None = None
    gpus: int | None = None
    idle_minutes: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("gpus", 0), ("idle_minutes", 0.01)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not least <= value < 1e6):
                raise JobError(f"{name}: expected a number from {least:g} on, found {value!r}")

    def filled(self, last: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers to go by: ours, else those of last time, else the defaults."""
        default = {"slots": max(1, cores() // CORES_A_SLOT), "gpus": 0, "idle_minutes": IDLE_MINUTES}
        ours = {name: value for name, value in asdict(self).items() if value is not None}
        return default | {name: last[name] for name in default if name in last} | ours


class Cluster:
    """The scheduler and worker of one lab folder."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root
        self._settings = settings
        self._file = root / FILE_NAME

    def address(self) -> str:
        """Return the address of the running scheduler, with a worker; start what is missing.

        Raises:
            JobError: it does not start, with the last line of its log.
        """
        with self._locked():
            state = self._state()
            if not alive.is_alive(state.get("scheduler", "")):
                if alive.is_alive(left := state.get("worker", "")):  # it would look for its scheduler for a while
                    os.kill(alive.pid_of(left), signal.SIGKILL)
                state = self._start_scheduler()
            if not alive.is_alive(state.get("worker", "")):
                state["worker"] = self._start_worker(state)
                self._keep(state)
            return str(state["address"])

    def is_up(self) -> bool:
        """Whether both live; asks nobody but the operating system."""
        state = self._state()
        return alive.is_alive(state.get("scheduler", "")) and alive.is_alive(state.get("worker", ""))

    def processes(self) -> dict[str, int]:
        """The process numbers of those that live, by role."""
        state = self._state()
        return {
            role: alive.pid_of(state[role]) for role in ("scheduler", "worker") if alive.is_alive(state.get(role, ""))
        }

    def stop(self, patience_s: float = 5.0) -> None:
        """End both; the processes of jobs are not theirs and stay."""
        with self._locked():
            state = self._state()
            names = [state.get(role, "") for role in ("worker", "scheduler")]
            # A worker asked to end would wait for its jobs; it holds nothing that is not in the store.
            for numbers in ((signal.SIGKILL, signal.SIGTERM), (signal.SIGKILL, signal.SIGKILL)):
                for name, number in zip(names, numbers, strict=True):
                    if alive.is_alive(name):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(alive.pid_of(name), number)
                deadline = time.monotonic() + patience_s
                while any(map(alive.is_alive, names)) and time.monotonic() < deadline:
                    time.sleep(0.02)
            self._keep({key: state[key] for key in state if key not in ("worker", "scheduler", "address")})

    def foreign(self) -> str | None:
        """The address of somebody else's scheduler that this lab was last used with."""
        found = _read(self._file).get("foreign")
        return str(found) if found else None

    def remember(self, address: str | None) -> None:
        """Keep that address for whoever opens the lab without one: a driver's own lab, say."""
        with self._locked():
            self._keep({**_read(self._file), "foreign": address})

    # -- starting ----------------------------------------------------------------------------------------------------

    def _start_scheduler(self) -> dict[str, Any]:
        # Whoever was killed between starting one and writing it down has left it without an owner.
        alive.end_attempt(self._token("scheduler"))
        ready = self._root / "scheduler.json"
        ready.unlink(missing_ok=True)
        settings = self._settings.filled(_read(self._file).get("settings") or {})
        idle = f"{settings['idle_minutes'] * 60:g}s"
        process, log = self._dask(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0",
            "--scheduler-file", str(ready), "--idle-timeout", idle,
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not (found := _read(ready)).get("address"):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise JobError(f"Dask's scheduler does not start: {last_line(log) or 'no word from it'}; see {log}")
            time.sleep(0.02)
        state = {"address": found["address"], "place": alive.place(), "boot": alive.boot(), "settings": settings}
        state["scheduler"] = alive.identity(process.pid) or ""
        self._keep(state)
        return state

    def _start_worker(self, state: dict[str, Any]) -> str:
        alive.end_attempt(self._token("worker"))
        address, settings = state["address"], state["settings"]
        places = settings["slots"]
        resources = f"slot={places}" + (f" GPU={settings['gpus']}" if settings["gpus"] else "")
        process, _ = self._dask(
            "worker", address, "--no-nanny", "--nthreads", str(places + SPARE_THREADS), "--memory-limit", "0",
            "--no-dashboard", "--host", "127.0.0.1", "--resources", resources, "--death-timeout", "30",
            "--local-directory", str(self._root),
        )  # fmt: skip
        return alive.identity(process.pid) or ""

    def _token(self, role: str) -> str:
        """What marks our processes of a role, and those of no other folder."""
        return f"{role} of {self._root.resolve()}"

    def _dask(self, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self._root / "logs" / f"{words[0]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # A worker that died is no fault of the jobs that were in line there: the store counts their own deaths.
        # Jobs in line for a slot count as a worker's load; a driver, which needs none, must not wait behind them.
        # What Dask observes of itself, fifty times a second, would take 2 % of a core from trainings that last minutes.
        settings = {
            "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
            "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000000",
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "inf",
            # Not that of the job in which it may be started: the cluster stays when that ends.
            alive.TOKEN_VARIABLE: self._token(words[0]),
        }
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "dask", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._root,
                env={**os.environ, **settings, "PYTHONPATH": path},
                start_new_session=True,
            )
        _reap_later(process)
        return process, log

    # -- the file ----------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        """What the file says; nothing where it was written on another boot or another machine."""
        state = _read(self._file)
        is_here = (state.get("place"), state.get("boot")) == (alive.place(), alive.boot())
        return state if is_here else {}

    def _keep(self, state: dict[str, Any]) -> None:
        half = self._file.with_suffix(".new")
        half.write_text(json.dumps(state, indent=1), encoding="utf-8")
        half.replace(self._file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time; the lock ends with its holder."""
        with (self._root / "cluster.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or half written by a process that was killed
        return {}
    return found if isinstance(found, dict) else {}


def _reap_later(process: subprocess.Popen[bytes]) -> None:
    """Wait for a detached process in the background, so that it leaves no zombie while we live."""
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()

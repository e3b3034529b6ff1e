"""The lab's own Dask scheduler and worker. Dask's own commands start these two detached processes.

One worker process serves the whole machine: it supervises the processes of jobs, in one thread for each. Scheduler and
worker end when the lab stops them, or after they have been idle. Foreign clusters are only used, never stopped.

The address, the identities of the processes and the key are in the user's own settings, in a folder for each lab.
Another user may own a lab's folder, so its files never decide where to connect or which process to end.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from syno_lab import inputs, private
from syno_lab.errors import JobError
from syno_lab.inputs import quoted
from syno_lab.jobs import door, endpoint, gpus, node, tls
from syno_lab.jobs.dispatch import SLOT
from syno_lab.jobs.endpoint import Endpoint
from syno_lab.processes import alive
from syno_lab.processes.alone import take
from syno_lab.processes.process import cores, last_line, module_command, own_environment, spawn
from syno_lab.scratch import put

#: The resources that the lab's own workers have.
COUNTED = frozenset((SLOT, door.HOME))
#: The folder in the user's settings that has a folder for each lab's cluster, and the files in such a folder.
FOLDER, FILE_NAME, KEY = "clusters", "cluster.json", "tls.pem"
_MOST_BYTES = 1 << 20
#: Seconds within which a scheduler must have started. Imports on a busy machine are slow.
START_S = 60.0
#: The default port of a scheduler that other machines reach; it is Dask's own default.
PORT = 8786
#: The default number of cores for each slot.
CORES_A_SLOT = 2
IDLE_MINUTES = 10.0
#: Threads of a worker beyond its slots. A driver's task occupies a spare thread for a moment only.
SPARE_THREADS = 4


class Numbers(msgspec.Struct, frozen=True):
    """The settings with which a cluster was started: :class:`Settings` with a number in every field."""

    slots: int = msgspec.field(default_factory=lambda: max(1, cores() // CORES_A_SLOT))
    gpus: int = 0
    idle_minutes: float = IDLE_MINUTES
    listen: str = ""
    port: int = PORT


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the file that describes a running cluster.

    Attributes:
        address: the scheduler's address.
        place, boot: the identifiers of the machine and of its boot.
        settings: the settings with which the cluster was last started.
        scheduler, worker: the identities of the processes (:mod:`syno_lab.processes.alive`).
        foreign: the address of the foreign scheduler that the user last named.
        root: the lab's folder.
    """

    address: str = ""
    place: str = ""
    boot: str = ""
    settings: Numbers | None = None
    scheduler: str = ""
    worker: str = ""
    foreign: str | None = None
    root: str = ""


@dataclass(frozen=True)
class Settings:
    """The settings with which a lab's own cluster is started.

    Attributes:
        slots: the number of jobs that train at a time; None: as at the last start, or one for every two cores.
        gpus: the number of GPUs for jobs, as the resource ``GPU``; None: as at the last start, or none.
        idle_minutes: minutes without a job after which scheduler and worker end; None: as at the last start, or 10.
        listen: the address of this machine on which the scheduler listens for workers of other machines. A cluster for
            other machines keeps its key until it is stopped. None: as at the last start, or loopback. Empty: loopback.
        port: the port at that address; None: as at the last start, or :data:`PORT`.

    Raises JobError for numbers out of range.
    """

    slots: int | None = None
    gpus: int | None = None
    idle_minutes: float | None = None
    listen: str | None = None
    port: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("gpus", 0), ("idle_minutes", 0.01), ("port", 1)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not least <= value < 1e6):
                raise JobError(f"{name}: expected a number from {least:g} on, found {quoted(value)}")
        if self.port is not None and self.port > 65_535:
            raise JobError(f"port: expected a number up to 65,535, found {self.port}")
        if self.listen:
            check_own_address(self.listen)

    def filled(self, last: Numbers | None) -> Numbers:
        """Fill each missing field with its value at the last start, else with its default."""
        settings = {name: value for name, value in asdict(self).items() if value is not None}
        return msgspec.structs.replace(last or Numbers(), **settings)


class Cluster:
    """The Dask scheduler and the Dask worker of a lab's folder."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root.resolve()
        self._settings = settings

    @cached_property
    def home(self) -> Path:
        """The folder of the files about this lab's cluster, and of its key.

        Raises JobError where the folder cannot be created.
        """
        name = hashlib.sha256(f"{alive.place()}\n{self._root}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        try:
            return private.folder(private.config_folder() / FOLDER / name)
        except OSError as error:
            raise JobError(
                f"expected a folder for the user's settings, found: {error}; name one in {private.CONFIG_VARIABLE}"
            ) from None

    @property
    def _file(self) -> Path:
        return self.home / FILE_NAME

    def endpoint(self) -> Endpoint:
        """Return the endpoint of the running scheduler; start the scheduler or the worker where it is missing.

        Raises JobError with the last line of the log where a process does not start.
        """
        with self._locked():
            state = self._state()
            if not alive.is_alive(state.scheduler):
                alive.kill(state.worker)  # end the old worker, which would search for the old scheduler
                state = self._start_scheduler()
            if not alive.is_alive(state.worker):
                state = self._keep(state, worker=self._start_worker(state))
            return Endpoint(state.address, *[str(self.home / KEY)] * 2)

    def serve(self) -> Endpoint:
        """Return the endpoint of a scheduler with these settings. A scheduler with other settings is stopped first.

        Jobs continue. Raises JobError as `endpoint` does.
        """
        with self._locked():
            now = self._state().settings
        if self._settings.filled(now) != now:
            self.stop(listens=True)
        return self.endpoint()

    def certificate(self) -> bytes:
        """Return the key and certificate that admit a machine to this lab's cluster, as a PEM file. Keep it secret.

        Raises JobError where no cluster was started.
        """
        try:
            return inputs.read_bytes(self.home / KEY, _MOST_BYTES)
        except OSError as error:
            raise JobError(f"expected a cluster of {self._root} that was started, found: {error.strerror}") from None

    def is_up(self) -> bool:
        """Whether scheduler and worker live, according to the operating system alone."""
        state = self._state()
        return alive.is_alive(state.scheduler) and alive.is_alive(state.worker)

    def processes(self) -> dict[str, int]:
        """Return the process identifiers of the cluster's live processes by role."""
        state = self._state()
        identities = {"scheduler": state.scheduler, "worker": state.worker}
        return {role: alive.pid_of(name) for role, name in identities.items() if alive.is_alive(name)}

    def stop(self, patience_s: float = 5.0, *, listens: bool = False) -> None:
        """End scheduler and worker; running jobs continue. With ``listens`` the next scheduler has the same address."""
        with self._locked():
            state = self._state()
            names = [state.worker, state.scheduler]
            # A worker that gets a request to end waits for its jobs. All data of the worker are in the store too.
            for numbers in ((signal.SIGKILL, signal.SIGTERM), (signal.SIGKILL, signal.SIGKILL)):
                for name, number in zip(names, numbers, strict=True):
                    alive.kill(name, number)
                deadline = time.monotonic() + patience_s
                while any(map(alive.is_alive, names)) and time.monotonic() < deadline:
                    time.sleep(0.02)
            settings = state.settings
            if settings is not None and not listens:
                settings = msgspec.structs.replace(settings, listen="")
            self._keep(state, worker="", scheduler="", address="", settings=settings)

    def end(self, address: str) -> None:
        """Kill this lab's scheduler, which does not answer, and its worker, if the scheduler still has this address.

        The processes of jobs continue, and the next worker adopts them.
        """
        with self._locked():
            state = self._state()
            if state.address == address:
                alive.kill(state.worker)
                alive.kill(state.scheduler)

    def foreign(self) -> str | None:
        """Return the address of the foreign scheduler that the user last named for this lab."""
        return _read(self._file).foreign or None

    def remember(self, address: str | None) -> None:
        """Store a foreign scheduler's address for processes that later open the lab without an address."""
        with self._locked():
            self._keep(_read(self._file), foreign=address)

    # -- starting ----------------------------------------------------------------------------------------------------

    def _start_scheduler(self) -> State:
        # End a scheduler whose starting process was killed before it wrote the file.
        alive.end_marked(self._token("scheduler"))
        self._forget_others()
        ready = self.home / "scheduler.json"
        ready.unlink(missing_ok=True)
        last = _read(self._file).settings
        settings = self._settings.filled(last)
        # A scheduler for other machines keeps its key: the machines have copies. Any other scheduler gets a new key.
        last_listen = last.listen if last is not None else ""
        if not settings.listen or settings.listen != last_listen or not (self.home / KEY).is_file():
            tls.make(self.home / KEY)
        idle = f"{settings.idle_minutes * 60:g}s"
        host = settings.listen or "127.0.0.1"
        port = str(settings.port if settings.listen else 0)
        process, log = self._dask(
            "scheduler", "--host", f"tls://{host}", "--port", port, "--scheduler-file", str(ready),
            "--idle-timeout", idle,
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not (started := _read(ready)).address:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise JobError(f"Dask's scheduler does not start: {last_line(log) or 'no word from it'}; see {log}")
            time.sleep(0.02)
        return self._keep(
            State(started.address, alive.place(), alive.boot(), settings, scheduler=alive.identity(process.pid) or "")
        )

    def _start_worker(self, state: State) -> str:
        alive.end_marked(self._token("worker"))
        address, settings = state.address, state.settings or Numbers()
        slots = settings.slots
        resources = f"slot={slots} {door.HOME}={door.HOMES}" + (f" GPU={settings.gpus}" if settings.gpus else "")
        names = ",".join(gpus.first(settings.gpus)) if settings.gpus else None
        process, _ = self._dask(
            "worker", address, "--no-nanny", "--nthreads", str(slots + SPARE_THREADS), "--memory-limit", "0",
            "--host", settings.listen or "127.0.0.1", "--resources", resources, "--death-timeout", "30",
            "--local-directory", str(self.home), names=names,
        )  # fmt: skip
        return alive.identity(process.pid) or ""

    def _token(self, role: str) -> str:
        """Return the text that marks the processes of this folder's scheduler or worker."""
        return f"{role} of {self._root} by {self.home}"

    def _dask(self, *words: str, names: str | None = None) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.home / f"{words[0]}.log"
        environment = dask_environment(self.home / KEY, self._token(words[0]), names)
        with private.create(log, "ab") as output:
            process = spawn(dask_command(*words), output, environment, folder=self._root)
        # Without a thread that waits for it, the detached process becomes a zombie while this process lives.
        threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()
        return process, log

    # -- the file ----------------------------------------------------------------------------------------------------

    def _state(self) -> State:
        """Return the state in the file; an empty state where another boot or another machine wrote the file."""
        state = _read(self._file)
        return state if (state.place, state.boot) == (alive.place(), alive.boot()) else State()

    def _keep(self, state: State, **changes: str | Numbers | None) -> State:
        """Replace fields of the state, write the file and return the new state."""
        state = msgspec.structs.replace(state, **changes, root=str(self._root))
        try:
            put(self._file, json.dumps(msgspec.to_builtins(state), indent=1).encode())  # some paths are not UTF-8
        except OSError as error:
            raise JobError(f"{self._file} cannot be written to ({error.strerror or error}); make room there") from None
        return state

    def _forget_others(self) -> None:
        """Remove the folders of clusters that have ended and whose labs no longer exist."""
        for file in self.home.parent.glob(f"*/{FILE_NAME}"):
            state = _read(file)
            is_up = alive.is_alive(state.scheduler) or alive.is_alive(state.worker)
            if state.place in ("", alive.place()) and not is_up and not Path(state.root or "/").exists():
                shutil.rmtree(file.parent, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let only one process at a time run the block; the lock ends with the process."""
        with private.create(self.home / "cluster.lock") as lock:
            take(lock, self.home / "cluster.lock", is_patient=True)
            yield


def dask_command(*words: str) -> list[str]:
    """Return Dask's command with the preload module of this package and without Dask's web pages."""
    http = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--preload", node.__name__]
    return module_command("dask", *words, *http)


def dask_environment(key: Path, token: str, names: str | None = None) -> dict[str, str]:
    """Return the environment of a scheduler or worker that presents and demands the certificate in ``key``.

    Args:
        key: a PEM file.
        token: the text that marks a process of this lab's cluster.
        names: the names of a worker's GPUs, separated by commas; None: the user has named no GPUs.
    """
    # A dead worker does not count against the jobs in its queue: the store counts the deaths of each job. Jobs that
    # wait for a slot count as a worker's load. A driver needs no slot and must not wait behind such jobs. Dask's
    # monitor, which runs fifty times a second, would take 2 % of a core from trainings that last minutes.
    settings = {
        "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
        "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
        "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000000",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "inf",
        # Dask always starts an HTTP server. Without routes, the server shows no pages while it runs.
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
        "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
        **tls.environment(key),
    }
    settings |= {
        node.NOT_FOR_JOBS: ",".join(settings),
        # Replace the token of a job that starts the cluster, because the cluster continues when that job ends.
        alive.TOKEN_VARIABLE: token,
    }
    dropped = (endpoint.VARIABLE, gpus.VARIABLE)
    inherited = {name: value for name, value in own_environment().items() if name not in dropped}
    return {**inherited, **settings, **({} if names is None else {gpus.VARIABLE: names})}


def check_own_address(address: str) -> None:
    """Raise JobError for an address on which this machine cannot listen."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except (OSError, UnicodeError) as error:
        raise JobError(f"listen: expected an address of this machine, found {quoted(address)} ({error})") from None


def _read(path: Path) -> State:
    """Read the state from the lab's file, or the address from the file of Dask's scheduler."""
    try:
        return msgspec.convert(json.loads(inputs.read_text(path, _MOST_BYTES)), State)
    except (OSError, ValueError, RecursionError):  # the file is missing, or incomplete after a kill of its writer
        return State()

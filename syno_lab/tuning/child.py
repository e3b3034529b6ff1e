"""The process of a tuning: its request, its messages, and its search.

:func:`tune_in_worker` sends the target as TVM's text. The parent process finds the target's records, and sends the
contents of the records. The child process searches, one batch for each operator in turn, and reports every trial.
"""

from __future__ import annotations

import importlib
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.light import import_tvm, tame_intrinsics
from syno_lab.processes.process import cores
from syno_lab.processes.worker import WorkerPool, one_line
from syno_lab.tuning.jobs import Device
from syno_lab.tuning.method import Method
from syno_lab.tuning.options import Preset
from syno_lab.tuning.records import Trial
from syno_lab.tuning.targets import check_here, resolve
from syno_lab.tuning.values import TuningResult, TuningTask

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from syno_lab.tuning.search import Search, Tools

_T = TypeVar("_T")


@dataclass(frozen=True)
class Request:
    """The request of a tuning: ``trials`` for each of ``tasks``, or ``total`` for all with the scheduler ``gradient``.

    ``threads``: the number of threads that run operators on this machine; ``boards``: the number of devices that
    measure at once; ``code``: the folder for the user's functions; ``records``: the folder of TVM's own database;
    ``budget_s``: the seconds after which the search ends.
    """

    tasks: tuple[TuningTask, ...]
    trials: tuple[int, ...]
    device: Device
    threads: int
    boards: int
    preset: Preset
    method: Method
    scheduler: str
    total: int
    seed: int
    log: Path
    code: Path
    budget_s: float
    records: Path | None


@dataclass(frozen=True)
class Earlier:
    """Earlier trials of an operator: ``trials`` in its record, and other tunings' trials as the ``start``.

    ``is_answered``: the record has their result; ``is_whole``: the design space has no further candidates.
    """

    trials: tuple[Trial, ...]
    start: tuple[Trial, ...] = ()
    is_answered: bool = False
    is_whole: bool = False


class Started(NamedTuple):
    """The target as TVM writes it, and TVM's version. The reply maps each task's number to an :class:`Earlier`."""

    target: str
    tvm: str


class Turn(NamedTuple):
    """The index of the operator that is tuned now."""

    task: int


class Inside(NamedTuple):
    """The user's code that runs now, such as ``the rule 'name'``; None when the code has returned."""

    code: str | None


class Tried(NamedTuple):
    """A tried candidate, the number of the operator's failed candidates, and the operator's best latency in ms."""

    task: int
    trial: Trial
    failed: int
    best_ms: float | None


class Found(NamedTuple):
    """An operator's result; None: no new candidate was measured, so the result in the record is still valid."""

    task: int
    result: TuningResult | None


class Failed(NamedTuple):
    """The reason why an operator has no result."""

    task: int
    reason: str


Message = Started | Turn | Inside | Tried | Found | Failed
Say = Callable[[Message], None]


def load_module(task: TuningTask) -> IRModule:
    """Return the TVM module of ``task``, made by its builder. Raises :class:`TuningError`."""
    module_name, _, function_name = task.builder.partition(":")
    try:
        builder = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise TuningError(f"cannot find the builder {quoted(task.builder)} ({error})") from None
    module = builder(task.operator, dict(task.binding), task.dtype)
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    if names != ["main"]:
        raise TuningError(f"expected {task.builder} to give one function 'main', found {', '.join(names) or 'none'}")
    return module


def tune_in_worker(say: Say, hear: Callable[[], dict[int, Earlier]], request: Request) -> None:
    """Tune all operators of the request; a failed operator does not stop the others. Raises TrackerError."""
    threads = {"TVM_NUM_THREADS": str(request.threads)}  # A board has its own number of threads.
    # The workers import TVM at the same time as this process.
    runners, builders = WorkerPool(request.boards, request.log, threads), WorkerPool(cores(), request.log)
    with closing(runners), closing(builders):
        tvm = import_tvm()

        from syno_lab.tuning.search import Tools
        from syno_lab.tuning.spaces import Means
        from syno_lab.tuning.turns import share

        target = resolve(request.device.target)
        if request.device.board is None:
            check_here(target, request.device.target)
        tame_intrinsics(*target.intrinsics)
        say(Started(target.text, tvm.__version__))
        earlier = hear()
        tools = Tools(
            builders=builders,
            runners=runners,
            boards=request.boards,
            device=request.device.of(target),
            target=target,
            preset=request.preset,
            means=Means(request.method, target, request.code, lambda code: say(Inside(code))),
            folder=Path(tempfile.gettempdir()),
            database=request.records,
        )
        end = time.monotonic() + request.budget_s
        tuning = Tuning(request, earlier, tools, say, lambda: time.monotonic() > end)
        if request.scheduler == "gradient":
            share(tuning)
        else:
            tuning.in_turn()


@dataclass(frozen=True)
class Tuning:
    """The tuning in its process; ``earlier`` maps an operator's index to its earlier trials."""

    request: Request
    earlier: dict[int, Earlier]
    tools: Tools
    say: Say
    is_over: Callable[[], bool]

    def search(self, number: int, trials: int, tools: Tools | None = None, module: IRModule | None = None) -> Search:
        """Return the search of an operator for ``trials`` trials; ``tools`` and ``module`` are used if not None."""
        from syno_lab.tuning.search import Search

        task, earlier = self.request.tasks[number], self.earlier[number]

        def report(trial: Trial, failed: int, best_ms: float | None) -> None:
            self.say(Tried(number, trial, failed, best_ms))

        module = load_module(task) if module is None else module
        seed = self.request.seed
        return Search(tools or self.tools, task, module, trials, seed, number, earlier.trials, report, earlier.start)

    def guarded(self, number: int, work: Callable[[], _T]) -> _T | None:
        """Run ``work()`` for an operator; report an error and return None, so that other operators continue.

        Raises TrackerError if no operator can be measured.
        """
        self.say(Turn(number))
        try:
            return work()
        except TrackerError:
            raise
        except SynoError as error:
            self.say(Failed(number, str(error)))
        except Exception as error:  # noqa: BLE001 - TVM raises many types; the log has the stack
            traceback.print_exc()
            self.say(Failed(number, one_line(error)))
        return None

    def in_turn(self) -> None:
        """Run one batch for each operator in turn until all operators are done."""
        active = {number: self._batches(number) for number in self.earlier}
        while active:
            for number, batches in list(active.items()):
                if self.guarded(number, lambda batches=batches: next(batches, False)) is not True:  # type: ignore[misc]
                    del active[number]

    def _batches(self, number: int) -> Iterator[bool]:
        """Search one operator, yield True after each batch, and report its result."""
        search = self.search(number, self.request.trials[number])
        for _ in search.batches(self.is_over):
            yield True
        self.say(Found(number, search.finish()))

"""The process of one tuning: ``python -m … <parent> <request pipe> <report pipe>``; JSON lines in, JSON lines out.

The first line in has the target and the tasks. The process answers with the target as TVM writes it, by which the
parent finds its records; the second line in has their contents. Then it searches, one batch for each operator in turn,
and reports every trial.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.apart import one_line
from syno_lab.processes.light import import_tvm, tame_intrinsics
from syno_lab.processes.process import cores, follow_parent
from syno_lab.tuning.jobs import HERE, Device
from syno_lab.tuning.presets import find_preset
from syno_lab.tuning.targets import check_here, resolve
from syno_lab.tuning.values import TuningTask
from syno_lab.tuning.worker import workers

if TYPE_CHECKING:
    import tvm

    from syno_lab.tuning.search import Search, Tools

Say = Callable[[dict[str, Any]], None]


def load_module(task: TuningTask) -> tvm.ir.IRModule:
    """The TVM module of ``task``, made by its builder. Raises :class:`TuningError`."""
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


def _tune(pipe: IO[bytes], say: Say) -> None:
    request = json.loads(pipe.readline())
    boards, log = request["boards"], Path(request["log"])
    # The workers import TVM at the same time as this process.
    threads = {"TVM_NUM_THREADS": str(request["threads"])}  # a board has its own
    with workers(boards, log, threads) as runners, workers(cores(), log) as builders:
        import_tvm()
        import tvm

        from syno_lab.tuning.search import Tools
        from syno_lab.tuning.spaces import Means

        target = resolve(request["target"])
        if request["tracker"] is None:
            check_here(target, request["target"])
        tame_intrinsics(*target.intrinsics)
        say({"event": "start", "target": target.text, "tvm": tvm.__version__})
        known = json.loads(pipe.readline())  # empty where the parent needs only the target
        host, port = request["tracker"] or (HERE, 0)
        device = Device(
            host,
            port,
            request["key"],
            target.device,
            request["wait_s"],
            request["session_s"],
            request["tvm"],
            target.machine,
            request["target"],
        )
        tools = Tools(
            builders=builders,
            runners=runners,
            boards=boards,
            device=device,
            target=target,
            preset=find_preset(request["preset"]),
            means=Means(request["method"], target, lambda code: say({"event": "inside", "code": code})),
            folder=Path(tempfile.gettempdir()),
            database=None if request["records"] is None else Path(request["records"]),
        )
        # The seconds of the import count, too: the parent's deadline started before it.
        end = time.monotonic() + request["budget_s"]
        run = _together if request["scheduler"] == "gradient" else _in_turn
        run(request, known, tools, lambda: time.monotonic() > end, say)


def _in_turn(
    request: dict[str, Any],
    known: dict[str, dict[str, list[dict[str, Any]]]],
    tools: Tools,
    is_over: Callable[[], bool],
    say: Say,
) -> None:
    """One batch for each operator in turn until all are done; an operator that fails does not stop the others."""
    active: dict[int, tuple[Search, Iterator[None]] | None] = dict.fromkeys(map(int, known))
    while active:
        for number in list(active):
            say({"event": "turn", "task": number})
            try:
                if active[number] is None:
                    search = _search(request, number, known.pop(str(number)), tools, say)
                    active[number] = search, search.batches(is_over)
                entry = active[number]
                assert entry is not None
                if next(entry[1], _DONE) is _DONE:
                    say({"event": "result", "task": number, **entry[0].finish()})
                    del active[number]
            except TrackerError:
                raise  # no other operator could be measured either
            except SynoError as error:
                say({"event": "failed", "task": number, "message": str(error)})
                del active[number]
            except Exception as error:  # noqa: BLE001 - TVM raises many types; the log has the stack
                traceback.print_exc()
                say({"event": "failed", "task": number, "message": one_line(error)})
                del active[number]


_DONE = object()


def _together(
    request: dict[str, Any],
    known: dict[str, dict[str, Any]],
    tools: Tools,
    is_over: Callable[[], bool],
    say: Say,
) -> None:
    """All operators under TVM's task scheduler; an operator that fails does not stop the others."""
    from syno_lab.tuning.turns import share

    earlier = {int(number): one for number, one in known.items()}
    modules: dict[int, tvm.ir.IRModule] = {}
    for number in list(earlier):
        say({"event": "turn", "task": number})
        try:
            modules[number] = load_module(TuningTask(**request["tasks"][number]["task"]))
        except SynoError as error:
            say({"event": "failed", "task": number, "message": str(error)})
        except Exception as error:  # noqa: BLE001 - TVM raises many types; the log has the stack
            traceback.print_exc()
            say({"event": "failed", "task": number, "message": one_line(error)})
    if not modules:
        return

    def make(number: int, left: int, small: Tools) -> Search:
        within = len(earlier[number]["known"]) + left
        return _search(request, number, earlier[number], small, say, within, modules[number])

    share(
        {number: request["tasks"][number]["task"] for number in modules},
        modules,
        earlier,
        tools,
        make,
        trials=request["total"],
        each=max(request["total"] // len(request["tasks"]), 1),
        seed=request["seed"],
        is_over=is_over,
        say=say,
    )


def _search(
    request: dict[str, Any],
    number: int,
    earlier: dict[str, list[dict[str, Any]]],
    tools: Tools,
    say: Say,
    trials: int | None = None,
    module: tvm.ir.IRModule | None = None,
) -> Search:
    """The search of one operator; ``trials`` and ``module`` where they are not those of the request."""
    from syno_lab.tuning.search import Search

    entry = request["tasks"][number]
    most = entry["trials"] if trials is None else trials

    def report(trial: int, failed: int, best_ms: float | None, facts: dict[str, Any]) -> None:
        progress = {"trial": trial, "failed": failed, "best_ms": best_ms}
        say({"event": "trial", "task": number, **progress, "facts": facts})

    module = load_module(TuningTask(**entry["task"])) if module is None else module
    return Search(tools, module, most, request["seed"], number, earlier["known"], report, earlier["start"])


def main(arguments: list[str]) -> None:
    """Tune as the parent asks; every outcome but this process's death is one line on the pipe."""
    follow_parent(int(arguments[0]))
    with (
        os.fdopen(int(arguments[1]), "rb") as pipe,
        os.fdopen(int(arguments[2]), "w", buffering=1, encoding="utf-8") as reports,
    ):

        def say(message: dict[str, Any]) -> None:
            reports.write(json.dumps(message) + "\n")

        try:
            _tune(pipe, say)
            say({"event": "end"})
        except SynoError as error:
            say({"event": "error", "tracker": isinstance(error, TrackerError), "message": str(error)})
        except Exception as error:  # the parent makes a TuningError of it; the log has the stack
            say({"event": "error", "tracker": False, "message": one_line(error)})
            raise


if __name__ == "__main__":
    main(sys.argv[1:])

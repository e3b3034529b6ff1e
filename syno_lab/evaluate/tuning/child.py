"""The process of one tuning: ``python -m … <parent> <request pipe> <report pipe>``; JSON in, JSON lines out."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.evaluate.tuning.jobs import Device
from syno_lab.evaluate.tuning.light import import_tvm, tame_intrinsics
from syno_lab.evaluate.tuning.process import cores, follow_parent
from syno_lab.evaluate.tuning.targets import resolve
from syno_lab.evaluate.tuning.values import TuningTask
from syno_lab.evaluate.tuning.worker import one_line, workers

if TYPE_CHECKING:
    import tvm


def load_module(task: TuningTask) -> tvm.ir.IRModule:
    """The TVM module of ``task``, made by its builder. Raises :class:`TuningError`."""
    module_name, _, function_name = task.builder.partition(":")
    try:
        builder = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise TuningError(f"cannot find the builder {task.builder!r} ({error})") from None
    module = builder(task.operator, dict(task.binding), task.dtype)
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    if names != ["main"]:
        raise TuningError(f"expected {task.builder} to give one function 'main', found {', '.join(names) or 'none'}")
    return module


def _tune(request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    log = Path(request["log"])
    # The workers import TVM while we do.
    with workers(1, log) as runners, workers(cores(), log) as builders:
        import_tvm()
        import tvm

        from syno_lab.evaluate.tuning.search import Search

        target = resolve(request["target"])
        tame_intrinsics(*target.intrinsics)
        say({"event": "start", "target": str(target.tvm), "tvm": tvm.__version__})
        host, port = request["tracker"]
        search = Search(
            builders=builders,
            runners=runners,
            module=load_module(TuningTask(**request["task"])),
            target=target,
            device=Device(host, port, request["key"], target.device, request["wait_s"], request["session_s"]),
            trials=request["trials"],
            seed=request["seed"],
            folder=Path(tempfile.gettempdir()),
            budget_s=request["budget_s"],
            records=None if request["records"] is None else Path(request["records"]),
            report=lambda trial, failed, best: say(
                {"event": "trial", "trial": trial, "failed": failed, "best_ms": best}
            ),
        )
        return search.run()


def main(arguments: list[str]) -> None:
    """Tune as the parent asks; every outcome but our own death is one line on the pipe."""
    follow_parent(int(arguments[0]))
    with os.fdopen(int(arguments[1]), "rb") as pipe:
        request = json.load(pipe)
    with os.fdopen(int(arguments[2]), "w", buffering=1, encoding="utf-8") as reports:

        def say(message: dict[str, Any]) -> None:
            reports.write(json.dumps(message) + "\n")

        try:
            say({"event": "result"} | _tune(request, say))
        except SynoError as error:
            say({"event": "error", "tracker": isinstance(error, TrackerError), "message": str(error)})
        except Exception as error:  # the parent makes a TuningError of it; the log has the stack
            say({"event": "error", "tracker": False, "message": one_line(error)})
            raise


if __name__ == "__main__":
    main(sys.argv[1:])

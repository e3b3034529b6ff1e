"""The process of one way of running an operator: ``python -m … <parent> <request pipe> <answer pipe>``, JSON lines.

The first request says what to run; further ones ask for samples. An answer is ``{"calls"}``, ``{"seconds": […]}`` (of
one call each) or ``{"error"}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno_lab.codegen.tvm_trace import check_trace
from syno_lab.errors import SynoError
from syno_lab.processes.apart import one_line
from syno_lab.processes.light import import_tvm, tame_intrinsics
from syno_lab.processes.process import follow_parent
from syno_lab.tuning.jobs import draw
from syno_lab.tuning.values import TuningTask

if TYPE_CHECKING:
    import numpy as np

#: The function to time, and a function that returns its output as an array.
Way = tuple[Callable[[], Any], Callable[[], "np.ndarray"]]

#: The most calls in one sample, for calls that take almost no time.
_MOST_CALLS = 100_000


def torch_way(task: TuningTask, arrays: list[np.ndarray], threads: int, is_compiled: bool) -> Way:
    """The operator's torch module on these arrays, without gradients."""
    import torch

    from syno_lab.systems import read_operator

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    module = read_operator(task.operator).to_torch(dict(task.binding)).to(getattr(torch, task.dtype))
    if is_compiled:
        module.compile()
    x, *weights = (torch.from_numpy(one) for one in arrays)
    for number, weight in enumerate(weights, start=1):
        getattr(module, f"weight_{number}").copy_(weight)
    module.eval()
    return lambda: module(x), lambda: module(x).numpy()


def tvm_way(task: TuningTask, arrays: list[np.ndarray], threads: int, trace: Any) -> Way:
    """The operator's TVM function with the schedule of ``trace``, or with its plain loops, on these arrays."""
    tvm = import_tvm()
    tame_intrinsics()
    from tvm.s_tir import Schedule, Trace
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from syno_lab.systems import read_operator
    from syno_lab.tuning.child import load_module
    from syno_lab.tuning.targets import LOCAL, resolve

    module = load_module(task)
    if trace is not None:
        check_trace(trace)
        schedule = Schedule(module)
        Trace.apply_json_to_schedule(trace, schedule)
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    function = tvm.compile(module, target=resolve(f"{LOCAL}:{threads}").tvm)["main"]
    buffers = [tvm.runtime.tensor(one) for one in arrays]
    shape = read_operator(task.operator).output_sizes(dict(task.binding))
    output = tvm.runtime.empty(shape, task.dtype)
    return lambda: function(*buffers, output), lambda: output.numpy()


def _prepare(request: dict[str, Any]) -> tuple[Callable[[], Any], int]:
    """The function to call and the number of calls in a sample; the output is written to a file."""
    import numpy as np

    from syno_lab.systems import read_operator

    task = TuningTask(**request["task"])
    operator, binding = read_operator(task.operator), dict(task.binding)
    shapes = [operator.input_sizes(binding), *operator.weight_sizes(binding)]
    arrays = draw([(tuple(shape), task.dtype) for shape in shapes], request["seed"])
    threads, way = request["threads"], request["way"]
    if way == "tvm":
        call, output = tvm_way(task, arrays, threads, request["trace"])
    else:
        call, output = torch_way(task, arrays, threads, is_compiled=way == "compile")
    call()  # compiles
    np.save(request["output"], output())
    calls = 1
    while (taken := _sample(call, calls)) < 1e-3 * request["min_ms"] and calls < _MOST_CALLS:
        calls = min(max(round(calls * 1.2e-3 * request["min_ms"] / max(taken, 1e-9)), calls + 1), 10 * calls)
    for _ in range(request["warmup"]):
        _sample(call, calls)
    return call, calls


def _sample(call: Callable[[], Any], calls: int) -> float:
    """Seconds that so many calls take."""
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - begun


def main(arguments: list[str]) -> None:
    """Answer until the pipe is closed; an exception of the way is an answer too, with its stack in the log."""
    follow_parent(int(arguments[0]))
    with (
        os.fdopen(int(arguments[1]), "rb") as requests,
        os.fdopen(int(arguments[2]), "w", buffering=1, encoding="utf-8") as answers,
    ):
        try:
            call, calls = _prepare(json.loads(requests.readline()))
            answers.write(json.dumps({"calls": calls}) + "\n")
            for line in requests:
                seconds = [_sample(call, calls) / calls for _ in range(json.loads(line)["samples"])]
                answers.write(json.dumps({"seconds": seconds}) + "\n")
        except Exception as error:  # noqa: BLE001 - torch and TVM raise many kinds
            traceback.print_exc()
            said = str(error) if isinstance(error, SynoError) else one_line(error)
            answers.write(json.dumps({"error": said}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The process in which tests use TVM: ``python tvm_child.py``, a JSON task a line on stdin, a JSON answer a line out.

TVM may take its process down, above all beside torch, so pytest never imports it; :mod:`trust.tvm_parent` is the other
end. A task is ``{"do": "run" | "search" | "raises", "operator": text, "binding": {...}, ...}``. What a task raises is
its answer, as ``{"failure": traceback}``; a task that takes the process down has none.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from syno_lab.api import Operator
from syno_lab.processes.light import import_tvm, tame_intrinsics

tvm = import_tvm()
# Only now, without torch.
from syno_lab.codegen.tvm_target import lower_json, to_tvm  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))
from trust import checks  # noqa: E402
from trust.tvm_answers import answer_lines  # noqa: E402

#: How many schedules a search proposes.
CANDIDATES = 8


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Compile with the default schedule and compare with the loop nest, on random numbers."""
    operator, binding, dtype, order = (
        Operator.from_json(task["operator"]),
        task["binding"],
        task["dtype"],
        task["order"],
    )
    error = checks.compiled(operator, binding, task["seed"], dtype, order)
    # A file of JSON has no not-a-number.
    answer: dict[str, Any] = {"error": error if np.isfinite(error) else str(error)}
    return answer | ({"text": to_tvm(operator, binding, dtype, order=order).script()} if task.get("text") else {})


@cache
def tame() -> None:
    """Once, before the first search."""
    tame_intrinsics("x86")


def search(task: dict[str, Any]) -> dict[str, Any]:
    """Let MetaSchedule propose schedules, compile some of them, and compare them with the loop nest."""
    tame()
    from tvm.s_tir import meta_schedule as ms

    operator, binding = Operator.from_json(task["operator"]), task["binding"]
    module = lower_json(task["operator"], binding, "float32")
    target = tvm.target.Target(task["target"])
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=2 * CANDIDATES, init_min_unmeasured=CANDIDATES, genetic_num_iters=0
    )
    context = ms.TuneContext(
        mod=module,
        target=target,
        space_generator="post-order-apply",
        search_strategy=strategy,
        task_name="main",
        rand_state=1,
        num_threads=1,
    )
    space = context.generate_design_space()
    context.pre_tuning(CANDIDATES, CANDIDATES, space, ms.database.MemoryDatabase(), ms.cost_model.RandomModel())
    candidates = list(context.generate_measure_candidates() or ())
    context.post_tuning()
    answer = {"sketches": len(space), "candidates": len(candidates), "errors": [], "text": module.script()}
    if target.kind.name != "llvm":
        return answer
    rng = np.random.default_rng(0)
    shapes = (operator.input_sizes(binding), *operator.weight_sizes(binding))
    arrays = [np.asarray(rng.standard_normal(shape)).astype("float32") for shape in shapes]
    want = operator.reference(*(a.astype("float64") for a in arrays), binding=binding)
    for candidate in candidates:
        buffers = [tvm.runtime.tensor(a) for a in (*arrays, np.full(want.shape, np.nan, "float32"))]
        tvm.compile(candidate.sch.mod, target=target)["main"](*buffers)
        answer["errors"].append(float(np.abs(buffers[-1].numpy() - want).max() / np.abs(want).max()))
    return answer


def raises(task: dict[str, Any]) -> dict[str, Any]:
    """The error of lowering the task's text."""
    try:
        lower_json(task["operator"], task["binding"], task["dtype"])
    except Exception as error:  # noqa: BLE001 - the test looks at its kind
        return {"kind": type(error).__name__, "message": str(error)}
    return {"kind": None, "message": ""}


def answer(task: dict[str, Any]) -> dict[str, Any]:
    kinds = {"run": run, "search": search, "raises": raises}
    return kinds[task["do"]](task)


if __name__ == "__main__":
    answer_lines(answer)

"""The process in which tests use TVM: ``python tvm_child.py``, a JSON request on stdin, a JSON line for each answer.

TVM may take its process down, above all beside torch, so pytest never imports it. A request is a list of tasks:
``{"do": "run" | "search", "operator": text, "binding": {...}, ...}``; each answer repeats the task's place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from syno_lab.codegen.reference import reference
from syno_lab.evaluate.tuning.light import import_tvm, tame_intrinsics
from syno_lab.ir.files import from_json

tvm = import_tvm()
# Only now, without torch.
from syno_lab.codegen.tvm_target import lower_json, to_tvm  # noqa: E402

#: How many schedules a search proposes.
CANDIDATES = 8


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Compile with the default schedule and compare with the loop nest, on random numbers."""
    operator, binding, dtype = from_json(task["operator"]), task["binding"], task["dtype"]
    module = to_tvm(operator, binding, dtype, order=task["order"])
    rng = np.random.default_rng(task["seed"])
    arrays = [
        np.asarray(rng.standard_normal(shape)).astype(dtype)
        for shape in (operator.input_sizes(binding), *operator.weight_sizes(binding))
    ]
    want = reference(operator, *(a.astype("float64") for a in arrays), binding=binding)
    # Every element must be written, and nothing but the output: not-a-number would show the one, a copy the other.
    buffers = [tvm.runtime.tensor(a) for a in (*arrays, np.full(want.shape, np.nan, dtype))]
    tvm.compile(module, target="llvm")["main"](*buffers)
    *inputs, found = (b.numpy() for b in buffers)
    return {
        "error": float(np.abs(found - want).max() / max(1.0, np.abs(want).max())),
        "inputs_kept": all(np.array_equal(a, b) for a, b in zip(arrays, inputs, strict=True)),
        "text": module.script(),
    }


def search(task: dict[str, Any]) -> dict[str, Any]:
    """Let MetaSchedule propose schedules, compile some of them, and compare them with the loop nest."""
    from tvm.s_tir import meta_schedule as ms

    operator, binding = from_json(task["operator"]), task["binding"]
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
    want = reference(operator, *(a.astype("float64") for a in arrays), binding=binding)
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


def answers(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One answer for each task, in order."""
    kinds = {"run": run, "search": search, "raises": raises}
    for place, task in enumerate(tasks):
        yield {"place": place, **kinds[task["do"]](task)}
    yield {"torch": "torch" in sys.modules}


def main() -> None:
    tasks = json.load(sys.stdin)
    if any(task["do"] == "search" for task in tasks):
        tame_intrinsics("x86")
    for answer in answers(tasks):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Schedules of the lab's rules against the loop nest: a JSON task a line in, a JSON answer a line out.

The rules are ``fuse-stages`` and ``channel-lanes``. A task is ``{"operator", "binding", "dtype", "bits", "cores",
"draws"}``: for each sketch that has the rules' steps, so many programs are drawn, finished by TVM's postprocessors,
compiled and run. A task ``{"padded"}`` is about the program of :func:`prepared_weight`. :mod:`trust.tvm_parent` is the
other end.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from syno_lab.api import Operator
from syno_lab.processes.light import import_tvm, tame_intrinsics

tvm = import_tvm()
tame_intrinsics("x86")
from tvm import te  # noqa: E402
from tvm.s_tir import Schedule, Trace  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402

from syno_lab.codegen.tvm_target import lower_json  # noqa: E402
from syno_lab.tuning import fusion, lanes, parts  # noqa: E402
from syno_lab.tuning.nests import nest  # noqa: E402
from syno_lab.tuning.targets import resolve  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))
from trust.tvm_answers import answer_lines  # noqa: E402

#: Random operators are small: where registers hold two numbers the rule fits many of them.
lanes._FEWEST_LANES = 2


def has_lanes(trace: Any) -> bool:
    """Whether the rule changed something."""
    return count(trace, "Vectorize") > 0


def is_fused(trace: Any) -> bool:
    """Whether stages were moved into blocks: TVM's own rule draws where it moves one."""
    return count(trace, "ComputeAt") > count(trace, "SampleComputeLocation")


def count(trace: Any, kind: str) -> int:
    """How many steps of a kind a trace has; TVM's own rules only mark loops that are to be vectorized."""
    return sum(one.kind.name == kind for one in trace.insts)


def prepared_weight(is_padded: bool) -> Any:
    """A chain of two products whose first weight is doubled by a stage of its own; padded between them: with a window
    over rows.
    """
    x, w1, w2 = (te.placeholder(one, name=name) for one, name in (((4, 16, 16), "X"), ((4, 8), "W1"), ((8, 16), "W2")))
    doubled = te.compute(w1.shape, lambda r, c: 2.0 * w1[r, c], "doubled")
    r, q = te.reduce_axis((0, 4), "r"), te.reduce_axis((0, 8), "q")
    z = te.compute((8, 16, 16), lambda c, h, w: te.sum(x[r, h, w] * doubled[r, c], r), "Z1")
    if not is_padded:
        y = te.compute((16, 16, 16), lambda o, h, w: te.sum(z[q, h, w] * w2[q, o], q), "Y")
    else:
        row = te.compute((8, 18, 16), lambda c, h, w: tvm.tirx.if_then_else(h > 1, z[c, h - 2, w], 0.0), "Z1_padded")
        k = te.reduce_axis((0, 3), "k")
        y = te.compute((16, 16, 16), lambda o, h, w: te.sum(row[q, h + k, w] * w2[q, o], [q, k]), "Y")
    return tvm.IRModule({"main": te.create_prim_func([x, w1, w2, y])})


def nests_of_prepared_weight(is_padded: bool) -> list[str]:
    """The loop nests of the schedules in which its stages are fused."""
    schedule = Schedule(prepared_weight(is_padded))
    found = fusion.fuse_stages(schedule, schedule.get_sblock("Y"), 2, 256)
    return [nest(one.mod["main"]) for one in found[1:]]


def answer(task: dict[str, Any]) -> dict[str, Any]:
    """How far each program's output is from the loop nest's, relative to the largest output."""
    if "operator" not in task:
        return {"nests": nests_of_prepared_weight(task["padded"])}
    operator, binding, dtype = Operator.from_json(task["operator"]), task["binding"], task["dtype"]
    module = lower_json(task["operator"], binding, dtype)
    target = tvm.target.Target({**json.loads(str(resolve("local:1").tvm)), "num-cores": task["cores"]})
    plain = ms.space_generator.PostOrderApply()
    ms.TuneContext(mod=module, target=target, space_generator=plain, num_threads=1)
    changed: list[str] = []
    fused: list[str] = []

    def fuse(schedule: Any, block: Any) -> Any:
        found = fusion.fuse_stages(schedule, block, task["cores"], task["bits"])
        fused.extend([str(schedule.get(block).name_hint)] * (len(found) - 1))
        return found

    def rule(schedule: Any, block: Any) -> Any:
        found = lanes.channel_lanes(schedule, block, task["bits"])
        changed.extend([str(schedule.get(block).name_hint)] * any(one is not schedule for one in found))
        return found

    rules = [parts.python_rule(fuse), parts.python_rule(rule), *plain.sch_rules]
    generator = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs="from-target", mutator_probs="from-target")
    context = ms.TuneContext(mod=module, target=target, space_generator=generator, rand_state=1, num_threads=1)
    space = list(context.generate_design_space())
    sketches = [one for one in space if has_lanes(one.trace)]
    sketches.sort(key=lambda one: not is_fused(one.trace))
    rng = np.random.default_rng(0)
    shapes = (operator.input_sizes(binding), *operator.weight_sizes(binding))
    arrays = [np.asarray(rng.standard_normal(shape)).astype(dtype) for shape in shapes]
    want = operator.reference(*(one.astype("float64") for one in arrays), binding=binding) if sketches else None
    errors, in_threads, refused, longest, workspaces, padded = [], [], 0, 0, 0, 0
    for sketch in sketches[: task["sketches"]]:
        for seed in range(1, task["draws"] + 1):
            schedule = Schedule(module, seed=seed)
            Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            if not all(one.apply(schedule) for one in generator.postprocs):
                refused += 1
                continue
            script = schedule.mod.script()
            in_threads.append(script.count("T.parallel("))
            longest = max([longest, *(int(one) for one in re.findall(r"T\.vectorized\((\d+)\)", script))])
            if is_fused(sketch.trace):
                padded += len(re.findall(r'T\.vectorized\(\d+\):\n *with T\.sblock\("\w+_padded"\)', script))
            buffers = [tvm.runtime.tensor(one) for one in (*arrays, np.full(want.shape, np.nan, dtype))]
            compiled = tvm.compile(schedule.mod, target=target)
            workspaces += "BackendAllocWorkspace" in compiled.mod.inspect_source("asm")
            compiled["main"](*buffers)
            scale = max(float(np.abs(want).max()), 1e-30)
            errors.append(float(np.abs(buffers[-1].numpy() - want).max()) / scale)
    return {
        "changed": sorted(set(changed)),
        "fused": sorted(set(fused)),
        "sketches": len(sketches),
        "fused sketches": sum(is_fused(one.trace) for one in sketches),
        "in threads": in_threads,
        "longest vector": longest,
        "workspaces": workspaces,
        "padded copies in vectors": padded,
        "rows": sum(count(one.trace, "Fuse") for one in sketches),
        "plain": len(space) - len(sketches),
        "transposed": [f"{count(one.trace, 'TransformLayout')} of {count(one.trace, 'Vectorize')}" for one in sketches],
        "errors": [one if np.isfinite(one) else str(one) for one in errors],
        "refused": refused,
        "widths": {name: lanes.vector_bits(resolve(name).tvm) for name in ("jetson-orin-nano-cpu", "jetson-orin-nano")},
    }


if __name__ == "__main__":
    answer_lines(answer)

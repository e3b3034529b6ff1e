"""One tuning with MetaSchedule's defaults, as a user of TVM would write it: ``python tuning_defaults.py < request``.

The request is JSON: the task, the target as TVM's JSON, ``host``, ``port`` and ``key`` of the tracker, ``trials``,
``seed``, a ``folder`` and whether the imports are to be made ``cheap``. The answer is the last line of the output:
trials, failures, the best latency of the search and the winner's trace. Nothing here is ours but the lowering of the
operator: candidates are built by TVM's LocalBuilder, measured by its RPCRunner, and searched with its population and
cost model.

As it comes, every worker that builds parses all of TVM's tensor intrinsics first: where that takes longer than the
builder's limit of 30 seconds for a candidate, all candidates of the batch die of it. With ``cheap``, only the family of
x86 is parsed, by our remedy, so that the search can be compared at all; that is in MetaSchedule's favour.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

#: What ``RunnerResult`` of a failed candidate is worth in TVM's database.
_FAILED_S = 1e9


def tuned(request: dict[str, Any]) -> dict[str, Any]:
    """The answer."""
    from syno_lab.processes.light import import_tvm, tame_intrinsics

    tame = partial(tame_intrinsics, "x86") if request["cheap"] else None
    if tame is not None:
        import_tvm()
        tame()
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from syno_lab.codegen.tvm_target import lower_json

    task = request["task"]
    module = lower_json(task["operator"], task["binding"], task["dtype"])
    target = tvm.target.Target(json.loads(request["target"]))
    runner = ms.runner.RPCRunner(
        ms.runner.RPCConfig(tracker_host=request["host"], tracker_port=request["port"], tracker_key=request["key"])
    )
    database = ms.tir_integration.tune_tir(
        module,
        target,
        request["folder"],
        request["trials"],
        builder=ms.builder.LocalBuilder(initializer=tame),
        runner=runner,
        seed=request["seed"],
    )
    records = database.get_all_tuning_records()
    seconds = [[float(one) for one in record.run_secs or ()] for record in records]
    least = [sum(one) / len(one) if one else _FAILED_S for one in seconds]
    ran = [one for one in least if one < _FAILED_S]
    if not ran:
        return {
            "trials": len(records),
            "failed": len(records),
            "error": f"no candidate ran: {complaints(Path(request['folder']))}",
        }
    best = records[least.index(min(least))]
    trace = json.loads(json.dumps(best.trace.as_json(), default=lambda one: one.value))
    return {
        "trials": len(records),
        "failed": len(records) - len(ran),
        "best_ms": 1e3 * min(ran),
        "trace": json.dumps(trace, separators=(",", ":")),
    }


def complaints(folder: Path) -> str:
    """What TVM's builder and runner say of the candidates that failed, from its log; the most frequent first."""
    said = Counter(
        line
        for log in folder.glob("logs/*.log")
        for line in re.findall(r"^(?:LocalBuilder|RPCRunner): .+$", log.read_text(encoding="utf-8"), re.MULTILINE)
    )
    return "; ".join(f"{line} ({count} times)" for line, count in said.most_common(3)) or "it does not say why"


if __name__ == "__main__":  # TVM's workers import this file again
    print(json.dumps(tuned(json.load(sys.stdin))))

"""One tuning with MetaSchedule's defaults, as a user of TVM would write it: ``python tuning_defaults.py < request``.

The request is JSON: the task, the target as TVM's JSON, ``host``, ``port`` and ``key`` of the tracker, ``trials``,
``seed`` and a ``folder``. The answer is the last line of the output: trials, failures, the best latency of the search
and the winner's trace. Nothing here is ours but the lowering of the operator: TVM is imported as it comes, candidates
are built by its LocalBuilder, measured by its RPCRunner, and searched with its population and cost model.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: What ``RunnerResult`` of a failed candidate is worth in TVM's database.
_FAILED_S = 1e9


def tuned(request: dict[str, Any]) -> dict[str, Any]:
    """The answer."""
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
        runner=runner,
        seed=request["seed"],
    )
    records = database.get_all_tuning_records()
    seconds = [[float(one) for one in record.run_secs or ()] for record in records]
    least = [sum(one) / len(one) if one else _FAILED_S for one in seconds]
    ran = [one for one in least if one < _FAILED_S]
    if not ran:
        return {"trials": len(records), "failed": len(records), "error": "no candidate ran"}
    best = records[least.index(min(least))]
    trace = json.loads(json.dumps(best.trace.as_json(), default=lambda one: one.value))
    return {
        "trials": len(records),
        "failed": len(records) - len(ran),
        "best_ms": 1e3 * min(ran),
        "trace": json.dumps(trace, separators=(",", ":")),
    }


if __name__ == "__main__":  # TVM's workers import this file again
    print(json.dumps(tuned(json.load(sys.stdin))))

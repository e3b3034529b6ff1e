"""TVM's task scheduler over programs whose every outcome is known, as JSON: whose turns it gave. TVM stays in here."""

from __future__ import annotations

import json
import sys
from typing import Any

from syno_lab.processes.light import import_tvm, tame_intrinsics

SECONDS = {
    # calls, and the seconds of each candidate in turns of two
    "light": (1, [1e-6] * 40),
    "heavy": (4, [1e-3, None, 9e-4, 9e-4] + [8e-4] * 40),
    "small space": (9, [1e-2] * 4),
    "broken": (9, [None] * 40),
}


def main(trials: int) -> dict[str, Any]:
    """The names of the programs in the order of their turns, and how many candidates each gave."""
    tvm = import_tvm()
    tame_intrinsics()
    from tvm import te
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from syno_lab.tuning.targets import resolve
    from syno_lab.tuning.turns import Tried, by_gradient

    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: x[i] + 1.0, name="y")
    module = tvm.IRModule({"main": te.create_prim_func([x, y]).with_attr("global_symbol", "main")})
    turns: list[str] = []

    class Program:
        def __init__(self, name: str, calls: int, seconds: list[float | None]) -> None:
            self.name, self.calls, self.module, self.seconds, self.given = name, calls, module, seconds, 0

        def take(self) -> list[Tried]:
            turns.append(self.name)
            now = self.seconds[self.given : self.given + 2]
            self.given += len(now)
            arguments = ArgInfo.from_entry_func(module, remove_preproc=True)
            return [(ms.MeasureCandidate(Schedule(module), arguments), one) for one in now]

    programs = [Program(name, *known) for name, known in SECONDS.items()]
    by_gradient(programs, resolve("local:1").tvm, trials, seed=0)
    return {"known": SECONDS, "turns": turns, "given": {one.name: one.given for one in programs}}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))

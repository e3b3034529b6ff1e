"""Explain a design space or a schedule to people, as loop nests and steps in plain text. TVM runs in a child process.

>>> print(explain_space(task, Method(rules=("inline", "tiling"))))       # doctest: +SKIP
>>> print(explain_schedule(task, result.trace).after)                    # doctest: +SKIP
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.worker import once
from syno_lab.tuning.child import load_module
from syno_lab.tuning.jobs import apply_trace
from syno_lab.tuning.method import Method
from syno_lab.tuning.targets import check_target, resolve
from syno_lab.tuning.values import TraceData, TuningTask

if TYPE_CHECKING:
    from tvm.ir import IRModule
    from tvm.s_tir import Trace

_DEADLINE_S = 180.0


@dataclass(frozen=True)
class Explanation:
    """A schedule: loop nests ``before`` and ``after``, ``steps`` as text, and ``draws``, the number of random choices.

    ``python`` is the trace as TVM writes it, ``script`` the scheduled program in TVMScript; both are complete and long.
    """

    before: str
    after: str
    steps: tuple[str, ...]
    draws: int
    python: str = field(repr=False)
    script: str = field(repr=False)

    def __str__(self) -> str:
        return "\n".join(f"{number:3}  {step}" for number, step in enumerate(self.steps, start=1))


@dataclass(frozen=True)
class SpaceExplanation:
    """A design space: ``sketches``, each with one draw of its choices, and the blocks that each rule ``changed``."""

    sketches: tuple[Explanation, ...]
    changed: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        rules = [f"{name}: {', '.join(blocks) or 'nothing'}" for name, blocks in self.changed.items()]
        sketches = [f"sketch {n}: {sketch.draws} draws" for n, sketch in enumerate(self.sketches, start=1)]
        return "\n".join([*rules, *sketches])


def explain_schedule(task: TuningTask, trace: str) -> Explanation:
    """Explain how the schedule ``trace`` (of a :class:`TuningResult` of the same task) changes the program.

    Raises :class:`TuningError`, also for a trace of another program.
    """
    try:
        steps = json.loads(trace)
    except ValueError:
        raise TuningError(f"{task.label}: expected a trace as TVM's JSON text, found {quoted(trace[:40])}") from None
    return once(task.label, schedule_job, task, steps, deadline_s=_DEADLINE_S)


def explain_space(
    task: TuningTask, method: Method | None = None, *, target: str = "local", seed: int = 0
) -> SpaceExplanation:
    """Return the sketches that ``method`` makes of the program, and the blocks that each rule changed; measure nothing.

    Raises :class:`TuningError` as a tuning with this method would.
    """
    return once(task.label, space_job, task, method or Method(), check_target(target), seed, deadline_s=_DEADLINE_S)


def schedule_job(task: TuningTask, trace: TraceData) -> Explanation:
    """Run :func:`explain_schedule` in a worker."""
    module = load_module(task)
    return _describe(module, apply_trace(module, trace).trace)


def space_job(task: TuningTask, method: Method, name: str, seed: int) -> SpaceExplanation:
    """Run :func:`explain_space` in a worker."""
    from tvm.s_tir import meta_schedule as ms

    from syno_lab.processes.light import tame_intrinsics
    from syno_lab.tuning.spaces import Means

    target = resolve(name)
    changed: dict[str, list[str]] = {}
    means = Means(method, target, Path(tempfile.gettempdir()), notes=changed)
    tame_intrinsics(*target.intrinsics)
    module = load_module(task)
    with means.watched():
        context = ms.TuneContext(
            mod=module,
            target=target.tvm,
            space_generator=means.space(module),
            search_strategy="replay-trace",
            rand_state=seed % (2**31 - 2) + 1,
            num_threads=1,
        )
        sketches = context.generate_design_space()
    explanations = tuple(_describe(module, sketch.trace) for sketch in sketches)
    return SpaceExplanation(explanations, {name: tuple(blocks) for name, blocks in changed.items()})


def _describe(module: IRModule, trace: Trace) -> Explanation:
    from tvm.s_tir import Schedule

    from syno_lab.tuning.nests import nest, replay

    schedule = Schedule(module)
    steps, draws = replay(schedule, trace)
    return Explanation(
        before=nest(module["main"]),
        after=nest(schedule.mod["main"]),
        steps=tuple(steps),
        draws=draws,
        python=str(trace),
        script=str(schedule.mod.script()),
    )

"""Mutators, postprocessors and cost models of a method as TVM's objects. Imports TVM: for tuning processes only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted

_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """The user's ``function`` or class, its name ``what`` in messages, and ``run``, which calls the function.

    ``run`` stores exceptions, because TVM loses the message of an exception.
    """

    function: Callable[..., Any]
    what: str
    run: Callable[..., Any]


_MUTATORS: dict[str, Callable[[], ms.Mutator]] = {
    "tile-size": lambda: ms.mutator.MutateTileSize(),
    "unroll": lambda: ms.mutator.MutateUnroll(),
    "parallel": lambda: ms.mutator.MutateParallel(_JOBS_PER_CORE),
    "compute-location": lambda: ms.mutator.MutateComputeLocation(),
    "thread-binding": lambda: ms.mutator.MutateThreadBinding(),
}
_JOBS_PER_CORE = 16

_POSTPROCESSORS: dict[str, Callable[[], ms.Postproc]] = {
    "no-dynamic-loop": lambda: ms.postproc.DisallowDynamicLoop(),
    "cooperative-fetch": lambda: ms.postproc.RewriteCooperativeFetch(),
    "unbound-block": lambda: ms.postproc.RewriteUnboundBlock(),
    "parallel-vectorize-unroll": lambda: ms.postproc.RewriteParallelVectorizeUnroll(),
    "reduction": lambda: ms.postproc.RewriteReductionBlock(),
    "layout": lambda: ms.postproc.RewriteLayout(),
    "tensorize": lambda: ms.postproc.RewriteTensorize(),
    "verify-gpu": lambda: ms.postproc.VerifyGPUCode(),
}


def mutator(chosen: str | Part) -> ms.Mutator:
    """Return TVM's mutator of a name, or a mutator that calls the user's function with a trace."""
    if isinstance(chosen, str):
        return _MUTATORS[chosen]()

    def mutated(trace: Trace) -> Trace | None:
        result = chosen.function(trace)
        if result is not None and not isinstance(result, Trace):
            raise TuningError(f"expected {chosen.what} to return a trace or nothing, found {quoted(result)}")
        return result

    return of_python(ms.mutator.PyMutator, apply=lambda trace, _=0: chosen.run(mutated, trace))


def postprocessor(chosen: str | Part) -> ms.Postproc:
    """Return TVM's postprocessor of a name, or a postprocessor that calls the user's function with a schedule."""
    if isinstance(chosen, str):
        return _POSTPROCESSORS[chosen]()

    def kept(schedule: Schedule) -> bool:
        result = chosen.function(schedule)
        if result is not None and not isinstance(result, bool):
            raise TuningError(f"expected {chosen.what} to return whether a candidate is kept, found {quoted(result)}")
        return result is not False

    return of_python(ms.postproc.PyPostproc, apply=lambda schedule: chosen.run(kept, schedule))


def of_python(base: type[_T], **methods: Callable[..., object]) -> _T:
    """Return an object of TVM's search that calls Python functions; ``base`` is the TVM class to derive from."""

    def initialize(*_: object) -> None:
        pass

    def clone(_: _T) -> _T:
        return of_python(base, **methods)

    callbacks = {name: lambda _, *arguments, call=call: call(*arguments) for name, call in methods.items()}
    members = {"_initialize_with_tune_context": initialize, "clone": clone, "__doc__": "One part."}
    part: _T = derived_object(type(base.__name__, (base,), members | callbacks))()
    return part


def python_rule(apply: Callable[..., list[Schedule]], inner: ms.ScheduleRule | None = None) -> ms.ScheduleRule:
    """Make a schedule rule that calls ``apply``; ``inner`` is TVM's own rule inside it, which needs the target."""
    more = {} if inner is None else {"_initialize_with_tune_context": inner._initialize_with_tune_context}
    return of_python(ms.schedule_rule.PyScheduleRule, apply=apply, **more)


def python_cost_model(code: Part) -> ms.CostModel:
    """Make a cost model that calls an object of the user's class; see :class:`~syno_lab.tuning.method.Method`."""
    model = code.run(code.function)
    lacking = [name for name in ("extract", "update", "predict") if not callable(getattr(model, name, None))]
    if lacking:
        raise TuningError(f"expected {code.what} to have extract, update and predict, found no {', '.join(lacking)}")

    def features(context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> list[Any]:
        return _each(model.extract(context, list(candidates)), len(candidates), f"extract of {code.what}")

    def learn(
        context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate], results: Sequence[ms.runner.RunnerResult]
    ) -> None:
        seconds = [statistics.median(map(float, run.run_secs)) if run.run_secs else math.inf for run in results]
        model.update(features(context, candidates), seconds)

    def scores(context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> np.ndarray:
        rows = features(context, candidates)
        output = _each(model.predict(rows), len(rows), f"predict of {code.what}")
        numbers = np.array([float(value) for value in output])
        if not np.isfinite(numbers).all():
            raise TuningError(f"expected predict of {code.what} to return finite numbers, found {quoted(output[:3])}")
        return numbers

    return of_python(ms.cost_model.PyCostModel, update=partial(code.run, learn), predict=partial(code.run, scores))


def _each(entries: Iterable[Any], count: int, source: str) -> list[Any]:
    try:
        listed = list(entries)
    except TypeError:
        listed = []
    if len(listed) != count:
        raise TuningError(f"expected {source} to return one entry for each of {count} candidates, found {len(listed)}")
    return listed

"""Mutators, postprocessors and cost models of a method in TVM's terms. Imports TVM: for tuning processes only."""

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
    """The user's ``function`` (or class), ``what`` it is, and ``run``, which calls code that uses it.

    ``run`` keeps what is raised: an exception loses its message on its way through TVM.
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


def mutator(one: str | Part) -> ms.Mutator:
    """TVM's mutator of a name, or one that calls the user's function with a trace."""
    return _MUTATORS[one]() if isinstance(one, str) else _python_mutator(one)


def postprocessor(one: str | Part) -> ms.Postproc:
    """TVM's postprocessor of a name, or one that calls the user's function with a schedule."""
    return _POSTPROCESSORS[one]() if isinstance(one, str) else _python_postprocessor(one)


def of_python(base: type[_T], **methods: Callable[..., object]) -> _T:
    """A part of TVM's search made of Python functions: ``base`` is TVM's class to derive from."""

    def initialize(*_: object) -> None:
        pass

    def clone(_: _T) -> _T:
        return of_python(base, **methods)

    given = {name: lambda _, *given, call=call: call(*given) for name, call in methods.items()}
    members = {"_initialize_with_tune_context": initialize, "clone": clone, "__doc__": "One part."}
    made: _T = derived_object(type(base.__name__, (base,), members | given))()
    return made


def python_rule(apply: Callable[..., list[Schedule]], inner: ms.ScheduleRule | None = None) -> ms.ScheduleRule:
    """A schedule rule that calls ``apply``; ``inner`` is TVM's own rule inside it, which must get the target."""
    more = {} if inner is None else {"_initialize_with_tune_context": inner._initialize_with_tune_context}
    return of_python(ms.schedule_rule.PyScheduleRule, apply=apply, **more)


def _python_mutator(code: Part) -> ms.Mutator:
    def mutated(trace: Trace) -> Trace | None:
        found = code.function(trace)
        if found is not None and not isinstance(found, Trace):
            raise TuningError(f"expected {code.what} to return a trace or nothing, found {quoted(found)}")
        return found

    return of_python(ms.mutator.PyMutator, apply=lambda trace, _=0: code.run(mutated, trace))


def _python_postprocessor(code: Part) -> ms.Postproc:
    def kept(schedule: Schedule) -> bool:
        found = code.function(schedule)
        if found is not None and not isinstance(found, bool):
            raise TuningError(f"expected {code.what} to return whether a candidate is kept, found {quoted(found)}")
        return found is not False

    return of_python(ms.postproc.PyPostproc, apply=lambda schedule: code.run(kept, schedule))


def python_cost_model(code: Part) -> ms.CostModel:
    """A cost model that asks an object of the user's class; see :class:`~syno_lab.tuning.method.Method`."""
    model = code.run(code.function)
    lacking = [name for name in ("extract", "update", "predict") if not callable(getattr(model, name, None))]
    if lacking:
        raise TuningError(f"expected {code.what} to have extract, update and predict, found no {', '.join(lacking)}")

    def features(context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> list[Any]:
        return _each(model.extract(context, list(candidates)), len(candidates), f"extract of {code.what}")

    def learn(
        context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate], results: Sequence[ms.runner.RunnerResult]
    ) -> None:
        seconds = [statistics.median(map(float, one.run_secs)) if one.run_secs else math.inf for one in results]
        model.update(features(context, candidates), seconds)

    def scores(context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> np.ndarray:
        given = features(context, candidates)
        found = _each(model.predict(given), len(given), f"predict of {code.what}")
        numbers = np.array([float(one) for one in found])
        if not np.isfinite(numbers).all():
            raise TuningError(f"expected predict of {code.what} to return finite numbers, found {quoted(found[:3])}")
        return numbers

    return of_python(ms.cost_model.PyCostModel, update=partial(code.run, learn), predict=partial(code.run, scores))


def _each(found: Iterable[Any], count: int, what: str) -> list[Any]:
    try:
        listed = list(found)
    except TypeError:
        listed = []
    if len(listed) != count:
        raise TuningError(f"expected {what} to return one entry for each of {count} candidates, found {len(listed)}")
    return listed

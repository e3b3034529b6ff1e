"""Mutators, postprocessors and cost models of a method in TVM's terms. Imports TVM: for tuning processes only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms

from syno_lab.errors import TuningError
from syno_lab.inputs import quoted


@dataclass(frozen=True)
class Code:
    """The user's ``function`` (or class), ``what`` it is, and ``run``, which calls code that uses it.

    ``run`` keeps what is raised: an exception loses its message on its way through TVM.
    """

    function: Callable[..., Any]
    what: str
    run: Callable[..., Any]


_MUTATORS: dict[str, Callable[[], Any]] = {
    "tile-size": lambda: ms.mutator.MutateTileSize(),
    "unroll": lambda: ms.mutator.MutateUnroll(),
    "parallel": lambda: ms.mutator.MutateParallel(_JOBS_PER_CORE),
    "compute-location": lambda: ms.mutator.MutateComputeLocation(),
    "thread-binding": lambda: ms.mutator.MutateThreadBinding(),
}
_JOBS_PER_CORE = 16

_POSTPROCESSORS: dict[str, Callable[[], Any]] = {
    "no-dynamic-loop": lambda: ms.postproc.DisallowDynamicLoop(),
    "cooperative-fetch": lambda: ms.postproc.RewriteCooperativeFetch(),
    "unbound-block": lambda: ms.postproc.RewriteUnboundBlock(),
    "parallel-vectorize-unroll": lambda: ms.postproc.RewriteParallelVectorizeUnroll(),
    "reduction": lambda: ms.postproc.RewriteReductionBlock(),
    "layout": lambda: ms.postproc.RewriteLayout(),
    "tensorize": lambda: ms.postproc.RewriteTensorize(),
    "verify-gpu": lambda: ms.postproc.VerifyGPUCode(),
}


def mutator(one: str | Code) -> Any:
    """TVM's mutator of a name, or one that calls the user's function with a trace."""
    return _MUTATORS[one]() if isinstance(one, str) else _python_mutator(one)


def postprocessor(one: str | Code) -> Any:
    """TVM's postprocessor of a name, or one that calls the user's function with a schedule."""
    return _POSTPROCESSORS[one]() if isinstance(one, str) else _python_postprocessor(one)


def _python_mutator(code: Code) -> Any:
    def mutated(trace: Trace) -> Trace | None:
        found = code.function(trace)
        if found is not None and not isinstance(found, Trace):
            raise TuningError(f"expected {code.what} to return a trace or nothing, found {quoted(found)}")
        return found

    @derived_object
    class PythonMutator(ms.mutator.PyMutator):
        """One mutator."""

        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, trace: Trace, _: int = 0) -> Any:
            return code.run(mutated, trace)

        def clone(self) -> Any:
            return _python_mutator(code)

    return PythonMutator()


def _python_postprocessor(code: Code) -> Any:
    def kept(schedule: Schedule) -> bool:
        found = code.function(schedule)
        if found is not None and not isinstance(found, bool):
            raise TuningError(f"expected {code.what} to return whether a candidate is kept, found {quoted(found)}")
        return found is not False

    @derived_object
    class PythonPostprocessor(ms.postproc.PyPostproc):
        """One postprocessor."""

        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, schedule: Schedule) -> Any:
            return code.run(kept, schedule)

        def clone(self) -> Any:
            return _python_postprocessor(code)

    return PythonPostprocessor()


def python_cost_model(code: Code) -> Any:
    """A cost model that asks an object of the user's class; see :class:`~syno_lab.tuning.method.Method`."""
    model = code.run(code.function)
    lacking = [name for name in ("extract", "update", "predict") if not callable(getattr(model, name, None))]
    if lacking:
        raise TuningError(f"expected {code.what} to have extract, update and predict, found no {', '.join(lacking)}")

    def features(context: Any, candidates: Sequence[Any]) -> list[Any]:
        return _each(model.extract(context, list(candidates)), len(candidates), f"extract of {code.what}")

    def learn(context: Any, candidates: Sequence[Any], seconds: list[float]) -> None:
        model.update(features(context, candidates), seconds)

    def scores(context: Any, candidates: Sequence[Any]) -> np.ndarray[Any, Any]:
        given = features(context, candidates)
        found = _each(model.predict(given), len(given), f"predict of {code.what}")
        numbers = np.array([float(one) for one in found])
        if not np.isfinite(numbers).all():
            raise TuningError(f"expected predict of {code.what} to return finite numbers, found {quoted(found[:3])}")
        return numbers

    @derived_object
    class PythonCostModel(ms.cost_model.PyCostModel):
        """One cost model."""

        def load(self, path: str) -> None:
            raise NotImplementedError

        def save(self, path: str) -> None:
            raise NotImplementedError

        def update(self, context: Any, candidates: Any, results: Any) -> None:
            seconds = [statistics.median(map(float, one.run_secs)) if one.run_secs else math.inf for one in results]
            code.run(learn, context, candidates, seconds)

        def predict(self, context: Any, candidates: Any) -> Any:
            return code.run(scores, context, candidates)

    return PythonCostModel()


def _each(found: Any, count: int, what: str) -> list[Any]:
    try:
        listed = list(found)
    except TypeError:
        listed = []
    if len(listed) != count:
        raise TuningError(f"expected {what} to return one entry for each of {count} candidates, found {len(listed)}")
    return listed

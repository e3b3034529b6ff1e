"""The search of one tuning, in its own process: propose, compile, measure, learn, and measure the winner again."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import TuningError
from syno_lab.evaluate.tuning import jobs
from syno_lab.evaluate.tuning.jobs import Argument, Device, Effort
from syno_lab.evaluate.tuning.light import import_xgboost
from syno_lab.evaluate.tuning.process import cores
from syno_lab.evaluate.tuning.targets import ResolvedTarget, resolve
from syno_lab.evaluate.tuning.worker import CallFailedError, WorkerPool

if TYPE_CHECKING:
    import numpy as np
    import tvm

#: With TVM's 512 x 4 the mutations alone take 30 seconds for 32 trials; smaller populations are not seen to find less.
#: A search of few trials gets a smaller one still, four for each candidate that is picked.
POPULATION, GENERATIONS = 64, 2
#: TVM's cost model guesses at random until it has seen 100 candidates; a tuning here may have no more than 16.
WARMUP = 16
BATCH = 16

SEARCH_EFFORT = Effort(repeat=3, min_ms=10)
FINAL_EFFORT = Effort(repeat=12, min_ms=15)
#: So many of the best are measured again: the least of many noisy numbers is not the best candidate.
FINALISTS = 3

BUILD_DEADLINE_S = 30.0
REFERENCE_DEADLINE_S = 60.0
#: A search whose candidates all fail in a row is broken, not unlucky.
FAILURES_IN_A_ROW = 24

#: The greatest difference between a tuned and the unscheduled program, relative to the largest output.
_TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10}


@dataclass(frozen=True)
class Search:
    """One search, given all that it needs."""

    builders: WorkerPool
    runners: WorkerPool
    module: tvm.ir.IRModule
    target: ResolvedTarget
    device: Device
    trials: int
    seed: int
    folder: Path
    budget_s: float
    report: Callable[[int, int, float | None], None]
    records: Path | None = None

    def run(self) -> dict[str, Any]:
        """Tune; the fields of a result that the search knows. Raises :class:`TuningError`, :class:`TrackerError`."""
        started = time.monotonic()
        state = _State(self)
        truth = self.builders.submit(
            jobs.reference,
            self.module,
            resolve("local").tvm,
            state.inputs,
            state.output,
            deadline_s=REFERENCE_DEADLINE_S,
        )
        state.propose(lambda: time.monotonic() - started > self.budget_s)
        return state.finish(truth)


class _State:
    """The moving parts of a running search."""

    def __init__(self, search: Search) -> None:
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo

        self._search = search
        self.arguments = [_argument(one) for one in ArgInfo.from_entry_func(search.module, remove_preproc=False)]
        *inputs, self.output = self.arguments
        self.inputs = jobs.draw(inputs, search.seed)
        self._measured: list[tuple[float, str]] = []
        self._history: list[tuple[int, float]] = []
        self._trial = self._failed = self._in_a_row = 0
        self._known: dict[int, float | None] = {}  # by the structural hash of the scheduled module
        self._last_failure = ""

    def propose(self, over: Callable[[], bool]) -> None:
        """Batches of candidates until the trials, the space or the time run out."""
        import numpy as np
        from tvm.s_tir import meta_schedule as ms

        search = self._search
        import_xgboost()
        np.random.seed(search.seed % 2**32)  # noqa: NPY002 - TVM's cost model draws from the global generator
        database = ms.database.MemoryDatabase()
        if search.records is not None:
            search.records.mkdir(parents=True, exist_ok=True)
            database = ms.database.JSONDatabase(work_dir=str(search.records))
        workload = database.commit_workload(search.module)
        warmup = min(WARMUP, max(search.trials // 2, 1))
        model = ms.cost_model.XGBModel(num_warmup_samples=warmup, early_stopping_rounds=20, num_tuning_cores=1)
        # The model knows nothing before it has seen measurements: breeding candidates for it would be in vain.
        random = ms.search_strategy.EvolutionarySearch(
            population_size=3 * warmup, init_min_unmeasured=2 * warmup, genetic_num_iters=0
        )
        population = min(POPULATION, 4 * max(search.trials - warmup, 1))
        guided = ms.search_strategy.EvolutionarySearch(
            population_size=population, init_min_unmeasured=3 * population // 4, genetic_num_iters=GENERATIONS
        )
        for strategy, trials in ((random, warmup), (guided, search.trials - warmup)):
            if trials < 1:
                continue
            context = ms.TuneContext(
                mod=search.module,
                target=search.target.tvm,
                space_generator="post-order-apply",
                search_strategy=strategy,
                task_name="main",
                rand_state=search.seed % (2**31 - 2) + 1,
                num_threads=cores(),
            )
            context.pre_tuning(trials, min(trials, BATCH), context.generate_design_space(), database, model)
            while not over():
                candidates = context.generate_measure_candidates()
                if not candidates:
                    break
                taken = self._try(candidates, over)
                # What failed counts as infinitely slow for the search, as in TVM's own callback.
                results = [ms.runner.RunnerResult([one] if one else None, None if one else "failed") for one in taken]
                for candidate, one in zip(candidates, taken, strict=True):
                    record = ms.database.TuningRecord(
                        candidate.sch.trace, workload, [one or 1e10], search.target.tvm, candidate.args_info
                    )
                    database.commit_tuning_record(record)
                model.update(context, candidates, results)
                context.notify_runner_results(candidates, results)
            context.post_tuning()

    def _try(self, candidates: list[Any], over: Callable[[], bool]) -> list[float | None]:
        """Seconds that each candidate takes, None where it failed or time ran out. Those seen before cost nothing."""
        from tvm_ffi import structural_hash

        search = self._search
        builds: dict[int, tuple[str, Future[Any]]] = {}
        order = [structural_hash(candidate.sch.mod) for candidate in candidates]
        for code, candidate in zip(order, candidates, strict=True):
            if code not in self._known and code not in builds:
                path = str(search.folder / f"candidate-{len(self._known) + len(builds)}.{search.target.artifact}")
                job = (jobs.compile_candidate, candidate.sch.mod, search.target.tvm, path)
                builds[code] = path, search.builders.submit(*job, deadline_s=BUILD_DEADLINE_S)
        if search.device.host in ("127.0.0.1", "localhost", "::1"):
            wait([build for _, build in builds.values()])  # compiling beside a measurement would spoil it
        for code, (path, build) in builds.items():
            if self._measured and over():
                break
            self._known[code] = self._measure(path, build)
        return [self._known.get(code) for code in order]

    def _measure(self, path: str, build: Future[Any]) -> float | None:
        self._trial += 1
        taken = None
        try:
            build.result()
            taken = statistics.median(self._run(jobs.measure, path, self.arguments, SEARCH_EFFORT))
            self._measured.append((taken, path))
            self._in_a_row = 0
        except CallFailedError as failure:
            self._failed += 1
            self._in_a_row += 1
            self._last_failure = str(failure)
            if self._in_a_row >= FAILURES_IN_A_ROW:
                raise TuningError(f"{self._in_a_row} candidates in a row failed; the last: {failure}") from None
        best = min(self._measured)[0] * 1e3 if self._measured else None
        if best is not None:
            self._history.append((self._trial, best))
        self._search.report(self._trial, self._failed, best)
        return taken

    def _run(self, job: Callable[..., Any], *arguments: Any) -> Any:
        device = self._search.device
        # Past the session's own time the server should have ended it; the rest is for the way there and back.
        deadline_s = device.wait_s + device.session_s + 10
        return self._search.runners.submit(job, device, *arguments, deadline_s=deadline_s).result()

    def finish(self, truth: Any) -> dict[str, Any]:
        """Measure the best few again, compare the winner with the unscheduled program."""
        if not self._measured:
            if self._trial == 0:
                raise TuningError("MetaSchedule proposed no candidate for this operator and target")
            raise TuningError(f"none of {self._trial} candidates ran; the last: {self._last_failure}")
        finalists: list[tuple[float, float, Any]] = []
        for _, path in sorted(self._measured)[:FINALISTS]:
            try:
                seconds, output = self._run(jobs.measure_and_run, path, self.inputs, self.output, FINAL_EFFORT)
            except CallFailedError as failure:
                self._last_failure = str(failure)
                continue
            finalists.append((statistics.median(seconds), min(seconds), output))
        if not finalists:
            raise TuningError(f"the best candidates did not run a second time: {self._last_failure}")
        median, least, output = min(finalists, key=lambda one: one[0])
        return {
            "latency_ms": median * 1e3,
            "best_ms": least * 1e3,
            "repeats": FINAL_EFFORT.repeat,
            "trials": self._trial,
            "failed": self._failed,
            "verified": self._verify(truth, output),
            "history": self._history,
        }

    def _verify(self, truth: Any, output: np.ndarray) -> bool:
        import numpy as np

        try:
            expected = truth.result()
        except CallFailedError:
            return False
        scale = float(np.abs(expected).max())
        difference = float(np.abs(np.asarray(output, "float64") - expected).max())
        allowed = _TOLERANCE[self.output[1]] * scale
        if not math.isfinite(difference) or difference > allowed:
            raise TuningError(
                f"the tuned program computes something else: largest difference {difference:.3g} "
                f"where {allowed:.3g} is allowed; this is a bug in TVM or in the operator's lowering"
            )
        return True


def _argument(info: Any) -> Argument:
    kind, dtype, shape = info.as_json()
    if kind != "TENSOR":
        raise TuningError(f"expected tensors as the arguments of main, found {kind}")
    return tuple(int(size) for size in shape), str(dtype)

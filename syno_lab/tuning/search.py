"""The search for one operator, in the tuning's process: propose, compile, measure, learn, measure the best again."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.codegen.tvm_trace import check_database
from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.process import cores
from syno_lab.processes.worker import CallFailedError, WorkerPool, apart
from syno_lab.tuning import jobs
from syno_lab.tuning.jobs import Argument, Device, Measured
from syno_lab.tuning.options import Effort, Preset
from syno_lab.tuning.records import Trial
from syno_lab.tuning.space_size import most_programs
from syno_lab.tuning.targets import LOCAL, ResolvedTarget, resolve
from syno_lab.tuning.values import TraceData, TuningResult, TuningTask

if TYPE_CHECKING:
    import numpy as np
    import tvm
    from tvm.s_tir import Trace
    from tvm.s_tir.meta_schedule import MeasureCandidate, TuneContext
    from tvm.s_tir.meta_schedule.arg_info import TensorInfo
    from tvm.s_tir.meta_schedule.runner import RunnerResult

    from syno_lab.tuning.spaces import Means

BUILD_DEADLINE_S = 30.0
REFERENCE_DEADLINE_S = 60.0
#: A search ends with an error after this number of successive failures, or of successive timeouts of the board.
FAILURES_IN_A_ROW = 24
TIMEOUTS_IN_A_ROW = 4
#: The search ends after this number of successive phases without a new candidate, each with a larger population.
_EMPTY_PHASES = 2
#: The number of draws per program of a small space, so that the probability to miss a program is below 1 in 1000.
_DRAWS_EACH = 8
#: The seconds of a failed candidate in the search, as in TVM's own callback.
_FAILED_S = 1e10

#: The largest allowed difference between the outputs of two programs, relative to the largest output.
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10}

#: A callback; its arguments are a trial, the number of failed candidates, and the best latency in ms.
Report = Callable[[Trial, int, float | None], None]


@dataclass(frozen=True)
class Tools:
    """The objects that all searches of a tuning share: worker processes, the board, the preset and the method."""

    builders: WorkerPool
    runners: WorkerPool
    boards: int
    device: Device
    target: ResolvedTarget
    preset: Preset
    means: Means
    folder: Path
    database: Path | None = None


@dataclass
class _Candidate:
    """A candidate: TVM's object for it, its hash, and its result."""

    measured: MeasureCandidate
    code: int
    seconds: float | None = None
    build: Future[str] | None = None


@dataclass
class Search:
    """The search of an operator. ``known`` are the record's trials, which are not measured again.

    ``start`` are trials of the program by other tunings. Trials in ``start`` do not count, and are not measured again.
    """

    tools: Tools
    task: TuningTask
    module: tvm.ir.IRModule
    trials: int
    seed: int
    number: int
    known: Sequence[Trial]
    report: Report
    start: Sequence[Trial] = ()
    stopped: str = "budget"
    # The candidates of the last batch with their seconds.
    news: list[tuple[MeasureCandidate, float | None]] = field(default_factory=list)
    _tried: dict[int, _Candidate] = field(default_factory=dict)  # The keys are hashes of scheduled modules.
    _history: list[tuple[int, float]] = field(default_factory=list)
    _trial: int = 0
    _failed: int = 0
    _in_a_row: int = 0
    _timeouts: int = 0
    _last_failure: str = ""
    _restored: int = 0
    _built: int = 0
    _phases: int = 0
    _most: float = math.inf  # the number of programs in the design space, if it can be counted
    _population: int = 0
    _is_wide: bool = False  # whether the search includes sketches that the method's rules leave out at first

    def __post_init__(self) -> None:
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo

        arguments = [shape_and_dtype(info) for info in ArgInfo.from_entry_func(self.module, remove_preproc=False)]
        self.arguments, (*inputs, self.output) = arguments, arguments
        self.inputs = jobs.draw(inputs, self.seed)
        self._truth = self.tools.builders.submit(
            jobs.reference, self.module, resolve(LOCAL).tvm, self.inputs, self.output, deadline_s=REFERENCE_DEADLINE_S
        )

    # -- proposing -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Open the database, make the cost model, and restore the record's trials."""
        import numpy as np

        np.random.seed((self.seed + self._trial) % 2**32)  # noqa: NPY002 - TVM's cost model draws from this generator
        self._database, self._workload = self._open_database()
        self._model = self.tools.means.cost_model(self._warmup, self.seed)
        self._restore()

    @property
    def _warmup(self) -> int:
        return min(self.tools.preset.warmup, max(self.trials // 2, 1)) if self.tools.means.is_guided else 0

    def batches(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Search until no trials, candidates or time are left; yield after each batch, for other operators' batches.

        The search leaves out sketches that are seldom good, until no other candidates are left.
        """
        self.prepare()
        preset, warmup = self.tools.preset, self._warmup
        empty = 0
        while self._trial < self.trials:
            # Before the first measurements the cost model cannot predict, so it cannot guide mutations.
            is_blind = self._trial < warmup
            goal = min(warmup, self.trials) if is_blind else self.trials
            before = self._trial
            yield from self._phase(goal - self._trial, 0 if is_blind else preset.generations, empty, is_over)
            if is_over() and self._trial < self.trials and self._measured():
                self.stopped = "time"
                return
            # A small population may lack new candidates by chance; only larger populations show an exhausted space.
            empty = empty + 1 if self._trial == before else 0
            if self.tools.means.can_widen and not self._is_wide and (empty or self._is_whole(empty)):
                self._is_wide, empty, self._most = True, 0, math.inf
                continue
            if empty > _EMPTY_PHASES or self._is_whole(empty):
                self.stopped = "space" if self._trial < self.trials else "budget"
                return

    def _is_whole(self, empty: int) -> bool:
        """Return whether all programs of a countable design space were probably tried."""
        means = self.tools.means
        if not means.is_guided or not self._most < math.inf:
            return False
        # The user's code may return another design space at the next call.
        if len(self._tried) >= self._most and (empty or not means.has_code):
            return True
        return empty > 0 and self._population >= _DRAWS_EACH * self._most

    def _phase(self, trials: int, generations: int, empty: int, is_over: Callable[[], bool]) -> Iterator[None]:
        """Try at most ``trials`` candidates of a strategy; ``empty`` counts the last phases without new candidates."""
        from tvm.s_tir import meta_schedule as ms

        preset, means = self.tools.preset, self.tools.means
        population = (min(preset.population, 4 * trials) if generations else 3 * trials) * 8**empty
        # If the last phase showed a small space, a few draws for each of its programs are enough.
        population = self._population = int(min(population, max(_DRAWS_EACH * self._most, 1)))
        unmeasured = max(3 * population // 4 if generations else 2 * population // 3, 1)
        with means.watched():
            context = ms.TuneContext(
                mod=self.module,
                target=self.tools.target.tvm,
                space_generator=means.space(self.module, self._is_wide),
                # Five populations drawn in vain; of a larger one, one is enough.
                search_strategy=means.strategy(population, unmeasured, generations, 1 if empty else 5),
                task_name="main",
                rand_state=(self.seed + self._phases + 1009 * self._restored) % (2**31 - 2) + 1,
                num_threads=cores(),
            )
            sketches = context.generate_design_space()
        self._most = sum(most_programs(sketch.trace) for sketch in sketches)
        self._phases += 1
        batch = min(trials, preset.batch)
        # All best candidates of the cost model may be known, so search all drawn and mutated candidates for new ones.
        looks_at_all = means.is_guided and empty > 0
        shown = population if looks_at_all else batch
        context.pre_tuning(max(trials, shown), shown, sketches, self._database, self._model)
        while not is_over():
            with means.watched():  # the user's rules may run again here
                proposed = context.generate_measure_candidates()
            if proposed and looks_at_all:
                proposed = self._unknown(proposed)[:batch]
            if not proposed:
                break
            tried = self._try(proposed, is_over)
            self._learn(context, proposed, tried)
            context.notify_runner_results(proposed, [as_result(candidate.seconds) for candidate in tried])
            yield
            if looks_at_all:
                break
        context.post_tuning()

    def _unknown(self, proposed: list[MeasureCandidate]) -> list[MeasureCandidate]:
        """Return the candidates that were not tried, in order, without duplicates."""
        from tvm_ffi import structural_hash

        first: dict[int, MeasureCandidate] = {}
        for candidate in proposed:
            first.setdefault(structural_hash(candidate.sch.mod), candidate)
        return [candidate for code, candidate in first.items() if code not in self._tried]

    def _learn(self, context: TuneContext, proposed: list[MeasureCandidate], tried: list[_Candidate]) -> None:
        from tvm.s_tir import meta_schedule as ms

        for candidate, result in zip(proposed, tried, strict=True):
            record = ms.database.TuningRecord(
                candidate.sch.trace,
                self._workload,
                [result.seconds or _FAILED_S],
                self.tools.target.tvm,
                candidate.args_info,
            )
            self._database.commit_tuning_record(record)
        with self.tools.means.watched():  # the cost model may be the user's code
            self._model.update(context, proposed, [as_result(entry.seconds) for entry in tried])

    def _open_database(self) -> tuple[Any, Any]:
        from tvm.s_tir import meta_schedule as ms

        database = ms.database.MemoryDatabase()
        if self.tools.database is not None:
            self.tools.database.mkdir(parents=True, exist_ok=True)
            self._set_damage_aside(self.tools.database)
            check_database(self.tools.database)
            database = ms.database.JSONDatabase(work_dir=str(self.tools.database))
        return database, database.commit_workload(self.module)

    def _set_damage_aside(self, folder: Path) -> None:
        """Rename files that TVM cannot read: an incomplete line raises an error in TVM, and a blank line crashes it."""
        files = sorted(folder.glob("database_*.json"))
        if not files:
            return
        try:
            self.tools.builders.submit(jobs.read_database, str(folder), deadline_s=BUILD_DEADLINE_S).result()
        except CallFailedError as failure:
            for file in files:
                file.replace(file.with_suffix(".damaged"))
            print(f"{folder}: TVM cannot read its database, set aside as *.damaged: {failure}", flush=True)  # noqa: T201 - the log

    def _restore(self) -> None:
        """Restore the trials of the record, which count and train the cost model, but are not measured again."""
        from tvm.s_tir import meta_schedule as ms
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo
        from tvm_ffi import structural_hash

        information = ArgInfo.from_entry_func(self.module, remove_preproc=True)

        def read(trial: Trial) -> _Candidate:
            misfit = "the record's schedules do not fit this operator: it was made from another program; move it away"
            schedule = jobs.apply_trace(self.module, trial.trace, misfit)
            seconds = statistics.median(trial.seconds) if trial.seconds else None
            return _Candidate(ms.MeasureCandidate(schedule, information), structural_hash(schedule.mod), seconds)

        restored: list[_Candidate] = []
        for trial in self.known:
            candidate = read(trial)
            self._tried[candidate.code] = candidate
            self._trial += 1
            self._failed += candidate.seconds is None
            restored.append(candidate)
            best = self._best_ms()
            if best is not None:
                self._history.append((self._trial, best))
        self._restored = len(restored)
        for candidate in map(read, self.start):
            if candidate.code not in self._tried:
                self._tried[candidate.code] = candidate
                restored.append(candidate)
        if restored:
            context = ms.TuneContext(mod=self.module, target=self.tools.target.tvm, num_threads=cores())
            self._learn(context, [candidate.measured for candidate in restored], restored)

    # -- trying --------------------------------------------------------------------------------------------------------

    def _try(self, proposed: list[MeasureCandidate], is_over: Callable[[], bool]) -> list[_Candidate]:
        """Compile and measure the new candidates, on all boards at once; known candidates are skipped."""
        from tvm_ffi import structural_hash

        self.news = []
        order = [structural_hash(candidate.sch.mod) for candidate in proposed]
        new: dict[int, _Candidate] = {}
        builds = []
        for code, candidate in zip(order, proposed, strict=True):
            if code not in self._tried and code not in new:
                new[code] = _Candidate(candidate, code)
                builds.append(self._build(new[code]))
        if self.tools.device.is_near:
            wait(builds)  # compiling during a measurement would disturb it
        waiting = list(zip(new.values(), builds, strict=True))
        running: dict[Future[Measured], _Candidate] = {}
        while waiting or running:
            while waiting and len(running) < self.tools.boards and not (is_over() and self._measured()):
                ready, build = waiting.pop(0)
                running[self._submit(ready, build, self.tools.preset.search)] = ready
            if not running:
                break  # the time limit has passed, so the remaining candidates are not tried
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                self._take(running.pop(future), future)
        return [self._tried.get(code, new.get(code)) or self._tried[code] for code in order]

    def _build(self, candidate: _Candidate) -> Future[str]:
        tools = self.tools
        self._built += 1
        path = str(tools.folder / f"operator-{self.number}-candidate-{self._built}.{tools.target.artifact}")
        job = (candidate.measured.sch.mod, tools.target.tvm, path, tools.target.linker)
        candidate.build = tools.builders.submit(jobs.compile_candidate, *job, deadline_s=BUILD_DEADLINE_S)
        return candidate.build

    def _submit(
        self, candidate: _Candidate, build: Future[str], effort: Effort, inputs: list[np.ndarray] | None = None
    ) -> Future[Measured]:
        """Measure a candidate when it is built; after a broken session measure again, as the server may have died."""
        device = self.tools.device
        # The server ends the session after ``session_s``; the additional seconds are for the connection.
        deadline_s = device.wait_s + device.session_s + 10

        def run() -> Measured:
            arguments, call = (device, build.result(), self.arguments, effort, inputs), self.tools.runners.call
            if device.board is None:
                return call(apart, device.session_s, jobs.measure, *arguments, deadline_s=deadline_s)
            try:
                return call(jobs.measure, *arguments, deadline_s=deadline_s)
            except CallFailedError as failure:
                if is_timeout(failure):
                    raise
                return call(jobs.measure, *arguments, deadline_s=deadline_s)

        return self.tools.runners.run(run)

    def _take(self, candidate: _Candidate, future: Future[Measured]) -> None:
        """Count a tried candidate, and report it."""
        self._trial += 1
        samples: list[float] = []
        board, reason = "", ""
        try:
            samples, board, _ = future.result()
            candidate.seconds = statistics.median(samples)
            self._in_a_row = self._timeouts = 0
        except CallFailedError as failure:
            reason = self._last_failure = str(failure)
            self._failed += 1
            self._in_a_row += 1
            self._timeouts = self._timeouts + 1 if is_timeout(failure) else 0
        self._tried[candidate.code] = candidate
        self.news.append((candidate.measured, candidate.seconds))
        best = self._best_ms()
        if best is not None:
            self._history.append((self._trial, best))
        trial = Trial(_plain(candidate.measured.sch.trace), tuple(samples), reason, board)
        self.report(trial, self._failed, best)
        if self._timeouts >= TIMEOUTS_IN_A_ROW:
            raise TuningError(
                f"{self._timeouts} candidates in a row ran out of time on {quoted(self.tools.device.key)}: the board "
                f"hangs, or a call takes longer than {self.tools.device.session_s:g} s; the last: {reason}"
            )
        if self._in_a_row >= FAILURES_IN_A_ROW:
            raise TuningError(f"{self._in_a_row} candidates in a row failed; the last: {reason}")

    def _measured(self) -> list[_Candidate]:
        return sorted(
            (item for item in self._tried.values() if item.seconds is not None), key=lambda item: item.seconds or 0
        )

    def _best_ms(self) -> float | None:
        best = min((item.seconds for item in self._tried.values() if item.seconds is not None), default=None)
        return None if best is None else best * 1e3

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> TuningResult:
        """Measure the best few candidates again, and compare the best output with the unscheduled program's.

        The parent adds the fields of the result that only the parent has: seconds, method and conditions.
        """
        import tvm

        preset = self.tools.preset
        measured = self._measured()
        if not measured:
            if self._trial == 0:
                own = " of this method" if not self.tools.means.is_default else ""
                raise TuningError(
                    "MetaSchedule proposed no candidate for this operator and target: "
                    f"no program{own} passed its checks"
                )
            raise TuningError(
                f"none of {self._trial} candidates ran; the last: {self._last_failure or 'see the record'}"
            )
        best = measured[: preset.finalists]
        # Compile recorded candidates again, all of them before the first measurement.
        builds = [candidate.build or self._build(candidate) for candidate in best]
        wait(builds)
        finalists: list[tuple[float, float, np.ndarray | None, _Candidate]] = []
        for candidate, build in zip(best, builds, strict=True):
            try:
                seconds, _, output = self._submit(candidate, build, preset.final, self.inputs).result()
            except CallFailedError as failure:
                self._last_failure = str(failure)
                continue
            finalists.append((statistics.median(seconds), min(seconds), output, candidate))
        if not finalists:
            raise TuningError(f"the best candidates did not run a second time: {self._last_failure}")
        median, least, output, winner = min(finalists, key=lambda finalist: finalist[0])
        return TuningResult(
            label=self.task.label,
            latency_ms=median * 1e3,
            best_ms=least * 1e3,
            repeats=preset.final.repeat,
            trials=self._trial,
            failed=self._failed,
            seconds=0.0,
            target=self.tools.target.text,
            tvm_version=tvm.__version__,
            seed=self.seed,
            verified=self._verify(output),
            history=tuple(self._history),
            known=self._restored,
            stopped=self.stopped,
            preset=preset.name,
            trace=json.dumps(_plain(winner.measured.sch.trace), separators=(",", ":")),
        )

    def _verify(self, output: np.ndarray | None) -> bool:
        try:
            expected = self._truth.result()
        except CallFailedError:
            return False
        assert output is not None
        compare(expected, output, self.output[1], ", or of the method's own code" if self.tools.means.has_code else "")
        return True


def compare(expected: np.ndarray, output: np.ndarray, dtype: str, others: str = "") -> None:
    """Raise :class:`TuningError` if a tuned program's output differs from the unscheduled program's."""
    import numpy as np

    right, actual = np.asarray(expected, "float64"), np.asarray(output, "float64")
    difference = float(np.abs(actual - right).max())
    allowed = TOLERANCE.get(dtype, 0.0) * float(np.abs(right).max())  # the tolerance is 0 for integers
    if not math.isfinite(difference) or difference > allowed:
        raise TuningError(
            f"the tuned program computes something else: largest difference {difference:.3g} "
            f"where {allowed:.3g} is allowed; this is a bug in TVM or in the operator's lowering{others}"
        )


def is_timeout(failure: CallFailedError) -> bool:
    """Return whether a call ended by a timeout, on this machine or on the board."""
    return "not done after" in str(failure) or "SessionTimeout" in str(failure)


def as_result(seconds: float | None) -> RunnerResult:
    """Return a candidate's seconds in the form of TVM's runner; None: the candidate failed."""
    from tvm.s_tir import meta_schedule as ms

    return ms.runner.RunnerResult([seconds] if seconds else None, None if seconds else "failed")


def _plain(trace: Trace) -> TraceData:
    """Return a trace as JSON data, without TVM's own integers and floats."""
    data: TraceData = json.loads(json.dumps(trace.as_json(), default=lambda number: number.value))
    return data


def shape_and_dtype(info: TensorInfo) -> Argument:
    """Return an argument of a PrimFunc as plain values. Raises TuningError if the argument is no tensor."""
    kind, dtype, shape = info.as_json()
    if kind != "TENSOR":
        raise TuningError(f"expected tensors as the arguments of main, found {kind}")
    return tuple(int(size) for size in shape), str(dtype)

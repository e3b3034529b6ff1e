"""Tune operators that share a total of trials; TVM's task scheduler decides which operator is next.

MetaSchedule's ``GradientBased`` selects the programs that promise the largest savings of a network's time. In a turn, a
:class:`Program` proposes, compiles and measures one batch. TVM receives the results as if its own builder and runner
had produced them.

Trials in the records are used first, without being measured again, and the scheduler receives them as new trials. So an
interrupted tuning continues where it stopped, and a program of an earlier network costs no time. Imports TVM: for
tuning processes only.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.target import Target

from syno_lab.errors import TrackerError
from syno_lab.tuning.child import Failed, Found, Tuning, load_module
from syno_lab.tuning.options import Preset
from syno_lab.tuning.parts import of_python
from syno_lab.tuning.search import Search, Tools, as_result
from syno_lab.tuning.values import TuningResult

_T = TypeVar("_T")

#: Parameters of TVM's gradient, as in ``tune_tasks``: the weight of the latest progress, and the turns that it spans.
_ALPHA, _WINDOW = 0.2, 3

#: TVM's candidate, and the seconds of a call; None if the candidate failed.
Tried = tuple[ms.MeasureCandidate, float | None]


def in_small_turns(preset: Preset, share: int) -> Preset:
    """Adapt ``preset`` to an average of ``share`` trials per operator: four turns, the first two without a cost model.

    Small turns leave more of the trials to the scheduler. Each turn mutates candidates from the start, which takes
    time, so small turns have small populations.
    """
    batch, warmup = min(max(share // 4, 1), preset.batch), min(max(share // 2, 1), preset.warmup)
    return replace(preset, batch=batch, warmup=warmup, population=min(preset.population, max(16, 8 * batch)))


@dataclass
class Shared:
    """The state that operators of a tuning share: the number of trials ``left``, and an error that ends the tuning."""

    left: int
    failure: TrackerError | None = None


class Program:
    """An operator that is tuned together with others; ``calls``: the number of its calls in the network."""

    def __init__(self, number: int, module: IRModule, tuning: Tuning, tools: Tools, shared: Shared) -> None:
        task = tuning.request.tasks[number]
        self.name, self.calls, self.module = task.label, task.calls, module
        self._number, self._tuning, self._tools, self._shared = number, tuning, tools, shared
        self._earlier = tuning.earlier[number]
        self._known = [statistics.median(trial.seconds) if trial.seconds else None for trial in self._earlier.trials]
        self._search: Search | None = None
        self._batches: Iterator[None] | None = None
        self._is_failed = False

    def take(self) -> list[Tried]:
        """Try a batch; return an empty list if no candidates, trials or time are left, or after a failure."""
        shared = self._shared
        if shared.left <= 0 or shared.failure is not None or self._tuning.is_over() or self._is_failed:
            return []
        tried = self._recorded()
        if not tried and not self._earlier.is_whole:
            tried = self._guarded(self._new) or []
        shared.left -= len(tried)
        return tried

    def _recorded(self) -> list[Tried]:
        count = min(self._tools.preset.batch, self._shared.left)
        now, self._known = self._known[:count], self._known[count:]
        # TVM only checks that a candidate has a program.
        arguments = ArgInfo.from_entry_func(self.module, remove_preproc=True)
        return [(ms.MeasureCandidate(Schedule(self.module), arguments), seconds) for seconds in now]

    def _begun(self, trials: int) -> Search:
        within = len(self._earlier.trials) + trials
        self._search = self._tuning.search(self._number, within, self._tools, self.module)
        return self._search

    def _new(self) -> list[Tried]:
        search = self._search or self._begun(self._shared.left)
        if self._batches is None:
            # A batch ends if the trials or the time are used up.
            self._batches = search.batches(lambda: self._tuning.is_over() or len(search.news) >= self._shared.left)
        search.news = []  # the candidates of the last turn are already counted
        for _ in self._batches:
            if search.news:
                return search.news
        return []

    def _guarded(self, work: Callable[[], _T]) -> _T | None:
        """Call ``work()``; return None if the work fails, so that no error passes through TVM."""
        try:
            result = self._tuning.guarded(self._number, work)
        except TrackerError as error:
            self._shared.failure = error
            return None
        self._is_failed = result is None
        return result

    def finish(self) -> None:
        """Report the result, or that the recorded result is still valid. Raises TrackerError."""
        if self._shared.failure is not None:
            raise self._shared.failure
        if self._is_failed:
            return
        if self._search is None and self._earlier.is_answered:
            self._tuning.say(Found(self._number, None))
        elif self._search is None and not self._earlier.trials:
            reason = "the time or the trials were used up before its first candidate"
            self._tuning.say(Failed(self._number, reason))
        elif (result := self._tuning.guarded(self._number, self._finished)) is not None:
            self._tuning.say(Found(self._number, result))

    def _finished(self) -> TuningResult:
        if self._search is None:
            self._begun(0).prepare()
        assert self._search is not None
        return self._search.finish()


def by_gradient(programs: Sequence[Program], target: Target, trials: int, seed: int) -> None:
    """Run turns of the ``programs`` until ``trials`` candidates were tried in total, or no program has candidates left.

    Each program first has one turn. Each later turn goes to the program with the largest ``calls`` x gradient. TVM
    estimates the gradient from the progress of the program's last turns, and from its seconds divided by its turns.
    """
    batch: list[float | None] = []  # the seconds of the turn that TVM received last

    def strategy(take: Callable[[], list[Tried]]) -> ms.SearchStrategy:
        """Make a strategy whose candidates are the turns of a program."""

        def candidates() -> list[ms.MeasureCandidate] | None:
            tried = take()
            batch[:] = [seconds for _, seconds in tried]
            return [candidate for candidate, _ in tried] or None

        nothing = dict.fromkeys(("pre_tuning", "post_tuning", "notify_runner_results"), lambda *_: None)
        return of_python(ms.search_strategy.PySearchStrategy, generate_measure_candidates=candidates, **nothing)

    def built(inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """Return results for candidates that are already built; the path of each result is its index in the batch."""
        return [ms.builder.BuilderResult(str(index), None) for index in range(len(inputs))]

    def ran(inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Return the results of candidates that are already measured."""
        results = [as_result(batch[int(candidate.artifact_path)]) for candidate in inputs]
        return [ms.runner.RunnerFuture(lambda: True, lambda result=result: result) for result in results]

    contexts = [
        ms.TuneContext(
            mod=program.module,
            target=target,
            space_generator=ms.space_generator.ScheduleFn(
                lambda schedule: None, sch_rules=[], postprocs=[], mutator_probs={}
            ),
            search_strategy=strategy(program.take),
            task_name=program.name,
            num_threads=1,
        )
        for program in programs
    ]
    scheduler = ms.task_scheduler.GradientBased(alpha=_ALPHA, window_size=_WINDOW, seed=seed % (2**31 - 2) + 1)
    # The third number is the batch size, which has no effect, because each program has its own batch size.
    ends = of_python(ms.builder.PyBuilder, build=built), of_python(ms.runner.PyRunner, run=ran)
    scheduler.tune(contexts, [program.calls for program in programs], trials, trials, 1, *ends, [], None, None)


def share(tuning: Tuning) -> None:
    """Tune the operators of ``tuning`` together, with the request's total of trials, and report each result.

    Raises TrackerError.
    """
    request = tuning.request
    modules = {
        number: module
        for number in tuning.earlier
        if (module := tuning.guarded(number, partial(load_module, request.tasks[number]))) is not None
    }
    if not modules:
        return
    average = max(request.total // len(request.tasks), 1)
    tools = replace(tuning.tools, preset=in_small_turns(tuning.tools.preset, average), database=None)
    shared = Shared(request.total)
    programs = [Program(number, module, tuning, tools, shared) for number, module in modules.items()]
    by_gradient(programs, tools.target.tvm, request.total, request.seed)
    for program in programs:
        program.finish()

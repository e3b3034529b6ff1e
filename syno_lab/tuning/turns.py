"""The operators of one tuning that share their trials: each takes its turns as TVM's task scheduler gives them.

``GradientBased`` of MetaSchedule chooses whose turn it is: trials go to the programs that promise most of a network's
time. A turn is one batch of a :class:`Program`, which proposes, compiles and measures it by itself; TVM is told the
outcomes as if its own builder and runner had made them.

Trials that the records have are taken first, without being measured again: the scheduler hears of them as it did when
they were new, so a tuning that was interrupted goes on as it would have, and a program that another network has too
costs nothing. Imports TVM: for tuning processes only.
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

#: Of TVM's gradient, as in its own ``tune_tasks``: the weight of the latest progress, and the turns that it spans.
_ALPHA, _WINDOW = 0.2, 3

#: A candidate as TVM knows it, and its seconds; None where it failed.
Tried = tuple[ms.MeasureCandidate, float | None]


def in_small_turns(preset: Preset, share: int) -> Preset:
    """``preset`` for ``share`` trials of each operator on average: four turns of them, the first two without a model.

    Small turns leave more of the trials to the scheduler. Each of them breeds candidates anew, which takes time, so few
    are bred for few.
    """
    batch, warmup = min(max(share // 4, 1), preset.batch), min(max(share // 2, 1), preset.warmup)
    return replace(preset, batch=batch, warmup=warmup, population=min(preset.population, max(16, 8 * batch)))


@dataclass
class Shared:
    """What operators of one tuning share: the trials ``left``, and an error that ends them all."""

    left: int
    failure: TrackerError | None = None


class Program:
    """One operator of several that are tuned together; ``calls``: how often the network calls it."""

    def __init__(self, number: int, module: IRModule, tuning: Tuning, tools: Tools, shared: Shared) -> None:
        task = tuning.request.tasks[number]
        self.name, self.calls, self.module = task.label, task.calls, module
        self._number, self._tuning, self._tools, self._shared = number, tuning, tools, shared
        self._earlier = tuning.earlier[number]
        self._known = [statistics.median(one.seconds) if one.seconds else None for one in self._earlier.trials]
        self._search: Search | None = None
        self._batches: Iterator[None] | None = None
        self._is_failed = False

    def take(self) -> list[Tried]:
        """Try one batch. Empty where it has no further candidates, failed, or the trials or the time are used up."""
        shared = self._shared
        if shared.left <= 0 or shared.failure is not None or self._tuning.is_over() or self._is_failed:
            return []
        found = self._recorded()
        if not found and not self._earlier.is_whole:
            found = self._guarded(self._new) or []
        shared.left -= len(found)
        return found

    def _recorded(self) -> list[Tried]:
        count = min(self._tools.preset.batch, self._shared.left)
        now, self._known = self._known[:count], self._known[count:]
        # TVM looks at no more of a candidate than that it has a program.
        arguments = ArgInfo.from_entry_func(self.module, remove_preproc=True)
        return [(ms.MeasureCandidate(Schedule(self.module), arguments), seconds) for seconds in now]

    def _begun(self, trials: int) -> Search:
        within = len(self._earlier.trials) + trials
        self._search = self._tuning.search(self._number, within, self._tools, self.module)
        return self._search

    def _new(self) -> list[Tried]:
        search = self._search or self._begun(self._shared.left)
        if self._batches is None:
            # A batch ends where it has used up the trials, or the time is over.
            self._batches = search.batches(lambda: self._tuning.is_over() or len(search.news) >= self._shared.left)
        search.news = []  # those of the last turn are counted
        for _ in self._batches:
            if search.news:
                return search.news
        return []

    def _guarded(self, work: Callable[[], _T]) -> _T | None:
        """``work()``; None where it fails. No error passes through TVM."""
        try:
            found = self._tuning.guarded(self._number, work)
        except TrackerError as error:
            self._shared.failure = error
            return None
        self._is_failed = found is None
        return found

    def finish(self) -> None:
        """Say the result: that of the record where it answered and nothing was measured since. Raises TrackerError."""
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
    """Give the ``programs`` turns until ``trials`` candidates of all together were tried, or none has a turn to take.

    Each has one turn first. Then the turn is that of the program with the largest ``calls`` x gradient, which TVM
    estimates from the progress of its last turns and from its seconds over its turns.
    """
    batch: list[float | None] = []  # the seconds of the turn that TVM was told of last

    def strategy(take: Callable[[], list[Tried]]) -> ms.SearchStrategy:
        """Asks one program for its turns."""

        def candidates() -> list[ms.MeasureCandidate] | None:
            tried = take()
            batch[:] = [seconds for _, seconds in tried]
            return [candidate for candidate, _ in tried] or None

        nothing = dict.fromkeys(("pre_tuning", "post_tuning", "notify_runner_results"), lambda *_: None)
        return of_python(ms.search_strategy.PySearchStrategy, generate_measure_candidates=candidates, **nothing)

    def built(inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """The candidates are built: a path is the candidate's place in the batch."""
        return [ms.builder.BuilderResult(str(place), None) for place in range(len(inputs))]

    def ran(inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """The candidates are measured."""
        results = [as_result(batch[int(one.artifact_path)]) for one in inputs]
        return [ms.runner.RunnerFuture(lambda: True, lambda one=one: one) for one in results]

    contexts = [
        ms.TuneContext(
            mod=one.module,
            target=target,
            space_generator=ms.space_generator.ScheduleFn(
                lambda schedule: None, sch_rules=[], postprocs=[], mutator_probs={}
            ),
            search_strategy=strategy(one.take),
            task_name=one.name,
            num_threads=1,
        )
        for one in programs
    ]
    scheduler = ms.task_scheduler.GradientBased(alpha=_ALPHA, window_size=_WINDOW, seed=seed % (2**31 - 2) + 1)
    # The third number is the size of a batch, which each program knows better.
    ends = of_python(ms.builder.PyBuilder, build=built), of_python(ms.runner.PyRunner, run=ran)
    scheduler.tune(contexts, [one.calls for one in programs], trials, trials, 1, *ends, [], None, None)


def share(tuning: Tuning) -> None:
    """Tune the operators of ``tuning`` together, with the request's total of trials, and say each result.

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
    each = max(request.total // len(request.tasks), 1)
    tools = replace(tuning.tools, preset=in_small_turns(tuning.tools.preset, each), database=None)
    shared = Shared(request.total)
    programs = [Program(number, module, tuning, tools, shared) for number, module in modules.items()]
    by_gradient(programs, tools.target.tvm, request.total, request.seed)
    for one in programs:
        one.finish()

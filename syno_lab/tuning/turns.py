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
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.target import Target

from syno_lab.errors import SynoError, TrackerError
from syno_lab.processes.apart import one_line
from syno_lab.tuning.presets import Preset

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from syno_lab.tuning.search import Search, Tools

#: Of TVM's gradient, as in its own ``tune_tasks``: the weight of the latest progress, and the turns that it spans.
_ALPHA, _WINDOW = 0.2, 3

#: A candidate as TVM knows it, and its seconds; None where it failed.
Tried = tuple[Any, float | None]
Say = Callable[[dict[str, Any]], None]
#: A function that makes the search of one operator, within so many trials.
Make = Callable[[int], "Search"]


def in_small_turns(preset: Preset, share: int) -> Preset:
    """``preset`` for ``share`` trials of each operator on average: four turns of them, the first two without a model.

    Small turns leave more of the trials to the scheduler. Each of them breeds candidates anew, which takes time, so few
    are bred for few.
    """
    batch, warmup = min(max(share // 4, 1), preset.batch), min(max(share // 2, 1), preset.warmup)
    return replace(preset, batch=batch, warmup=warmup, population=min(preset.population, max(16, 8 * batch)))


@dataclass
class Shared:
    """What operators of one tuning share: the trials ``left``, the end of the time, and an error that ends them all."""

    left: int
    is_over: Callable[[], bool]
    failure: TrackerError | None = None

    @property
    def is_done(self) -> bool:
        """Whether nobody takes another turn."""
        return self.left <= 0 or self.failure is not None or self.is_over()


class Program:
    """One operator of several that are tuned together; ``calls`` of its ``task``: how often the network calls it.

    ``known`` are its recorded trials; ``has_more`` says whether its space may have others.
    """

    def __init__(
        self,
        number: int,
        task: dict[str, Any],
        module: IRModule,
        known: list[dict[str, Any]],
        *,
        has_more: bool,
        batch: int,
        shared: Shared,
        make: Make,
        say: Say,
    ) -> None:
        self.number, self.name, self.calls, self.module = number, task["label"], task["calls"], module
        self.search: Search | None = None
        self.is_failed = False
        self._known = [statistics.median(one["seconds"]) if one["seconds"] else None for one in known]
        self._recorded_trials = len(known)
        self._has_more, self._batch, self._shared, self._make, self._say = has_more, batch, shared, make, say
        self._batches: Iterator[None] | None = None

    def take(self) -> list[Tried]:
        """Try one batch. Empty where it has no further candidates, failed, or the trials or the time are used up."""
        if self._shared.is_done or self.is_failed:
            return []
        found = self._recorded() or self._new()
        self._shared.left -= len(found)
        return found

    def _recorded(self) -> list[Tried]:
        count = min(self._batch, self._shared.left)
        now, self._known = self._known[:count], self._known[count:]
        # TVM looks at no more of a candidate than that it has a program.
        arguments = ArgInfo.from_entry_func(self.module, remove_preproc=True)
        return [(ms.MeasureCandidate(Schedule(self.module), arguments), seconds) for seconds in now]

    def _new(self) -> list[Tried]:
        if not self._has_more:
            return []
        self._say({"event": "turn", "task": self.number})
        return self.guarded(self._batch_of_search) or []

    def _batch_of_search(self) -> list[Tried]:
        if self._batches is None:
            self.search = self._make(self._shared.left)
            self._batches = self.search.batches(self._is_cut)
        assert self.search is not None
        self.search.news = []  # those of the last turn are counted
        for _ in self._batches:
            if self.search.news:
                return self.search.news
        return []

    def _is_cut(self) -> bool:
        """Whether the batch under way has used up the trials, or the time is over."""
        assert self.search is not None
        return self._shared.is_over() or len(self.search.news) >= self._shared.left

    def guarded(self, work: Callable[[], Any]) -> Any:
        """``work()``; None where it fails: the reason is told, and the other operators go on."""
        try:
            return work()
        except TrackerError as error:  # no other operator could be measured either
            self._shared.failure = error
        except SynoError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - TVM raises many types; the log has the stack
            traceback.print_exc()
            self._fail(one_line(error))
        return None

    def _fail(self, reason: str) -> None:
        self.is_failed = True
        self._say({"event": "failed", "task": self.number, "message": reason})

    def finish(self, *, is_answered: bool) -> None:
        """Tell the result: that of the records where they answered and nothing was measured since."""
        if self.is_failed:
            return
        if self.search is None and is_answered:
            self._say({"event": "kept", "task": self.number})
            return
        if self.search is None and not self._recorded_trials:
            self._fail("the time or the trials were used up before its first candidate")
            return
        self._say({"event": "turn", "task": self.number})
        found = self.guarded(self._finished)
        if found is not None:
            self._say({"event": "result", "task": self.number, **found})

    def _finished(self) -> dict[str, Any]:
        if self.search is None:
            self.search = self._make(0)
            self.search.prepare()
        return self.search.finish()


def by_gradient(programs: Sequence[Program], target: Target, trials: int, seed: int) -> None:
    """Give the ``programs`` turns until ``trials`` candidates of all together were tried, or none has a turn to take.

    Each has one turn first. Then the turn is that of the program with the largest ``calls`` x gradient, which TVM
    estimates from the progress of its last turns and from its seconds over its turns.
    """
    batch: list[float | None] = []  # the seconds of the turn that TVM was told of last

    @derived_object
    class Strategy(ms.search_strategy.PySearchStrategy):
        """Asks one program for its turns."""

        def __init__(self, take: Callable[[], list[Tried]]) -> None:
            self.take = take

        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def pre_tuning(self, *_: Any) -> None:
            pass

        def post_tuning(self) -> None:
            pass

        def generate_measure_candidates(self) -> list[Any] | None:
            tried = self.take()
            batch[:] = [seconds for _, seconds in tried]
            return [candidate for candidate, _ in tried] or None

        def notify_runner_results(self, *_: Any) -> None:
            pass

    @derived_object
    class Builder(ms.builder.PyBuilder):
        """The candidates are built: a path is the candidate's place in the batch."""

        def build(self, build_inputs: list[Any]) -> list[Any]:
            return [ms.builder.BuilderResult(str(place), None) for place in range(len(build_inputs))]

    @derived_object
    class Runner(ms.runner.PyRunner):
        """The candidates are measured."""

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            return [_known(batch[int(one.artifact_path)]) for one in runner_inputs]

    contexts = [
        ms.TuneContext(
            mod=one.module,
            target=target,
            space_generator=ms.space_generator.ScheduleFn(
                lambda schedule: None, sch_rules=[], postprocs=[], mutator_probs={}
            ),
            search_strategy=Strategy(one.take),
            task_name=one.name,
            num_threads=1,
        )
        for one in programs
    ]
    scheduler = ms.task_scheduler.GradientBased(alpha=_ALPHA, window_size=_WINDOW, seed=seed % (2**31 - 2) + 1)
    # The third number is the size of a batch, which each program knows better.
    scheduler.tune(contexts, [one.calls for one in programs], trials, trials, 1, Builder(), Runner(), [], None, None)


def _known(seconds: float | None) -> Any:
    result = ms.runner.RunnerResult([seconds] if seconds else None, None if seconds else "failed")
    return ms.runner.RunnerFuture(lambda: True, lambda: result)


def _made(make: Callable[[int, int, Tools], Search], number: int, tools: Tools, left: int) -> Search:
    return make(number, left, tools)


def share(
    tasks: dict[int, dict[str, Any]],
    modules: dict[int, IRModule],
    known: dict[int, dict[str, Any]],
    tools: Tools,
    make: Callable[[int, int, Tools], Search],
    *,
    trials: int,
    each: int,
    seed: int,
    is_over: Callable[[], bool],
    say: Say,
) -> None:
    """Tune the operators in ``tasks`` together with ``trials`` in all, ``each`` on average, and tell each result.

    ``known`` has for each the recorded ``trials``, and whether the records ``answered`` and the space is ``whole``.
    Raises TrackerError.
    """
    small = replace(tools, preset=in_small_turns(tools.preset, each), database=None)
    shared = Shared(trials, is_over)
    programs = [
        Program(
            number,
            task,
            modules[number],
            known[number]["known"],
            has_more=not known[number]["whole"],
            batch=small.preset.batch,
            shared=shared,
            make=partial(_made, make, number, small),
            say=say,
        )
        for number, task in tasks.items()
    ]
    by_gradient(programs, tools.target.tvm, trials, seed)
    for one in programs:
        if shared.failure is not None:
            raise shared.failure
        one.finish(is_answered=known[one.number]["answered"])
    if shared.failure is not None:
        raise shared.failure

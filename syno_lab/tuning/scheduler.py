"""TVM's task scheduler over our measuring: trials go to the programs that promise most of a network's time.

``GradientBased`` of MetaSchedule chooses whose turn it is; a turn is one batch of a :class:`Turns`, which proposes,
compiles and measures it by itself. TVM is told the outcomes as if its own builder and runner had made them. Imports
TVM: for tuning processes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

#: Of TVM's gradient, as in its own ``tune_tasks``: the weight of the latest progress, and the turns that it spans.
ALPHA, WINDOW = 0.2, 3

#: A candidate as TVM knows it, and its seconds; None where it failed.
Tried = tuple[Any, float | None]


class Turns(Protocol):
    """One program of several that are tuned together. ``calls``: how often the network calls it."""

    name: str
    calls: int
    module: IRModule

    def take(self) -> list[Tried]:
        """Try one batch. Empty where the program has no further candidates, failed, or the time is over."""


def by_gradient(programs: Sequence[Turns], target: Target, trials: int, seed: int) -> None:
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
    scheduler = ms.task_scheduler.GradientBased(alpha=ALPHA, window_size=WINDOW, seed=seed % (2**31 - 2) + 1)
    # The third number is the size of a batch, which each program knows better.
    scheduler.tune(contexts, [one.calls for one in programs], trials, trials, 1, Builder(), Runner(), [], None, None)


def _known(seconds: float | None) -> Any:
    result = ms.runner.RunnerResult([seconds] if seconds else None, None if seconds else "failed")
    return ms.runner.RunnerFuture(lambda: True, lambda: result)

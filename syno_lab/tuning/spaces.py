"""Conversion of a :class:`~syno_lab.tuning.method.Method` to TVM's objects. Imports TVM: for tuning processes only."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import SBlockRV

from syno_lab.blame import is_theirs
from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.light import import_xgboost
from syno_lab.processes.process import cores
from syno_lab.processes.worker import one_line
from syno_lab.tuning.fusion import fuse_stages
from syno_lab.tuning.lanes import channel_lanes, vector_bits
from syno_lab.tuning.method import CPU_RULES, DEFAULT, FUSION, GPU_RULES, LANES, Code, Method
from syno_lab.tuning.parts import Part, mutator, postprocessor, python_cost_model, python_rule
from syno_lab.tuning.targets import ResolvedTarget
from syno_lab.user_code import UserCode

#: Parameters of TVM's own rules for processors (``ScheduleRule::DefaultLLVM``).
_JOBS_PER_CORE = 16
_MOST_INNERMOST = 64
_MOST_LANES = 64
_UNROLL_STEPS = [0, 16, 64, 512]

#: A callback; its argument is the running user code (``the rule 'name'``), or None when the code has returned.
Inside = Callable[[str | None], None]

_T = TypeVar("_T")
_Schedules = list[Schedule]
_Apply = Callable[..., _Schedules]


class Means:
    """Makes TVM's space generators, strategies and cost models from a method, for a target.

    The user's functions are written to ``folder``; ``inside`` is called when a function starts and when it returns. The
    optional dictionary ``notes`` receives the changed blocks of each rule. Raises :class:`TuningError` if the user's
    code cannot be loaded.
    """

    def __init__(
        self,
        method: Method,
        target: ResolvedTarget,
        folder: Path,
        inside: Inside = lambda _: None,
        notes: dict[str, list[str]] | None = None,
    ) -> None:
        self._method, self._inside, self._notes, self._target = method, inside, notes, target
        self._failure: TuningError | None = None
        self._is_gpu = target.device != "cpu"
        own, other_kind = (GPU_RULES, "processors") if self._is_gpu else (CPU_RULES, "GPUs")
        wrong = [rule for rule in method.rules if isinstance(rule, str) and rule not in (*own, DEFAULT, FUSION, LANES)]
        if wrong:
            raise TuningError(
                f"the rules {', '.join(wrong)} are for {other_kind}, the target's device is {target.device}: use "
                f"{', '.join(own)}, {DEFAULT!r} or rules of your own"
            )
        self._code = {code: _load(code, folder) for code in method.code}
        self.is_guided = method.is_guided

    @property
    def is_default(self) -> bool:
        """Whether the space is TVM's own space for the target."""
        return self._method.space is None and self._method.rules == (DEFAULT,)

    @property
    def has_code(self) -> bool:
        """Whether the method has code of the user."""
        return bool(self._code)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise an exception of the user's code in the block as a :class:`TuningError`."""
        self._failure = None
        try:
            yield
        except Exception:
            if self._failure is not None:
                raise self._failure from None
            raise

    # -- the space -----------------------------------------------------------------------------------------------------

    @property
    def can_widen(self) -> bool:
        """Whether the search first leaves out TVM's sketches for the sums that the lab's rule changes."""
        return self._method.space is None and LANES in self._method.rules and not self._is_gpu

    def space(self, module: IRModule, is_wide: bool = False) -> ms.space_generator.SpaceGenerator:
        """Return the generator of sketches of ``module``, with the method's postprocessors and mutators.

        ``is_wide``: with the sketches that are left out at first, see :attr:`can_widen`.
        """
        method = self._method
        last: Any = "from-target"
        if method.postprocessors is not None:
            last = [postprocessor(self._part("postprocessor", step)) for step in method.postprocessors]
        changes: Any = "from-target"
        if method.mutations is not None:
            changes = {mutator(self._part("mutator", mutation)): share for mutation, share in method.mutations}
        if isinstance(method.space, UserCode):
            function = self._guard("space", method.space)
            return ms.space_generator.ScheduleFn(function, sch_rules=[], postprocs=last, mutator_probs=changes)
        rules: Any = "from-target"
        if not self.is_default or self._notes is not None:
            rules = [rule for step in method.rules for rule in self._rule(step, module, is_wide)]
        return ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=last, mutator_probs=changes)

    def _part(self, kind: str, part: Code) -> str | Part:
        """Return a name unchanged, or the user's code as an object of TVM's search."""
        if not isinstance(part, UserCode):
            return str(part)
        role, (file, function) = f"the {kind} {part.name!r}", self._code[part]
        return Part(function, role, lambda call, *arguments: self._run(role, file, call, *arguments))

    def _rule(self, chosen: Code, module: IRModule, is_wide: bool) -> list[ms.ScheduleRule]:
        if isinstance(chosen, UserCode):
            return [python_rule(self._noted(chosen.name, self._guard("rule", chosen)))]
        if chosen == DEFAULT:
            return [self._watch(type(rule).__name__, rule) for rule in self._defaults(module)]
        name, bits, threads = str(chosen), vector_bits(self._target.tvm), self._target.cores
        if name == FUSION:
            return [python_rule(self._noted(name, lambda sch, block: fuse_stages(sch, block, threads, bits)))]
        if name == LANES:
            return [python_rule(self._noted(name, lambda sch, block: channel_lanes(sch, block, bits, is_wide)))]
        if self._is_gpu:
            return [self._watch(name, rule) for rule in self._defaults(module) if type(rule).__name__ in _ON_GPUS[name]]
        return [self._watch(name, rule) for rule in _NAMED[name]()]

    def _defaults(self, module: IRModule) -> list[ms.ScheduleRule]:
        """Return TVM's default rules for the target."""
        generator = ms.space_generator.PostOrderApply()
        ms.TuneContext(mod=module, target=self._target.tvm, space_generator=generator, num_threads=1)
        return list(generator.sch_rules)

    def _watch(self, name: str, rule: ms.ScheduleRule) -> ms.ScheduleRule:
        """Return TVM's ``rule`` unchanged; with ``notes``, a rule that also stores its changed blocks."""
        if self._notes is None:
            return rule
        return python_rule(self._noted(name, rule.apply), rule)

    def _noted(self, name: str, apply: _Apply) -> _Apply:
        notes = self._notes
        if notes is None:
            return apply
        notes.setdefault(name, [])

        def noted(schedule: Schedule, block: SBlockRV) -> _Schedules:
            where, before = str(schedule.get(block).name_hint), len(schedule.trace.insts)
            schedules = apply(schedule, block)
            changed = any(len(result.trace.insts) > before for result in schedules)
            if changed and where not in notes[name]:
                notes[name].append(where)
            return schedules

        return noted

    # -- the user's code -----------------------------------------------------------------------------------------------

    def _guard(self, kind: str, code: UserCode) -> _Apply:
        """Return the user's function in a wrapper that stores its exception and checks its result."""
        role, (file, function) = f"the {kind} {code.name!r}", self._code[code]

        def guarded(schedule: Schedule, *block: SBlockRV) -> _Schedules:
            return self._run(role, file, lambda *args: _schedules(function(*args), schedule, role), schedule, *block)

        return guarded

    def _run(self, role: str, file: str, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call the user's function; its exception is stored for :meth:`watched`."""
        self._inside(role)
        try:
            return function(*arguments)
        except TuningError as error:
            self._failure = error
            raise
        except Exception as error:
            traceback.print_exc()
            self._failure = TuningError(f"{role} raised {one_line(error)}{_line_text(error, file)}")
            raise
        finally:
            self._inside(None)

    # -- the search ----------------------------------------------------------------------------------------------------

    def strategy(self, population: int, unmeasured: int, generations: int, rounds: int) -> ms.SearchStrategy:
        """Return the strategy; the numbers are for the evolutionary strategy, which ends after ``rounds`` in vain."""
        if self._method.strategy == "replay-trace":
            return ms.search_strategy.ReplayTrace()
        if self._method.strategy == "replay-func":
            return ms.search_strategy.ReplayFunc()
        size, of = {"population_size": population, "init_min_unmeasured": unmeasured}, ms.search_strategy
        return of.EvolutionarySearch(**size, max_fail_count=rounds, genetic_num_iters=generations)

    def cost_model(self, warmup: int, seed: int) -> ms.CostModel:
        """Make a cost model; XGBoost predicts at random until it has ``warmup`` candidates."""
        own = self._part("cost model", self._method.cost_model)
        if self.is_guided and isinstance(own, Part):
            with self.watched():
                return python_cost_model(own)
        if not self.is_guided or own == "random":
            return ms.cost_model.RandomModel(seed=seed)
        import_xgboost()
        return ms.cost_model.XGBModel(num_warmup_samples=warmup, early_stopping_rounds=20, num_tuning_cores=cores())


def _inline() -> list[ms.ScheduleRule]:
    inline = ms.schedule_rule.AutoInline(
        into_producer=False,
        into_consumer=True,
        inline_const_tensor=True,
        disallow_if_then_else=True,
        require_injective=True,
        require_ordered=True,
        disallow_op=["tirx.exp"],
    )
    return [ms.schedule_rule.InlineConstantScalars(), inline]


def _tiling() -> list[ms.ScheduleRule]:
    reuse = ms.schedule_rule.ReuseType(req="may", levels=[1, 2], scope="global")
    return [
        ms.schedule_rule.MultiLevelTiling(
            structure="SSRSRS", max_innermost_factor=_MOST_INNERMOST, reuse_read=None, reuse_write=reuse
        )
    ]


def _marks(jobs: int = -1, lanes: int = -1, steps: list[int] | None = None) -> list[ms.ScheduleRule]:
    return [
        ms.schedule_rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=jobs, max_vectorize_extent=lanes, unroll_max_steps=steps, unroll_explicit=True
        )
    ]


#: The rules of :data:`~syno_lab.tuning.method.RULES` by name.
_NAMED: dict[str, Callable[[], list[ms.ScheduleRule]]] = {
    "inline": _inline,
    "rfactor": lambda: [ms.schedule_rule.AddRFactor(_JOBS_PER_CORE, _MOST_INNERMOST)],
    "tiling": _tiling,
    "parallel": lambda: _marks(jobs=_JOBS_PER_CORE),
    "vectorize": lambda: _marks(lanes=_MOST_LANES),
    "unroll": lambda: _marks(steps=_UNROLL_STEPS),
    "compute-location": lambda: [ms.schedule_rule.RandomComputeLocation()],
}


#: The names of TVM's rules on a GPU, by the lab's name of a rule.
_ON_GPUS: dict[str, tuple[str, ...]] = {
    "inline": ("InlineConstantScalars", "AutoInline"),
    "tiling": ("MultiLevelTiling",),
    "tensor-cores": ("MultiLevelTilingTensorCore",),
    "cross-thread": ("CrossThreadReduction",),
    "unroll": ("ParallelizeVectorizeUnroll",),
    "bind": ("AutoBind",),
}


def _schedules(returned: object, initial: Schedule, role: str) -> _Schedules:
    several = [initial] if returned is None else list(returned) if isinstance(returned, list | tuple) else [returned]
    for schedule in several:
        if not isinstance(schedule, Schedule):
            raise TuningError(
                f"expected {role} to return a schedule, a list of schedules or nothing, found {quoted(schedule)}"
            )
    if not several:
        raise TuningError(f"{role} returned an empty list: nothing is left to search")
    return several


def _load(code: UserCode, folder: Path) -> tuple[str, Callable[..., Any]]:
    """Write the user's code to a file, run the file and return the function. Raises TuningError and CodeError."""
    name, file = code.name, code.write(folder)["file"]
    spec = importlib.util.spec_from_file_location(f"syno_user_{len(sys.modules)}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name)
        if not callable(function):
            raise TypeError(f"{type(function).__name__} object is not callable")
    except BaseException as error:
        if not is_theirs(error):
            raise
        traceback.print_exc()
        raise TuningError(
            f"cannot load {quoted(name)} of {code.origin}: {one_line(error)}{_line_text(error, file)}"
        ) from None
    return file, cast("Callable[..., Any]", function)


def _line_text(error: BaseException, file: str) -> str:
    """Return the line of the user's code with the error, as text, because line numbers differ in the copied file."""
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = linecache.getline(file, numbers[-1]).strip() if numbers and numbers[-1] else ""
    return f", in the line `{line}`" if line else ""

"""The sampler: draws random canonical operators, enumerates and counts them (Syno, section 7.1).

The sampler uses the search graph (:mod:`syno_lab.synthesis.graph`): every canonical pGraph is one path. In a small
graph the paths are counted, and draws are uniform. In a large graph, walks look for nodes that can be counted
(:class:`syno_lab.synthesis.walks.Walker`).
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from syno_lab.common.size import Size, shape_text
from syno_lab.common.wants import wants_text
from syno_lab.effort import Effort, Stop
from syno_lab.errors import EffortError, OverTimeError, SpecError, StoppedError
from syno_lab.inputs import QUOTED, printable
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Cap, Mappings, Pairs, Spec, Texts, WeightLimits
from syno_lab.ir.state import State
from syno_lab.later import later
from syno_lab.synthesis.budgets import excess
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.paths import Builder, Path, TooManyError, count, exactly, name, take
from syno_lab.synthesis.property_distance import check_wants
from syno_lab.synthesis.rules import RULES, Rules
from syno_lab.synthesis.walks import Walker, counted

if TYPE_CHECKING:
    from torch.nn import Module

    from syno_lab.later import KernelPack

#: The limit of nodes up to which a space is counted before the sampling: about a second.
COUNTABLE_NODES = 2_000
#: The number of paths in a row that deep rules or budgets may reject before the sampler gives up.
MAX_REJECTED = 20_000
#: The limit of examined views for the count: a multiple of the views that a space within the limit of nodes needs.
_COUNTABLE_VIEWS = 400_000
#: The factor on both limits if neighbourhoods are listed: in a second of counting, a thousand operators could be drawn.
_LISTING = 0.1
_POOL = 500  # The number of paths of several walks that are mixed.
_HANDFUL = 100  # The number of paths that are built at once.
_RECENT = 10_000  # The number of latest draws, whose share of repeats shows a nearly exhausted space.


class Sampler:
    """Synthesises operators for a specification; the arguments are those of ``syno-readme.md``.

    Args:
        input_shape: a shape such as ``"[N, C_in, H, W]"``; sizes may be products and powers, ``"s^-1*H"``.
        output_shape: a shape in the same form.
        primary_specs: variables of the shapes with their limits of occurrences: ``["N: 0", "C_in: 3", "H = 28: 2"]``.
        coefficient_specs: variables that only primitives introduce, each with a value: ``["k_1=3: 4"]``.
        net: a network with :class:`syno_lab.Placeholder` modules, whose mappings become bindings.
        mappings: further bindings as dictionaries.
        fixed_io_pairs: pairs (input axis, output axis) that are one coordinate, which no primitive uses.
        unordered: input axes whose inner order is free in the final match; of operators that differ only in the order,
            the sampler returns one (:mod:`syno_lab.synthesis.orders`).
        seed: the seed of the draws; None draws a seed, which ``.seed`` stores.
        spread: whether draws from a space too large to count spread over the space, with few draws from one node. If
            False, draws list the neighbourhood of one node after the other: more operators per second, but many of them
            similar (:class:`syno_lab.synthesis.walks.Walker`).
        weight_limits: which limits of occurrences also bind the dimensions of weights: ``"free"`` means none,
            ``"primary"`` means those of primary variables, not of coefficients. ``C_out: 0`` then keeps C_out out of
            weights, and ``H: 0, W: 0`` keeps operators equivariant under translation.
        wants: what every operator must read and mix, as ``"C_in>=m, H->W>=o"`` (:mod:`syno_lab.common.wants`).
        rules: the rules that define canonical steps: None means ``sl.RULES``. Rules may be added, and rules that are
            not of kind ``space`` may be removed.
        limits: the fields of :class:`syno_lab.ir.spec.Limits` (``max_primitives``, ``max_flops``, …).

    Raises SpecError with one line for a malformed or contradictory specification.
    """

    def __init__(
        self,
        input_shape: str,
        output_shape: str,
        primary_specs: Texts,
        coefficient_specs: Texts = (),
        *,
        net: Module | None = None,
        mappings: Mappings | None = None,
        fixed_io_pairs: Pairs = (),
        unordered: Texts = (),
        seed: int | None = None,
        weight_limits: WeightLimits = "free",
        wants: str | None = None,
        spread: bool = True,
        rules: Rules | None = None,
        **limits: Cap,
    ) -> None:
        spec = Spec.parse(
            input_shape,
            output_shape,
            primary_specs,
            coefficient_specs,
            fixed_io_pairs=fixed_io_pairs,
            unordered=unordered,
            weight_limits=weight_limits,
            wants=wants,
            **limits,  # type: ignore[arg-type]  # the keys are limits, but mypy tries all options
        )
        if net is not None:
            mappings = [*(mappings or ()), *later("mappings_of", net)]
        self._start(spec.bound(mappings) if mappings else spec, seed, rules, Effort(), spread)

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        *,
        seed: int | None = None,
        spread: bool = True,
        rules: Rules | None = None,
        effort: Effort | None = None,
    ) -> Sampler:
        """Make a sampler for a parsed specification; ``effort`` limits all its work."""
        sampler = cls.__new__(cls)
        sampler._start(spec, seed, rules, effort or Effort(), spread)
        return sampler

    def _start(self, spec: Spec, seed: int | None, rules: Rules | None, effort: Effort, spread: bool = True) -> None:
        self.spec = spec
        self.rules = rules = RULES if rules is None else rules
        self.seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        self.spread = spread
        self.trials = 0
        self._random = random.Random(self.seed)  # noqa: S311 - for sampling, not for secrets
        self._effort = effort
        self._graph = Graph(spec, rules, self._effort)
        self._builder = Builder(self._graph)
        self._walker = Walker(self._graph, spec.limits.max_primitives, self._random, spread=spread)
        self._total: int | None = None
        self._is_countable: bool | None = None

    def root(self) -> State:
        """Return the state with only the output coordinates."""
        return State.root(self.spec)

    @property
    def is_uniform(self) -> bool:
        """Return whether :meth:`sample` draws uniformly, because the space is small enough to count."""
        if self._is_countable is None:
            share = 1.0 if self.spread else _LISTING
            nodes, views = int(share * COUNTABLE_NODES), int(share * _COUNTABLE_VIEWS)
            try:
                with _without_gc():
                    self._total = count(self._graph, self._graph.root, self._most, nodes, views)
            except TooManyError:
                self._is_countable = False
            else:
                self._is_countable = True
        return self._is_countable

    @property
    def counted(self) -> int | None:
        """Return an upper bound of the number of operators if :attr:`is_uniform`; None if no bound is known.

        There are fewer operators if a budget (FLOPs, for example) refuses complete operators.
        """
        return self._total if self.is_uniform else None

    @property
    def _most(self) -> int:
        return self.spec.limits.max_primitives

    def sample(self, *, should_stop: Stop | None = None, seconds: float | None = None) -> Operator:
        """Draw a random canonical operator within all budgets. Repeated calls can return the same operator again.

        If :attr:`is_uniform`, each operator of :meth:`enumerate` is equally likely. If not, operators in sparse parts
        of the space are more likely than others; ``benchmarks/README.md`` has measurements.

        Args:
            should_stop: a callback that is called often; True stops the call.
            seconds: the limit of the thread's computing time; None means no limit.

        Raises:
            SpecError: no operator exists; if the input is out of reach, the call fails at once with the reason.
            EffortError: the call was stopped, or a limit of time or memory was exceeded.
        """
        try:
            with self._effort.within(seconds, should_stop), _saying_what_for(self.spec):
                return self._draw()
        except OverTimeError:  # all draws so far were refused: try a shortest operator, once
            path = self._walker.shortest()
            operator = self._builder.operator(path) if path else None
            if operator is None:
                raise
            return operator

    def _draw(self) -> Operator:
        """Draw the operator at the end of a random path."""
        self._check_reachable()
        for _ in range(MAX_REJECTED):
            self.trials += 1
            if self.is_uniform:
                if not self._total:
                    raise SpecError(self._nothing_found())
                rank = self._random.randrange(self._total)
                (path,) = take(self._graph, self._graph.root, self._most, [rank])
            else:
                with _without_gc():
                    paths = self._walker.walk(1)
                if not paths:
                    raise SpecError(self._nothing_found())
                (path,) = paths
            operator = self._builder.operator(path)
            if operator is not None:
                return operator
            self._effort.look("looking for an operator")
        raise SpecError(self._nothing_found())

    def samples(self, *, should_stop: Stop | None = None) -> Iterator[Operator]:
        """Yield random canonical operators, each pGraph once, until no more exist.

        Args:
            should_stop: a callback that is called often; True ends the iteration.

        Raises:
            SpecError: no operator exists; if the input is out of reach, the call fails at once with the reason.
            EffortError: the call was stopped before the first operator, or a limit of memory was exceeded.
        """
        rejected = yielded = 0
        try:
            with self._effort.within(should_stop=should_stop), _saying_what_for(self.spec):
                self._check_reachable()
            for paths in self._paths(should_stop):
                with self._effort.within(should_stop=should_stop), _without_gc():
                    operators = [self._builder.operator(path) for path in paths]
                for operator in operators:
                    if operator is not None:
                        yielded += 1
                        yield operator
                rejected += sum(operator is None for operator in operators)
                if not yielded and rejected >= MAX_REJECTED:
                    break
            if not yielded:
                with self._effort.within(should_stop=should_stop):
                    raise SpecError(self._nothing_found())
        except StoppedError:
            if not yielded or should_stop is None:
                raise

    def _paths(self, should_stop: Stop | None) -> Iterator[list[Path]]:
        """Yield every path of the graph once, in random order, in lists."""
        graph, most, effort = self._graph, self._most, self._effort
        seen: set[int] = set()
        with effort.within(should_stop=should_stop), _saying_what_for(self.spec):
            total = self._total if self.is_uniform else None
        while total is None:
            yield from self._from_walks(seen, should_stop)
            # Walks have found most paths by now, so the rest may be small enough to count.
            with effort.within(should_stop=should_stop), _without_gc():
                effort.look("looking for operators")
                total = counted(graph, most)
        # Yield the remaining paths in shuffled order, in small lists.
        order = list(range(total))
        self._random.shuffle(order)
        for start in range(0, total, _POOL):
            with effort.within(should_stop=should_stop):
                effort.look("looking for operators")
                paths = list(take(graph, graph.root, most, sorted(order[start : start + _POOL])))
            self._random.shuffle(paths)
            self.trials += len(paths)
            yield [path for path in paths if not seen or name(path) not in seen]

    def _from_walks(self, seen: set[int], should_stop: Stop | None) -> Iterator[list[Path]]:
        """Yield new paths from walks, mixed over several walks, until almost all draws repeat; add them to ``seen``."""
        pool: list[Path] = []
        recent: deque[bool] = deque(maxlen=_RECENT)
        while len(recent) < _RECENT or sum(recent) < 0.95 * _RECENT:
            self.trials += 1
            with self._effort.within(should_stop=should_stop), _saying_what_for(self.spec), _without_gc():
                self._effort.look("looking for operators")
                paths = self._walker.walk()
            if not paths:
                return
            known = len(seen)
            for path in paths:
                key = name(path)
                recent.append(key in seen)
                if key not in seen:
                    seen.add(key)
                    pool.append(path)
            self._walker.reward(len(seen) - known)
            self._random.shuffle(pool)
            least = 0 if self._walker.walks < 20 else _POOL
            while len(pool) > least:
                first = max(least, len(pool) - _HANDFUL)
                handful = pool[: first - 1 if first else None : -1]
                del pool[first:]
                yield handful
        yield pool

    def enumerate(self, max_primitives: int | None = None, *, should_stop: Stop | None = None) -> Iterator[Operator]:
        """Yield every canonical operator of at most ``max_primitives`` steps, each pGraph once, small ones first.

        Args:
            max_primitives: the limit of steps; default: the spec's budget.
            should_stop: a callback that is called often; True stops the iteration.

        Raises SpecError when the input cannot be reached, and EffortError after a stop or when a limit of memory is
        exceeded.
        """
        most = self._most if max_primitives is None else max_primitives
        if most > self._most:
            sampler = Sampler.from_spec(
                replace(self.spec, limits=replace(self.spec.limits, max_primitives=most)),
                rules=self.rules,
                effort=self._effort,
            )
            yield from sampler.enumerate(should_stop=should_stop)
            return
        effort = self._effort
        with effort.within(should_stop=should_stop), _saying_what_for(self.spec):
            self._check_reachable()
        for length in range(most + 1):
            paths = exactly(self._graph, self._graph.root, length)
            while True:
                with effort.within(should_stop=should_stop), _saying_what_for(self.spec):
                    path = next(paths, None)
                    operator = None if path is None else self._builder.operator(path)
                    if effort.is_tight:
                        self._graph.forget()
                if path is None:
                    break
                if operator is not None:
                    yield operator

    def count(self, max_primitives: int | None = None) -> int:
        """Count the operators that :meth:`enumerate` yields."""
        return sum(1 for _ in self.enumerate(max_primitives))

    def replace(self, net: Module, kernel_packs: Iterable[KernelPack]) -> Module:
        """Put a new module into every Placeholder of ``net``, from the first pack whose binding contains its mapping.

        A Placeholder with a module gets a new module too. Raises SpecError if ``net`` has no Placeholder, or one
        that no pack fits; then nothing changes.
        """
        return later("replace", net, kernel_packs)

    # -- refusals ----------------------------------------------------------------------------------------------------

    def _check_reachable(self) -> None:
        if self._lacks_ones or distance(self.root(), effort=self._effort) is None:
            raise SpecError(self._unreachable())
        if excess(self.root()) is not None:
            raise SpecError(self._nothing_found())
        check_wants(self.spec, effort=self._effort)

    @property
    def _lacks_ones(self) -> bool:
        """Return whether the input has more axes of size 1 than the output: no step of the space adds such axes."""
        pairs = self.spec.fixed_io_pairs
        ones = [
            sum(size.is_one for axis, size in enumerate(shape) if axis not in {pair[side] for pair in pairs})
            for side, shape in enumerate((self.spec.input_shape, self.spec.output_shape))
        ]
        return ones[0] > ones[1]

    def _nothing_found(self) -> str:
        over = excess(self.root())
        for rule in self.rules:
            if over is None and rule not in RULES:
                rest = tuple(other for other in self.rules if other != rule)
                without = Sampler.__new__(Sampler)
                without._start(self.spec, self.seed, rest, self._effort)
                # Build the operators too, because deep rules and budgets decide at the end of a path.
                paths = islice(chain.from_iterable(without._paths(None)), MAX_REJECTED)
                if any(without._builder.operator(path) is not None for path in paths):
                    return (
                        f"no operator found: rule {rule.name!r} rejects all of them; without it there are some. Narrow "
                        "its match, or leave it out of the rules"
                    )
        spec = self.spec
        wish = f" that meets {wants_text(spec.wants, spec.input_shape, spec.output_shape)}" if spec.wants else ""
        return (
            f"no operator found from {_shape(spec.output_shape)} to {_shape(spec.input_shape)}{wish} with at most "
            f"{self._most} primitives and these budgets; raise max_primitives or a budget"
            + (", or wish less" if wish else "")
            + ("" if over is None else f" ({over})")
        )

    def _unreachable(self) -> str:
        lacking = [
            name
            for name, size in ((str(s), s) for s in self.spec.input_shape)
            for variable, power in zip(self.spec.symbols.primary, size.primary_exponents, strict=True)
            if power > 0
            and self.spec.occurrence_limits[variable] == 0
            and all(not s.primary_exponents[self.spec.symbols.position[variable]] for s in self.spec.output_shape)
        ]
        new = self.spec.symbols.unused
        why = (
            f": no primitive may introduce {printable(', '.join(lacking), QUOTED)}; give it a limit of 1 or more"
            if lacking
            else f": no primitive makes an axis of the size 1; declare it, as in '{new}=1', and write {new} for it"
            if self._lacks_ones
            else ""
        )
        return (
            f"the input {_shape(self.spec.input_shape)} cannot be reached from the output "
            f"{_shape(self.spec.output_shape)} within the budgets{why}"
        )


def _shape(sizes: Iterable[Size]) -> str:
    return printable(shape_text(sizes), QUOTED)


@contextmanager
def _saying_what_for(spec: Spec) -> Iterator[None]:
    """Add the size of the spec to the error of an unfinished call."""
    try:
        yield
    except EffortError as error:
        axes, variables = max(len(spec.input_shape), len(spec.output_shape)), len(spec.symbols.names)
        raise type(error)(
            f"{error} (this spec: {axes} axes, {variables} variables, max_primitives {spec.limits.max_primitives})"
        ) from None


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable garbage collection: the graph only grows, and scanning it takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

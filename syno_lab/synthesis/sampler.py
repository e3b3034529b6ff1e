"""The sampler: random walks from the output to the input, guided by shape distance (Syno, section 7.1).

A walk takes canonical steps only, and only those after which the input is still within reach of the steps that are
left; what turned out to be a dead end is remembered and not entered again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec, WeightLimits
from syno_lab.ir.state import State
from syno_lab.synthesis.candidates import canonical_successors
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import kinds, shuffled, sums_no_weights

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.models.placeholder import KernelPack

MAX_FAILED_WALKS = 20_000
_STOP_EARLY = 0.5  # chance to stop at a complete state that could still grow
_REMEMBERED = 200_000  # dead ends kept; beyond it the memory is emptied

# A kind of primitive is drawn first, then a step of the kind: there are far more contractions than anything else.
_KIND_WEIGHTS = {"REDUCE": 8.0, "SHARE": 4.0, "UNFOLD": 4.0, "SPLIT": 1.0, "MERGE": 1.0, "SHIFT": 0.5, "STRIDE": 0.5}


class Sampler:
    """Synthesises operators for a specification, in the words of ``syno-readme.md``.

    Args:
        input_shape: as ``"[N, C_in, H, W]"``; sizes may be products and powers, ``"s^-1*H"``.
        output_shape: likewise.
        primary_specs: variables of the shapes with their limits of occurrences: ``["N: 0", "C_in: 3", "H = 28: 2"]``.
        coefficient_specs: variables only primitives introduce, each with a value: ``["k_1=3: 4"]``.
        net: a network with :class:`syno_lab.Placeholder` modules, whose mappings become bindings.
        mappings: further bindings as dictionaries.
        fixed_io_pairs: pairs (input axis, output axis) that are one coordinate and take part in nothing.
        unordered: input axes whose inner order is free in the final match.
        seed: for reproducible samples; None draws one, kept in ``.seed``.
        weight_limits: ``"free"`` or ``"strict"``: whether the limits of occurrences bind the weights' dimensions too.
        limits: the fields of :class:`syno_lab.ir.spec.Limits` (``max_primitives``, ``max_flops``, …).

    Raises:
        SpecError: in one line, for a malformed or contradictory specification.
    """

    def __init__(
        self,
        input_shape: str,
        output_shape: str,
        primary_specs: Sequence[str],
        coefficient_specs: Sequence[str] = (),
        *,
        net: nn.Module | None = None,
        mappings: Iterable[Mapping[str, int]] | None = None,
        fixed_io_pairs: Iterable[Sequence[int]] = (),
        unordered: Iterable[str] = (),
        seed: int | None = None,
        weight_limits: WeightLimits = "free",
        rules: tuple[Rule, ...] = RULES,
        **limits: Any,
    ) -> None:
        spec = Spec.parse(
            input_shape,
            output_shape,
            primary_specs,
            coefficient_specs,
            fixed_io_pairs=fixed_io_pairs,
            unordered=unordered,
            weight_limits=weight_limits,
            **limits,
        )
        bindings = list(mappings or ())
        if net is not None:
            from syno_lab.models.placeholder import placeholders

            bindings += [placeholder.mapping for _, placeholder in placeholders(net)]
        self._start(spec.bound(bindings) if bindings else spec, seed, rules)

    @classmethod
    def from_spec(cls, spec: Spec, *, seed: int | None = None, rules: tuple[Rule, ...] = RULES) -> Sampler:
        """A sampler for a specification that is already parsed."""
        sampler = cls.__new__(cls)
        sampler._start(spec, seed, rules)
        return sampler

    def _start(self, spec: Spec, seed: int | None, rules: tuple[Rule, ...]) -> None:
        self.spec = spec
        self.rules = rules
        self.seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        self.trials = 0
        self._random = random.Random(self.seed)  # noqa: S311 - for sampling, not for secrets
        self._dead: dict[State, int] = {}

    def root(self) -> State:
        """The output coordinates alone."""
        return State.root(self.spec)

    def sample(self, *, should_stop: Callable[[], bool] | None = None) -> Operator:
        """One random canonical operator within all budgets. Repeated calls can give the same operator again.

        The draw is not uniform: it prefers short operators and rare kinds of steps.

        Raises:
            SpecError: when the input cannot be reached at all, or was not in ``MAX_FAILED_WALKS`` walks.
        """
        root = self.root()
        if distance(root) is None:
            raise SpecError(self._unreachable())
        failed = 0
        while failed < MAX_FAILED_WALKS:
            if should_stop is not None and should_stop():
                raise SynoError("sampling was stopped before an operator was found")
            operator = self._walk(root)
            if operator is not None and self._fits(operator):
                return operator
            if self._dead.get(root, -1) >= self.spec.limits.max_primitives:
                break
            failed += 1
        raise SpecError(
            f"no operator found from {_shape(self.spec.output_shape)} to {_shape(self.spec.input_shape)} with at most "
            f"{self.spec.limits.max_primitives} primitives and these budgets; raise max_primitives or a budget"
        )

    def samples(self, *, should_stop: Callable[[], bool] | None = None) -> Iterator[Operator]:
        """Random canonical operators, each pGraph once, for as long as new ones turn up."""
        seen: set[Operator] = set()
        repeats = 0
        while repeats < MAX_FAILED_WALKS:
            try:
                operator = self.sample(should_stop=should_stop)
            except SynoError:
                if seen:
                    return
                raise
            if operator in seen:
                repeats += 1
                continue
            repeats = 0
            seen.add(operator)
            yield operator

    def enumerate(self, max_primitives: int | None = None) -> Iterator[Operator]:
        """Every canonical operator of at most ``max_primitives`` steps, each pGraph once, smaller first."""
        most = self.spec.limits.max_primitives if max_primitives is None else max_primitives
        limits = replace(self.spec.limits, max_primitives=most)
        level = [State.root(replace(self.spec, limits=limits))]
        if distance(level[0]) is None:
            raise SpecError(self._unreachable())
        seen: set[State] = set(level)
        for taken in range(most + 1):
            following = []
            for state in level:
                if self._is_wanted(state):
                    for match in state.matches():
                        operator = Operator(state, match)
                        if self._fits(operator):
                            yield operator
                for _, after in canonical_successors(state, self.rules):
                    needed = distance(after)
                    if needed is not None and needed <= most - taken - 1 and after not in seen:
                        seen.add(after)
                        following.append(after)
            level = following

    def replace(self, net: nn.Module, kernel_packs: Sequence[KernelPack]) -> nn.Module:
        """Fill the placeholders of ``net`` with the kernels; see :func:`syno_lab.models.placeholder.replace`."""
        from syno_lab.models.placeholder import replace as fill

        fill(net, kernel_packs)
        return net

    # -- one walk ----------------------------------------------------------------------------------------------------

    def _walk(self, root: State) -> Operator | None:
        self.trials += 1
        most = self.spec.limits.max_primitives
        limit = self._random.randint(min(max(distance(root) or 0, 1), most), most)
        state = root
        while True:
            left = limit - len(state.steps)
            if self._is_wanted(state) and (left == 0 or self._random.random() < _STOP_EARLY):
                return Operator(state, self._random.choice(list(state.matches())))
            following = self._step(state, left - 1)
            if following is None:
                if not self._is_wanted(state):
                    self._remember(state, left)
                return None
            state = following

    def _step(self, state: State, left: int) -> State | None:
        """A random canonical next state from which the input can be reached in ``left`` more steps; None if none is."""
        open_kinds = kinds(state)
        while open_kinds:
            kind = self._random.choices(open_kinds, [_KIND_WEIGHTS.get(k, 1.0) for k in open_kinds])[0]
            for step in shuffled(state, kind, self._random):
                if rejecting_rule(state, step, self.rules) is not None:
                    continue
                after = state.apply(step)
                needed = distance(after)
                if needed is None or max(needed, self.spec.limits.min_weights - len(after.weights)) > left:
                    continue
                if self._dead.get(after, -1) < left:
                    return after
            open_kinds.remove(kind)
        return None

    def _remember(self, state: State, left: int) -> None:
        """No operator is reached from ``state`` within ``left`` steps by any canonical step."""
        if len(self._dead) > _REMEMBERED:
            self._dead.clear()
        self._dead[state] = max(left, self._dead.get(state, -1))

    def _is_wanted(self, state: State) -> bool:
        return len(state.weights) >= self.spec.limits.min_weights and state.is_complete and sums_no_weights(state)

    def _fits(self, operator: Operator) -> bool:
        limits = self.spec.limits
        if not self.spec.bindings:
            return True
        binding = self.spec.binding_maps[0]
        budgets = (
            (limits.max_params, operator.params),
            (limits.max_flops, operator.flops),
            (limits.max_memory, operator.memory),
        )
        if any(most is not None and count(binding) > most for most, count in budgets):
            return False
        return limits.min_flops is None or operator.flops(binding) >= limits.min_flops

    def _unreachable(self) -> str:
        lacking = [
            name
            for name, size in ((str(s), s) for s in self.spec.input_shape)
            for variable, power in zip(self.spec.symbols.primary, size.primary_exponents, strict=True)
            if power > 0
            and self.spec.occurrence_limits[variable] == 0
            and all(not s.primary_exponents[self.spec.symbols.position[variable]] for s in self.spec.output_shape)
        ]
        why = f": no primitive may introduce {', '.join(lacking)}; give it a limit of 1 or more" if lacking else ""
        return (
            f"the input {_shape(self.spec.input_shape)} cannot be reached from the output "
            f"{_shape(self.spec.output_shape)} within the budgets{why}"
        )


def _shape(sizes: Iterable[Any]) -> str:
    return "[" + ", ".join(map(str, sizes)) + "]"

"""Readable PyTorch source from the lowering plan: a class that depends on torch alone.

Each stage of the plan undoes its primitives top-down (Syno, section 8). Views stay pending (:mod:`.torch_tensor`).
Where a stage multiplies and sums, :func:`~.stage_kinds.recognise` recognises the kind of product and
:mod:`.torch_convolution` writes the call. Sums and windows may move within a stage; the tests compare the result with
the NumPy loop nest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from syno_lab.codegen.pooled import pooled
from syno_lab.codegen.stage_kinds import Contraction, Term, recognise
from syno_lab.codegen.torch_band import few_channels, join_windows, toeplitz
from syno_lab.codegen.torch_convolution import MAX_SLIDING, add_up, convolve, multiply, open_window
from syno_lab.codegen.torch_tensor import Factor, Form, Lines
from syno_lab.codegen.torch_weights import weight_stds
from syno_lab.codegen.walk import results_of
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Plan, Stage, plan
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step

RECOMPUTE_FACTOR = 8  # An intermediate is recomputed if it is this many times larger than input plus output.
MAX_TRIED = 5  # For more tensors in a product, not every order of multiplication is tried.

#: For ``to(memory_format=torch.channels_last)``, which changes tensors of four axes and fails for tensors of five axes.
_OF_FIVE_AXES = (
    "    def _apply(self, fn, recurse=True):  # weights of five axes have no memory format: fn sees seven",
    "        return super()._apply(lambda t: fn(t[None, None])[0, 0] if t.dim() == 5 else fn(t), recurse)",
    "",
)


@dataclass(frozen=True)
class Written:
    """The code of a stage.

    Attributes:
        lines: the lines of code.
        kinds: the products that were recognised, in order.
        largest: the number of elements of the largest tensor that the stage stores.
        out: the number of elements of the stage's result.
    """

    lines: tuple[str, ...]
    kinds: tuple[Contraction, ...]
    largest: int
    out: int


class Writer(Lines):
    """The writer of one module's source."""

    def __init__(
        self,
        operator: Operator,
        binding: Binding,
        form: Form = Form(),  # noqa: B008 - a value
        scale: float = 1.0,
        recompute: bool | None = None,
    ) -> None:
        super().__init__(operator, binding, form)
        self.scale, self.recompute = scale, recompute
        self.plan: Plan = plan(operator, binding, form.order)
        self.copies = 1  # the factor that results from sums over coordinates on which no tensor depends
        self.kinds: list[Contraction] = []

    # -- the module --------------------------------------------------------------------------------------------------

    def source(self) -> str:
        """Return the source of the module."""
        operator = self.operator
        stds = weight_stds(operator, self.binding)
        shape, result = (self._shape(axes) for axes in (operator.inputs, operator.output))
        methods = [*self._method("forward", shape), *self._pooled(shape)]
        text = ["import torch", "from torch import nn", "from torch.nn import functional as F"]
        if any("checkpoint(" in line for line in methods):
            text.append("from torch.utils.checkpoint import checkpoint")
        text += [
            "",
            "",
            "class SynoOperator(nn.Module):",
            f'    """[{shape}] -> [{result}]; {operator.params(self.binding)} parameters, {self.plan.flops} FLOPs."""',
            "",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        self.weight_{i + 1} = nn.Parameter({self._empty(i)})" for i in range(len(operator.weights))),
            "        self.reset_parameters()",
            "",
            "    def reset_parameters(self):",
            '        """Draw the weights so that the output\'s variance is the input\'s."""',
            *(f"        nn.init.normal_(self.weight_{i}, std={std!r})" for i, std in enumerate(stds, 1)),
            *([] if stds else ["        pass  # no weights"]),
            "",
            *(_OF_FIVE_AXES if 5 in map(len, operator.weight_sizes(self.binding)) else ()),
            *methods,
        ]
        return "\n".join(text)

    def _method(self, name: str, shape: str, *about: str) -> Iterator[str]:
        """Write a method that computes the operator."""
        segments = self._segments(self.stages())
        yield f"    def {name}(self, x):"
        yield from about
        yield from self._check(shape)
        yield from self._calls(segments)
        yield ""

    def _pooled(self, shape: str) -> Iterator[str]:
        """Write the method ``pooled`` for the form's pooling, if its blocks divide the output."""
        if self.form.pool is None or (found := pooled(self.operator, self.binding, self.form.pool)) is None:
            return
        scale = self.scale / prod(self.form.pool)
        writers = [
            Writer(*found, self.form._replace(late=late, pool=None), scale, self.recompute)
            for late in (self.form.late, not self.form.late)
        ]
        size = " x ".join(map(str, self.form.pool))
        about = f'        """Compute the operator and an average pooling of {size} behind it, in fewer operations."""'
        methods = [list(writer._method("pooled", shape, about)) for writer in writers]
        best = min(range(len(writers)), key=lambda i: writers[i].copying)
        self.layouts |= writers[best].layouts  # a layer that pools calls this method alone
        yield f"    pool = {self.form.pool}"
        yield ""
        yield from methods[best]

    def _shape(self, coordinates: Sequence[Coordinate]) -> str:
        return ", ".join("batch" if c in self.operator.state.fixed else str(self.size(c)) for c in coordinates)

    def _empty(self, weight: int) -> str:
        """Return an empty weight in the memory layout that its product reads."""
        sizes = self.operator.weight_sizes(self.binding)[weight]
        order = self.layouts.get(weight, tuple(range(len(sizes))))
        if order == tuple(range(len(sizes))):
            return f"torch.empty({sizes})"
        back = ", ".join(str(order.index(axis)) for axis in range(len(sizes)))
        return f"torch.empty({tuple(sizes[axis] for axis in order)}).permute({back})"

    def _check(self, wanted: str) -> Iterator[str]:
        fixed = self.operator.state.fixed
        pairs = [(a, self.size(c)) for a, c in enumerate(self.operator.inputs) if c not in fixed]
        rank = len(self.operator.inputs)
        tests = [f"x.dim() != {rank}"]
        if pairs and [a for a, _ in pairs] == list(range(pairs[0][0], rank)):
            sizes = tuple(n for _, n in pairs)
            tests.append(f"x.shape[{pairs[0][0]}:] != {sizes}" if pairs[0][0] else f"x.shape != {sizes}")
        else:
            tests += [f"x.shape[{a}] != {n}" for a, n in pairs]
        yield f"        if {' or '.join(tests)}:"
        yield f'            raise ValueError(f"expected an input of shape [{wanted}], found {{list(x.shape)}}")'
        if self.operator.weights:
            yield "        if x.dtype != self.weight_1.dtype and not torch.is_autocast_enabled(x.device.type):"
            yield '            wanted = f"{self.weight_1.dtype} like the weights"'
            yield '            raise TypeError(f"expected an input of {wanted}, found {x.dtype}")'

    def _segments(self, stages: Sequence[Written]) -> list[tuple[bool, list[Written]]]:
        """Group the stages into segments; a stage joins the segment before it if its input is recomputed."""
        ends = prod(self.size(c) for c in self.operator.inputs) + prod(self.size(c) for c in self.operator.output)
        segments: list[tuple[bool, list[Written]]] = []
        follows = False
        for stage in stages:
            explodes = stage.largest > RECOMPUTE_FACTOR * ends if self.recompute is None else self.recompute
            if follows:  # the previous stage's result is the large tensor
                segments[-1][1].append(stage)
            else:
                segments.append((explodes, [stage]))
            follows = explodes and (stage.out > RECOMPUTE_FACTOR * ends or self.recompute is True)
        return segments

    def _calls(self, segments: Sequence[tuple[bool, list[Written]]]) -> Iterator[str]:
        """Write the body of ``forward``; segments that are recomputed are inner functions."""
        for number, (again, stages) in enumerate(segments, 1):
            lines = [line for stage in stages for line in stage.lines]
            if not again:
                yield from lines
                continue
            inputs, outputs = self._ends(segments, number - 1)
            yield ""
            yield f"        def part_{number}({inputs}):"
            yield from (f"    {line}" for line in lines)
            yield f"            return {outputs}"
            yield ""
            yield "        if self.training and torch.is_grad_enabled():  # large inside: computed again, not stored"
            yield f"            {outputs} = checkpoint(part_{number}, {inputs}, use_reentrant=False)"
            yield "        else:"
            yield f"            {outputs} = part_{number}({inputs})"
        yield f"        return {self.result}"

    def _ends(self, segments: Sequence[tuple[bool, list[Written]]], number: int) -> tuple[str, str]:
        stage = sum(len(stages) for _, stages in segments[:number])
        return self.names[stage], self.names[stage + len(segments[number][1])]

    # -- stages ------------------------------------------------------------------------------------------------------

    def stages(self) -> list[Written]:
        """Write every stage."""
        data = Factor("x", [self.plain(c) for c in self.operator.inputs])
        written: list[Written] = []
        self.names, self.owed = ["x"], self.scale
        for number, stage in enumerate(self.plan.stages, 1):
            self.lines, self.largest, self.kinds = [], 0, []
            data = self._stage(stage, data)
            if number == len(self.plan.stages):
                self.arrange(data, self.operator.output)
            if len(self.plan.stages) > 1:
                domain = " x ".join(str(c.size) for c in stage.domain) or "1"
                kinds = "".join(f"; {kind}" for kind in self.kinds)
                self.lines.insert(0, f"        # stage {number} of {len(self.plan.stages)}: {domain} iterations{kinds}")
            written.append(Written(tuple(self.lines), tuple(self.kinds), self.largest, data.elements))
            self.names.append(data.name)
        scale = self.owed * self.copies
        self.result = data.name if scale == 1.0 else f"{data.name} * {scale!r}"
        return written

    def _stage(self, stage: Stage, data: Factor) -> Factor:
        factors = [data]
        unsummed = set(stage.summed)  # reductions that are not summed yet
        contractions = iter(stage.weights)
        for number, step in enumerate(stage.undo):
            if step.primitive == "SHARE":
                weight = next(contractions)
                axes = [self.plain(c) for c in self.operator.weights[weight].coordinates]
                scaled = "" if self.owed == 1.0 else f".mul({self.owed!r})"
                self.owed = 1.0  # a weight is smaller than the result
                factors.append(Factor(f"self.weight_{weight + 1}{scaled}", axes, weight=weight))
            elif step.primitive != "EXPAND":  # the data need no axis of this coordinate: they are constant along it
                later = {c for s in stage.undo[number + 1 :] if s.primitive == "SHARE" for c in s.operands + s.given}
                self._undo(factors, step, unsummed, unsummed - later)
        self._contract(factors, unsummed, unsummed)
        for reduction in unsummed:  # a sum over a reduction on which no tensor depends is a factor
            self.copies *= self.size(reduction)
        return factors[0]

    def _undo(self, factors: list[Factor], step: Step, left: set[Coordinate], summable: set[Coordinate]) -> None:
        results = self.operator.state.results(step)
        having = [f for f in factors if any(f.has(r) for r in results)]
        if not having:
            if step.primitive != "UNFOLD":
                return  # Data that are constant along the result are constant along the operands.
            self.expand(factors[0], results)  # UNFOLD sets elements out of bounds to zero, so the axis must exist.
            having = [factors[0]]
        scattered = len(results) > 1 and not all(f.has(r) for f in having for r in results) and len(having) > 1
        if scattered or (len(factors) > 1 and self._hinders(factors[0], step, results)):
            # Multiply first: the digits are axes of different tensors, or the view's axis is part of a window.
            self._contract(factors, left, summable)
            having = factors
        # A user's own primitive may have the name of another method of this class.
        is_written = step.primitive in ("SPLIT", "MERGE", "SHIFT", "STRIDE", "UNFOLD")
        for factor in having:
            (getattr(self, f"_{step.primitive.lower()}") if is_written else self._gather)(factor, step, results)

    def _hinders(self, data: Factor, step: Step, results: tuple[Coordinate, ...]) -> bool:
        """Check whether a pending window of the data must be multiplied before a view can be written."""
        for result in results:
            if result in data.coordinates:
                axis = data.axes[data.axis_of(result)]
                if not axis.is_plain and not axis.is_split and step.primitive not in ("SPLIT", "STRIDE", "MERGE"):
                    return True
        return False

    # -- the primitives, undone ----------------------------------------------------------------------------------------

    def _split(self, factor: Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        block, offset = (self.size(c) for c in step.operands)
        copies = self.copies_of(factor, results[0])
        if copies and copies.copies % (offset * prod(self.size(c) for c in copies.digits[1:])) == 0:
            copies.digits[:1] = step.operands
            return
        self._replace(factor, results[0], [Term(offset, step.operands[0], block), Term(1, step.operands[1], offset)])

    def _replace(self, factor: Factor, result: Coordinate, terms: list[Term], offset: int = 0) -> None:
        """Replace an axis's coordinate by terms; a weight gets a separate axis for each term at once."""
        self.write_copies_of(factor, result)
        if result in factor.merged:
            self.make_real(factor, result)
        place = factor.axis_of(result)
        factor.axes[place] = factor.axes[place].replace(result, terms, offset)
        if factor.weight is not None:
            self.take_apart(factor, place)

    def _merge(self, factor: Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        high, low = results
        factor.merged[step.operands[0]] = (high, low)

    def _shift(self, factor: Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        copies = self.copies_of(factor, results[0])
        if copies and len(copies.digits) == 1:
            copies.digits = [step.operands[0]]
            copies.steps += 1
            if copies.steps == copies.copies:
                self._roll(factor, factor.axis_of(copies.axis))
                copies.steps = 0
            return
        high, low = factor.merged.get(results[0], results * 2)
        if results[0] in factor.merged and not factor.varies(high):  # a roll of periodic data is a roll of one period
            self.make_real(factor, low)
            self._roll(factor, factor.axis_of(low))
            factor.merged[step.operands[0]] = factor.merged.pop(results[0])
            return
        self.make_real(factor, results[0])
        place = factor.axis_of(results[0])
        self._roll(factor, place)
        factor.axes[place] = self.plain(step.operands[0])

    def _roll(self, factor: Factor, place: int) -> None:
        """Roll an axis by 1; if the last line rolls the same axis, extend that roll."""
        last = re.fullmatch(rf" *{re.escape(factor.name)} = (\S+)\.roll\(-(\d+), {place}\)", (self.lines or [""])[-1])
        if last:
            self.lines.pop()
        source, steps = (last[1], int(last[2]) + 1) if last else (factor.name, 1)
        self.assign(factor, f"{source}.roll(-{steps}, {place})")

    def _stride(self, factor: Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        assert step.parameter is not None
        terms = [Term(step.parameter.at(self.binding), step.operands[0], self.size(step.operands[0]))]
        self._replace(factor, results[0], terms)

    def _unfold(self, factor: Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        self.make_real(factor, results[0])  # UNFOLD's bounds must be the bounds of an axis
        main, window = (self.size(c) for c in step.operands)
        terms = [Term(1, step.operands[0], main), Term(1, step.operands[1], window)]
        self._replace(factor, results[0], terms, -(window // 2))

    def _gather(self, factor: Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        """Write a primitive that has one result and no method in this class, by its index expression."""
        if len(results) != 1:
            raise SynoError(
                f"{step.primitive} has no lowering to PyTorch; write one in syno_lab/codegen/torch_source.py"
            )
        self.make_real(factor, results[0])
        place = factor.axis_of(results[0])
        sizes = tuple(self.size(c) for c in step.operands)
        grids = np.ogrid[tuple(slice(n) for n in sizes)]
        index = np.broadcast_to(results_of(step, grids, lambda size: size.at(self.binding))[0], sizes).ravel()
        inside = (index >= 0) & (index < self.size(results[0]))
        device = f", device={factor.name}.device)"
        picked = f"{factor.name}.index_select({place}, torch.tensor({np.where(inside, index, 0).tolist()}{device})"
        if not inside.all():
            shape = [-1] + [1] * (len(factor.axes) - 1 - place)
            picked = f"({picked} * torch.tensor({inside.astype(int).tolist()}{device}.reshape({shape}))"
        self.assign(factor, f"{picked}.unflatten({place}, {sizes})" if len(sizes) > 1 else picked)
        factor.axes[place : place + 1] = [self.plain(c) for c in step.operands]

    # -- multiplying and summing ---------------------------------------------------------------------------------------

    def _contract(self, factors: list[Factor], left: set[Coordinate], summable: set[Coordinate]) -> None:
        """Multiply all factors into the first, and sum over ``summable`` if possible; ``left`` loses what is summed."""
        summed = {c for c in summable if any(f.has(c) for f in factors)}
        left -= summed
        for factor in factors:
            other_factors = [f for f in factors if f is not factor]
            for copies in list(factor.copied):
                here = {c for c in copies.digits if c in summed and not any(f.has(c) for f in other_factors)}
                self.write_copies(factor, copies, here)
                summed -= here - factor.coordinates
        self._unify(factors, summed)
        while len(factors) > 1:
            first, second = factors[:2]  # The data are first.
            if len(factors) > 2 and self.form.order != "naive":  # "naive" keeps this order.
                sets = [frozenset(f.coordinates) for f in factors]
                pair = _first_pair(sets, frozenset(summed), {c: self.size(c) for s in sets for c in s})
                first, second = (factors[place] for place in pair)
            other_factors = [f for f in factors if f is not first and f is not second]
            here = {c for c in summed if not any(f.has(c) for f in other_factors)}
            self._pair(first, second, here)
            first.merged |= second.merged
            factors.remove(second)
        self._add_up(factors[0], summed)

    def _unify(self, factors: list[Factor], summed: set[Coordinate]) -> None:
        """Split a flattened coordinate into its two parts in all factors, if one factor has an axis for each part."""
        queue = [c for f in factors for c in f.merged]
        while queue:
            coordinate = queue.pop()
            pairs = [f.merged[coordinate] for f in factors if coordinate in f.merged]
            if not pairs:
                continue
            parts = pairs[0]
            for factor in factors:
                if coordinate in factor.coordinates:
                    self.make_real(factor, coordinate)
                    place = factor.axis_of(coordinate)
                    self.open(factor, place, [self.size(c) for c in parts])
                    factor.axes[place : place + 1] = [self.plain(c) for c in parts]
                    factor.merged[coordinate] = parts
            if coordinate in summed:
                summed.discard(coordinate)
                for factor in factors:
                    factor.merged.pop(coordinate, None)
                for part in parts:
                    if any(f.has(part) for f in factors):
                        summed.add(part)
                    else:
                        self.copies *= self.size(part)
                queue += [p for p in parts if any(p in f.merged for f in factors)]

    def _pair(self, data: Factor, weight: Factor, summed: set[Coordinate]) -> None:
        """Multiply ``weight`` into ``data``, and sum over coordinates that no other factor has."""
        self._add_up(weight, {c for c in summed if weight.has(c) and not data.has(c)})
        if self.form.matrices:
            join_windows(self, data, weight, summed)
        self._add_up(data, {c for c in summed if data.has(c) and not weight.has(c)})
        while True:
            roles = recognise(data.axes, [c for axis in weight.axes for c in axis.coordinates], summed)
            obstacles = list(roles.obstacles) + [s.axis for s in roles.sliding[MAX_SLIDING:]]
            if roles.sliding:  # a convolution slides all windows or none
                obstacles += [s.axis for s in roles.opened]
            if self.form.matrices and not obstacles and (window := few_channels(roles, data, weight)):
                toeplitz(self, data, weight, window)
                continue
            if not obstacles:
                break
            for axis in obstacles:
                self.take_apart(data, data.axes.index(axis))
        self.kinds.append(roles)
        if roles.sliding:
            convolve(self, data, weight, roles)
        else:
            multiply(self, data, weight, roles)
            for window in roles.opened:
                open_window(self, data, window)

    def _add_up(self, factor: Factor, summed: Collection[Coordinate]) -> None:
        here = [c for c in summed if factor.has(c)]
        if here:
            add_up(self, factor, here)


def _first_pair(
    sets: Sequence[frozenset[Coordinate]], summed: frozenset[Coordinate], sizes: dict[Coordinate, int]
) -> tuple[int, int]:
    """Return the pair to multiply first for the fewest multiplications; for many tensors the choice is greedy."""

    def after(items: Sequence[frozenset[Coordinate]], i: int, j: int) -> tuple[int, list[frozenset[Coordinate]]]:
        both = items[i] | items[j]
        rest = [s for k, s in enumerate(items) if k not in (i, j)]
        summed_now = {c for c in both & summed if not any(c in s for s in rest)}
        merged = list(items)
        merged[i] = both - summed_now
        del merged[j]
        return prod(sizes[c] for c in both), merged

    def cheapest(items: Sequence[frozenset[Coordinate]]) -> tuple[int, tuple[int, int]]:
        best: tuple[int, tuple[int, int]] | None = None
        for i in range(len(items)):
            for j in range(i + 1, len(items)):
                cost, merged = after(items, i, j)
                if len(merged) > 1 and len(items) <= MAX_TRIED:
                    cost += cheapest(merged)[0]
                if best is None or cost < best[0]:
                    best = (cost, (i, j))
        assert best is not None
        return best

    return cheapest(sets)[1]

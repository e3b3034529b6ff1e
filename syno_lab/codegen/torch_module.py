"""PyTorch from an operator: readable source that depends on torch alone, and the module it defines.

Each stage of the lowering plan undoes its primitives top-down as tensor views (Syno, section 8): SPLIT is
``unflatten``,
MERGE ``flatten``, SHIFT ``roll``, UNFOLD ``pad`` and ``unfold``, STRIDE a slice, EXPAND ``expand``; contractions and
sums of a stage are one ``einsum``. :func:`to_torch` executes the very source that :func:`to_torch_source` prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import numpy as np

from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Plan, Stage, plan
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step

if TYPE_CHECKING:
    from torch import nn

_INDENT = " " * 8


def to_torch(operator: Operator, binding: Binding | None = None, *, scale: float = 1.0) -> nn.Module:
    """A module that computes ``operator`` on tensors of the input's shape, for any batch size, dtype and device.

    Axes that the spec fixes (the batch) take any size; all others are those of ``binding``. ``scale`` is a constant
    factor outside the pGraph: 1/K² makes average pooling of sum pooling. Weights start so that the output's variance
    is that of the input for independent input elements.
    """
    bound = operator.complete_binding(binding)
    source = to_torch_source(operator, bound, scale=scale)
    namespace: dict[str, Any] = {"__name__": "syno_lab.generated"}
    # The source is our own: it holds integers and names made here, never text from a file.
    exec(compile(source, "<syno_lab operator>", "exec"), namespace)  # noqa: S102
    module: nn.Module = namespace["SynoOperator"]()
    # Plain attributes, past nn.Module's own bookkeeping: what the module was made from.
    object.__setattr__(module, "operator", operator)
    object.__setattr__(module, "binding", dict(bound))
    return module


def to_torch_source(operator: Operator, binding: Binding | None = None, *, scale: float = 1.0) -> str:
    """Python source of a class ``SynoOperator(nn.Module)`` for ``binding``, to paste into one's own project."""
    bound = operator.complete_binding(binding)
    return _Writer(operator, bound, float(scale)).source()


@dataclass
class _Factor:
    """A tensor of the stage at hand: the name of its variable and what its axes are."""

    name: str
    axes: list[Coordinate]


class _Writer:
    """Writes one module, line by line."""

    def __init__(self, operator: Operator, binding: Binding, scale: float) -> None:
        self.operator = operator
        self.binding = binding
        self.scale = scale
        self.plan: Plan = plan(operator, binding)
        self.lines: list[str] = []
        self.intermediates = 0

    def size(self, coordinate: Coordinate) -> int:
        return coordinate.size.at(self.binding)

    def emit(self, line: str) -> None:
        self.lines.append(_INDENT + line)

    def source(self) -> str:
        """The whole text."""
        operator = self.operator
        stds = weight_stds(operator, self.binding)
        shapes = operator.weight_sizes(self.binding)
        shape = ["batch" if c in operator.state.fixed else str(self.size(c)) for c in operator.inputs]
        result = ["batch" if c in operator.state.fixed else str(self.size(c)) for c in operator.output]
        self._forward()
        text = [
            "import torch",
            "from torch import nn",
            "from torch.nn import functional as F",
            "",
            "",
            "class SynoOperator(nn.Module):",
            (
                f'    """[{", ".join(shape)}] -> [{", ".join(result)}]; '
                f'{operator.params(self.binding)} parameters, {self.plan.flops} FLOPs."""'
            ),
            "",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        self.weight_{i} = nn.Parameter(torch.empty({s}))" for i, s in enumerate(shapes, 1)),
            "        self.reset_parameters()",
            "",
            "    def reset_parameters(self):",
            '        """Draw the weights so that the output\'s variance is the input\'s."""',
            *(f"        nn.init.normal_(self.weight_{i}, std={std!r})" for i, std in enumerate(stds, 1)),
            *([] if stds else ["        pass  # no weights"]),
            "",
            "    def forward(self, x):",
            *self._check(),
            *self.lines,
            "",
        ]
        return "\n".join(text)

    def _check(self) -> Iterator[str]:
        pairs = [(a, self.size(c)) for a, c in enumerate(self.operator.inputs) if c not in self.operator.state.fixed]
        axes = [a for a, _ in pairs]
        wanted = ", ".join(
            "batch" if c in self.operator.state.fixed else str(self.size(c)) for c in self.operator.inputs
        )
        rank = len(self.operator.inputs)
        tests = [f"x.dim() != {rank}"]
        if axes and axes == list(range(axes[0], rank)):
            tests.append(
                f"x.shape[{axes[0]}:] != ({', '.join(str(n) for _, n in pairs)},)"
                if axes[0]
                else f"x.shape != ({', '.join(str(n) for _, n in pairs)},)"
            )
        else:
            tests += [f"x.shape[{a}] != {n}" for a, n in pairs]
        yield f"        if {' or '.join(tests)}:"
        yield f'            raise ValueError(f"expected an input of shape [{wanted}], found {{list(x.shape)}}")'

    def _forward(self) -> None:
        tensor = _Factor("x", list(self.operator.inputs))
        for number, stage in enumerate(self.plan.stages, 1):
            if len(self.plan.stages) > 1:
                domain = " x ".join(str(c.size) for c in stage.domain) or "1"
                self.emit(f"# stage {number} of {len(self.plan.stages)}: {domain} iterations")
            tensor = self._stage(stage, tensor)
        scaled = tensor.name if self.scale == 1.0 else f"{tensor.name} * {self.scale!r}"
        self.emit(f"return {scaled}")

    # -- one stage ---------------------------------------------------------------------------------------------------

    def _stage(self, stage: Stage, tensor: _Factor) -> _Factor:
        factors = [_Factor(tensor.name, list(tensor.axes))]
        contractions = iter(stage.weights)
        for step in stage.undo:
            if step.primitive == "SHARE":
                weight = next(contractions)
                factors.append(_Factor(f"self.weight_{weight + 1}", list(self.operator.weights[weight].coordinates)))
            elif step.primitive == "EXPAND":
                self._expand(factors[0], step.operands[0])
            else:
                self._view(factors, step, stage)
        return self._einsum(factors, stage.out)

    def _assign(self, factor: _Factor, expression: str) -> None:
        if factor.name == "x" or factor.name.startswith("self."):
            self.intermediates += 1
            name = f"z{self.intermediates}" if factor.name == "x" else f"v{self.intermediates}"
        else:
            name = factor.name
        self.emit(f"{name} = {expression}")
        factor.name = name

    def _expand(self, factor: _Factor, coordinate: Coordinate) -> None:
        kept = ", ".join(["-1"] * len(factor.axes) + [str(self.size(coordinate))])
        self._assign(factor, f"{factor.name}.unsqueeze(-1).expand({kept})")
        factor.axes.append(coordinate)

    def _view(self, factors: list[_Factor], step: Step, stage: Stage) -> None:
        results = self.operator.state.results(step)
        if len(results) > 1 and not all(r in factors[0].axes for r in results):
            # Block and offset stand in different tensors: multiply first, so that one tensor has both.
            axes = list(dict.fromkeys(axis for factor in factors for axis in factor.axes))
            factors[:] = [self._einsum(factors, tuple(axes))]
        for factor in factors:
            if any(result in factor.axes for result in results):
                getattr(self, f"_{step.primitive.lower()}", self._gather)(factor, step, results)

    def _split(self, factor: _Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        axis = factor.axes.index(results[0])
        block, offset = (self.size(c) for c in step.operands)
        self._assign(factor, f"{factor.name}.unflatten({axis}, ({block}, {offset}))")
        factor.axes[axis : axis + 1] = step.operands

    def _merge(self, factor: _Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        for result in results:  # a weight that holds only one of the two is constant along the other
            if result not in factor.axes:
                self._expand(factor, result)
        high, low = (factor.axes.index(r) for r in results)
        expression = factor.name
        if low != high + 1:
            rest = [a for a in range(len(factor.axes)) if a != low]
            place = rest.index(high) + 1
            order = [*rest[:place], low, *rest[place:]]
            expression += f".permute({', '.join(map(str, order))})"
            factor.axes = [factor.axes[a] for a in order]
            high = place - 1
        self._assign(factor, f"{expression}.flatten({high}, {high + 1})")
        factor.axes[high : high + 2] = step.operands

    def _shift(self, factor: _Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        axis = factor.axes.index(results[0])
        self._assign(factor, f"{factor.name}.roll(-1, {axis})")
        factor.axes[axis] = step.operands[0]

    def _stride(self, factor: _Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        axis = factor.axes.index(results[0])
        assert step.parameter is not None
        slices = ", ".join([":"] * axis + [f"::{step.parameter.at(self.binding)}"])
        self._assign(factor, f"{factor.name}[{slices}]")
        factor.axes[axis] = step.operands[0]

    def _unfold(self, factor: _Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        axis = factor.axes.index(results[0])
        window = self.size(step.operands[1])
        # F.pad counts from the last axis.
        padding = [0, 0] * (len(factor.axes) - 1 - axis) + [window // 2, window - 1 - window // 2]
        self._assign(factor, f"F.pad({factor.name}, {tuple(padding)}).unfold({axis}, {window}, 1)")
        factor.axes[axis] = step.operands[0]
        factor.axes.append(step.operands[1])

    def _gather(self, factor: _Factor, step: Step, results: tuple[Coordinate, ...]) -> None:
        """Any other 1-result primitive, by its index expression: the way for primitives without a view of their own."""
        if len(results) != 1:
            raise SynoError(
                f"{step.primitive} has no lowering to PyTorch; write one in syno_lab/codegen/torch_module.py"
            )
        axis = factor.axes.index(results[0])
        primitive = PRIMITIVES[step.primitive]
        sizes = tuple(self.size(c) for c in step.operands)
        grids = tuple(np.ogrid[tuple(slice(n) for n in sizes)])
        parameter = None if step.parameter is None else step.parameter.at(self.binding)
        index = np.broadcast_to(primitive.index(grids, sizes, parameter)[0], sizes).ravel()
        inside = (index >= 0) & (index < self.size(results[0]))
        picked = f"{factor.name}.index_select({axis}, torch.tensor({np.where(inside, index, 0).tolist()}))"
        if not inside.all():
            mask = f"torch.tensor({inside.astype(int).tolist()}).reshape({[-1] + [1] * (len(factor.axes) - 1 - axis)})"
            picked = f"({picked} * {mask})"
        self._assign(factor, f"{picked}.unflatten({axis}, {sizes})" if len(sizes) > 1 else picked)
        factor.axes[axis : axis + 1] = step.operands

    def _einsum(self, factors: list[_Factor], out: tuple[Coordinate, ...]) -> _Factor:
        letters: dict[Coordinate, str] = {}
        for factor in factors:
            for axis in factor.axes:
                letters.setdefault(axis, ascii_letters[len(letters)])
        result = _Factor(factors[0].name, list(out))
        if len(factors) == 1 and tuple(factors[0].axes) == out:
            return result
        if len(factors) == 1 and len(out) == len(factors[0].axes):
            order = ", ".join(str(factors[0].axes.index(c)) for c in out)
            self._assign(result, f"{factors[0].name}.permute({order})")
            return result
        terms = ",".join("".join(letters[a] for a in factor.axes) for factor in factors)
        names = ", ".join(factor.name for factor in factors)
        self._assign(result, f'torch.einsum("{terms}->{"".join(letters[c] for c in out)}", {names})')
        return result


# -- initial weights -------------------------------------------------------------------------------------------------


def weight_stds(operator: Operator, binding: Binding) -> tuple[float, ...]:
    """Standard deviations of the weights with which the output has the input's variance.

    The variance of an output element is the number of its non-zero terms times the product of the weights' variances,
    for independent input elements of variance 1. Each weight makes up for what its stage sums, so that intermediates
    keep the variance too; what padding cuts off is made up for by the last weight.
    """
    stages = plan(operator, binding).stages
    variances = [1.0] * len(operator.weights)
    owed = 1.0 / _share_inside(operator, binding)
    copies = _summed_copies(operator)
    last = None
    for stage in stages:
        fan_in = prod(float(c.size.at(binding)) ** (2 if c in copies else 1) for c in stage.summed)
        owed /= fan_in
        if stage.weights:
            for weight in stage.weights:
                variances[weight] *= owed ** (1 / len(stage.weights))
            owed, last = 1.0, stage.weights[-1]
    if last is not None:
        variances[last] *= owed
    return tuple(sqrt(v) for v in variances)


def _summed_copies(operator: Operator) -> set[Coordinate]:
    """Reductions that only multiply the result: nothing that is read depends on them."""
    used = [*operator.inputs, *(c for weight in operator.weights for c in weight.coordinates)]
    read = {leaf for coordinate in used for leaf in coordinate.leaves()}
    return {reduction for reduction in operator.reductions if reduction not in read}


def _share_inside(operator: Operator, binding: Binding) -> float:
    """The share of terms that no UNFOLD cuts off, exactly where its grid has at most 2^20 points, else 1."""
    clipping: dict[Coordinate, frozenset[Coordinate]] = {}
    for step in operator.steps:
        if step.primitive not in ("REDUCE", "SHARE") and PRIMITIVES[step.primitive].clips:
            for result in operator.state.results(step):
                clipping[result] = frozenset(result.leaves())
    groups: list[tuple[set[Coordinate], list[Coordinate]]] = []  # iterators and the coordinates that they clip
    for result, leaves in clipping.items():
        touching = [g for g in groups if g[0] & leaves]
        merged = (set(leaves).union(*(g[0] for g in touching)), [result, *(c for g in touching for c in g[1])])
        groups = [g for g in groups if g not in touching] + [merged]
    share = 1.0
    for iterators, results in groups:
        order = sorted(iterators, key=lambda c: (c.node.primitive, c.node.tag))
        shape = tuple(c.size.at(binding) for c in order)
        if prod(shape) <= 1 << 20:
            grids = dict(zip(order, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
            inside = np.ones(shape, dtype=bool)
            for result in results:
                index = _index(result, grids, binding)
                inside &= (index >= 0) & (index < result.size.at(binding))
            share *= float(inside.mean())
    return share or 1.0


def _index(coordinate: Coordinate, grids: dict[Coordinate, Any], binding: Binding) -> Any:
    if coordinate.is_leaf:
        return grids[coordinate]
    node = coordinate.node
    args = tuple(_index(c, grids, binding) for c in node.operands)
    sizes = tuple(c.size.at(binding) for c in node.operands)
    parameter = None if node.parameter is None else node.parameter.at(binding)
    return PRIMITIVES[node.primitive].index(args, sizes, parameter)[coordinate.index]

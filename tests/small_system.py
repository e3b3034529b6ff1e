"""A system of small expressions, beside the lab's own: ``y[n, o, h, w] = sum over t, c of W_t[o, c] t(x)[n, c, h, w]``.

A term ``t`` is the image itself, or the mean of its rows or columns; an operator is a set of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from syno_lab.errors import FormatError, PrimitiveError, SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.models.slot import InSlots
from syno_lab.panes.generic import GRAPH
from syno_lab.protocol import Pane, System
from syno_lab.sessions.named import NamedSpace, NamedSteps

FORMAT = "tiny"
VARIABLES = ("N", "C_in", "C_out", "H", "W")
AXES = {"columns": 3, "image": None, "rows": 2}
HEAD = """import torch
from torch import nn


class SynoOperator(nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(1, {count} + 1):
            self.register_parameter(f"weight_{{number}}", nn.Parameter(torch.randn({out}, {into}) / {into} ** 0.5))

    def forward(self, x):
        axes, y = {axes}, 0
        for axis, weight in zip(axes, self.parameters()):
            term = x if axis is None else x.mean(axis, keepdim=True).expand(x.shape)
            y = y + torch.einsum("oc,nchw->nohw", weight, term)
        return y
"""


@dataclass(frozen=True)
class Expression:
    """A sum of different terms, in the order of their names."""

    terms: tuple[str, ...]
    format = FORMAT
    variables = VARIABLES

    def complete_binding(self, binding: Mapping[str, int] | None = None, /) -> dict[str, int]:
        given = {name: positive((binding or {}).get(name)) for name in VARIABLES}
        for name, size in given.items():
            if size is None:
                raise SpecError(f"{name}: expected a positive integer, found {quoted((binding or {}).get(name))}")
        return {name: size for name, size in given.items() if size is not None}

    def input_sizes(self, binding: Any = None, /) -> tuple[int, ...]:
        n, c_in, _, h, w = self.complete_binding(binding).values()
        return n, c_in, h, w

    def output_sizes(self, binding: Any = None, /) -> tuple[int, ...]:
        n, _, c_out, h, w = self.complete_binding(binding).values()
        return n, c_out, h, w

    def weight_sizes(self, binding: Any = None, /) -> tuple[tuple[int, ...], ...]:
        bound = self.complete_binding(binding)
        return ((bound["C_out"], bound["C_in"]),) * len(self.terms)

    def flops(self, binding: Any = None, /) -> int:
        n, _, h, w = self.output_sizes(binding)
        return 2 * n * h * w * self.params(binding)

    def params(self, binding: Any = None, /) -> int:
        return sum(map(prod, self.weight_sizes(binding)))

    def memory(self, binding: Any = None, /) -> int:
        ends = prod(self.input_sizes(binding)) + prod(self.output_sizes(binding))
        return 4 * (2 * ends + self.params(binding))

    def fingerprint(self, binding: Any = None, /) -> str:
        return hashlib.sha256(repr((self.terms, self.complete_binding(binding))).encode()).hexdigest()[:32]

    def reference(self, x: Any, *weights: Any, binding: Any = None) -> Any:
        y = 0.0
        for term, weight in zip(self.terms, weights, strict=True):
            axis = AXES[term]
            read = x if axis is None else np.broadcast_to(x.mean(axis, keepdims=True), x.shape)
            y = y + sum(weight[:, c, None, None] * read[:, c, None] for c in range(x.shape[1]))
        return y

    def to_torch_source(self, binding: Any = None, /) -> str:
        bound = self.complete_binding(binding)
        axes = [AXES[term] for term in self.terms]
        return HEAD.format(count=len(self.terms), out=bound["C_out"], into=bound["C_in"], axes=axes)

    def to_torch(self, binding: Any = None, /) -> nn.Module:
        made: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "small_system.made"}
        exec(self.to_torch_source(binding), made)
        module: nn.Module = made["SynoOperator"]()
        return module

    def to_tvm(self, binding: Any = None, /, dtype: str = "float32") -> Any:
        import tvm
        from tvm import te

        x = te.placeholder(self.input_sizes(binding), dtype, name="X")
        sizes = enumerate(self.weight_sizes(binding), start=1)
        weights = [te.placeholder(shape, dtype, name=f"W{number}") for number, shape in sizes]
        read = [_term(x, AXES[term]) for term in self.terms]
        c = te.reduce_axis((0, int(x.shape[1])), "c")

        def element(n: Any, o: Any, h: Any, w: Any) -> Any:
            return te.sum(sum(weight[o, c] * t(n, c, h, w) for weight, t in zip(weights, read, strict=True)), axis=c)

        function = te.create_prim_func([x, *weights, te.compute(self.output_sizes(binding), element, name="Y")])
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "version": 1, "terms": self.terms})

    def dot(self, **_: Any) -> str:
        return "digraph {" + " ".join(f"x -> {term} -> y;" for term in self.terms) + "}"

    def svg(self, **_: Any) -> str:
        return f'<svg xmlns="http://www.w3.org/2000/svg"><text y="12">{self}</text></svg>'

    def __str__(self) -> str:
        return " + ".join(self.terms)


def _term(x: Any, axis: int | None) -> Callable[..., Any]:
    """What a term reads at n, c, h, w."""
    from tvm import te

    if axis is None:
        return lambda n, c, h, w: x[n, c, h, w]
    size = int(x.shape[axis])
    k = te.reduce_axis((0, size), "k")
    rows = axis == 2
    shape = [n for at, n in enumerate(x.shape) if at != axis]
    total = te.compute(shape, lambda n, c, i: te.sum(x[n, c, k, i] if rows else x[n, c, i, k], axis=k))
    return lambda n, c, h, w: total[n, c, w if rows else h] / size


@dataclass(frozen=True)
class Chosen:
    """A state: the terms so far, in order, and whether there will be more."""

    terms: tuple[str, ...] = ()
    is_complete: bool = False

    def apply(self, step: str) -> Chosen:
        if SUMS.names(self).get(step, step):  # a name with a reason, or none
            raise PrimitiveError(f"expected a further term, or the end behind one, found {quoted(step)}")
        return Chosen(self.terms, True) if step == "end" else Chosen((*self.terms, step.removeprefix("add ")))

    def __str__(self) -> str:
        return " + ".join((*self.terms, *([] if self.is_complete else ["…"])))


class Tiny(System):
    """The system of expressions."""

    format = FORMAT
    title = "expressions"
    known: ClassVar[dict[str, Callable[[], Expression]]] = {
        "pointwise": lambda: Expression(("image",)),
        "rows": lambda: Expression(("image", "rows")),
    }

    panes: ClassVar[dict[str, Pane]] = {"graph": GRAPH}

    def read(self, text: str | bytes) -> Expression:
        try:
            record = json.loads(text)
            terms = tuple(record["terms"])
            fits = record == {"format": FORMAT, "version": 1, "terms": list(terms)}
            if not fits or not terms or set(terms) - AXES.keys() or sorted(set(terms)) != list(terms):
                raise ValueError(terms)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FormatError("operator file: expected an expression of version 1, found something else") from None
        return Expression(terms)

    def binding_for(
        self, operator: Any, named: Any, input_sizes: Sequence[int], output_sizes: Sequence[int]
    ) -> dict[str, int]:
        if len(input_sizes) != 4 or len(output_sizes) != 4:
            raise SpecError(f"expected a layer for images, found one for {list(input_sizes)}")
        n, c_in, h, w = input_sizes
        return {"N": n, "C_in": c_in, "C_out": output_sizes[1], "H": h, "W": w}

    def placement(self, operator: Any, sites: Any, strides: Any) -> InSlots:
        return InSlots(operator, sites, strides)

    @property
    def construction(self) -> Sums:
        return SUMS

    def space(self, request: Any) -> NamedSpace:
        return NamedSpace(SUMS)

    def traits(self, operator: Any, binding: Any) -> dict[str, int]:
        return {"terms": len(operator.terms)}

    def traffic(self, operator: Any, binding: Any) -> int:
        return (2 * len(operator.terms) - 1) * prod(operator.output_sizes(binding))


TINY = Tiny()


class Sums(NamedSteps[Chosen]):
    """Terms are added one by one, in the order of their names."""

    format = "tiny-session"
    root = Chosen()
    known = TINY.known
    readers: ClassVar[dict[str, Callable[[str], Expression]]] = {FORMAT: TINY.read}

    def knows(self, start: Any) -> bool:
        return isinstance(start, Chosen)

    def names(self, state: Chosen) -> dict[str, str]:
        if state.is_complete:
            return {}
        last = state.terms[-1] if state.terms else ""
        found = {f"add {term}": "" if term > last else f"{term} comes before {last}" for term in AXES}
        return {**found, "end": "" if state.terms else "an operator has a term"}

    def steps_to(self, value: Any) -> list[str]:
        steps = [f"add {term}" for term in value.terms]
        return [*steps, "end"] if getattr(value, "is_complete", True) else steps

    def operator(self, state: Chosen) -> Expression:
        return Expression(state.terms)

    def distance(self, state: Chosen, effort: Any = None) -> int:
        return 0 if state.is_complete else 1 if state.terms else 2

    def svg(self, state: Chosen) -> str:
        return Expression(state.terms).svg()


SUMS = Sums()

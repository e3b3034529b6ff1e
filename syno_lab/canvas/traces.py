"""The primitives of Canvas's kernels, so that those of several can be put side by side.

Two primitives are equal where they have one name and one parameter and are applied to equal tensors, down to the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syno_lab.canvas.aim import AimedDraft
from syno_lab.canvas.kernel import Draft, Kernel
from syno_lab.protocol import TracedStep


def traces(values: Sequence[Any]) -> list[list[TracedStep]]:
    """The primitives of each kernel (fitted or not) or draft, in its order."""
    keys: dict[Any, int] = {}
    return [_trace(_draft(value), keys) for value in values]


def _draft(value: Any) -> Draft:
    if isinstance(value, Draft):
        return value
    if isinstance(value, Kernel | AimedDraft):
        return value.draft
    found: Draft = value.kernel.draft
    return found


def _trace(draft: Draft, keys: dict[Any, int]) -> list[TracedStep]:
    tensors = [keys.setdefault("input", len(keys))]
    found = []
    for number, node in enumerate(draft.nodes, start=1):
        inputs = tuple([tensors[tensor] for tensor in node.inputs])
        tensors.append(keys.setdefault((str(node.primitive), inputs), len(keys)))
        ids = (f"p{number}", f"t{number}", f"p{number}-lhs", f"p{number}-rhs", f"p{number}-out")
        found.append(TracedStep(node.primitive.name, f"t{number} = {node}", tensors[-1], frozenset(inputs), ids))
    return found

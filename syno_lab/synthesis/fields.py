"""A spec as data: the Sampler's arguments by their names, for spec files and stored searches."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, Self

import msgspec

from syno_lab.common.size import shape_text
from syno_lab.common.wants import wants_text
from syno_lab.ir.spec import Limits, Spec


class SpecFields(msgspec.Struct, forbid_unknown_fields=True):
    """The Sampler's arguments by their names; a limit that is missing has the default of ``Limits``."""

    input_shape: str
    output_shape: str
    primary_specs: list[str]
    coefficient_specs: list[str] = []
    mappings: list[dict[str, int]] = []
    fixed_io_pairs: list[tuple[int, int]] = []
    unordered: list[str] = []
    weight_limits: Literal["free", "primary"] = "free"
    wants: str | None = None
    max_primitives: int | msgspec.UnsetType = msgspec.UNSET
    max_tensors: int | msgspec.UnsetType = msgspec.UNSET
    max_reduces: int | msgspec.UnsetType = msgspec.UNSET
    max_splits: int | None = None
    max_merges: int | None = None
    max_shifts: int | msgspec.UnsetType = msgspec.UNSET
    max_expands: int | msgspec.UnsetType = msgspec.UNSET
    max_unfolds: int | None = None
    max_strides: int | msgspec.UnsetType = msgspec.UNSET
    max_contractions: int | None = None
    max_flops: int | None = None
    min_flops: int | None = None
    max_params: int | None = None
    max_memory: int | None = None
    min_weights: int | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """Return the arguments that make ``spec``; :meth:`spec` converts them back.

        Every limit is written, so that stored data do not depend on the defaults of another version.
        """
        primary = set(spec.symbols.primary)
        return cls(
            shape_text(spec.input_shape),
            shape_text(spec.output_shape),
            [str(v) for v in spec.variables if v.name in primary],
            [str(v) for v in spec.variables if v.name not in primary],
            [dict(binding) for binding in spec.bindings],
            list(spec.fixed_io_pairs),
            list(spec.unordered),
            spec.weight_limits,
            wants_text(spec.wants, spec.input_shape, spec.output_shape) or None,
            **{item.name: getattr(spec.limits, item.name) for item in fields(Limits)},
        )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments with a value, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not msgspec.UNSET}

    def spec(self) -> Spec:
        """Build the spec of these arguments. Raises SpecError for a malformed or contradictory spec."""
        return Spec.parse(**self.arguments())

"""The specs that ``syno-lab sample`` takes: two by name, any other from a JSON file with the Sampler's fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from syno_lab.commands.operands import read_small
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.ir.spec import Spec

MAX_BYTES = 1 << 20


class SpecFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A spec as a file: the Sampler's arguments by their names."""

    input_shape: str
    output_shape: str
    primary_specs: list[str]
    coefficient_specs: list[str] = []
    mappings: list[dict[str, int]] = []
    fixed_io_pairs: list[tuple[int, int]] = []
    unordered: list[str] = []
    weight_limits: Literal["free", "strict"] = "free"
    seed: int | None = None
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


SPECS = {
    # The conv spec of the benchmarks: C_in at most three times, no other primary introduced.
    "conv": SpecFile(
        input_shape="[N, C_in, H, W]",
        output_shape="[N, C_out, H, W]",
        primary_specs=["N: 0", "C_in: 3", "C_out: 0", "H: 0", "W: 0"],
        coefficient_specs=["k_1=3: 4", "k_2=5: 3", "s=2: 0", "g=16: 3"],
        mappings=[{"N": 1, "C_in": 64, "C_out": 64, "H": 32, "W": 32}],
        fixed_io_pairs=[(0, 0)],
        max_tensors=3,
        max_reduces=5,
        max_flops=10**9,
    ),
    # The example in the README of Syno, with the sizes of its three placeholders.
    "readme": SpecFile(
        input_shape="[H, W]",
        output_shape="[H, W]",
        primary_specs=["H: 2", "W: 2"],
        coefficient_specs=["s_1=2: 2", "s_2=3: 2"],
        mappings=[{"H": 32, "W": 32}, {"H": 16, "W": 16}],
    ),
}


def load_spec(name: str, **changes: Any) -> tuple[Spec, int | None]:
    """The spec ``name`` (``conv``, ``readme`` or a JSON file) with ``changes`` that are not None, and its seed.

    Raises:
        FormatError: for a file that is not a spec.
        SpecError: for a spec that is malformed or contradictory.
        SynoError: for neither a name nor a file.
    """
    where = ""
    record = SPECS.get(name)
    if record is None:
        path = Path(name)
        if not path.is_file():
            raise SynoError(f"--spec: expected {', '.join(SPECS)} or a JSON file, found {name!r}")
        where = f"{path}: "
        try:
            record = msgspec.json.decode(read_small(path, MAX_BYTES), type=SpecFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FormatError(f"{path}: expected JSON with the Sampler's fields: {error}") from None
    given = {name: value for name, value in msgspec.structs.asdict(record).items() if value is not msgspec.UNSET}
    given.update({name: value for name, value in changes.items() if value is not None})
    seed = given.pop("seed")
    try:
        return Spec.parse(**given), seed
    except SpecError as error:
        raise SpecError(f"{where}{error}") from None

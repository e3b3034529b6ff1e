"""The specs of ``syno-lab sample``: three by name, any other from a JSON file with the Sampler's fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import is_file, quoted
from syno_lab.ir.spec import Spec, WeightLimits, read_weight_limits
from syno_lab.synthesis.fields import SpecFields
from syno_lab.systems import format_named
from syno_lab.versioned import read_small, reason

MAX_BYTES = 1 << 20

WantsOption = Annotated[
    str | None,
    typer.Option(
        metavar="WISH",
        help="Only operators that read and mix so much, as 'C_in>=m, H->W>=o': o one-to-one, m many-to-one, a "
        "all-to-one. [default: the spec's own; none for none]",
    ),
]


class SpecFile(SpecFields, forbid_unknown_fields=True):
    """A spec as a file: the Sampler's arguments by name, with its seed; null where the Sampler accepts None."""

    seed: int | None = None
    net: None = None
    mappings: list[dict[str, int]] | None = None  # type: ignore[assignment]


#: The names of specs in help texts.
NAMES = "conv|conv-authors|readme|FILE"
_CONV = SpecFile(
    input_shape="[N, C_in, H, W]",
    output_shape="[N, C_out, H, W]",
    # A chain of two weights uses C_out four times: in a REDUCE and in both weights for the channels between them, and
    # in the second weight for the output's channels.
    primary_specs=["N: 0", "C_in: 3", "C_out: 4", "H: 0", "W: 0"],
    coefficient_specs=["k_1=3: 4", "k_2=5: 3", "s=2: 1", "g=16: 3"],
    mappings=[{"N": 1, "C_in": 64, "C_out": 64, "H": 32, "W": 32}],
    fixed_io_pairs=[(0, 0)],
    weight_limits="primary",
    max_primitives=10,
    max_tensors=3,
    max_reduces=5,
    max_flops=10**9,
)
SPECS = {
    # The spec of the known convolutions and the operators of the paper.
    "conv": _CONV,
    # The spec of the benchmark against the engine of Syno's authors: weights without C_out, and thus fewer operators.
    "conv-authors": msgspec.structs.replace(
        _CONV,
        primary_specs=["N: 0", "C_in: 3", "C_out: 0", "H: 0", "W: 0"],
        coefficient_specs=["k_1=3: 4", "k_2=5: 3", "s=2: 0", "g=16: 3"],
        max_primitives=8,
    ),
    # The example in Syno's README, with the sizes of its three placeholders.
    "readme": SpecFile(
        input_shape="[H, W]",
        output_shape="[H, W]",
        primary_specs=["H: 2", "W: 2"],
        coefficient_specs=["s_1=2: 2", "s_2=3: 2"],
        mappings=[{"H": 32, "W": 32}, {"H": 16, "W": 16}],
    ),
}


def _weight_limits(text: str | None) -> WeightLimits | None:
    try:
        return None if text is None else read_weight_limits(text)
    except SpecError as error:
        raise typer.BadParameter(str(error).removeprefix("weight_limits: ")) from None


WeightLimitsOption = Annotated[
    str | None,
    typer.Option(
        metavar="free|primary",
        callback=_weight_limits,
        help="Whether limits of occurrences bind the dimensions of weights too: of none (free), or those of primary "
        "variables (primary); without it, as the spec says.",
    ),
]
"""Of commands with a ``--spec``."""


SystemOption = Annotated[
    str, typer.Option(help="The system of the operators: pgraphs (or syno), canvas; a title or a format.")
]


def is_canvas(name: str) -> bool:
    """Return whether the system of an option is Canvas; False for pGraphs.

    Raises SynoError for other systems: only pGraphs and Canvas draw operators.
    """
    from syno_lab.canvas.fitted import FORMAT as CANVAS
    from syno_lab.ir.operator import FORMAT as PGRAPHS

    format_name = format_named(name)
    if format_name not in (PGRAPHS, CANVAS):
        raise SynoError(f"--system: expected pgraphs or canvas, found {quoted(name)}, which draws no operators")
    return format_name == CANVAS


def wants_option(text: str | None) -> str | None:
    """Return the wish that an option sets: ``none`` means no wish, even if the file of the spec has one."""
    return "" if text is not None and text.strip().lower() == "none" else text


def load_spec(name: str, **changes: Any) -> tuple[Spec, int | None]:
    """Return the spec ``name`` (a key of :data:`SPECS` or a JSON file) with the ``changes``, and its seed.

    Raises:
        FormatError: the file is not a spec.
        SpecError: the spec is malformed or contradictory.
        SynoError: ``name`` is neither a name nor a file.
    """
    where = ""
    record = SPECS.get(name)
    if record is None:
        path = Path(name)
        if not is_file(path):
            raise SynoError(f"--spec: expected {', '.join(SPECS)} or a JSON file, found {quoted(name)}")
        where = f"{path}: "
        try:
            record = msgspec.json.decode(read_small(path, MAX_BYTES), type=SpecFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FormatError(f"{path}: expected JSON with the Sampler's fields: {reason(error)}") from None
    arguments = record.arguments()
    arguments.update({name: value for name, value in changes.items() if value is not None})
    seed = arguments.pop("seed")
    arguments.pop("net", None)
    try:
        return Spec.parse(**arguments), seed
    except SpecError as error:
        raise SpecError(f"{where}{error}") from None

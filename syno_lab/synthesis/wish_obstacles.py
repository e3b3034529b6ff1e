"""Why no operator of a space can meet a wish (:mod:`syno_lab.ir.wants`), where the limits alone tell.

An output element reads several positions of an axis only by a sum, so by a REDUCE; and of an axis whose own variables
no REDUCE may have, only where an UNFOLD or a SPLIT joins a sum with what runs along the axis: every other primitive
makes coordinates of one iterator each.
"""

from __future__ import annotations

from syno_lab.errors import SpecError
from syno_lab.ir.spec import Spec
from syno_lab.ir.wants import RANK, Wish
from syno_lab.synthesis.parameters import reduce_sizes


def check_wants(spec: Spec) -> None:
    """Refuse wishes that no operator of the space can meet.

    Raises:
        SpecError: one line that names the wish and the limit.
    """
    for wish in spec.wants:
        obstacle = _obstacle(spec, wish)
        if obstacle is not None:
            text = wish.text(spec.input_shape, spec.output_shape)
            raise SpecError(f"wants {text}: no operator of this space can have it: {obstacle}")


def _obstacle(spec: Spec, wish: Wish) -> str | None:
    if RANK[wish.least] < RANK["m"]:
        return None
    limits, size = spec.limits, spec.input_shape[wish.axis]
    if not limits.max_reduces:
        return "more than one position is read only by a REDUCE, and max_reduces is 0"
    if not reduce_sizes(spec):
        return "more than one position is read only by a REDUCE, and no variable has a limit of 1 or more"
    names = [name for name, power in zip(spec.symbols.primary, size.primary_exponents, strict=True) if power]
    is_summed = any(spec.occurrence_limits[name] != 0 for name in names) or not names
    if limits.max_unfolds == 0 and limits.max_splits == 0 and not is_summed:
        return (
            f"no REDUCE may have {' or '.join(names)}, and without UNFOLD and SPLIT (max_unfolds and max_splits are 0) "
            "nothing else is summed along it"
        )
    return None

"""Why no operator of a space can meet a wish (:mod:`syno_lab.common.wants`), by its limits or by the property distance.

An output element reads several positions of an axis only by a sum, so by a REDUCE, and at most as many as its REDUCEs
have together: all of an axis with a primary variable only if one of them has such a variable. Of an axis whose own
variables no REDUCE may have, it reads several only where an UNFOLD or a SPLIT joins a sum with what runs along it:
every other primitive makes coordinates of one iterator each.
"""

from __future__ import annotations

from collections.abc import Sequence

from syno_lab.common.wants import RANK, Wish, wants_text
from syno_lab.effort import Effort
from syno_lab.errors import SpecError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.parameters import reduce_sizes
from syno_lab.synthesis.property_distance import property_distance


def check_wants(spec: Spec, *, effort: Effort | None = None) -> None:
    """Refuse wishes that no operator of the space can meet; of a space whose input is out of reach, nothing is said.

    Raises:
        SpecError: one line that names the wish and the reason.
        EffortError: as :func:`.property_distance`.
    """
    for wish in spec.wants:
        obstacle = _obstacle(spec, wish)
        if obstacle is not None:
            raise SpecError(f"wants {_text(spec, (wish,))}: no operator of this space can have it: {obstacle}")
    root, most = State.root(spec), spec.limits.max_primitives
    shape = distance(root, effort=effort) if spec.wants else None
    if shape is None or shape > most:
        return
    least = property_distance(root, effort=effort)
    if least is None or least > most:
        takes = f"it takes at least {least} steps, found max_primitives {most}"
        why = "no steps bring it" if least is None else takes
        text = _text(spec, spec.wants)
        raise SpecError(f"wants {text}: no operator of this space can have it: {why}; raise a limit, or wish less")


def _text(spec: Spec, wants: Sequence[Wish]) -> str:
    return wants_text(wants, spec.input_shape, spec.output_shape)


def _obstacle(spec: Spec, wish: Wish) -> str | None:
    if RANK[wish.least] < RANK["m"]:
        return None
    limits, size = spec.limits, spec.input_shape[wish.axis]
    if not limits.max_reduces:
        return "more than one position is read only by a REDUCE, and max_reduces is 0"
    if not reduce_sizes(spec):
        return "more than one position is read only by a REDUCE, and no variable has a limit of 1 or more"
    names = [name for name, power in zip(spec.symbols.primary, size.primary_exponents, strict=True) if power]
    if wish.least == "a" and names and not any(spec.occurrence_limits[name] != 0 for name in spec.symbols.primary):
        return f"all of {size} is read only by a REDUCE with a primary variable, and none has a limit of 1 or more"
    is_summed = any(spec.occurrence_limits[name] != 0 for name in names) or not names
    if limits.max_unfolds == 0 and limits.max_splits == 0 and not is_summed:
        return (
            f"no REDUCE may have {' or '.join(names)}, and without UNFOLD and SPLIT (max_unfolds and max_splits are 0) "
            "nothing else is summed along it"
        )
    return None

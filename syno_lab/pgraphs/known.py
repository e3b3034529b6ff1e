"""The known operators of a space: a search may begin with them, and its discoveries are compared with them."""

from __future__ import annotations

from typing import cast

from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.operators import KNOWN
from syno_lab.search.asking import find
from syno_lab.search.protocol import State
from syno_lab.synthesis.rebuilding import arrangements


def known_operators(root: State, spec: Spec) -> dict[str, Operator]:
    """The operators of :data:`syno_lab.operators.KNOWN` that the space of ``root`` has, as it has them, by their names.

    Their variables are the variables of ``spec`` with the same names. The order of its steps, and the coordinate with
    which a weight is shared, may be others in the space; an operator that the space has only in another form is not
    found, nor an operator that a rule, a budget or a hard limit refuses.
    """
    found: dict[str, Operator] = {}
    for name, make in KNOWN.items():
        operator = placed(root, make(), spec)
        if operator is not None and operator not in found.values():
            found[name] = operator
    return found


def placed(root: State, operator: Operator, spec: Spec) -> Operator | None:
    """The operator in the form that the space of ``root`` has; None if it is not found there."""
    if len(operator.output) != len(spec.output_shape) or len(operator.inputs) != len(spec.input_shape):
        return None
    if len(operator.steps) > spec.limits.max_primitives:
        return None
    try:
        for one in arrangements(operator, spec):
            if one.state.is_match(one.inputs) and (trail := find(root, one)) is not None:
                return cast("Operator", trail.end.operator())
    except (KeyError, SynoError):  # a variable that the spec does not have, or a step that is not legal over it
        return None
    return None

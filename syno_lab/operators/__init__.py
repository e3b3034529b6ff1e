"""Known operators, each composed of primitives in a few lines; the dictionary ``KNOWN`` has all operators by name.

Variables have the paper's names. Coefficients have defaults (k_1=3, s=2, g=4), primaries have none.
"""

from collections.abc import Callable

from syno_lab.ir.operator import Operator
from syno_lab.operators.known import (
    conv1d,
    conv1x1,
    conv2d,
    depthwise,
    dilated,
    fold,
    fold_overlapping,
    grouped,
    grouped_linear,
    half_step_shift,
    matmul,
    operator_1,
    operator_2,
    pixel_shuffle,
    pixel_unshuffle,
    separable,
    separable_reversed,
    shift_conv,
    stacked_grouped_convolution,
    strided,
    sum_pool,
    sum_pool_window,
    unfold,
    upsample_nearest,
)

KNOWN: dict[str, Callable[..., Operator]] = {
    operator.__name__: operator
    for operator in (
        matmul,
        conv1x1,
        conv1d,
        conv2d,
        strided,
        dilated,
        depthwise,
        grouped,
        separable,
        shift_conv,
        sum_pool,
        sum_pool_window,
        pixel_shuffle,
        pixel_unshuffle,
        unfold,
        fold,
        upsample_nearest,
        grouped_linear,
        stacked_grouped_convolution,
        operator_1,
        operator_2,
        half_step_shift,
    )
}

#: Known operators whose parts are in another order. They have names, but searches do not begin with them.
OTHER_ORDERS: dict[str, Callable[[], Operator]] = {"separable, the other order": separable_reversed}

__all__ = ["KNOWN", "fold_overlapping", *KNOWN]

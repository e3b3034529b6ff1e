"""The latency and the error of a network in TVM, without a tuning."""

from __future__ import annotations

from torch import nn

from syno_lab.scratch import scratch
from syno_lab.tuning.network import FunctionsTuning, NetworkMeasurement, compiled, run_networks
from syno_lab.tuning.options import TuningOptions


def measured(
    net: nn.Module, shape: tuple[int, ...], *, tokens: bool = False, target: str = "local:1", repeats: int = 1
) -> NetworkMeasurement:
    """Of ``net`` on an example of ``shape``, with TVM's unscheduled loops."""
    with scratch("syno-measured-") as folder:
        options = TuningOptions(work_dir=folder, target=target)
        one = compiled(FunctionsTuning(net, shape, tokens, options), folder)
        ((found,),), _ = run_networks([one], options, repeats=repeats, rounds=1)
    return found

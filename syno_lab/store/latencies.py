"""The kinds of latencies. The name of a latency in the store contains its kind.

Latencies of different kinds are different measures, so their names differ. Names are ``pytorch``, ``network@TARGET``,
and ``TARGET`` for a sum over the replaced layers.
"""

from __future__ import annotations

#: The name of the network's latency in PyTorch, in the process that trained the network.
TORCH = "pytorch"
#: The names of the times of finalists in PyTorch, measured in turns after the finals; a batch is that of a training.
TIMES = {
    "forward": "forward pass of one example",
    "forward-batch": "forward pass of a batch",
    "step": "training step of one example",
    "step-batch": "training step of a batch",
}
#: The times of a network in ms by their names; a network that cannot train on one example has no ``step``.
Times = dict[str, float]
_NETWORK = "network@"


def network_on(target: str) -> str:
    """Return the name of latencies of whole networks that TVM compiled for ``target``."""
    return _NETWORK + target


def is_of_network(name: str) -> bool:
    """Whether latencies with this name are latencies of whole networks, in TVM or in PyTorch."""
    return name == TORCH or name in TIMES or name.startswith(_NETWORK)


def target_of(name: str) -> str:
    """Return the target of the latencies with this name."""
    return name.removeprefix(_NETWORK)


def latency_title(name: str) -> str:
    """Return the title of latencies with this name."""
    if name == TORCH:
        return "latency of the whole network in PyTorch"
    if name in TIMES:
        return f"time of a {TIMES[name]}"
    if name.startswith(_NETWORK):
        return f"latency of the whole network on {name.removeprefix(_NETWORK)}"
    return f"sum of layers' latencies on {name}"


def short_title(name: str) -> str:
    """Return the short title, for legends: ``whole network, local``, ``sum of layers, local`` and so on."""
    if name == TORCH:
        return "whole network, PyTorch"
    if name in TIMES:
        return TIMES[name]
    if name.startswith(_NETWORK):
        return f"whole network, {name.removeprefix(_NETWORK)}"
    return f"sum of layers, {name}"

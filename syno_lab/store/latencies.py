"""What a stored latency is of, by the name of the target under which the store has it.

Latencies of different kinds are never one measure, so their names differ: ``pytorch``, ``network@local`` and, for sums
over the replaced layers, the target alone.
"""

from __future__ import annotations

#: The network as PyTorch runs it, in the process that trained it.
TORCH = "pytorch"
_NETWORK = "network@"


def network_on(target: str) -> str:
    """The name for latencies of whole networks that TVM compiled for ``target``."""
    return _NETWORK + target


def is_of_network(name: str) -> bool:
    """Whether latencies of this name are those of whole networks, by TVM or by PyTorch."""
    return name == TORCH or name.startswith(_NETWORK)


def target_of(name: str) -> str:
    """The target that latencies of this name were measured on."""
    return name.removeprefix(_NETWORK)


def latency_title(name: str) -> str:
    """What people read beside a latency of this name."""
    if name == TORCH:
        return "latency of the whole network in PyTorch"
    if name.startswith(_NETWORK):
        return f"latency of the whole network on {name.removeprefix(_NETWORK)}"
    return f"sum of layers' latencies on {name}"


def short_title(name: str) -> str:
    """The same for legends: ``whole network, local``, ``whole network, PyTorch`` or ``sum of layers, local``."""
    if name == TORCH:
        return "whole network, PyTorch"
    if name.startswith(_NETWORK):
        return f"whole network, {name.removeprefix(_NETWORK)}"
    return f"sum of layers, {name}"

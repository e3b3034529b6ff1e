"""What can be tuned for: named targets as values, and any TVM target as JSON text or tag."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno_lab.errors import TuningError

if TYPE_CHECKING:
    import tvm

#: MetaSchedule's rules look tensor intrinsics up by name: the families of TVM modules that a target may ask for.
_INTRINSICS = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu"}


@dataclass(frozen=True)
class TuningTarget:
    """A named target: ``tvm`` is a TVM tag or a JSON object, None for this machine's own processor."""

    name: str
    description: str
    tvm: str | None


TARGETS = {
    target.name: target
    for target in (
        TuningTarget("local", "this machine's processor with the features it really has", None),
        TuningTarget(
            "jetson-orin-nano-cpu",
            "the six Cortex-A78AE cores of a Jetson Orin Nano",
            json.dumps(
                {
                    "kind": "llvm",
                    "keys": ["arm_cpu", "cpu"],
                    "mtriple": "aarch64-linux-gnu",
                    "mcpu": "cortex-a78ae",
                    "num-cores": 6,
                }
            ),
        ),
        TuningTarget("jetson-orin-nano", "the GPU of a Jetson Orin Nano (sm_87)", "nvidia/jetson-orin-nano"),
    )
}


@dataclass(frozen=True)
class ResolvedTarget:
    """A target as the tuning process uses it.

    ``device`` names the RPC device (``cpu``, ``cuda``), ``artifact`` is ``so`` when this machine can link for the
    target and ``tar`` (linked on the device) when it cannot, ``intrinsics`` the families that its rules need.
    """

    tvm: tvm.target.Target
    device: str
    artifact: str
    intrinsics: tuple[str, ...]


def check_target(name: str) -> str:
    """``name`` when it can be a target: a known name, a JSON object with a ``kind``, or a TVM tag or kind."""
    if name in TARGETS:
        return name
    if name.lstrip().startswith("{"):
        try:
            kind = json.loads(name).get("kind")
        except ValueError as error:
            raise TuningError(f"expected a TVM target as JSON, found {name!r} ({error})") from None
        if not isinstance(kind, str):
            raise TuningError(f"expected a TVM target with a 'kind', found {name!r}")
        return name
    if not name or " " in name:
        raise TuningError(
            f"expected a target among {', '.join(TARGETS)}, a TVM tag or a JSON object such as "
            f'{{"kind": "llvm", "mcpu": "cortex-a78"}}, found {name!r}'
        )
    return name


def resolve(name: str) -> ResolvedTarget:
    """The TVM target called ``name``, in a process that has imported TVM. Raises :class:`TuningError`."""
    from tvm.target import Target

    known = TARGETS.get(check_target(name))
    description: Any = name if known is None else known.tvm
    if description is None:
        from syno_lab.codegen.tvm_device import this_processor

        description = this_processor()
    elif description.lstrip().startswith("{"):
        description = json.loads(description)
    try:
        target = Target(description)
    except Exception as error:  # noqa: BLE001 - TVM raises its own and Python's kinds alike
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TuningError(f"TVM does not know the target {name!r}: {reason}") from None
    kind = target.kind.name
    device = {"llvm": "cpu", "c": "cpu"}.get(kind, kind)
    host = target if device == "cpu" else target.host
    triple = str(host.attrs.get("mtriple", "")) if host is not None else ""
    machine = triple.partition("-")[0] or platform.machine()
    families = ["cuda"] if kind == "cuda" else []
    if device == "cpu" and machine in _INTRINSICS:
        families.append(_INTRINSICS[machine])
    return ResolvedTarget(target, device, "so" if machine == platform.machine() else "tar", tuple(families))

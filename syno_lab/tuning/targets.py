"""The targets of tunings: named targets, and how the tuning process uses one."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno_lab.codegen.target_names import LOCAL, TARGETS, NamedTarget, architecture, describe, local_threads
from syno_lab.errors import SynoError, TuningError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    import tvm

__all__ = [
    "LOCAL",
    "TARGETS",
    "NamedTarget",
    "ResolvedTarget",
    "architecture",
    "check_here",
    "check_target",
    "local_threads",
    "resolve",
]

#: MetaSchedule's rules look tensor intrinsics up by name: the families of TVM modules that a target may ask for.
_INTRINSICS = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu"}


@dataclass(frozen=True)
class ResolvedTarget:
    """A target as the tuning process uses it.

    ``device`` names the RPC device (``cpu``, ``cuda``), ``artifact`` is ``so`` when this machine can link for the
    target and ``tar`` (linked on the device) when it cannot, ``intrinsics`` the families that its rules need.
    ``linker`` is the cross compiler (``aarch64-linux-gnu-g++`` on the PATH) where one is needed and found, ``machine``
    the architecture (``aarch64``) of the processor that its code runs on.
    """

    tvm: tvm.target.Target
    device: str
    artifact: str
    intrinsics: tuple[str, ...]
    linker: str | None = None
    machine: str = ""

    @property
    def cores(self) -> int:
        """The cores of its processor; 1 where the target does not say."""
        return int(self.tvm.attrs.get("num-cores", 1))

    @property
    def text(self) -> str:
        """The target as JSON with sorted keys: records are keyed by this text."""
        return json.dumps(json.loads(str(self.tvm)), sort_keys=True)


def check_target(name: str) -> str:
    """``name`` if it can be a target (see :func:`~syno_lab.codegen.target_names.describe`), else TuningError."""
    try:
        describe(name)
    except SynoError as error:
        raise TuningError(str(error)) from None
    return name


def check_here(target: ResolvedTarget, name: str) -> None:
    """Raise :class:`TuningError` where this machine cannot run what is compiled for ``target``, called ``name``."""
    import tvm

    from syno_lab.codegen.tvm_device import machine

    where = machine(target.tvm)
    if where == platform.machine() and tvm.device(target.device, 0).exist:
        return
    lacking = f"it is for {where}" if where != platform.machine() else f"TVM finds no {target.device} device here"
    raise TuningError(
        f"expected a target that this machine ({platform.machine()}) can run, found {quoted(name)}: {lacking}; "
        "name the tracker and the key of a board that has it"
    )


def resolve(name: str) -> ResolvedTarget:
    """The TVM target called ``name``, in a process that has imported TVM. Raises :class:`TuningError`."""
    from syno_lab.codegen.tvm_device import find_target, linker_for, machine

    try:
        target = find_target(name)
    except SynoError as error:
        raise TuningError(f"TVM does not know the target {quoted(name)}: {error}") from None
    kind = str(target.kind.name)
    device = {"llvm": "cpu", "c": "cpu"}.get(kind, kind)
    where = machine(target)
    families = ["cuda"] if kind == "cuda" else []
    if device == "cpu" and where in _INTRINSICS:
        families.append(_INTRINSICS[where])
    is_here = where == platform.machine()
    linker = None if is_here else linker_for(where)
    return ResolvedTarget(target, device, "so" if is_here or linker else "tar", tuple(families), linker, where)

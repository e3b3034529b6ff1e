"""The targets of tunings: named targets, and the form in which the tuning process uses a target."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno_lab.codegen.target_names import LOCAL as LOCAL
from syno_lab.codegen.target_names import TARGETS as TARGETS
from syno_lab.codegen.target_names import NamedTarget as NamedTarget
from syno_lab.codegen.target_names import architecture as architecture
from syno_lab.codegen.target_names import describe
from syno_lab.codegen.target_names import local_threads as local_threads
from syno_lab.errors import SynoError, TuningError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    import tvm

#: The families of TVM modules that a target may need, because MetaSchedule's rules find tensor intrinsics by name.
_INTRINSICS = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu"}


@dataclass(frozen=True)
class ResolvedTarget:
    """A target as the tuning process uses it.

    ``device`` names the RPC device (``cpu``, ``cuda``). ``artifact`` is ``so`` if this machine can link for the target,
    else ``tar`` (linked on the device). ``intrinsics`` are the families of TVM modules that the target's rules need.
    ``linker`` is the cross compiler (``aarch64-linux-gnu-g++`` on the PATH), if the target needs it and it exists.
    ``machine`` is the architecture (``aarch64``) of the processor that runs the code.
    """

    tvm: tvm.target.Target
    device: str
    artifact: str
    intrinsics: tuple[str, ...]
    linker: str | None = None
    machine: str = ""

    @property
    def cores(self) -> int:
        """The number of cores of the target's processor; 1 if it is unknown."""
        return int(self.tvm.attrs.get("num-cores", 1))

    @property
    def text(self) -> str:
        """The target as JSON text with sorted keys, a part of the keys of records."""
        return json.dumps(json.loads(str(self.tvm)), sort_keys=True)


def check_target(name: str) -> str:
    """Return ``name``. Raise TuningError if :func:`~syno_lab.codegen.target_names.describe` cannot read the name."""
    try:
        describe(name)
    except SynoError as error:
        raise TuningError(str(error)) from None
    return name


def check_here(target: ResolvedTarget, name: str) -> None:
    """Raise :class:`TuningError` if this machine cannot run code that is compiled for ``target``, named ``name``."""
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
    """Return the TVM target named ``name``, in a process that has imported TVM. Raises :class:`TuningError`."""
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

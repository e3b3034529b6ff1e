"""Targets by name, as plain values without TVM: the table that code generation and tuning share."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import cast

from syno_lab.errors import SynoError
from syno_lab.inputs import integer, likeness, nearest, quoted
from syno_lab.processes.process import cores

#: The type of a value in TVM's description of a target or of a target's host.
Attribute = str | int | list[str]
Described = dict[str, Attribute | dict[str, Attribute]]
#: An unknown name with more than this similarity to a target's name counts as misspelt.
_ALIKE = 0.75
#: The lab's name for the processor of this machine; ``local:2`` runs operators in two threads.
LOCAL = "local"


@dataclass(frozen=True)
class NamedTarget:
    """A named target: ``tvm`` is the JSON text of TVM's description, None for this machine's own processor."""

    name: str
    description: str
    tvm: str | None

    @property
    def is_gpu(self) -> bool:
        """Whether operators run on a GPU."""
        return self.tvm is not None and json.loads(self.tvm)["kind"] == "cuda"


def _arm(processor: str, cores: int) -> dict[str, Attribute]:
    return {
        "kind": "llvm",
        "keys": ["arm_cpu", "cpu"],
        "mtriple": "aarch64-linux-gnu",
        "mcpu": processor,
        "num-cores": cores,
    }


def _gpu(arch: str, host: dict[str, Attribute] | None = None) -> Described:
    """Describe a GPU with the limits for MetaSchedule's rules; all GPUs from Volta to Blackwell have these limits."""
    card: Described = {
        "kind": "cuda",
        "arch": arch,
        "max_num_threads": 1024,
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "registers_per_block": 65536,
        "thread_warp_size": 32,
    }
    return card if host is None else card | {"host": host}


def _jetson(name: str, device: str, processor: str, cores: int, arch: str) -> tuple[NamedTarget, NamedTarget]:
    # TVM's own tags name Carmel, Xavier's processor, as the host of an Orin Nano.
    host = _arm(processor, cores)
    return (
        NamedTarget(f"{name}-cpu", f"the {cores} {processor} cores of a {device}", json.dumps(host)),
        NamedTarget(name, f"the GPU of a {device} ({arch})", json.dumps(_gpu(arch, host))),
    )


TARGETS: dict[str, NamedTarget] = {
    target.name: target
    for target in (
        NamedTarget(LOCAL, "this machine's processor with the features it really has, in all its cores", None),
        *_jetson("jetson-orin-nano", "Jetson Orin Nano", "cortex-a78ae", 6, "sm_87"),
        *_jetson("jetson-agx-orin", "Jetson AGX Orin 64GB", "cortex-a78ae", 12, "sm_87"),
        *_jetson("jetson-xavier", "Jetson AGX Xavier", "carmel", 8, "sm_72"),
        # Without an arch TVM looks for a GPU and falls back to an arch that CUDA 13 dropped. sm_75 is CUDA 13's oldest.
        NamedTarget("cuda", "any NVIDIA card since Turing (sm_75)", json.dumps(_gpu("sm_75"))),
    )
}


def local_threads(name: str) -> int | None:
    """Return the number of threads of ``local`` (all that this process may use) or ``local:2``; None for other targets.

    Raises SynoError for 0 threads, or for more than this process may use.
    """
    head, colon, count = name.partition(":")
    if head != LOCAL:
        return None
    most = cores()
    if not colon:
        return most
    threads = integer(count)
    if not threads or threads > most:
        raise SynoError(f"expected local:THREADS with 1 to {most} threads, found {quoted(name)}")
    return threads


def describe(name: str) -> Described | str | None:
    """Return TVM's description of the target ``name``: JSON object, tag or kind; None for this machine's processor.

    ``name`` is one of :data:`TARGETS`, ``local:THREADS``, a JSON object with a ``kind``, a TVM tag
    (``nvidia/jetson-orin-nano``) or kind (``llvm``). ``name`` may be in older TVMs' command-line form, ``llvm
    -mcpu=skylake -num-cores=4``, which this TVM rejects. Raises SynoError for any other text, before TVM sees it.
    """
    if local_threads(name) is not None:
        return None
    if name in TARGETS:
        text_of_target = TARGETS[name].tvm
        assert text_of_target is not None  # only the target ``local`` has no description
        description: Described = json.loads(text_of_target)
        return description
    text = name.strip()
    if text.startswith("{"):
        try:
            described = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SynoError(f"expected a TVM target as JSON, found {quoted(name)} ({error})") from None
        if not isinstance(described.get("kind"), str):
            raise SynoError(f"expected a TVM target with a 'kind', found {quoted(name)}")
        return dict(described)
    kind, *options = text.split()[:64] or [""]
    if not kind or kind.startswith("-") or not all(option.startswith("-") and "=" in option for option in options):
        raise SynoError(
            f"expected a target among {', '.join(TARGETS)}, a TVM tag or kind, or a JSON object such as "
            f'{{"kind": "llvm", "mcpu": "cortex-a78"}}, found {quoted(name)}'
        )
    names = nearest(kind, TARGETS)
    if not options and "/" not in kind and likeness(kind, names[0]) > _ALIKE:  # no TVM kind resembles a target name
        raise SynoError(f"there is no target {quoted(name)}; there are {', '.join(names)}, and TVM's tags and kinds")
    return {"kind": kind, **dict(_option(option) for option in options)} if options else kind


def architecture(name: str) -> str:
    """Return the architecture (``aarch64``) of the processor that runs code for ``name``; empty if only TVM knows it.

    Raises SynoError as :func:`describe`.
    """
    described = describe(name)
    if isinstance(described, dict) and described["kind"] not in ("llvm", "c"):
        described = cast("Described | str | None", described.get("host"))
    if isinstance(described, str):
        return ""
    triple = "" if described is None else described.get("mtriple", "")
    return str(triple).partition("-")[0] or platform.machine()


def _option(text: str) -> tuple[str, Attribute]:
    """Parse ``-mattr=+a,+b`` into a name and a value of the type that TVM's JSON needs."""
    name, _, value = text.lstrip("-").partition("=")
    if name in ("mattr", "keys", "libs"):
        return name, value.split(",")
    number = integer(value)
    return {"device-host": "host"}.get(name, name), value if number is None else number

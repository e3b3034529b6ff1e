"""The machine that a training ran on, in a few words: its numbers hold there to the bit, and nowhere else.

Equal requests with equal seeds gave equal accuracies twice on one machine and others on a second one, by as much as
seeds differ: a comparison never mixes two machines.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch

from syno_lab.errors import TrainingError
from syno_lab.inputs import count_of, printable
from syno_lab.processes.process import cores

_CPUINFO = Path("/proc/cpuinfo")
#: The fields of /proc/cpuinfo that name the processor; the same name is given to several models.
_FIELDS = ("model name", "cpu family", "model", "stepping")


def machine_name(device: str = "cpu", threads: int = 1) -> str:
    """The processor (of a GPU its name), its cores, the version of torch, and the threads of a training, as one line.

    Equal for two trainings whose numbers can be compared to the bit.
    """
    if device.startswith("cuda") and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    count = cores()
    return f"{processor()}, {count_of(count, 'core')}, torch {torch.__version__}, {count_of(threads, 'thread')}"


@cache
def processor() -> str:
    """The processor's name with family, model and stepping, where the system tells them."""
    try:
        first = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return printable(platform.processor() or platform.machine(), 80)
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    name = re.sub(r"\((R|TM)\)", "", found.get("model name") or platform.processor() or platform.machine())
    numbers = ".".join(found[field] for field in _FIELDS[1:] if field in found)
    return printable(" ".join(name.split()) + (f" ({numbers})" if numbers else ""), 80)


def one_machine(machines: Iterable[str]) -> str:
    """The machine on which trainings that are to be compared ran; empty where none of them says.

    Raises TrainingError: two of them ran on different machines.
    """
    found = sorted({machine for machine in machines if machine})
    if len(found) > 1:
        raise TrainingError(
            f"expected trainings on one machine to compare, found some on {found[0]} and some on {found[1]}: their "
            "numbers differ by more than their operators; train the baseline here again"
        )
    return found[0] if found else ""

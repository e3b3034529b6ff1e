"""The name of the machine of a training; the training's numbers are reproducible to the bit on this machine only.

Equal requests with equal seeds gave equal accuracies twice on one machine, but other accuracies on a second machine.
Two machines' accuracies differed as much as two seeds' accuracies. So a comparison never mixes two machines.
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
#: The fields of /proc/cpuinfo that identify the processor, because several models have the same name.
_FIELDS = ("model name", "cpu family", "model", "stepping")


def machine_name(device: str = "cpu", threads: int = 1) -> str:
    """Return a line with the processor (or GPU), its cores, the version of torch, and the threads of a training.

    Two trainings with equal lines have numbers that can be compared to the bit.
    """
    if device.startswith("cuda") and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    count = cores()
    return f"{processor()}, {count_of(count, 'core')}, torch {torch.__version__}, {count_of(threads, 'thread')}"


@cache
def processor() -> str:
    """Return the processor's name, with family, model and stepping if the system has them."""
    try:
        first = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return printable(platform.processor() or platform.machine(), 80)
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    name = re.sub(r"\((R|TM)\)", "", fields.get("model name") or platform.processor() or platform.machine())
    numbers = ".".join(fields[field] for field in _FIELDS[1:] if field in fields)
    return printable(" ".join(name.split()) + (f" ({numbers})" if numbers else ""), 80)


def one_machine(machines: Iterable[str]) -> str:
    """Return the machine on which all trainings of a comparison ran; empty if no training names its machine.

    Raises TrainingError for trainings on different machines.
    """
    names = sorted({machine for machine in machines if machine})
    if len(names) > 1:
        raise TrainingError(
            f"expected trainings on one machine to compare, found some on {names[0]} and some on {names[1]}: another "
            "machine changes the numbers too; train the baseline here again"
        )
    return names[0] if names else ""

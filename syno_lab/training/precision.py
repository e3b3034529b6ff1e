"""Which precision a processor trains convolutions fastest in: measured, because flags alone do not tell."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional

from syno_lab.training.recipes import Precision

_CPUINFO = Path("/proc/cpuinfo")
#: Instructions for bfloat16, as Linux names them: of x86's vector and matrix units, and of Arm's.
_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")

#: bfloat16 must be so many times as fast as float32 to be worth its rounding.
LEAST_GAIN = 1.3
_REPEATS = 4


@cache
def fastest_precision(device: str = "cpu") -> Precision:
    """``bfloat16`` where this processor trains a convolution at least 1.3 times as fast in it, else ``float32``.

    A GPU that has bfloat16 is taken to be faster in it. A processor with matrix units for bfloat16 (AMX) is; one with
    vector instructions alone may lose: a Xeon with AVX512-BF16 took 1.05 to 1.4 times float32's time for ResNet-20 and
    ResNet-8. Takes about a tenth of a second where the processor has such instructions, and nothing where it has none.
    """
    if device != "cpu":
        has_it = device.startswith("cuda") and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        return "bfloat16" if has_it else "float32"
    if not _has_instructions():
        return "float32"
    return "bfloat16" if _seconds(torch.float32) >= LEAST_GAIN * _seconds(torch.bfloat16) else "float32"


def _has_instructions() -> bool:
    try:
        words = set(_CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].split())
    except OSError:
        return True  # the system does not tell, so measure
    return not words.isdisjoint(_FLAGS)


def _seconds(dtype: torch.dtype) -> float:
    """The least seconds of a forward and a backward pass, of a few, for 16 images of 32 channels and 16 x 16 pixels."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(16, 32, 16, 16, generator=draw).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(32, 32, 3, 3, generator=draw).contiguous(memory_format=torch.channels_last)
    weight.requires_grad_(True)
    found = []
    for _ in range(_REPEATS):
        start = time.thread_time()
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
            result = functional.conv2d(functional.conv2d(images, weight, padding=1), weight, padding=1)
        result.float().sum().backward()
        found.append(time.thread_time() - start)
    return min(found)

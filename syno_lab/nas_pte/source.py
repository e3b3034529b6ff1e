"""NAS-PTE's operators as Python source that needs only torch, to paste into another project."""

from __future__ import annotations

from collections.abc import Sequence

from syno_lab.nas_pte.parts import WINDOW, Part

_HEAD = '''\
import torch
from torch import nn
from torch.nn import functional as F


class SynoOperator(nn.Module):
    """{about}"""

    def __init__(self):
        super().__init__()
{made}
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the weights as nn.Conv2d does."""
        for weight in self.parameters():
            nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, x):
        if x.dim() != 4 or x.shape[1:] != ({channels}, {height}, {width}):
            wanted = "[batch, {channels}, {height}, {width}]"
            raise ValueError(f"expected an input of shape {{wanted}}, found {{list(x.shape)}}")
'''


def torch_source(about: str, parts: Sequence[Part], input_shape: tuple[int, ...], rows: int) -> str:
    """A class ``SynoOperator(nn.Module)``: [batch, C_in, H, W] to [batch, C_out, rows, W].

    ``about`` is its docstring; ``rows`` are the first rows of the input [N, C_in, H, W], which alone are read.
    """
    _, channels, height, width = input_shape
    made = "\n".join(
        f"        self.weight_{number} = nn.Parameter(torch.empty({part.weight_shape}))"
        for number, part in enumerate(parts, start=1)
    )
    lines = [_HEAD.format(about=about, made=made, channels=channels, height=height, width=width).rstrip("\n")]
    if rows != height:
        lines.append(f"        x = x[:, :, :{rows}]")
    calls = [_call(number, part, channels) for number, part in enumerate(parts, start=1)]
    if len(calls) == 1:
        lines.append(f"        return {calls[0]}")
    else:
        lines += [f"        z{number} = {call}" for number, call in enumerate(calls, start=1)]
        lines.append(f"        return torch.cat([{', '.join(f'z{n}' for n in range(1, len(calls) + 1))}], 1)")
    return "\n".join(lines) + "\n"


def _call(number: int, part: Part, channels: int) -> str:
    end = part.first_in + part.inputs
    read = "x" if (part.first_in, end) == (0, channels) else f"x[:, {part.first_in}:{end}]"
    groups = f", groups={part.groups}" if part.groups > 1 else ""
    return f"F.conv2d({read}, self.weight_{number}, padding={WINDOW // 2}{groups})"

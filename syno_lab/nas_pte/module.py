"""The torch modules of NAS-PTE's operators. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syno_lab.errors import SpecError
from syno_lab.nas_pte.operator import NasPteOperator
from syno_lab.nas_pte.parts import WINDOW


class NasPteModule(nn.Module):
    """[batch, C_in, H, W] to [batch, C_out, rows, W]; weights start as those of ``nn.Conv2d``.

    They are ``weight_1``, ``weight_2``, …, one for each convolution.
    """

    def __init__(self, operator: NasPteOperator, binding: Mapping[str, int]) -> None:
        super().__init__()
        self.operator = operator
        self.binding = dict(binding)
        self.parts = operator.parts(binding)
        self.rows = operator.rows(binding)
        for number, part in enumerate(self.parts, start=1):
            self.register_parameter(f"weight_{number}", nn.Parameter(torch.empty(part.weight_shape)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for weight in self.parameters():
            nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve and concatenate; raises SpecError for another shape."""
        wanted = self.operator.input_sizes(self.binding)
        if tuple(x.shape[1:]) != wanted[1:]:
            raise SpecError(
                f"expected an input of shape [batch, {', '.join(map(str, wanted[1:]))}], found {[*x.shape]}"
            )
        x = x[:, :, : self.rows]
        found = [
            F.conv2d(x[:, part.first_in : part.first_in + part.inputs], weight, padding=WINDOW // 2, groups=part.groups)
            for part, weight in zip(self.parts, self.parameters(), strict=True)
        ]
        return torch.cat(found, 1) if len(found) > 1 else found[0]

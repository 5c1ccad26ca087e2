"""Low-rank adaptation of a frozen linear layer, built from two recorded layers so that it can be clipped per record."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from raptor_train.tape import RecordedLinear


class LoraLinear(nn.Module):
    """``base(x) + scale · up(down(x))`` with a frozen base; equal to the base, bit for bit, before the first step.

    Args:
        base: The layer to adapt; it is frozen and kept as it is.
        rank: Width r of the bottleneck.
        scale: Factor on the low-rank term (the usual alpha/r), chosen for each role from public gradients.
        generator: Source of the initial ``down`` weights, uniform in ±1/√in; ``up`` starts at zero.
    """

    def __init__(self, base: nn.Linear, *, rank: int, scale: float, generator: torch.Generator | None = None):
        super().__init__()
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.base = base.requires_grad_(False)
        self.down = RecordedLinear(base.in_features, rank, bias=False, **like)
        self.up = RecordedLinear(rank, base.out_features, bias=False, **like)
        self.scale = scale
        with torch.no_grad():
            bound = 1 / math.sqrt(base.in_features)
            initial = torch.rand(self.down.weight.shape, generator=generator)
            self.down.weight.copy_((2 * initial - 1) * bound)
            self.up.weight.zero_()

    @property
    def weight(self) -> Tensor:
        """The frozen weight: some model code asks a linear layer for its weight's dtype."""
        return self.base.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return the adapted output, [..., out]."""
        base: Tensor = self.base(x)
        low_rank: Tensor = self.up(self.scale * self.down(x))
        return base + low_rank

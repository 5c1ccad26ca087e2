"""Low-rank adaptation of a frozen linear layer, built from two recorded layers so that it can be clipped per record."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from raptor_train.tape import RecordedLinear, Tape


class LoraLinear(nn.Module):
    """``base(x) + scale · up(down(x))`` with a frozen base, as one product with the merged weight.

    Equal to the base, bit for bit, before the first step.

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
        merged = self.base.weight + self.scale * (self.up.weight @ self.down.weight)
        tape = self.down.tape or self.up.tape
        if tape is None:
            return nn.functional.linear(x, merged, self.base.bias)
        output: Tensor = _Record.apply(x, merged.detach(), self, tape, *_trained(self))  # type: ignore[no-untyped-call]
        return output


def _trained(adapter: LoraLinear) -> tuple[Tensor, Tensor]:
    return adapter.down.weight, adapter.up.weight


class _Record(torch.autograd.Function):
    """The adapted map, whose backward hands the factors of both low-rank gradients to the tape.

    With the update merged into the weight, the forward pass costs what the base costs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, merged: Tensor, adapter: LoraLinear, tape: Tape, *_: Tensor) -> Tensor:
        ctx.save_for_backward(x, merged)
        ctx.adapter, ctx.tape, ctx.record_of_row = adapter, tape, adapter.down.record_of_row
        return nn.functional.linear(x, merged, adapter.base.bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (x, merged), grad, adapter = ctx.saved_tensors, grad_outputs[0], ctx.adapter
        down, up, rows = adapter.down, adapter.up, ctx.record_of_row
        ctx.tape.add(up, left=grad, right=adapter.scale * (x @ down.weight.mT), record_of_row=rows)
        ctx.tape.add(down, left=adapter.scale * (grad @ up.weight), right=x, record_of_row=rows)
        return (grad @ merged if ctx.needs_input_grad[0] else None), *[None] * 5

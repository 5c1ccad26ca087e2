"""Low-rank adaptation of a frozen linear layer, as one operation that can be clipped per record."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from raptor_train.tape import RecordedLinear, Tape, input_gradient, without_autocast


class LoraLinear(nn.Module):
    """``base(x) + scale · up(down(x))`` with a frozen base; equal to the base, bit for bit, before the first step.

    Args:
        base: The layer to adapt; it is frozen and kept as it is.
        rank: Width r of the bottleneck.
        scale: Factor on the low-rank term (the usual alpha/r), chosen for each role from public gradients.
        generator: Source of the initial ``down`` weights, uniform in ±1/√in; ``up`` starts at zero. Both are at least
            float32, also on a base of lower precision.
    """

    def __init__(self, base: nn.Linear, *, rank: int, scale: float, generator: torch.Generator | None = None):
        super().__init__()
        dtype = torch.promote_types(base.weight.dtype, torch.float32)
        like = {"dtype": dtype, "device": base.weight.device}
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
        tape = self.down.tape or self.up.tape
        if tape is None:
            return self._adapted(x)
        output: Tensor = _Record.apply(x, self, tape, self.down.weight, self.up.weight)  # type: ignore[no-untyped-call]
        return output

    def _adapted(self, x: Tensor) -> Tensor:
        if self._merges(x):
            return nn.functional.linear(x, self._merged(), self.base.bias)
        output = nn.functional.linear(x, self.base.weight, self.base.bias)
        low_rank = nn.functional.linear(x.to(self.down.weight.dtype), self.scale * self.down.weight)
        return output + nn.functional.linear(low_rank, self.up.weight).to(output.dtype)

    def _merges(self, x: Tensor) -> bool:
        """Whether one product with the merged weight is cheaper than three, the merging included."""
        out, width = self.base.weight.shape
        return x.numel() // width * (out + width) > out * width

    def _merged(self) -> Tensor:
        merged = self.base.weight + self.scale * (self.up.weight @ self.down.weight)
        return merged.to(self.base.weight.dtype)


class _Record(torch.autograd.Function):
    """The adapted map, whose backward hands the factors of both low-rank gradients to the tape.

    Only the input is kept for the backward pass: merging once more costs less than a copy of every adapted weight.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, adapter: LoraLinear, tape: Tape, *_: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.adapter, ctx.tape, ctx.record_of_row = adapter, tape, adapter.down.record_of_row
        return adapter._adapted(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (x,), grad, adapter = ctx.saved_tensors, grad_outputs[0], ctx.adapter
        down, up, before = adapter.down.weight, adapter.up.weight, None
        with without_autocast(grad):
            inside = grad.to(up.dtype) @ (adapter.scale * up)  # [..., r]
            if up.requires_grad:
                right = x.to(down.dtype) @ (adapter.scale * down).mT
                ctx.tape.add(adapter.up, left=grad, right=right, record_of_row=ctx.record_of_row)
                del right  # the tape may have no more use for it
            if down.requires_grad:
                ctx.tape.add(adapter.down, left=inside, right=x, record_of_row=ctx.record_of_row)
            if ctx.needs_input_grad[0] and adapter._merges(x):
                before = input_gradient(grad, adapter._merged(), x)
            elif ctx.needs_input_grad[0]:
                before = input_gradient(grad, adapter.base.weight, x) + (inside @ down).to(x.dtype)
        return before, None, None, None, None

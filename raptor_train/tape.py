"""The tape: what one backward pass leaves behind of every record's gradient.

The gradient of a linear layer's weight is, for one record, a sum over that record's rows (tokens) of
``output_gradient ⊗ input``. A tape keeps these two factors instead of their product, so that norms are taken and
clipped sums are formed record by record although all records went through the model together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator


class Rows(NamedTuple):
    """The factors of one weight's gradient, a group of rows for each record that used the weight."""

    layer: RecordedLinear
    left: Tensor  # [groups, rows, out] gradient of the layer's output, zero where a group has fewer rows
    right: Tensor  # [groups, rows, in] the layer's input
    record: Tensor  # [groups] which record a group belongs to, each record at most once


class RecordedLinear(nn.Linear):
    """A linear layer that writes to a tape when one is set, and is a plain ``nn.Linear`` otherwise.

    Attributes:
        tape: Where the backward pass of this layer goes, or None.
        expert: The expert this layer belongs to, None for a layer that every record uses.
        record_of_row: For a layer called on gathered rows [n, in], the record of each row; None where the first
            axis of the input is the record.
    """

    tape: Tape | None = None
    expert: int | None = None
    record_of_row: Tensor | None = None

    @classmethod
    def of(cls, linear: nn.Linear) -> RecordedLinear:
        """Return a recorded layer on the *same* parameters as ``linear``."""
        layer = cls(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        layer.weight, layer.bias = linear.weight, linear.bias
        return layer

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name of nn.Linear's argument)
        """Return ``input @ weight.T + bias``, [..., out]."""
        if self.tape is None:
            return super().forward(input)
        output: Tensor = _Record.apply(input, self.weight, self.bias, self, self.tape)  # type: ignore[no-untyped-call]
        return output


class _Record(torch.autograd.Function):
    """The linear map whose backward hands (input, output gradient) to the tape instead of forming a weight gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: RecordedLinear, tape: Tape) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer, ctx.tape, ctx.record_of_row = layer, tape, layer.record_of_row
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), grad = ctx.saved_tensors, grad_outputs[0]
        with without_autocast(grad):
            ctx.tape.add(ctx.layer, left=grad, right=x, record_of_row=ctx.record_of_row)
            before = input_gradient(grad, weight, x) if ctx.needs_input_grad[0] else None
        return before, None, None, None, None


def input_gradient(grad: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """Gradient of a linear layer's input, in the precision of the layer's output [..., out] and the type of ``x``."""
    return (grad @ weight.to(grad.dtype)).to(x.dtype)


def without_autocast(like: Tensor) -> torch.autocast:
    """Switch autocast off inside the block: what becomes a norm or a sum is not rounded to a lower precision."""
    return torch.autocast(like.device.type, enabled=False)


class Tape:
    """Collects :class:`Rows` during one backward pass over ``num_records`` records.

    Args:
        num_records: Records in the pass.
        owner: Owner expert of each record, [num_records]. With owners, an expert's layer keeps the rows of the
            records it owns and no others: a record gives a gradient to its owner only (theory.md P1). Without
            (monolithic training) every activated expert keeps its rows.
        keep: What is done with every layer's rows as the backward pass reaches it; by default they are kept in
            ``rows`` until the end.

    **Guarantee.** Row i of a record never mixes with another record's rows; what a record leaves depends on that
    record alone if the model itself is record-independent (:mod:`raptor_train.independence`).
    """

    def __init__(self, num_records: int, owner: Tensor | None = None, *, keep: Callable[[Rows], object] | None = None):
        self.num_records = num_records
        self.owner = owner
        self.rows: list[Rows] = []
        self._keep = keep or self.rows.append
        self._seen: set[int] = set()

    def add(self, layer: RecordedLinear, *, left: Tensor, right: Tensor, record_of_row: Tensor | None) -> None:
        """Keep the factors of one layer's gradient, in the precision of its weight.

        Raises:
            ValueError: If the layer was used twice in the pass (its per-record gradient is then a sum over both
                uses, whose norm cannot be added up), or if its rows cannot be told apart by record.
        """
        if id(layer) in self._seen:
            raise ValueError("a trainable layer is used twice in one forward pass; freeze it or untie it")
        self._seen.add(id(layer))
        left, right = left.detach().to(layer.weight.dtype), right.detach().to(layer.weight.dtype)
        if record_of_row is not None:
            self._add_gathered(layer, left, right, record_of_row)
        elif right.shape[0] == self.num_records and right.dim() in (2, 3):
            every = torch.arange(self.num_records, device=right.device)
            left, right = (t.reshape(self.num_records, -1, t.shape[-1]) for t in (left, right))
            self._keep(Rows(layer, left, right, every))
        else:
            raise ValueError(
                f"expected a layer input [records={self.num_records}, (tokens,) features], got {tuple(right.shape)}"
            )

    def check_complete(self, layers: Iterable[RecordedLinear]) -> None:
        """Check that the backward pass reached every one of ``layers`` that all records use.

        Raises:
            ValueError: With the number of those that it did not reach: the model's loss does not depend on them, or
                the graph was cut. They would never learn, only take noise.
        """
        used_by_all = [layer for layer in layers if layer.expert is None]
        missed = sum(id(layer) not in self._seen for layer in used_by_all)
        if missed:
            raise ValueError(
                f"{missed} of {len(used_by_all)} trained layers got no gradient: they are cut off from the loss. "
                "Reentrant checkpointing does this: use checkpoint(..., use_reentrant=False)"
            )

    def _add_gathered(self, layer: RecordedLinear, left: Tensor, right: Tensor, record_of_row: Tensor) -> None:
        if self.owner is not None and layer.expert is not None:
            owned = self.owner[record_of_row] == layer.expert
            left, right, record_of_row = left[owned], right[owned], record_of_row[owned]
        if len(record_of_row):
            self._keep(Rows(layer, *_group(left, right, record_of_row)))


def _group(left: Tensor, right: Tensor, record_of_row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bring rows [n, ·] of many records into zero-padded groups [records, rows, ·], a group a record."""
    record_of_row, order = torch.sort(record_of_row, stable=True)
    record, count = torch.unique_consecutive(record_of_row, return_counts=True)
    group = torch.repeat_interleave(torch.arange(len(record), device=record.device), count)
    place = torch.arange(len(group), device=group.device) - (count.cumsum(0) - count)[group]
    shape = (len(record), int(count.max()))
    grouped = []
    for factor in (left, right):
        padded = factor.new_zeros(*shape, factor.shape[-1])
        padded[group, place] = factor[order]
        grouped.append(padded)
    return grouped[0], grouped[1], record


@contextmanager
def recording(layers: Iterable[RecordedLinear], tape: Tape) -> Iterator[Tape]:
    """Let ``layers`` write to ``tape`` inside the block."""
    layers = list(layers)
    for layer in layers:
        layer.tape = tape
    try:
        yield tape
    finally:
        for layer in layers:
            layer.tape = None

"""Per-record clipping over all parameters of a role, from a tape (theory.md §7, condition 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from raptor_train.tape import Rows

# Clipped norms stay below the clip norm by more than rounding can add to them.
CLIP_SLACK = {torch.float64: 1e-12, torch.float32: 1e-5}


class RecordGradients:
    """One layer's gradient of every record, kept in whichever form is cheaper to take norms of.

    With more rows than the weight has rank, the products ``left[i]ᵀ right[i]`` are formed once, [groups, out, in];
    with fewer, norms come from the rows' Gram matrices and the sum is one weighted product.
    """

    def __init__(self, rows: Rows):
        self.rows = rows
        (_, num_rows, out), width = rows.left.shape, rows.right.shape[-1]
        self.products = rows.left.mT @ rows.right if num_rows * (out + width) > out * width else None
        self.bias = rows.left.sum(1) if rows.layer.bias is not None else None

    def squared_norms(self) -> Tensor:
        """Squared Frobenius norm of every group's gradient, [groups]."""
        if self.products is not None:
            squares = self.products.square().sum((1, 2))
        else:
            squares = ((self.rows.left @ self.rows.left.mT) * (self.rows.right @ self.rows.right.mT)).sum((1, 2))
        return squares if self.bias is None else squares + self.bias.square().sum(1)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return Σ_i weights_i · gradient_i for the weight [out, in] and the bias [out]; a weight of 0 drops NaN."""
        everything = slice(None)
        keep = everything if bool((weights > 0).all()) else weights > 0  # 0 · NaN would be NaN
        weights = weights[keep]
        if self.products is not None:
            total = torch.einsum("g,goi->oi", weights, self.products[keep])
        else:
            left = self.rows.left[keep] * weights[:, None, None]
            total = left.flatten(0, 1).mT @ self.rows.right[keep].flatten(0, 1)
        return total, None if self.bias is None else weights @ self.bias[keep]


def record_norms(gradients: Iterable[RecordGradients], num_records: int) -> Tensor:
    """L2 norm of each record's gradient over all layers on the tape together, [num_records]. Private.

    A record that left no rows has norm 0; one with a non-finite gradient has a non-finite norm.
    """
    squares: Tensor | None = None
    for gradient in gradients:
        part = gradient.squared_norms()
        if squares is None:
            squares = part.new_zeros(num_records)
        squares.index_add_(0, gradient.rows.record, part)
    return torch.zeros(num_records) if squares is None else squares.sqrt()


def clip_weights(norms: Tensor, clip_norm: float) -> Tensor:
    """Factor min(1, C/‖g_i‖) for every record, [records]; 0 for a record whose gradient is not finite. Private.

    ``clip_norm`` may be infinite (non-private training): every finite record then counts in full.

    **Guarantee.** ‖weights_i · g_i‖ ≤ clip_norm for every record, rounding included (``CLIP_SLACK``).
    """
    if math.isinf(clip_norm):
        factors = torch.ones_like(norms)
    else:
        factors = (clip_norm * (1 - CLIP_SLACK[norms.dtype]) / norms).clamp(max=1)
    return torch.where(norms.isfinite(), factors, 0)


def clipped_sums(
    tape_rows: Sequence[Rows], num_records: int, clip_norm: float, parameters: Sequence[nn.Parameter]
) -> tuple[list[Tensor], Tensor]:
    """Sum the clipped gradients of all records.

    Args:
        tape_rows: What the backward pass of the summed per-record losses left on the tape.
        num_records: Records in the pass.
        clip_norm: C, the bound on each record's gradient over all ``parameters`` together.
        parameters: The role's parameters; one that no record reached gets a sum of zero.

    Returns:
        The sums, one tensor a parameter in the same order, and the norms before clipping [num_records]. Both are
        private: sums leave only with noise, norms never.

    **Guarantee.** Adding or removing a record changes the stacked sums by at most ``clip_norm`` in L2 norm.
    """
    gradients = [RecordGradients(rows) for rows in tape_rows]
    norms = record_norms(gradients, num_records)
    weights = clip_weights(norms, clip_norm)
    sums: dict[int, Tensor] = {}
    for gradient in gradients:
        layer = gradient.rows.layer
        weight_sum, bias_sum = gradient.weighted_sum(weights[gradient.rows.record])
        sums[id(layer.weight)] = weight_sum
        if bias_sum is not None:
            sums[id(layer.bias)] = bias_sum
    return [sums.get(id(p), torch.zeros_like(p)) for p in parameters], norms

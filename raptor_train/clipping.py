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

    With many rows the products ``left[i]ᵀ right[i]`` are formed once, [groups, out, in]; with few, norms come from the
    rows' Gram matrices and the sum is one weighted product. A tensor that does not train counts neither in the norm
    nor in the sum.
    """

    def __init__(self, rows: Rows):
        self.rows = rows
        layer, (_, num_rows, out), width = rows.layer, rows.left.shape, rows.right.shape[-1]
        self.trains_weight = layer.weight.requires_grad
        # Measured: writing a gradient and reading it twice costs what eight products an entry cost.
        few_rows = num_rows**2 * (out + width) <= 8 * out * width
        self.products = rows.left.mT @ rows.right if self.trains_weight and not few_rows else None
        self.bias = rows.left.sum(1) if layer.bias is not None and layer.bias.requires_grad else None

    def squared_norms(self) -> Tensor:
        """Squared Frobenius norm of every group's gradient, [groups], float64; at least that of what is summed."""
        squares = torch.zeros(len(self.rows.record), dtype=torch.float64, device=self.rows.left.device)
        if self.products is not None:
            squares += self.products.square().sum((1, 2), dtype=torch.float64)
        elif self.trains_weight:
            squares += self._gram_norms().square()
        return squares if self.bias is None else squares + self.bias.square().sum(1, dtype=torch.float64)

    def _gram_norms(self) -> Tensor:
        # Rows may cancel, in the norm and in the sum. The Gram matrices are therefore formed in float64, and the
        # largest rounding error that the weighted product can have, rows · u · ‖left‖ ‖right‖, is added.
        left, right = self.rows.left.double(), self.rows.right.double()
        squares = ((left @ left.mT) * (right @ right.mT)).sum((1, 2)).clamp(min=0)
        rounding = left.shape[1] * torch.finfo(self.rows.left.dtype).eps
        norms: Tensor = squares.sqrt() + rounding * left.norm(dim=(1, 2)) * right.norm(dim=(1, 2))
        return norms

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return Σ_i weights_i · gradient_i for the weight [out, in] and the bias [out]; a weight of 0 drops NaN."""
        keep = slice(None) if bool((weights > 0).all()) else weights > 0  # 0 · NaN would be NaN
        weights = weights[keep].to(self.rows.left.dtype)
        total = None
        if self.products is not None:
            total = torch.einsum("g,goi->oi", weights, self.products[keep])
        elif self.trains_weight:
            left = self.rows.left[keep] * weights[:, None, None]
            total = left.flatten(0, 1).mT @ self.rows.right[keep].flatten(0, 1)
        return total, None if self.bias is None else weights @ self.bias[keep]


def record_norms(gradients: Iterable[RecordGradients], num_records: int) -> Tensor:
    """L2 norm of each record's gradient over all layers on the tape together, [num_records] float64. Private.

    A record that left no rows has norm 0; one with a non-finite gradient has a non-finite norm.
    """
    squares = torch.zeros(num_records, dtype=torch.float64)
    for gradient in gradients:
        part = gradient.squared_norms()
        squares = squares.to(part.device).index_add_(0, gradient.rows.record, part)
    return squares.sqrt()


def clip_weights(norms: Tensor, clip_norm: float, dtype: torch.dtype) -> Tensor:
    """Factor min(1, C/‖g_i‖) for every record, [records]; 0 for a record whose gradient is not finite. Private.

    ``clip_norm`` may be infinite (non-private training): every finite record then counts in full.

    **Guarantee.** ‖weights_i · g_i‖ ≤ clip_norm for every record, rounding in ``dtype`` included (``CLIP_SLACK``).
    """
    if math.isinf(clip_norm):
        factors = torch.ones_like(norms)
    else:
        factors = (clip_norm * (1 - CLIP_SLACK[dtype]) / norms).clamp(max=1)
    return torch.where(norms.isfinite(), factors, 0)


def clipped_sums(
    tape_rows: Sequence[Rows], num_records: int, clip_norm: float, parameters: Sequence[nn.Parameter]
) -> list[Tensor]:
    """Sum the clipped gradients of all records.

    Args:
        tape_rows: What the backward pass of the summed per-record losses left on the tape.
        num_records: Records in the pass.
        clip_norm: C, the bound on each record's gradient over all ``parameters`` together.
        parameters: The role's parameters; one that no record reached gets a sum of zero.

    Returns:
        The sums, one tensor a parameter in the same order. Private: they leave only with noise.

    **Guarantee.** Adding or removing a record changes the stacked sums by at most ``clip_norm`` in L2 norm.
    """
    gradients = [RecordGradients(rows) for rows in tape_rows]
    weights = clip_weights(record_norms(gradients, num_records), clip_norm, parameters[0].dtype)
    sums: dict[int, Tensor] = {}
    for gradient in gradients:
        layer = gradient.rows.layer
        totals = gradient.weighted_sum(weights[gradient.rows.record])
        for tensor, total in zip((layer.weight, layer.bias), totals, strict=True):
            if total is not None:
                sums[id(tensor)] = total
    return [sums.get(id(p), torch.zeros_like(p)) for p in parameters]

"""Per-record clipping over all parameters of a role, from a tape (theory.md §7, condition 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from raptor_train.tape import Rows, without_autocast

# Clipped norms stay below the clip norm by more than rounding can add to them.
CLIP_SLACK = {torch.float64: 1e-12, torch.float32: 1e-5}
_TEMPORARY = 2**18  # entries of gradients formed only for their norms: few enough to stay in the cache


class RecordGradients:
    """One layer's gradient of every record, in the smaller of two forms; the rows themselves can be forgotten.

    Where a gradient [out, in] is no larger than the record's rows, the gradients are formed and kept; else the rows
    are, and the sum is one weighted product. A tensor that does not train counts neither in the norm nor in the sum.

    Attributes:
        layer: The layer.
        record: Which record a group of rows belongs to, [groups].
        squared_norms: Squared Frobenius norm of every group's gradient, [groups] float64; at least that of what the
            group adds to the sum. Private.
    """

    def __init__(self, rows: Rows):
        self.layer, self.record = rows.layer, rows.record
        self._weight: _Formed | _Factors | None = None
        self._bias: Tensor | None = None
        self.squared_norms = torch.zeros(len(rows.record), dtype=torch.float64, device=rows.left.device)
        if rows.layer.weight.requires_grad:
            (_, num_rows, out), width = rows.left.shape, rows.right.shape[-1]
            form = _Formed if out * width <= num_rows * (out + width) else _Factors
            self._weight = form(rows.left, rows.right)
            self.squared_norms += self._weight.norms.square()
        if rows.layer.bias is not None and rows.layer.bias.requires_grad:
            self._bias = rows.left.sum(1)
            self.squared_norms += self._bias.square().sum(1, dtype=torch.float64)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return Σ_i weights_i · gradient_i for the weight [out, in] and the bias [out]; a weight of 0 drops NaN."""
        keep = slice(None) if bool((weights > 0).all()) else weights > 0  # 0 · NaN would be NaN
        weights = weights[keep]
        bias = None if self._bias is None else weights.to(self._bias.dtype) @ self._bias[keep]
        return None if self._weight is None else self._weight.weighted_sum(weights, keep), bias


class _Formed:
    """The gradients ``left[i]ᵀ right[i]`` themselves, [groups, out, in]."""

    def __init__(self, left: Tensor, right: Tensor):
        self.products = left.mT @ right
        self.norms = _norms(self.products)

    def weighted_sum(self, weights: Tensor, keep: slice | Tensor) -> Tensor:
        return torch.einsum("g,goi->oi", weights.to(self.products.dtype), self.products[keep])


class _Factors:
    """The rows ``left`` [groups, rows, out] and ``right`` [groups, rows, in] of the gradients."""

    def __init__(self, left: Tensor, right: Tensor):
        self.left, self.right = left, right
        (_, num_rows, out), width = left.shape, right.shape[-1]
        # Measured: an entry of a Gram matrix, in float64, costs four times one of a product.
        gram_is_cheaper = 4 * num_rows * (out + width) <= out * width
        # In the sum, rows that cancel leave their rounding errors, of at most this size.
        lengths = (left.norm(dim=2).double() * right.norm(dim=2).double()).sum(1)
        rounding = (num_rows + 1) * torch.finfo(left.dtype).eps * lengths
        self.norms = (self._gram_norms(lengths) if gram_is_cheaper else self._product_norms()) + rounding

    def weighted_sum(self, weights: Tensor, keep: slice | Tensor) -> Tensor:
        left, right, weights = self.left[keep], self.right[keep], weights.to(self.left.dtype)[:, None, None]
        left, right = (left * weights, right) if left.shape[-1] <= right.shape[-1] else (left, right * weights)
        return left.flatten(0, 1).mT @ right.flatten(0, 1)

    def _product_norms(self) -> Tensor:
        chunk = max(1, _TEMPORARY // (self.left.shape[-1] * self.right.shape[-1]))
        parts = (slice(start, start + chunk) for start in range(0, len(self.left), chunk))
        return torch.cat([_norms(self.left[part].mT @ self.right[part]) for part in parts])

    def _gram_norms(self, lengths: Tensor) -> Tensor:
        # Rows may cancel in the Gram matrices as well: hence float64, and the largest error of their product there.
        left, right = self.left.double(), self.right.double()
        squares = ((left @ left.mT) * (right @ right.mT)).sum((1, 2)).clamp(min=0)
        terms = left.shape[-1] + right.shape[-1] + left.shape[1] ** 2
        return (squares + terms * torch.finfo(torch.float64).eps * lengths.square()).sqrt()


def _norms(gradients: Tensor) -> Tensor:
    """Frobenius norms of [groups, out, in], [groups] float64, rounded up."""
    norms: Tensor = gradients.norm(dim=2).double().norm(dim=1)
    # The sum of n squares loses at most the factor 1 - (n + 1) eps / 2, wherever it was rounded.
    return norms * (1 + (gradients.shape[-1] / 4 + 2) * torch.finfo(gradients.dtype).eps)


def record_norms(gradients: Iterable[RecordGradients], num_records: int) -> Tensor:
    """L2 norm of each record's gradient over all layers on the tape together, [num_records] float64. Private.

    A record that left no rows has norm 0; one with a non-finite gradient has a non-finite norm.
    """
    squares = torch.zeros(num_records, dtype=torch.float64)
    for gradient in gradients:
        part = gradient.squared_norms
        squares = squares.to(part.device).index_add_(0, gradient.record, part)
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
    gradients: Iterable[Rows | RecordGradients],
    num_records: int,
    clip_norm: float,
    parameters: Sequence[nn.Parameter],
) -> list[Tensor]:
    """Sum the clipped gradients of all records.

    Args:
        gradients: What the backward pass of the summed per-record losses left on the tape: rows, or the smaller
            form into which a tape's ``keep`` brought them during the pass.
        num_records: Records in the pass.
        clip_norm: C, the bound on each record's gradient over all ``parameters`` together.
        parameters: The role's parameters; one that no record reached gets a sum of zero.

    Returns:
        The sums, one tensor a parameter in the same order. Private: they leave only with noise.

    **Guarantee.** Adding or removing a record changes the stacked sums by at most ``clip_norm`` in L2 norm, the
    rounding of a record's own contribution included, that of the running sum over records aside.
    """
    with without_autocast(parameters[0]):
        reduced = [g if isinstance(g, RecordGradients) else RecordGradients(g) for g in gradients]
        weights = clip_weights(record_norms(reduced, num_records), clip_norm, parameters[0].dtype)
        sums: dict[int, Tensor] = {}
        for gradient in reduced:
            layer = gradient.layer
            totals = gradient.weighted_sum(weights[gradient.record])
            for tensor, total in zip((layer.weight, layer.bias), totals, strict=True):
                if total is not None:
                    sums[id(tensor)] = total
    return [sums.get(id(p), torch.zeros_like(p)) for p in parameters]

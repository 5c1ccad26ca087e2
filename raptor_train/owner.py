"""The owner expert of a record: the one expert of the selected layer that gets the record's gradient.

("Owner" never means a person here.) In numpy, for gates that are already
cut to the activated experts, the same rule is :func:`raptor_acct.routing.owners_from_gates`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def owner_of(gates: Tensor, mask: Tensor, top_k: int | None = None) -> Tensor:
    """Return the expert with the largest gate weight summed over the record's real tokens, [records].

    Args:
        gates: Router weights [records, tokens, experts], non-negative.
        mask: 1 for real tokens, 0 for padding, [records, tokens].
        top_k: How many experts the router activates for a token; only a token's ``top_k`` largest gates count then.
            None for gates that are 0 already for the experts not activated, as adapters give them.

    Returns:
        Owners as int64; ties go to the lowest index. Private when the records are.

    Raises:
        ValueError: If the shapes do not fit, or ``top_k`` is not in 1..experts.

    **Guarantee.** A record's owner depends on that record's gates alone (theory.md P1).

    >>> gates = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]])
    >>> owner_of(gates, torch.tensor([[1, 1, 1]])), owner_of(gates, torch.tensor([[1, 1, 0]]))
    (tensor([1]), tensor([0]))
    """
    if gates.dim() != 3 or gates.shape[:2] != mask.shape:
        raise ValueError(
            f"expected gates [records, tokens, experts] and mask [records, tokens], "
            f"got {tuple(gates.shape)} and {tuple(mask.shape)}"
        )
    if top_k is not None:
        if not 1 <= top_k <= gates.shape[-1]:
            raise ValueError(f"expected top_k in [1, {gates.shape[-1]}], got top_k={top_k}")
        top = gates.topk(top_k, dim=-1)
        gates = torch.zeros_like(gates).scatter(-1, top.indices, top.values)
    return torch.where(mask.unsqueeze(-1) == 1, gates, 0).sum(1).argmax(-1)

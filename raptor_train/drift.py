"""Owners fixed once from the starting model, and how far training has moved them since."""

from __future__ import annotations

import torch
from torch import Tensor

from raptor_train.adapters.base import AdaptedModel
from raptor_train.distributed import ALONE, Group
from raptor_train.records import Records
from raptor_train.step import current_owners


def owners_of(adapted: AdaptedModel, records: Records, micro_batch_size: int = 64, group: Group = ALONE) -> Tensor:
    """Owner expert of every record under the current weights, [N] int64. Private when the records are."""
    owners = torch.zeros(len(records), dtype=torch.int64)
    with group.together():
        share = torch.arange(group.rank, len(records), group.world)
        for positions, part in records.take(share).micro_batches(micro_batch_size):
            owners[share[positions]] = current_owners(adapted, part).cpu()
    group.sum_([owners])
    return owners


class OwnerDrift:
    """How many records have another owner than at the start. Frozen routers do not freeze owners: training moves them.

    Args:
        adapted: The model, with its starting weights when ``owners`` is None.
        records: What to watch. Public records give a number that may be logged.
        owners: Their owners at the start, if these are known already.
        group: The processes that share the work.
    """

    def __init__(self, adapted: AdaptedModel, records: Records, owners: Tensor | None = None, *, group: Group = ALONE):
        self._adapted, self._records, self._group = adapted, records, group
        self._owners = owners_of(adapted, records, group=group) if owners is None else owners

    def share(self) -> float:
        """Share of the records whose owner by the current weights is another one; as private as the records."""
        now = owners_of(self._adapted, self._records, group=self._group)
        return float((now != self._owners).double().mean())

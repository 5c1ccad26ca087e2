"""Does a record's gradient depend on that record alone? Measured, not read off the configuration (theory.md §7.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raptor_train.adapters.base import AdaptedModel
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import current_owners, record_gradients

TOLERANCE = 1e-12  # relative, in float64


class RecordsCoupled(ValueError):
    """A record's gradient changes with its batch or its padding, so the guarantee would not hold."""


@dataclass(frozen=True)
class Coupling:
    """One way in which records were seen to depend on something else.

    Attributes:
        condition: What was changed.
        size: Largest change of a record's gradient, relative to the largest gradient; 1.0 for a changed owner.
        fix: What usually removes it.
    """

    condition: str
    size: float
    fix: str


@dataclass(frozen=True)
class IndependenceReport:
    """Every condition tried, with the coupling measured."""

    couplings: tuple[Coupling, ...]
    tolerance: float

    @property
    def independent(self) -> bool:
        """Whether all couplings are within the tolerance."""
        return all(c.size <= self.tolerance for c in self.couplings)

    def raise_if_coupled(self) -> None:
        """Raise :class:`RecordsCoupled` naming every coupling above the tolerance and its usual fix."""
        found = [f"{c.condition}: {c.size:.1e} ({c.fix})" for c in self.couplings if not c.size <= self.tolerance]
        if found:
            raise RecordsCoupled(f"records are coupled above {self.tolerance:g}: " + "; ".join(found))


def check_record_independence(
    adapted: AdaptedModel, records: Records, *, tolerance: float = TOLERANCE
) -> IndependenceReport:
    """Compare each record's gradient alone with its gradient in a batch, with more padding, and repeated.

    Works on a float64 copy whose adapters and head hold random values: with their initial zeros most gradients
    vanish and hide a coupling.

    Args:
        adapted: The model with its roles, as it will be trained.
        records: A few records of different length; use public ones.
        tolerance: Largest accepted relative change.

    Returns:
        The measured couplings, also those within the tolerance.
    """
    twin = _randomised_double(adapted)
    alone = [_gradient(twin, records.take(torch.tensor([i])).trimmed())[0] for i in range(len(records))]
    again = [_gradient(twin, records.take(torch.tensor([i])).trimmed())[0] for i in range(len(records))]
    in_batch = _gradient(twin, records)
    padded = _gradient(twin, _padded(records, 3))
    largest = max(float(g.norm()) for g in alone)
    changed = (
        ("the same record twice", again, "switch off dropout and router jitter: model.eval()"),
        (
            "other records in the batch",
            in_batch,
            "no auxiliary loss, batch norm, batch-shared capacity or batch-mean loss",
        ),
        ("more padding on the right", padded, "pad on the right and mask padding out of attention, pooling and owners"),
    )
    return IndependenceReport(
        tuple(Coupling(name, _largest_change(alone, others, largest), fix) for name, others, fix in changed), tolerance
    )


def _largest_change(alone: Sequence[Tensor], others: Sequence[Tensor], largest: float) -> float:
    change = max(float((a - b).norm()) for a, b in zip(alone, others, strict=True))
    return change / largest if largest > 0 else float("inf")


def _randomised_double(adapted: AdaptedModel) -> AdaptedModel:
    twin = copy.deepcopy(adapted).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for role in (twin.shared, twin.expert):
            for p in role.parameters:
                p.add_(torch.randn(p.shape, dtype=p.dtype, generator=generator) * 0.05)
    return twin


def _gradient(twin: AdaptedModel, records: Records) -> list[Tensor]:
    """Each record's gradient over both roles and its owner, flattened: [records] tensors."""
    owner = current_owners(twin, records) if twin.expert.owned else None
    both = Role(name="both", layers=(*twin.shared.layers, *twin.expert.layers))
    tape = record_gradients(both, twin, records, owner=owner)
    flat = [torch.zeros(0, dtype=torch.float64)] * len(records)
    by_layer = {id(rows.layer): rows for rows in tape.rows}
    for layer in both.layers:
        blocks = torch.zeros(len(records), layer.out_features, layer.in_features, dtype=torch.float64)
        if (rows := by_layer.get(id(layer))) is not None:
            blocks[rows.record] = rows.left.mT @ rows.right
        flat = [torch.cat([f, b.flatten()]) for f, b in zip(flat, blocks, strict=True)]
    return flat


def _padded(records: Records, extra: int) -> Records:
    def pad(x: Tensor, value: int) -> Tensor:
        return nn.functional.pad(x, (0, extra), value=value)

    return Records(pad(records.input_ids, 0), pad(records.attention_mask, 0), records.labels)

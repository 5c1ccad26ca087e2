"""Does a record's gradient depend on that record alone? Measured, not read off the configuration (theory.md §7.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
        size: Largest change of a record's gradient, relative to the largest gradient. A changed owner moves the
            gradient to other parameters.
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
    adapted: AdaptedModel,
    records: Records,
    *,
    roles: Sequence[Role] | None = None,
    batch_size: int = 64,
    tolerance: float = TOLERANCE,
) -> IndependenceReport:
    """Compare each record's gradient alone with its gradient in batches, with more padding, and repeated.

    Works on a float64 copy whose adapters and head hold random values: with their initial zeros most gradients
    vanish and hide a coupling.

    Args:
        adapted: The model, as it will be trained.
        records: At least two records of different length; use public ones.
        roles: What will be trained; both roles of ``adapted`` by default.
        batch_size: The largest batch to try, as large as the micro-batches of training; the records are repeated to
            fill it.
        tolerance: Largest accepted relative change.

    Returns:
        The measured couplings, also those within the tolerance.

    Raises:
        ValueError: If there are fewer than two records or all have the same length: nothing could be seen then.
    """
    if len(records) < 2 or len(set(records.attention_mask.sum(1).tolist())) < 2:
        lengths = sorted(set(records.attention_mask.sum(1).tolist()))
        raise ValueError(
            f"expected a probe of at least two records of different length, got {len(records)} of lengths {lengths}"
        )
    twin, twin_roles = _randomised_double(adapted, roles or (adapted.shared, adapted.expert))

    def one_by_one() -> list[Tensor]:
        parts = (records.take(torch.tensor([i])).trimmed() for i in range(len(records)))
        return [_gradients(twin, twin_roles, part)[0] for part in parts]

    def within(batch: Records) -> list[Tensor]:
        return list(_gradients(twin, twin_roles, batch)[: len(records)])

    alone = one_by_one()
    full = records.take(torch.arange(max(batch_size, len(records))) % len(records))
    beside = "no auxiliary loss, batch norm, batch-shared capacity or batch-mean loss"
    changes = (
        ("the same record twice", one_by_one(), "switch off dropout and router jitter: model.eval()"),
        ("other records in the batch", within(records), beside),
        (f"a batch of {len(full)} records", within(full), beside),
        (
            "more padding on the right",
            within(records.padded(3)),
            "pad on the right and mask padding out of attention, pooling and owners",
        ),
    )
    largest = max(float(g.norm()) for g in alone)
    couplings = (Coupling(name, _largest_change(alone, others, largest), fix) for name, others, fix in changes)
    return IndependenceReport(tuple(couplings), tolerance)


def _largest_change(alone: Sequence[Tensor], others: Sequence[Tensor], largest: float) -> float:
    change = max(float((a - b).norm()) for a, b in zip(alone, others, strict=True))
    return change / largest if largest > 0 else float("inf")


def _randomised_double(adapted: AdaptedModel, roles: Sequence[Role]) -> tuple[AdaptedModel, list[Role]]:
    memo: dict[int, object] = {}
    twin = copy.deepcopy(adapted, memo).double()
    twin_roles = [copy.deepcopy(role, memo) for role in roles]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for role in (twin.shared, twin.expert):
            for layer in role.layers:
                for p in (layer.weight, layer.bias):
                    if p is not None:
                        p.add_(torch.randn(p.shape, dtype=p.dtype, generator=generator) * 0.05)
    return twin, twin_roles


def _gradients(twin: AdaptedModel, roles: Sequence[Role], records: Records) -> Tensor:
    """Each record's gradient over all roles, as it will be clipped, [records, parameters]."""
    blocks = []
    for role in roles:
        owner = current_owners(twin, records) if role.owned else None
        tape = record_gradients(role, twin, records, owner=owner)
        by_layer = {id(rows.layer): rows for rows in tape.rows}
        for layer in role.trained_layers:
            weight = torch.zeros(len(records), layer.out_features, layer.in_features, dtype=torch.float64)
            bias = torch.zeros(len(records), layer.out_features, dtype=torch.float64)
            if (rows := by_layer.get(id(layer))) is not None:
                weight[rows.record] = rows.left.mT @ rows.right
                bias[rows.record] = rows.left.sum(1)
            blocks += [weight.flatten(1), bias]
    return torch.cat(blocks, dim=1)

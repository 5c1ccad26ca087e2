"""What is measured on public text before training: routing of every sparse layer, gradient norms of every role.

None of this touches a private record, so none of it costs privacy (theory.md §7, condition 6).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from tqdm import tqdm

from raptor_acct import RoutingStats
from raptor_acct._validate import number
from raptor_train.adapters import router_gates
from raptor_train.adapters.base import AdaptedModel
from raptor_train.baselines import make_non_private
from raptor_train.clipping import record_norms
from raptor_train.drift import owners_of
from raptor_train.owner import owner_of
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream, current_owners, reduced_gradients, sum_clipped

Model = TypeVar("Model", bound=AdaptedModel)


def measure_routing(
    model: nn.Module, records: Records, *, micro_batch_size: int = 256, progress: bool = False
) -> dict[int, RoutingStats]:
    """Count the records that each expert owns, at every sparse layer.

    Args:
        model: The starting model, of any family that :func:`raptor_train.adapters.adapt` knows.
        records: Public records; labels are ignored.
        micro_batch_size: Records that go through the model at once.
        progress: Show a bar.

    Returns:
        Routing statistics keyed by the layer's real number.
    """
    owners: dict[int, list[torch.Tensor]] = {}
    num_experts: dict[int, int] = {}
    bar = tqdm(total=len(records), desc="routing public text", unit="record", disable=not progress)
    for _, part in records.micro_batches(micro_batch_size):
        for layer, gates in router_gates(model, part.input_ids, part.attention_mask, part.pixel_values).items():
            owners.setdefault(layer, []).append(owner_of(gates, part.attention_mask))
            num_experts[layer] = gates.shape[-1]
        bar.update(len(part))
    bar.close()
    return {
        layer: RoutingStats.from_owners(torch.cat(parts).cpu().numpy(), num_experts[layer], layer=layer)
        for layer, parts in owners.items()
    }


@dataclass(frozen=True)
class GradientNorms:
    """Per-record gradient norms of one role on public records, [records]."""

    role: str
    norms: npt.NDArray[np.float64]

    def clip_norm(self, quantile: float) -> float:
        """The clip norm that leaves the share ``quantile`` of these records unclipped."""
        return float(np.quantile(self.norms, number("quantile", quantile, "(0, 1)")))

    def share_clipped(self, clip_norm: float) -> float:
        """Share of these records whose gradient is longer than ``clip_norm``."""
        return float(np.mean(self.norms > clip_norm))

    def to_dict(self) -> dict[str, float | str]:
        """The role's name and the 10, 50 and 90 % points."""
        low, middle, high = np.quantile(self.norms, [0.1, 0.5, 0.9])
        return {"role": self.role, "p10": float(low), "p50": float(middle), "p90": float(high)}


class Rehearsal(NamedTuple):
    """A copy of the model after a few steps on public records, its roles, and public records it has not seen."""

    adapted: AdaptedModel
    roles: tuple[Role, ...]
    held_out: Records


def rehearse(
    adapted: Model,
    roles: Sequence[Role],
    records: Records,
    *,
    cycles: int,
    batch_size: int,
    optimizer: Callable[[Model], torch.optim.Optimizer],
    seed: int = 0,
) -> Rehearsal:
    """Train a copy on public records without noise, so that gradients can be measured as training will meet them.

    At the zero head every gradient below it vanishes, so measurements at the start say nothing.

    Args:
        adapted: The model with its roles; it stays as it is.
        roles: Roles of ``adapted`` whose copies are wanted.
        records: Public labelled records; the first half is rehearsed on, the second half held out.
        cycles: Steps of the rehearsal.
        batch_size: Expected batch of the rehearsal.
        optimizer: Makes the rehearsal's optimizer for the copy.
        seed: Of the rehearsal's batches.
    """
    memo: dict[int, object] = {}
    twin = copy.deepcopy(adapted, memo)
    twin_roles = tuple(copy.deepcopy(role, memo) for role in roles)
    half = len(records) // 2
    order = torch.arange(len(records))
    rehearsal = records.take(order[:half])
    q = min(1.0, batch_size / half)
    make_non_private(twin, optimizer(twin), rehearsal, sampling_probability=q, num_steps=cycles, seed=seed).run()
    return Rehearsal(twin, twin_roles, records.take(order[half:]))


def measure_norms(
    adapted: Model,
    roles: Sequence[Role],
    records: Records,
    *,
    cycles: int,
    batch_size: int,
    optimizer: Callable[[Model], torch.optim.Optimizer],
    seed: int = 0,
) -> dict[str, GradientNorms]:
    """Rehearse training on public records, then measure each role's per-record gradient norms.

    Args:
        adapted: The model with its roles; it stays as it is.
        roles: Roles of ``adapted`` to measure.
        records: Public labelled records; the second half is measured, the first half rehearsed on.
        cycles: Steps of the rehearsal.
        batch_size: Expected batch of the rehearsal.
        optimizer: Makes the rehearsal's optimizer for the copy.
        seed: Of the rehearsal's batches.

    Returns:
        The norms, keyed by the role's name. A record's norm in a role with owners is that of its owner's block.
    """
    rehearsal = rehearse(adapted, roles, records, cycles=cycles, batch_size=batch_size, optimizer=optimizer, seed=seed)
    return gradient_norms(rehearsal)


def gradient_norms(rehearsal: Rehearsal) -> dict[str, GradientNorms]:
    """Each role's per-record gradient norms on the held-out public records, keyed by the role's name."""
    adapted, roles, held_out = rehearsal
    return {role.name: GradientNorms(role.name, _norms(adapted, role, held_out)) for role in roles}


@dataclass(frozen=True)
class Moments:
    """What the shrinkage denominator (theory.md B5) guesses of the experts' clipped gradients, means over experts.

    Attributes:
        mean_norm: Norm of the mean clipped gradient of the records that an expert owns.
        second_moment: Mean squared norm of these gradients.
    """

    mean_norm: float
    second_moment: float


def measure_moments(rehearsal: Rehearsal, clip_norm: float) -> Moments:
    """Measure the moments of the role with owners on the held-out public records; experts without records are left out.

    Raises:
        ValueError: If no role of the rehearsal has owners.
    """
    adapted, roles, held_out = rehearsal
    role = next((role for role in roles if role.owned), None)
    if role is None:
        raise ValueError(f"expected a role with owners, got {', '.join(role.name for role in roles)}")
    owners = owners_of(adapted, held_out)
    lengths = np.minimum(_norms(adapted, role, held_out), clip_norm)
    stream = Stream(
        role=role, sampling_probability=1.0, noise_multiplier=0.0, num_steps=1, clip_norm=clip_norm, denominator=1.0
    )
    means, seconds = [], []
    for e in sorted(set(owners.tolist())):
        owned = owners == e
        total = sum_clipped(stream, adapted, held_out.take(owned), owners=owners[owned])
        means.append(float(torch.cat([t.reshape(-1) for t in total]).norm()) / int(owned.sum()))
        seconds.append(float(np.square(lengths[owned.numpy()]).mean()))
    mean_norm = float(np.mean(means))
    return Moments(mean_norm, max(float(np.mean(seconds)), mean_norm**2))  # float32 sums round


def _norms(adapted: AdaptedModel, role: Role, records: Records) -> npt.NDArray[np.float64]:
    norms = torch.zeros(len(records), dtype=torch.float64)
    for positions, part in records.micro_batches(64):
        owner = current_owners(adapted, part) if role.owned else None
        norms[positions] = record_norms(reduced_gradients(role, adapted, part, owner=owner), len(part)).cpu()
    return norms.numpy()

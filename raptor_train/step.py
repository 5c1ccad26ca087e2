"""One release: sample → clip → sum → all-reduce → charge → noise → divide, in that order (paper, Figure 2b).

Every expert's sum gets noise and an update whether or not a sampled record was there: nothing about a release or the
schedule depends on realised counts, which are private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from raptor_acct import SubsampledGaussian
from raptor_train.adapters.base import AdaptedModel
from raptor_train.clipping import clipped_sums
from raptor_train.distributed import ALONE, Group
from raptor_train.noise import NoiseSource
from raptor_train.owner import owner_of
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.sampling import PoissonSampler
from raptor_train.tape import Tape, recording


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """A role and how it is released.

    Attributes:
        role: What is trained.
        sampling_probability: q of the stream's own Poisson sample.
        noise_multiplier: σ; the noise on the *sum* of clipped gradients has standard deviation σ·C. 0 in a
            non-private run.
        num_steps: How many releases the stream may make.
        clip_norm: C, from public data or the configuration; infinite in a non-private run.
        denominator: The public constant that divides the noisy sum: B, or D_e = B/E for experts with owners.
    """

    role: Role
    sampling_probability: float
    noise_multiplier: float
    num_steps: int
    clip_norm: float
    denominator: float
    parameters: tuple[nn.Parameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.role.parameters)

    @classmethod
    def private(cls, role: Role, mechanism: SubsampledGaussian, *, clip_norm: float, denominator: float) -> Stream:
        """A stream that releases ``role`` as ``mechanism`` says."""
        return cls(
            role=role,
            sampling_probability=mechanism.sampling_probability,
            noise_multiplier=mechanism.noise_multiplier,
            num_steps=mechanism.num_steps,
            clip_norm=clip_norm,
            denominator=denominator,
        )

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the sum, σ·C."""
        return self.noise_multiplier * self.clip_norm


def release(
    stream: Stream,
    model: AdaptedModel,
    records: Records,
    *,
    sampler: PoissonSampler,
    noise: NoiseSource,
    charge: Callable[[], None],
    others: Sequence[nn.Parameter],
    owners: Tensor | None = None,
    micro_batch_size: int = 64,
    group: Group = ALONE,
) -> list[Tensor]:
    """Return the stream's noisy gradient, one tensor for each of its parameters; the same bits on every rank.

    Args:
        stream: What to release and how.
        model: Losses and gates of the adapted model.
        records: The private data set.
        sampler: Poisson coins, the same on every rank: the ranks share out one sample.
        noise: Source of the noise; rank 0 alone draws, once for all ranks.
        charge: Charges the release, durably; called after the sum is formed and before its noise is drawn.
        others: Trainable parameters of the other streams: no graph is built for them.
        owners: Owner expert of every private record, [N], fixed before training; None recomputes the owners of the
            sampled records from the current weights. Only used when the stream's role has owners.
        micro_batch_size: Records that go through the model at once; no influence on the release but rounding.
        group: The processes that share the work; as with micro-batches, only rounding depends on how many there are.

    Raises:
        RankFailed: On every rank if another one failed; a charge that was made then stays.

    **Guarantee.** A Poisson-subsampled Gaussian mechanism with sensitivity ``clip_norm`` and noise multiplier
    ``noise_multiplier`` (theory.md P1), for all experts of a role with owners together.
    """
    with group.together():
        sampled = sampler.sample(stream.sampling_probability)[group.rank :: group.world]
        batch, batch_owners = records.take(sampled), None if owners is None else owners[sampled]
        sums = sum_clipped(stream, model, batch, others=others, owners=batch_owners, micro_batch_size=micro_batch_size)
    group.sum_(sums)
    with group.together():
        charge()
        if group.rank == 0 and stream.noise_multiplier > 0:
            sums = [total + noise(total, stream.noise_std) for total in sums]
    group.broadcast_(sums)
    return [total / stream.denominator for total in sums]


def sum_clipped(
    stream: Stream,
    model: AdaptedModel,
    batch: Records,
    *,
    others: Sequence[nn.Parameter] = (),
    owners: Tensor | None = None,
    micro_batch_size: int = 64,
) -> list[Tensor]:
    """Sum of the batch's clipped per-record gradients, a tensor a parameter, zero for an empty batch. Private."""
    totals = [torch.zeros_like(p) for p in stream.parameters]
    for positions, part in batch.micro_batches(micro_batch_size):
        owner = None
        if stream.role.owned:
            owner = owners[positions] if owners is not None else current_owners(model, part)
        tape = record_gradients(stream.role, model, part, others=others, owner=owner)
        sums = clipped_sums(tape.rows, len(part), stream.clip_norm, stream.parameters)
        for total, part_sum in zip(totals, sums, strict=True):
            total += part_sum
    return totals


def record_gradients(
    role: Role,
    model: AdaptedModel,
    records: Records,
    *,
    others: Sequence[nn.Parameter] = (),
    owner: Tensor | None = None,
) -> Tape:
    """Run one forward and backward pass and return its tape; no parameter's ``.grad`` is touched. Private."""
    tape = Tape(len(records), owner)
    with recording(role.trained_layers, tape), _frozen(others), torch.enable_grad():
        torch.autograd.backward(model.losses(records).sum())
    return tape


def current_owners(model: AdaptedModel, records: Records) -> Tensor:
    """Owner expert of every record at the one trained sparse layer, under the current weights, [records]. Private."""
    (gates,) = model.gates(records).values()
    return owner_of(gates, records.attention_mask)


@contextmanager
def _frozen(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)

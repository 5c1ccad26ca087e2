"""One release: sample → clip → sum → all-reduce → charge → noise → divide, in that order (paper, Figure 2b).

Every expert's sum gets noise and an update whether or not a sampled record was there: nothing about a release or the
schedule depends on realised counts, which are private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from raptor_acct import SubsampledGaussian, same_batch
from raptor_train.adapters.base import AdaptedModel
from raptor_train.clipping import RecordGradients, clipped_sums
from raptor_train.distributed import ALONE, Group
from raptor_train.noise import NoiseSource
from raptor_train.owner import owner_of
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.sampling import PoissonSampler
from raptor_train.tape import Rows, Tape, recording


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
        denominator: The public constant that divides the noisy sum: B, or D_e = B/E for experts with owners. Or one
            for each of the parameters; the release of one that is infinite is 0.

    Raises:
        ValueError: If there are neither one nor as many denominators as parameters.
    """

    role: Role
    sampling_probability: float
    noise_multiplier: float
    num_steps: int
    clip_norm: float
    denominator: float | tuple[float, ...]
    parameters: tuple[nn.Parameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.role.parameters)
        if len(self.denominators) != len(self.parameters):
            raise ValueError(
                f"expected one denominator or {len(self.parameters)}, one for each tensor of role '{self.role.name}', "
                f"got {len(self.denominators)}"
            )

    @classmethod
    def private(
        cls, role: Role, mechanism: SubsampledGaussian, *, clip_norm: float, denominator: float | tuple[float, ...]
    ) -> Stream:
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

    @property
    def parts(self) -> tuple[Stream, ...]:
        """What is clipped separately: this stream alone."""
        return (self,)

    @property
    def noise_stds(self) -> tuple[float, ...]:
        """Standard deviation of the noise on the sum of each parameter."""
        return (self.noise_std,) * len(self.parameters)

    @property
    def denominators(self) -> tuple[float, ...]:
        """The denominator of each parameter."""
        if isinstance(self.denominator, tuple):
            return self.denominator
        return (self.denominator,) * len(self.parameters)


@dataclass(frozen=True, kw_only=True, eq=False)
class OneBatch:
    """Roles released from one and the same batch, each with a clip norm and noise of its own (an ablation).

    Attributes:
        parts: The streams, with the same sampling probability and number of steps.
        role: All their layers.
        noise_multiplier: σ of the one mechanism that they amount to; the ledger charges this one.

    Raises:
        ValueError: If sampling probabilities or numbers of steps differ.

    **Guarantee.** One Poisson-subsampled Gaussian with noise multiplier (Σ σ^-2)^(-1/2) (theory.md P4). It must never
    be accounted as one stream for each part.
    """

    parts: tuple[Stream, ...]
    role: Role = field(init=False)
    parameters: tuple[nn.Parameter, ...] = field(init=False)
    noise_multiplier: float = field(init=False)

    def __post_init__(self) -> None:
        roles = [part.role for part in self.parts]
        mechanisms = [
            SubsampledGaussian(
                num_steps=part.num_steps,
                sampling_probability=part.sampling_probability,
                noise_multiplier=part.noise_multiplier,
            )
            for part in self.parts
        ]
        merged = Role(
            name="+".join(role.name for role in roles),
            layers=tuple(layer for role in roles for layer in role.layers),
            owned=any(role.owned for role in roles),
        )
        object.__setattr__(self, "role", merged)
        object.__setattr__(self, "parameters", tuple(p for part in self.parts for p in part.parameters))
        object.__setattr__(self, "noise_multiplier", same_batch(mechanisms).noise_multiplier)

    @property
    def sampling_probability(self) -> float:
        """Probability q of the one Poisson sample."""
        return self.parts[0].sampling_probability

    @property
    def num_steps(self) -> int:
        """How many releases may be made."""
        return self.parts[0].num_steps

    @property
    def clip_norm(self) -> float:
        """Largest length of what one record adds to all sums together."""
        return math.hypot(*(part.clip_norm for part in self.parts))

    @property
    def noise_stds(self) -> tuple[float, ...]:
        """Standard deviation of the noise on the sum of each parameter."""
        return tuple(std for part in self.parts for std in part.noise_stds)

    @property
    def denominators(self) -> tuple[float, ...]:
        """The denominator of each parameter."""
        return tuple(d for part in self.parts for d in part.denominators)


def release(
    stream: Stream | OneBatch,
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
        sums = []
        for part in stream.parts:
            frozen = [*others, *(p for other in stream.parts if other is not part for p in other.parameters)]
            sums += sum_clipped(
                part, model, batch, others=frozen, owners=batch_owners, micro_batch_size=micro_batch_size
            )
    group.sum_(sums)
    with group.together():
        charge()
        if group.rank == 0 and stream.noise_multiplier > 0:
            sums = [total + noise(total, std) for total, std in zip(sums, stream.noise_stds, strict=True)]
    group.broadcast_(sums)
    return [total / denominator for total, denominator in zip(sums, stream.denominators, strict=True)]


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
        gradients = reduced_gradients(stream.role, model, part, others=others, owner=owner)
        sums = clipped_sums(gradients, len(part), stream.clip_norm, stream.parameters)
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
    keep: Callable[[Rows], object] | None = None,
) -> Tape:
    """Run one forward and backward pass and return its tape; no parameter's ``.grad`` is touched. Private.

    Args:
        role: Whose layers write to the tape.
        model: Losses of the adapted model.
        records: The records of the pass.
        others: Trainable parameters that are frozen meanwhile.
        owner: Owner expert of each record, [records], of a role that has owners.
        keep: What is done with every layer's rows, see :class:`Tape`.

    Raises:
        ValueError: If the pass did not reach a trained layer that all records use.
    """
    tape = Tape(len(records), owner, keep=keep)
    with recording(role.trained_layers, tape), _frozen(others), torch.enable_grad():
        torch.autograd.backward(model.losses(records).sum())
    tape.check_complete(role.trained_layers)
    return tape


def reduced_gradients(
    role: Role,
    model: AdaptedModel,
    records: Records,
    *,
    others: Sequence[nn.Parameter] = (),
    owner: Tensor | None = None,
) -> list[RecordGradients]:
    """As :func:`record_gradients`, each layer's rows brought to their smaller form as the pass leaves it. Private."""
    gradients: list[RecordGradients] = []
    record_gradients(
        role, model, records, others=others, owner=owner, keep=lambda rows: gradients.append(RecordGradients(rows))
    )
    return gradients


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

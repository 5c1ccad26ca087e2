"""What RAPTOR is compared with, from the same parts: one stream over everything, and no privacy at all."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from raptor_acct import SubsampledGaussian
from raptor_acct._validate import number, whole
from raptor_train.adapters.base import AdaptedModel
from raptor_train.checks import check_before_training, check_records
from raptor_train.distributed import ALONE, Group
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream
from raptor_train.trainer import Randomness, Trainer, check_clip_norm, private_trainer


def everything(adapted: AdaptedModel) -> Role:
    """Both roles as one: clipped together, every activated expert gets the record's gradient."""
    return Role(name="all", layers=(*adapted.shared.layers, *adapted.expert.layers))


def make_monolithic(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    records: Records,
    mechanism: SubsampledGaussian,
    *,
    clip_norm: float,
    ledger_path: str | Path,
    probe: Records,
    role: Role | None = None,
    num_records: int | None = None,
    micro_batch_size: int = 64,
    seed: int | None = None,
    group: Group = ALONE,
    checkpoints: str | Path | None = None,
) -> Trainer:
    """Standard DP training: one clip norm, one noise multiplier and the denominator B for all parameters.

    Args:
        adapted: The adapted model, usually with the experts of all sparse layers (paper: "Monolithic DP-Adam LoRA").
        optimizer: A torch optimizer over exactly the parameters of ``role``.
        records: The private records.
        mechanism: The one calibrated stream.
        clip_norm: C, chosen on public data.
        ledger_path: A new file for the charges.
        probe: A few public records for the independence check.
        role: What to train, everything else frozen; all of both roles by default.
        num_records: N, the public number of records; the exact number of ``records`` by default.
        micro_batch_size: Records that go through the model at once.
        seed: None for fresh entropy.
        group: The processes that share the work.
        checkpoints: A folder for the run's checkpoint, as in :func:`raptor_train.trainer.make_private`.

    Raises:
        ValueError: Naming the condition that fails and what to change; before anything is spent.
        RecordsCoupled: If a record's gradient depends on anything but the record.

    **Guarantee.** ``mechanism.guarantee()`` for add/remove neighbours.
    """
    if not isinstance(mechanism, SubsampledGaussian):
        raise ValueError(f"expected mechanism to be one SubsampledGaussian, got {type(mechanism).__name__}")
    check_clip_norm("clip_norm", clip_norm)
    check_records(adapted, records, name="records")
    public_n = len(records) if num_records is None else whole("num_records", num_records)
    denominator = mechanism.sampling_probability * public_n
    stream = Stream.private(role or everything(adapted), mechanism, clip_norm=clip_norm, denominator=denominator)
    return private_trainer(
        adapted,
        optimizer,
        records,
        [stream],
        ledger_path=ledger_path,
        probe=probe,
        owners="recomputed",
        micro_batch_size=micro_batch_size,
        randomness=Randomness.of(len(records), seed),
        group=group,
        checkpoints=checkpoints,
    )


def make_non_private(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    records: Records,
    *,
    sampling_probability: float,
    num_steps: int,
    micro_batch_size: int = 64,
    seed: int | None = None,
    group: Group = ALONE,
    checkpoints: str | Path | None = None,
) -> Trainer:
    """The same loop without clipping and noise: the upper reference. Its weights carry no guarantee.

    Args:
        adapted: The adapted model; both roles are trained as one.
        optimizer: A torch optimizer over exactly the parameters of both roles.
        records: The records.
        sampling_probability: Of a record, in every step.
        num_steps: Number of steps.
        micro_batch_size: Records that go through the model at once.
        seed: None for fresh entropy.
        group: The processes that share the work.
        checkpoints: A folder for the run's checkpoint; it is as private as the records.

    Raises:
        ValueError: Naming what is wrong and what to change.
    """
    number("sampling_probability", sampling_probability, "(0, 1]")
    whole("num_steps", num_steps)
    whole("micro_batch_size", micro_batch_size)
    check_records(adapted, records, name="records")
    stream = Stream(
        role=everything(adapted),
        sampling_probability=sampling_probability,
        noise_multiplier=0.0,
        num_steps=num_steps,
        clip_norm=math.inf,
        denominator=sampling_probability * len(records),
    )
    check_before_training(adapted, [stream.role], optimizer)
    return Trainer(
        adapted,
        optimizer,
        records,
        [stream],
        charges=None,
        micro_batch_size=micro_batch_size,
        randomness=Randomness.of(len(records), seed),
        group=group,
        checkpoints=checkpoints,
    )

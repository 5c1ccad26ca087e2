"""A run that is ready to train: everything chosen and checked, nothing spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from raptor_acct import Calibration, SubsampledGaussian
from raptor_train.adapters.base import AdaptedModel
from raptor_train.baselines import make_non_private
from raptor_train.checkpoint import Checkpoint, trained_weights
from raptor_train.checks import check_records
from raptor_train.config import RunConfig
from raptor_train.distributed import ALONE, Group
from raptor_train.drift import OwnerDrift
from raptor_train.inputs import Inputs, fresh_model, load_inputs
from raptor_train.loop import Trainer
from raptor_train.methods import adapted_for, calibrate, clipped_together, optimizer_for, streams_for
from raptor_train.noise import Randomness
from raptor_train.resolve import Echo, Resolved, resolve, silent
from raptor_train.run_folder import RunFolder
from raptor_train.trainer import check_clip_norm, private_trainer

_DRIFT_RECORDS = 256  # public records whose owners are watched


@dataclass(kw_only=True)
class Run:
    """A run that is ready to train, and its folder."""

    config: RunConfig
    resolved: Resolved
    folder: RunFolder
    inputs: Inputs
    adapted: AdaptedModel
    optimizer: torch.optim.Optimizer
    trainer: Trainer
    noise: Calibration | SubsampledGaussian | None
    drift: OwnerDrift | None
    group: Group = field(default=ALONE)

    @property
    def writes(self) -> bool:
        """Whether this process writes files and words."""
        return self.group.rank == 0


def prepare(config: RunConfig, folder: str | Path, *, echo: Echo = silent, group: Group = ALONE) -> Run:
    """Check everything, choose what is left open and make the trainer; nothing is spent.

    Raises:
        ValueError: Naming what is wrong.
        RecordsCoupled: If a record's gradient depends on anything but the record.
    """
    files, config = RunFolder(folder), config.located()
    with group.together():
        before = files.resolved(config) if group.rank == 0 else None
        inputs = load_inputs(config, echo=echo if group.rank == 0 else None)
    before = group.from_first(before)
    with group.together():
        if before is None:
            resolved = resolve(config, inputs, echo=echo if group.rank == 0 else silent)
        else:
            resolved = Resolved.from_dict(before)
        noise = calibrate(config, q=resolved.sampling_probability, steps=resolved.steps, delta=resolved.delta)
        adapted = adapted_for(
            config, fresh_model(config, resolved.label_names), layers=resolved.layers, scales=resolved.scales
        )
        if group.rank == 0:
            files.make()
    drift = _public_drift(config, adapted, inputs, group)  # before a checkpoint changes the starting weights
    try:
        optimizer = optimizer_for(config, adapted)
        trainer = trainer_for(
            config,
            resolved,
            inputs,
            adapted,
            optimizer,
            noise,
            ledger_path=files.ledger,
            checkpoints=files.checkpoints,
            group=group,
        )
    except ValueError:
        files.drop_if_empty()
        raise
    with group.together():
        if before is None and group.rank == 0:
            files.begin(config, resolved.to_dict())
    return Run(
        config=config,
        resolved=resolved,
        folder=files,
        inputs=inputs,
        adapted=adapted,
        optimizer=optimizer,
        trainer=trainer,
        noise=noise,
        drift=drift,
        group=group,
    )


def load_run(folder: str | Path) -> tuple[RunConfig, Resolved, AdaptedModel]:
    """The configuration of a run and its model as last saved.

    Raises:
        ValueError: If the folder holds no run, or one without a checkpoint.
    """
    files = RunFolder(folder)
    config, before = files.read()
    resolved = Resolved.from_dict(before)
    if not Checkpoint.is_in(files.checkpoints):
        raise ValueError(f"expected a run with a checkpoint, got {folder}: train it with raptor-train fit")
    adapted = adapted_for(
        config, fresh_model(config, resolved.label_names), layers=resolved.layers, scales=resolved.scales
    )
    saved = Checkpoint.read(files.checkpoints)
    with torch.no_grad():
        for name, weight in trained_weights(adapted).items():
            weight.copy_(saved.tensors[f"weights.{name}"])
    return config, resolved, adapted


def trainer_for(
    config: RunConfig,
    resolved: Resolved,
    inputs: Inputs,
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    noise: Calibration | SubsampledGaussian | None,
    *,
    ledger_path: Path,
    checkpoints: Path | None = None,
    group: Group = ALONE,
) -> Trainer:
    """The trainer of a method, from parts that fit together.

    Args:
        config: The method.
        resolved: What it comes to. Its N and B are public and hold whatever the number of private records is.
        inputs: The private records and the probe.
        adapted: From :func:`adapted_for`.
        optimizer: From :func:`optimizer_for`.
        noise: From :func:`calibrate`.
        ledger_path: A new ledger, or that of the run that goes on; a method without a guarantee has none.
        checkpoints: Folder of the checkpoint; None for a run that cannot be continued.
        group: The processes that share the work.

    Raises:
        ValueError: Naming what is wrong.
        RecordsCoupled: If a record's gradient depends on anything but the record.
    """
    training = config.training
    if noise is None:
        return make_non_private(
            adapted,
            optimizer,
            inputs.private,
            sampling_probability=resolved.sampling_probability,
            num_steps=resolved.steps,
            micro_batch_size=training.micro_batch_size,
            seed=training.replay_seed,
            group=group,
            checkpoints=checkpoints,
        )
    for name, clip_norm in resolved.clip_norms.items():
        check_clip_norm(f"clip norm of {name}", clip_norm)
    check_records(adapted, inputs.private, name="private records")
    streams = streams_for(
        config,
        adapted,
        noise,
        clip_norms=resolved.clip_norms,
        batch_size=resolved.batch_size,
        shares=resolved.shares,
        moments=resolved.moments,
    )
    return private_trainer(
        adapted,
        optimizer,
        inputs.private,
        streams,
        ledger_path=ledger_path,
        probe=inputs.probe,
        owners=config.owners,
        micro_batch_size=training.micro_batch_size,
        randomness=Randomness.of(len(inputs.private), training.replay_seed),
        group=group,
        checkpoints=checkpoints,
    )


def _public_drift(config: RunConfig, adapted: AdaptedModel, inputs: Inputs, group: Group) -> OwnerDrift | None:
    """Watches how far the owners of public records move; None where there is nothing to watch."""
    if inputs.public is None or not any(role.owned for role in clipped_together(config, adapted)):
        return None
    public = inputs.public.records
    few = public.take(torch.arange(min(_DRIFT_RECORDS, len(public))))
    return OwnerDrift(adapted, few, group=group)

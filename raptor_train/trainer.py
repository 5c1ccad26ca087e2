"""Make RAPTOR's trainer: every condition that can be checked is checked before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from raptor_acct import RolePlan, ledger
from raptor_acct._validate import choice, number, whole
from raptor_train.adapters.base import AdaptedModel
from raptor_train.checkpoint import Checkpoint
from raptor_train.checks import check_before_training, check_records
from raptor_train.distributed import ALONE, Group
from raptor_train.drift import owners_of
from raptor_train.independence import check_record_independence
from raptor_train.loop import BudgetExceeded, Trainer
from raptor_train.noise import NoiseSource, Randomness
from raptor_train.records import Records
from raptor_train.step import OneBatch, Stream

__all__ = ["BudgetExceeded", "Randomness", "Trainer", "check_clip_norm", "make_private", "private_trainer"]


def make_private(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer | None,
    records: Records,
    plan: RolePlan,
    *,
    clip_shared: float,
    clip_expert: float,
    ledger_path: str | Path,
    probe: Records,
    num_records: int | None = None,
    owners: str = "fixed",
    micro_batch_size: int = 64,
    seed: int | None = None,
    noise: NoiseSource | None = None,
    group: Group = ALONE,
    checkpoints: str | Path | None = None,
) -> Trainer:
    """Check every condition of theory.md §7 that can be checked, then return RAPTOR's trainer.

    Args:
        adapted: A model with a shared and an expert role at one sparse layer.
        optimizer: A torch optimizer over exactly the parameters of both roles; None for Adam at its default rate.
        records: The private records.
        plan: The calibrated mechanisms, ``calibrate_sigmas(...).plan``.
        clip_shared: C_s, chosen on public data.
        clip_expert: C_e, chosen on public data.
        ledger_path: A new file for the charges; when a run goes on, its own.
        probe: A few public records of different lengths for the independence check.
        num_records: N, the public number of records: the denominators are B = qN and B/E. By default the exact
            number of ``records``, which is then public.
        owners: "fixed": owner experts are computed once from the starting model, a true partition of the records.
            "recomputed": from the current weights in every step; valid too, by P1.
        micro_batch_size: Records that go through the model at once.
        seed: None for fresh entropy. A known seed makes the run repeatable, and its noise known.
        noise: A noise source for tests; Gaussian noise by default.
        group: The processes that share the work, see :func:`raptor_train.distributed.torchrun_group`; all of them
            call this with the same arguments, and see the same files.
        checkpoints: A folder for the run's checkpoint. If it has one, the run goes on from there, with as many steps
            as its ledger says are left; give the same arguments and the starting model again. None for a run that
            cannot be continued.

    Raises:
        ValueError: Naming the condition that fails and what to change; before anything is spent.
        RecordsCoupled: If a record's gradient depends on anything but the record.

    **Guarantee.** After T cycles the released parameters satisfy ``plan.guarantee()`` for add/remove neighbours.
    """
    if not isinstance(plan, RolePlan) or plan.sampling != "independent":
        raise ValueError("expected a RolePlan with sampling='independent': the two streams draw their own batches")
    if len(adapted.expert_layers) != 1:
        raise ValueError(f"expected experts of one selected layer, got layers {adapted.expert_layers}")
    check_clip_norm("clip_shared", clip_shared)
    check_clip_norm("clip_expert", clip_expert)
    check_records(adapted, records, name="records")
    public_n = len(records) if num_records is None else whole("num_records", num_records)
    expert_denominator = plan.expert.sampling_probability * public_n / adapted.num_experts
    streams = [
        Stream.private(
            adapted.shared,
            plan.shared,
            clip_norm=clip_shared,
            denominator=plan.shared.sampling_probability * public_n,
        ),
        Stream.private(adapted.expert, plan.expert, clip_norm=clip_expert, denominator=expert_denominator),
    ]
    return private_trainer(
        adapted,
        optimizer or torch.optim.Adam([p for stream in streams for p in stream.parameters]),
        records,
        streams,
        ledger_path=ledger_path,
        probe=probe,
        owners=owners,
        micro_batch_size=micro_batch_size,
        randomness=Randomness.of(len(records), seed, noise),
        group=group,
        checkpoints=checkpoints,
    )


def private_trainer(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    records: Records,
    streams: Sequence[Stream | OneBatch],
    *,
    ledger_path: str | Path,
    probe: Records,
    owners: str,
    micro_batch_size: int,
    randomness: Randomness,
    group: Group = ALONE,
    checkpoints: str | Path | None = None,
) -> Trainer:
    """Check what every private run must satisfy, then open the ledger and return the trainer.

    Raises:
        ValueError: Naming the condition that fails and what to change; no ledger is made then.
        RecordsCoupled: If a record's gradient depends on anything but the record.
    """
    with group.together():
        choice("owners", owners, ("fixed", "recomputed"))
        whole("micro_batch_size", micro_batch_size)
        check_ledger_path(ledger_path, checkpoints)
        roles = [stream.role for stream in streams]
        check_before_training(adapted, roles, optimizer)
        check_records(adapted, probe, name="probe")
        check_record_independence(adapted, probe, roles=roles, batch_size=micro_batch_size).raise_if_coupled()
    owned = owners == "fixed" and any(role.owned for role in roles)
    fixed = owners_of(adapted, records, micro_batch_size, group) if owned else None
    with group.together():
        charges = None
        if group.rank == 0:
            charges = ledger.Ledger.open(ledger_path) if Path(ledger_path).exists() else ledger.Ledger(ledger_path)
    return Trainer(
        adapted,
        optimizer,
        records,
        streams,
        owners=fixed,
        micro_batch_size=micro_batch_size,
        randomness=randomness,
        charges=charges,
        group=group,
        checkpoints=checkpoints,
    )


def check_ledger_path(ledger_path: str | Path, checkpoints: str | Path | None) -> None:
    """Check that a ledger is new, or that of the run that goes on.

    Raises:
        ValueError: If it is neither: what was spent must neither be forgotten nor mixed with another run.
    """
    path = Path(ledger_path)
    if checkpoints and Checkpoint.is_in(checkpoints):
        if not path.is_file():
            raise ValueError(
                f"expected the ledger of the run that is saved in {checkpoints} at ledger_path={path}, got no file; "
                "put it back: without it nobody knows what was spent"
            )
        return
    # A run that died before its first checkpoint was whole has a ledger without charges.
    unused = checkpoints and path.is_file() and not ledger.Ledger.verify(path).num_releases
    if not path.parent.is_dir() or (path.exists() and not unused):
        raise ValueError(f"expected ledger_path to be a new file in an existing folder, got {ledger_path}")


def check_clip_norm(name: str, value: float) -> float:
    """Return ``value`` if it can be a clip norm.

    Raises:
        ValueError: If it is not a number in [1e-9, 1e9]: beyond, float32 norms under- or overflow.
    """
    return number(name, value, "[1e-9, 1e9]", hint="measure per-record gradient norms on public text")

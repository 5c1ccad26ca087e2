"""The trainer: two streams in turn, nothing beyond the plan, every release in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from raptor_acct import RolePlan, ledger
from raptor_acct._validate import choice, number, whole
from raptor_acct.guarantee import Guarantee
from raptor_train.adapters.base import AdaptedModel
from raptor_train.checks import check_before_training
from raptor_train.independence import check_record_independence
from raptor_train.noise import GaussianNoise, NoiseSource
from raptor_train.records import Records
from raptor_train.sampling import PoissonSampler, generator_from
from raptor_train.step import Stream, current_owners, release

CLIP_HINT = "measure per-record gradient norms on public text"


class BudgetExceeded(RuntimeError):
    """A step was asked for that the plan did not pay for."""


class Trainer:
    """Runs the streams of a plan in turn; made by :func:`make_private`.

    Args:
        model: The adapted model.
        optimizer: Any torch optimizer over the streams' parameters that needs no closure.
        records: The private records.
        streams: What is released in each cycle, in order.
        charges: The ledger, None in a non-private run.
        owners: Owner expert of every record, or None to recompute them in every step.
        micro_batch_size: Records that go through the model at once.
        seed: Seed of coins and noise, None for fresh entropy.
        noise: Noise source, Gaussian by default.
    """

    def __init__(
        self,
        model: AdaptedModel,
        optimizer: torch.optim.Optimizer,
        records: Records,
        streams: Sequence[Stream],
        *,
        charges: ledger.Ledger | None,
        owners: Tensor | None = None,
        micro_batch_size: int = 64,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ):
        self.streams = tuple(streams)
        self.ledger = charges
        self.num_cycles = max(s.num_steps for s in streams)
        self.cycle = 0
        self._model, self._optimizer, self._records = model, optimizer, records
        self._sampler = PoissonSampler(len(records), generator_from(seed, purpose=0))
        self._noise = noise or GaussianNoise(generator_from(seed, purpose=1))
        self._owners = owners
        self._micro_batch_size = micro_batch_size

    def step(self) -> None:
        """Run one cycle: one release and one optimizer step of every stream that has steps left.

        Raises:
            BudgetExceeded: If all steps of the plan are spent. Nothing is released then.
        """
        if self.cycle >= self.num_cycles:
            raise BudgetExceeded(f"the plan pays for {self.num_cycles} cycles and all are spent; plan more steps first")
        for stream in self.streams:
            if self.cycle < stream.num_steps:
                self._update(stream)
        self.cycle += 1

    def run(self, *, progress: bool = False, description: str = "training") -> None:
        """Run all cycles that are left; ``progress`` shows a bar (cycles only: a private loss is never shown)."""
        for _ in tqdm(range(self.cycle, self.num_cycles), desc=description, unit="cycle", disable=not progress):
            self.step()

    @property
    def guarantee(self) -> Guarantee:
        """What was really released so far, added up from the ledger (add/remove neighbours).

        Raises:
            ValueError: For a non-private run, or before the first step.
        """
        if self.ledger is None:
            raise ValueError("this run is not private: it has no guarantee")
        return ledger.replay(self.ledger.path)

    def _update(self, stream: Stream) -> None:
        others = [p for s in self.streams if s is not stream for p in s.parameters]
        gradients = release(
            stream,
            self._model,
            self._records,
            sampler=self._sampler,
            noise=self._noise,
            ledger=self.ledger,
            others=others,
            owners=self._owners,
            micro_batch_size=self._micro_batch_size,
        )
        self._optimizer.zero_grad(set_to_none=True)
        for parameter, gradient in zip(stream.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def make_private(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    records: Records,
    plan: RolePlan,
    *,
    clip_shared: float,
    clip_expert: float,
    ledger_path: str | Path,
    probe: Records,
    owners: str = "fixed",
    micro_batch_size: int = 64,
    seed: int | None = None,
    noise: NoiseSource | None = None,
) -> Trainer:
    """Check every condition of theory.md §7 that can be checked, then return RAPTOR's trainer.

    Args:
        adapted: A model with a shared and an expert role at one sparse layer.
        optimizer: A torch optimizer over exactly the parameters of both roles (Adam is the usual choice).
        records: The private records; their number N is public.
        plan: The calibrated mechanisms, ``calibrate_sigmas(...).plan``.
        clip_shared: C_s, chosen on public data.
        clip_expert: C_e, chosen on public data.
        ledger_path: A new file for the charges.
        probe: A few public records of different lengths for the independence check.
        owners: "fixed": owner experts are computed once from the starting model, a true partition of the records.
            "recomputed": from the current weights in every step; valid too, by P1.
        micro_batch_size: Records that go through the model at once.
        seed: None for fresh entropy. A known seed makes the run repeatable, and its noise known.
        noise: A noise source for tests; Gaussian noise by default.

    Raises:
        ValueError: Naming the condition that fails and what to change; before anything is spent.
        RecordsCoupled: If a record's gradient depends on anything but the record.

    **Guarantee.** After T cycles the released parameters satisfy ``plan.guarantee()`` for add/remove neighbours.
    """
    choice("owners", owners, ("fixed", "recomputed"))
    if plan.sampling != "independent":
        raise ValueError("expected a plan with sampling='independent': the two streams draw their own batches")
    if len(adapted.expert_layers) != 1:
        raise ValueError(f"expected experts of one selected layer, got layers {adapted.expert_layers}")
    number("clip_shared", clip_shared, "(0, inf)", hint=CLIP_HINT)
    number("clip_expert", clip_expert, "(0, inf)", hint=CLIP_HINT)
    shared_batch = plan.shared.sampling_probability * len(records)
    expert_batch = plan.expert.sampling_probability * len(records)
    streams = [
        Stream.private(adapted.shared, plan.shared, clip_norm=clip_shared, denominator=shared_batch),
        Stream.private(
            adapted.expert, plan.expert, clip_norm=clip_expert, denominator=expert_batch / adapted.num_experts
        ),
    ]
    whole("micro_batch_size", micro_batch_size)
    check_private(adapted, streams, optimizer, records, probe)
    fixed = owners_of(adapted, records, micro_batch_size) if owners == "fixed" else None
    return Trainer(
        adapted,
        optimizer,
        records,
        streams,
        charges=ledger.Ledger(ledger_path),
        owners=fixed,
        micro_batch_size=micro_batch_size,
        seed=seed,
        noise=noise,
    )


def check_private(
    adapted: AdaptedModel,
    streams: Sequence[Stream],
    optimizer: torch.optim.Optimizer,
    records: Records,
    probe: Records,
) -> None:
    """Everything a private run of any kind must satisfy before its first step.

    Raises:
        ValueError: Naming the condition that fails and what to change.
        RecordsCoupled: If a record's gradient depends on anything but the record.
    """
    check_before_training(adapted, [s.role for s in streams], optimizer, records)
    check_record_independence(adapted, probe).raise_if_coupled()


def owners_of(adapted: AdaptedModel, records: Records, micro_batch_size: int = 64) -> Tensor:
    """Owner expert of every record under the current weights, [N] int64. Private when the records are."""
    owners = torch.zeros(len(records), dtype=torch.int64)
    for positions, part in records.micro_batches(micro_batch_size):
        owners[positions] = current_owners(adapted, part)
    return owners

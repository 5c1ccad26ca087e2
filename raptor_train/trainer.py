"""The trainer: two streams in turn, nothing beyond the plan, every release in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from raptor_acct import RolePlan, ledger
from raptor_acct._validate import choice, number, whole
from raptor_acct.guarantee import Guarantee
from raptor_train.adapters.base import AdaptedModel
from raptor_train.checks import check_before_training, check_mode, check_records
from raptor_train.independence import check_record_independence
from raptor_train.noise import GaussianNoise, NoiseSource
from raptor_train.records import Records
from raptor_train.sampling import PoissonSampler, entropy_for, generator_from
from raptor_train.step import Stream, current_owners, release


class BudgetExceeded(RuntimeError):
    """A step was asked for that the plan did not pay for."""


class Trainer:
    """Runs the streams of a plan in turn; made by :func:`make_private` or a baseline's maker.

    Args:
        model: The adapted model.
        optimizer: Any torch optimizer over the streams' parameters that needs no closure.
        records: The private records.
        streams: What is released in each cycle, in order.
        charges: The ledger, None in a non-private run.
        randomness: Coins and noise.
        owners: Owner expert of every record, or None to recompute them in every step.
        micro_batch_size: Records that go through the model at once.

    **Guarantee.** No stream is released more often than its ``num_steps``, also when a step failed half-way and is
    tried again: the charge counts, and it comes before the noise.
    """

    def __init__(
        self,
        model: AdaptedModel,
        optimizer: torch.optim.Optimizer,
        records: Records,
        streams: Sequence[Stream],
        *,
        charges: ledger.Ledger | None,
        randomness: Randomness,
        owners: Tensor | None = None,
        micro_batch_size: int = 64,
    ):
        self.streams = tuple(streams)
        self.ledger = charges
        self.num_cycles = max(s.num_steps for s in streams)
        self._model, self._optimizer, self._records = model, optimizer, records
        self._randomness, self._owners, self._micro_batch_size = randomness, owners, micro_batch_size
        self._charged = dict.fromkeys(self.streams, 0)

    @property
    def cycle(self) -> int:
        """Number of cycles that are complete, counted by charges."""
        return min((n for stream, n in self._charged.items() if n < stream.num_steps), default=self.num_cycles)

    def step(self) -> None:
        """Run one cycle: one release and one optimizer step of every stream that has steps left.

        After an interruption, the streams that were already charged in this cycle are not released again.

        Raises:
            BudgetExceeded: If all steps of the plan are spent. Nothing is released then.
            ValueError: If the model was put into training mode. Nothing is released then.
        """
        cycle = self.cycle
        if cycle >= self.num_cycles:
            raise BudgetExceeded(f"the plan pays for {self.num_cycles} cycles and all are spent; plan more steps first")
        check_mode(self._model)
        for stream in self.streams:
            if self._charged[stream] == cycle < stream.num_steps:
                self._update(stream)

    def run(self, *, progress: bool = False, after_cycle: Callable[[], None] | None = None) -> None:
        """Run all cycles that are left.

        Args:
            progress: Show a bar, of cycles only: a private loss is never shown.
            after_cycle: Called after each cycle.
        """
        for _ in tqdm(range(self.cycle, self.num_cycles), desc="training", unit="cycle", disable=not progress):
            self.step()
            if after_cycle is not None:
                after_cycle()

    @property
    def guarantee(self) -> Guarantee:
        """What was really released so far, added up from the ledger, for add/remove neighbours.

        For replace-one neighbours: ``raptor_acct.ledger.replay(trainer.ledger.path, adjacency="replace_one")``.

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
            sampler=self._randomness.coins,
            noise=self._randomness.noise,
            charge=lambda: self._charge(stream),
            others=others,
            owners=self._owners,
            micro_batch_size=self._micro_batch_size,
        )
        self._optimizer.zero_grad(set_to_none=True)
        for parameter, gradient in zip(stream.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _charge(self, stream: Stream) -> None:
        self._charged[stream] += 1  # first: an interruption in between must not let the charge be made twice
        if self.ledger is not None:
            self.ledger.append(
                stream=stream.role.name,
                noise_multiplier=stream.noise_multiplier,
                sampling_probability=stream.sampling_probability,
                clip_norm=stream.clip_norm,
            )


@dataclass(frozen=True)
class Randomness:
    """The coins and the noise of one run, from independent entropy."""

    coins: PoissonSampler
    noise: NoiseSource

    @classmethod
    def of(cls, num_records: int, seed: int | None, noise: NoiseSource | None = None) -> Randomness:
        """Fresh entropy, or all of it from ``seed``; ``noise`` replaces the Gaussian source in tests."""
        coins = PoissonSampler(num_records, entropy_for(seed, purpose=0))
        return cls(coins, noise or GaussianNoise(generator_from(entropy_for(seed, purpose=1))))


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
) -> Trainer:
    """Check every condition of theory.md §7 that can be checked, then return RAPTOR's trainer.

    Args:
        adapted: A model with a shared and an expert role at one sparse layer.
        optimizer: A torch optimizer over exactly the parameters of both roles; None for Adam at its default rate.
        records: The private records.
        plan: The calibrated mechanisms, ``calibrate_sigmas(...).plan``.
        clip_shared: C_s, chosen on public data.
        clip_expert: C_e, chosen on public data.
        ledger_path: A new file for the charges.
        probe: A few public records of different lengths for the independence check.
        num_records: N, the public number of records: the denominators are B = qN and B/E. By default the exact
            number of ``records``, which is then public.
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
    )


def private_trainer(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    records: Records,
    streams: Sequence[Stream],
    *,
    ledger_path: str | Path,
    probe: Records,
    owners: str,
    micro_batch_size: int,
    randomness: Randomness,
) -> Trainer:
    """Check what every private run must satisfy, then open the ledger and return the trainer.

    Raises:
        ValueError: Naming the condition that fails and what to change; no ledger is made then.
        RecordsCoupled: If a record's gradient depends on anything but the record.
    """
    choice("owners", owners, ("fixed", "recomputed"))
    whole("micro_batch_size", micro_batch_size)
    if Path(ledger_path).exists() or not Path(ledger_path).parent.is_dir():
        raise ValueError(f"expected ledger_path to be a new file in an existing folder, got {ledger_path}")
    roles = [stream.role for stream in streams]
    check_before_training(adapted, roles, optimizer)
    check_records(adapted, probe, name="probe")
    check_record_independence(adapted, probe, roles=roles, batch_size=micro_batch_size).raise_if_coupled()
    owned = owners == "fixed" and any(role.owned for role in roles)
    return Trainer(
        adapted,
        optimizer,
        records,
        streams,
        owners=owners_of(adapted, records, micro_batch_size) if owned else None,
        micro_batch_size=micro_batch_size,
        randomness=randomness,
        charges=ledger.Ledger(ledger_path),
    )


def check_clip_norm(name: str, value: float) -> float:
    """Return ``value`` if it can be a clip norm.

    Raises:
        ValueError: If it is not a number in [1e-9, 1e9]: beyond, float32 norms under- or overflow.
    """
    return number(name, value, "[1e-9, 1e9]", hint="measure per-record gradient norms on public text")


def owners_of(adapted: AdaptedModel, records: Records, micro_batch_size: int = 64) -> Tensor:
    """Owner expert of every record under the current weights, [N] int64. Private when the records are."""
    owners = torch.zeros(len(records), dtype=torch.int64)
    for positions, part in records.micro_batches(micro_batch_size):
        owners[positions] = current_owners(adapted, part)
    return owners

"""The loop: two streams in turn, nothing beyond the plan, every release in the ledger, and on again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from raptor_acct import ledger
from raptor_acct.guarantee import Guarantee
from raptor_train import checkpoint
from raptor_train.adapters.base import AdaptedModel
from raptor_train.checkpoint import Checkpoint
from raptor_train.checks import check_mode, check_precision
from raptor_train.distributed import ALONE, Group
from raptor_train.drift import OwnerDrift
from raptor_train.noise import Randomness
from raptor_train.records import Records
from raptor_train.step import OneBatch, Stream, release


class BudgetExceeded(RuntimeError):
    """A step was asked for that the plan did not pay for."""


class Trainer:
    """Runs the streams of a plan in turn; made by :func:`make_private` or a baseline's maker.

    Iterating over it runs the cycles that are left: ``for cycle in trainer: ...`` gives 1, 2, ... up to
    ``trainer.num_cycles``, each after its cycle is complete. With several processes, all of them make the same calls.

    Args:
        model: The adapted model, with its starting weights.
        optimizer: Any torch optimizer over the streams' parameters that needs no closure.
        records: The private records.
        streams: What is released in each cycle, in order.
        charges: The ledger; None in a non-private run, and on every rank but 0.
        randomness: Coins and noise.
        owners: Owner expert of every record, or None to recompute them in every step.
        micro_batch_size: Records that go through the model at once.
        group: The processes that share the work.
        checkpoints: Folder of the run's checkpoint: if it has one, the run goes on from there; if not, the start is
            saved. None for a run that cannot be continued.

    Raises:
        ValueError: If the folder's checkpoint or the ledger is that of another run, saying what differs; or if the
            ranks do not have the same.

    **Guarantee.** No stream is released more often than its ``num_steps``, also when a step failed half-way, or the
    process died and the run goes on: the charge counts, and it comes before the noise.
    """

    def __init__(
        self,
        model: AdaptedModel,
        optimizer: torch.optim.Optimizer,
        records: Records,
        streams: Sequence[Stream | OneBatch],
        *,
        charges: ledger.Ledger | None,
        randomness: Randomness,
        owners: Tensor | None = None,
        micro_batch_size: int = 64,
        group: Group = ALONE,
        checkpoints: str | Path | None = None,
    ):
        self.streams = tuple(streams)
        self.ledger = charges
        self.num_cycles = max(s.num_steps for s in streams)
        self._model, self._optimizer, self._records = model, optimizer, records
        self._owners, self._micro_batch_size = owners, micro_batch_size
        self._group, self._checkpoints = group, checkpoints
        with group.together():
            saved = Checkpoint.read(checkpoints) if checkpoints and Checkpoint.is_in(checkpoints) else None
            self._identity = self._check_identity(saved) if checkpoints or group.world > 1 else {}
            charged = self._charged_before(saved)
        if group.world > 1:
            data = {name: tensor for name, tensor in vars(records).items() if tensor is not None}
            for part, value in {**self._identity, "data": checkpoint.digest_of(data)}.items():
                group.check_same(part, repr(value))
        self._charged: dict[str, int] = group.from_first(charged)
        self._coins, self._noise = randomness.begin(group, releases=sum(self._charged.values()))
        if saved is not None:
            saved.restore(model, optimizer)
        elif checkpoints:
            self.save()

    @property
    def cycle(self) -> int:
        """Number of cycles that are complete, counted by charges."""
        left = (self._charged[s.role.name] for s in self.streams if self._charged[s.role.name] < s.num_steps)
        return min(left, default=self.num_cycles)

    def step(self) -> None:
        """Run one cycle: one release and one optimizer step of every stream that has steps left.

        After an interruption, the streams that were already charged in this cycle are not released again.

        Raises:
            BudgetExceeded: If all steps of the plan are spent. Nothing is released then.
            ValueError: If the model was put into training mode or lower precision. Nothing is released then.
            RankFailed: If another rank failed.
        """
        self._charged = self._group.from_first(self._charged)  # a rank that failed may have missed a charge
        cycle = self.cycle
        if cycle >= self.num_cycles:
            raise BudgetExceeded(f"the plan pays for {self.num_cycles} cycles and all are spent; plan more steps first")
        with self._group.together():
            check_mode(self._model)
            check_precision(self._model)
        for stream in self.streams:
            if self._charged[stream.role.name] == cycle < stream.num_steps:
                self._update(stream)

    def __iter__(self) -> Iterator[int]:
        """Run the cycles that are left, and give the number of each, from 1, when it is complete."""
        while self.cycle < self.num_cycles:
            self.step()
            yield self.cycle

    def run(
        self, *, progress: bool = False, after_cycle: Callable[[], None] | None = None, save_every: int = 1
    ) -> None:
        """Run all cycles that are left, saving checkpoints if they have a folder.

        Args:
            progress: Show a bar, of cycles only: a private loss is never shown.
            after_cycle: Called after each cycle.
            save_every: Cycles from one checkpoint to the next. A crash loses the updates since the last one, and what
                they cost stays spent.
        """
        silent = not progress or self._group.rank > 0
        cycles = tqdm(self, desc="training", unit="cycle", total=self.num_cycles, initial=self.cycle, disable=silent)
        for cycle in cycles:
            if self._checkpoints and (cycle % save_every == 0 or cycle == self.num_cycles):
                self.save()
            if after_cycle is not None:
                after_cycle()

    def save(self) -> None:
        """Replace the checkpoint in the run's folder by one of now; it is as public as the model.

        Raises:
            ValueError: If the run has no folder for checkpoints, or the ranks' weights are not the same bits.
        """
        if not self._checkpoints:
            raise ValueError("expected a folder for checkpoints, got none: make the trainer with checkpoints=FOLDER")
        tensors = checkpoint.trained_weights(self._model)
        self._group.check_same("weights", checkpoint.digest_of(tensors))
        with self._group.together():
            if self._group.rank == 0:
                content = None if self.ledger is None else ledger.Ledger.verify(self.ledger.path)
                Checkpoint.of(
                    self._model,
                    self._optimizer,
                    identity=self._identity,
                    charged=self._charged if content is None else checkpoint.charged_releases(content, self.streams),
                    ledger_head=None if content is None else content.head,
                ).write(self._checkpoints)

    @property
    def guarantee(self) -> Guarantee:
        """What was really released so far, added up from the ledger, for add/remove neighbours.

        For replace-one neighbours: ``raptor_acct.ledger.replay(trainer.ledger.path, adjacency="replace_one")``.

        Raises:
            ValueError: For a non-private run, on a rank that keeps no ledger, or before the first step.
        """
        if self.ledger is None:
            raise ValueError(
                "this run is not private: it has no guarantee"
                if self._group.rank == 0
                else "rank 0 alone keeps the ledger: ask for the guarantee there"
            )
        return ledger.replay(self.ledger.path)

    def private_owner_drift(self) -> float:
        """Share of the private records whose owner, by the current weights, is not the one fixed at the start.

        Private: not for a log that others see. :class:`OwnerDrift` measures the same on public records.

        Raises:
            ValueError: If owners are not fixed.
        """
        if self._owners is None:
            raise ValueError("expected owners='fixed': owners that are recomputed in every step have no fixed ones")
        return OwnerDrift(self._model, self._records, self._owners, group=self._group).share()

    def _check_identity(self, saved: Checkpoint | None) -> dict[str, object]:
        """Describe the run; what does not fit the checkpoint is an error."""
        identity = checkpoint.identity_of(
            self._model,
            self._optimizer,
            self.streams,
            num_records=len(self._records),
            owners="recomputed" if self._owners is None else "fixed",
        )
        if saved is not None:
            checkpoint.check_identity(saved.identity, identity)
        return identity

    def _charged_before(self, saved: Checkpoint | None) -> dict[str, int]:
        """Releases of each stream so far; the ledger knows, if there is one, and must continue the checkpoint's."""
        if self.ledger is None:
            return {stream.role.name: saved.charged[stream.role.name] if saved else 0 for stream in self.streams}
        if saved is not None:
            checkpoint.check_ledger_continues(saved, self.ledger.path)
        return checkpoint.charged_releases(ledger.Ledger.verify(self.ledger.path), self.streams)

    def _update(self, stream: Stream | OneBatch) -> None:
        others = [p for s in self.streams if s is not stream for p in s.parameters]
        gradients = release(
            stream,
            self._model,
            self._records,
            sampler=self._coins,
            noise=self._noise,
            charge=lambda: self._charge(stream),
            others=others,
            owners=self._owners,
            micro_batch_size=self._micro_batch_size,
            group=self._group,
        )
        with self._group.together():
            self._optimizer.zero_grad(set_to_none=True)
            for parameter, gradient in zip(stream.parameters, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)

    def _charge(self, stream: Stream | OneBatch) -> None:
        # First: an interruption in between must not let the charge be made twice.
        self._charged[stream.role.name] += 1
        if self.ledger is not None:
            self.ledger.append(
                stream=stream.role.name,
                noise_multiplier=stream.noise_multiplier,
                sampling_probability=stream.sampling_probability,
                clip_norm=stream.clip_norm,
            )

"""Does a record's gradient depend on that record alone? Measured, not read off the configuration (theory.md §7.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from raptor_train.adapters.base import AdaptedModel
from raptor_train.causes import Suspect, find_causes, suspects_of, without
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.twin import Seen, Twin

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}  # relative
LOSS = "loss"  # a cause: the forward pass keeps records apart, and what follows it does not
_EXTRA = 3  # columns of more padding


class RecordsCoupled(ValueError):
    """A record's gradient changes with its batch or its padding, so the guarantee would not hold."""


@dataclass(frozen=True)
class Coupling:
    """One way in which records were tried, and how far that changed what one record gives.

    Attributes:
        condition: What was changed.
        size: Largest change of a record's gradient, relative to the largest gradient; infinite where a record has no
            gradient alone. A changed owner moves the gradient to other parameters.
        cause: What was found to make the change: without it, there is none. Several are joined by "and"; None if the
            change is within the tolerance, or its cause could not be told.
        fix: What removes it.
        in_training: Whether training meets the condition. It never meets padding on the left: the trainer refuses
            such records. A coupling there is no breach of the guarantee, but a warning to who pads on the left.
    """

    condition: str
    size: float
    cause: str | None
    fix: str
    in_training: bool = True


@dataclass(frozen=True)
class IndependenceReport:
    """Every condition tried, with the coupling measured.

    Attributes:
        couplings: Also those within the tolerance.
        tolerance: Largest accepted relative change.
        dtype: Precision of the measurement: float64, or float32 for a model that cannot run in float64.
    """

    couplings: tuple[Coupling, ...]
    tolerance: float
    dtype: torch.dtype = torch.float64

    @property
    def found(self) -> tuple[Coupling, ...]:
        """The couplings above the tolerance; those that training never meets too."""
        return tuple(c for c in self.couplings if not c.size <= self.tolerance)  # a NaN is above it

    @property
    def independent(self) -> bool:
        """Whether all couplings that training can meet are within the tolerance."""
        return not any(c.in_training for c in self.found)

    def raise_if_coupled(self) -> None:
        """Raise :class:`RecordsCoupled` naming every coupling that training meets, its cause and its fix."""
        words = [
            f"{c.condition}: {c.size:.1e}" + (f", by {c.cause}" if c.cause else "") + f" ({c.fix})"
            for c in self.found
            if c.in_training
        ]
        if words:
            raise RecordsCoupled(f"records are coupled above {self.tolerance:g}: " + "; ".join(words))


def check_record_independence(
    adapted: AdaptedModel,
    records: Records,
    *,
    roles: Sequence[Role] | None = None,
    batch_size: int = 64,
    tolerance: float | None = None,
) -> IndependenceReport:
    """Compare each record's gradient alone with its gradient in several batches and with padding on either side.

    What couples records is then looked for by switching parts of the model off, one by one, until the coupling is
    gone. A random forward pass would show in every condition: where its cause is found, the other conditions are
    measured without it.

    Args:
        adapted: The model, as it will be trained; it stays as it is.
        records: At least two records of different length, padded on the right; use public ones.
        roles: What will be trained; both roles of ``adapted`` by default.
        batch_size: The largest batch to try, as large as the micro-batches of training; the records are repeated to
            fill it.
        tolerance: Largest accepted relative change; 1e-12 by default, and 1e-5 for a model that cannot run in
            float64.

    Returns:
        The measured couplings, also those within the tolerance and those that training never meets.

    Raises:
        ValueError: If there are fewer than two records or all have the same length: nothing could be seen then.
    """
    if len(records) < 2 or len(set(records.attention_mask.sum(1).tolist())) < 2:
        lengths = sorted(set(records.attention_mask.sum(1).tolist()))
        raise ValueError(
            f"expected a probe of at least two records of different length, got {len(records)} of lengths {lengths}"
        )
    twin = Twin(adapted, roles or (adapted.shared, adapted.expert), records)
    probe = _Probe(twin, records, TOLERANCES[twin.dtype] if tolerance is None else tolerance)
    couplings = [probe.coupling(condition) for condition in _conditions(records, batch_size)]
    return IndependenceReport(tuple(couplings), probe.tolerance, twin.dtype)


Batches = Sequence[tuple[Tensor, Records]]  # which records, and the batch that begins with them


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """A way to run the records; compared with each record alone, or with the same batches again."""

    name: str
    batches: Batches
    fix: str
    again: bool = False
    in_training: bool = True


def _conditions(records: Records, batch_size: int) -> list[_Condition]:
    every, size = torch.arange(len(records)), max(batch_size, len(records))
    beside = "no auxiliary loss, batch norm, batch-shared capacity or batch-mean loss"
    beyond = "mask padding out of attention, pooling, owners and the loss"
    together, backwards = [(every, records)], every.flip(0)
    halves = [(half, records.take(half).trimmed()) for half in (every[::2], every[1::2])]
    full = [(every, records.take(torch.arange(size) % len(records)))]
    return [
        _Condition(name="the same batch again", batches=together, again=True, fix="no randomness: model.eval()"),
        _Condition(name="other records in the batch", batches=together, fix=beside),
        _Condition(name="fewer other records in the batch", batches=halves, fix=beside),
        _Condition(name="the batch backwards", batches=[(backwards, records.take(backwards))], fix=beside),
        _Condition(name=f"a batch of {size} records", batches=full, fix=beside),
        _Condition(name="more padding on the right", batches=[(every, records.padded(_EXTRA))], fix=beyond),
        _Condition(
            name="padding on the left",
            batches=[(every, _padded_left(records, _EXTRA))],
            fix="pad on the right, as training demands",
            in_training=False,
        ),
    ]


def _padded_left(records: Records, extra: int) -> Records:
    """The records with all padding on the left, and ``extra`` columns more of it."""
    wider = records.padded(extra)
    mask = wider.attention_mask == 1
    order = mask.long().argsort(dim=1, stable=True)  # padding first, then the tokens as they stood
    fields = ("input_ids", "attention_mask", *(("labels",) if records.token_labels else ()))
    return replace(wider, **{name: getattr(wider, name).gather(1, order) for name in fields})


class _Probe:
    """Measures couplings on a twin and finds what causes them."""

    def __init__(self, twin: Twin, records: Records, tolerance: float):
        self._twin, self.tolerance = twin, tolerance
        self._alone = [(one, records.take(one).trimmed()) for one in torch.arange(len(records))[:, None]]
        self._runs: dict[tuple[int, frozenset[Suspect]], list[Seen]] = {}
        self._suspects = suspects_of(twin.adapted)
        self._random: tuple[Suspect, ...] = ()  # off for good once they were found
        self._likely: tuple[Suspect, ...] = ()

    def coupling(self, condition: _Condition) -> Coupling:
        """Measure one condition.

        Raises:
            RuntimeError, ValueError: What the model raises, if none of its parts is to blame for it.
        """
        # Gradients are large: only those of the records alone are needed for more than one condition.
        self._runs = {key: run for key, run in self._runs.items() if key[0] == id(self._alone)}
        error = None
        try:
            size, states = self._change(condition, ())
        except (RuntimeError, ValueError) as raised:  # batch norm refuses a single record
            size, states, error = math.inf, math.inf, raised
        if size <= self.tolerance:
            return Coupling(condition.name, size, None, condition.fix, condition.in_training)
        causes = find_causes(lambda off: self._vanishes(condition, off), self._suspects, self._likely)
        if error is not None and not causes:
            raise error
        self._likely = causes or self._likely
        if condition.again:
            self._random = causes
        if causes:
            cause, fix = (
                " and ".join(dict.fromkeys(words)) for words in ([c.name for c in causes], [c.fix for c in causes])
            )
        elif states <= self.tolerance:
            cause, fix = LOSS, "return one loss for each record from losses(), with no term over the batch or padding"
        else:
            cause, fix = None, condition.fix
        return Coupling(condition.name, size, cause, fix, condition.in_training)

    def _vanishes(self, condition: _Condition, off: Sequence[Suspect]) -> bool:
        try:
            return self._change(condition, off)[0] <= self.tolerance
        except (RuntimeError, ValueError, TypeError, IndexError):
            return False  # a model that cannot run without a part says nothing about it

    def _change(self, condition: _Condition, off: Sequence[Suspect]) -> tuple[float, float]:
        """Largest change of a record's gradient and of its states, each relative to the largest."""
        off = (*self._random, *off)
        before = self._run(condition.batches if condition.again else self._alone, off)
        after = self._run(condition.batches, off, again=condition.again)
        return _relative(before.gradients, after.gradients), _relative(before.states, after.states)

    def _run(self, batches: Batches, off: Sequence[Suspect], *, again: bool = False) -> Seen:
        """What the records show without some parts; passes are made once, unless it is asked for them ``again``."""
        key = (id(batches), frozenset(part for part in off if part.off is not None))
        if again or key not in self._runs:
            with without(self._twin.adapted, off):
                self._runs[key] = [self._twin.see(batch, first=len(positions)) for positions, batch in batches]
        order = torch.cat([positions for positions, _ in batches]).argsort()
        gradients, states = [], []
        for (_, batch), seen in zip(batches, self._runs[key], strict=True):
            scale = math.prod(part.scale(batch) for part in off)  # of the loss, and so of its gradients
            gradients.append(seen.gradients if scale == 1 else seen.gradients * scale)
            states.append(seen.states)
        return Seen(torch.cat(gradients)[order], torch.cat(states)[order])


def _relative(before: Tensor, after: Tensor) -> float:
    """Largest norm of a row's change over the largest norm; infinite if there is nothing to compare."""
    largest = float(before.norm(dim=1).max())
    return float((after - before).norm(dim=1).max()) / largest if largest > 0 else math.inf

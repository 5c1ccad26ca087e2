"""Runs of the real trainer, recorded at its seams: what the model saw, what was drawn, charged and released."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from raptor_acct import SubsampledGaussian, ledger
from raptor_train.adapters.base import AdaptedModel
from raptor_train.distributed import ALONE, Group
from raptor_train.independence import IndependenceReport
from raptor_train.noise import NoiseSource
from raptor_train.records import Records
from raptor_train.trainer import Trainer, make_private
from tests.train.conftest import random_records

from .reference import reference_of
from .setting import NUM_RECORDS, PUBLIC_RECORDS, indices_of, model_of, plan_of, records_at

SEED = 20


@dataclass
class Release:
    """One release, as the optimizer gets it.

    Attributes:
        gradient: What is released, by parameter name.
        seen: Records whose losses were taken for it, in no order.
        noise: Shape and standard deviation of all noise that was asked for.
        charged: Lines in the ledger when noise was first asked for; None if none was.
    """

    gradient: dict[str, Tensor] = field(default_factory=dict)
    seen: list[int] = field(default_factory=list)
    noise: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    charged: int | None = None


@dataclass
class Recording:
    """A run on one rank.

    Attributes:
        q: The plan's sampling probabilities.
        releases: In order.
        ledger: The ledger's file.
        spent: What the ledger adds up to.
        changed: Names of all tensors of the model that changed, trained or not.
    """

    q: tuple[float, float]
    releases: list[Release] = field(default_factory=list)
    ledger: bytes = b""
    spent: dict[tuple[str, float, float], SubsampledGaussian] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    @property
    def charges(self) -> list[dict[str, Any]]:
        """The ledger's lines, without the hashes."""
        lines = [json.loads(line) for line in self.ledger.splitlines()[1:]]
        return [{key: value for key, value in line.items() if key != "previous"} for line in lines]


@dataclass(kw_only=True)
class Recorder:
    """A run that is being recorded. By default no weight moves, so that all releases are of the same model.

    Args:
        family: Model family.
        folder: Of the run.
        indices: The private records.
        q: Sampling probability of each stream.
        steps: Releases of each stream.
        noise: A number to be added to every entry in place of noise; None for the trainer's own noise.
        seed: None for fresh entropy.
        weights: Factor on the loss of some records.
        rate: Learning rate.
        group: The processes that share the work.
        settings: More arguments of :func:`make_private`.
    """

    family: str
    folder: Path
    indices: Iterable[int] = range(NUM_RECORDS)
    q: tuple[float, float] = (1.0, 1.0)
    steps: int = 1
    noise: NoiseSource | float | None = 0.0
    seed: int | None = SEED
    weights: dict[int, float] = field(default_factory=dict)
    rate: float = 0.0
    group: Group = ALONE
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.now, self.recording = Release(), Recording(self.q)

    def start(self) -> Trainer:
        """Make the trainer, or make it again after an interruption."""
        adapted = self.watched()
        clip_norms = reference_of(self.family).clip_norms
        noise = self.noise if self.noise is None else _Noise(self)
        unchecked = IndependenceReport((), 0.0)  # the bench must see what this check misses
        with mock.patch("raptor_train.trainer.check_record_independence", return_value=unchecked):
            trainer = make_private(
                adapted,
                _Optimizer(adapted, self),
                records_at(list(self.indices)),
                plan_of(self.q, self.steps),
                clip_shared=clip_norms["shared"],
                clip_expert=clip_norms["expert"],
                ledger_path=self.ledger_path,
                probe=random_records(3, seed=5),
                num_records=PUBLIC_RECORDS,
                seed=self.seed,
                noise=noise,
                group=self.group,
                **self.settings,
            )
        self._tensors = dict(adapted.model.state_dict(keep_vars=True))
        self._before = {name: tensor.detach().clone() for name, tensor in self._tensors.items()}
        return trainer

    def run(self) -> Recording:
        """Start, take all steps, and return what was recorded."""
        trainer = self.start()
        for _ in range(self.steps):
            trainer.step()
        return self.end()

    def end(self) -> Recording:
        """Return what was recorded so far."""
        self.recording.ledger = self.ledger_path.read_bytes()
        self.recording.spent = ledger.streams(self.ledger_path)
        self.recording.changed = {n for n, t in self._tensors.items() if not torch.equal(t, self._before[n])}
        return self.recording

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.jsonl"

    def watched(self) -> AdaptedModel:
        """The model; it tells which records' losses are taken."""
        adapted: Any = model_of(self.family)
        losses = adapted.losses
        factors = torch.ones(NUM_RECORDS, dtype=torch.float64)
        for index, factor in self.weights.items():
            factors[index] = factor

        def watch(records: Records) -> Tensor:
            seen = indices_of(records)
            self.now.seen += seen
            watched: Tensor = losses(records) * factors[seen]
            return watched

        adapted.losses = watch
        watched_model: AdaptedModel = adapted
        return watched_model


class _Noise:
    """Counts what is asked for, and the charges at the time."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        now, noise = self.recorder.now, self.recorder.noise
        if now.charged is None:
            now.charged = self.recorder.ledger_path.read_bytes().count(b"\n") - 1
        now.noise.append((tuple(like.shape), standard_deviation))
        if callable(noise):
            return noise(like, standard_deviation)
        assert noise is not None
        return torch.full_like(like, noise)


class _Optimizer(torch.optim.SGD):
    """Keeps every gradient that it is given."""

    def __init__(self, adapted: AdaptedModel, recorder: Recorder):
        super().__init__([*adapted.shared.parameters, *adapted.expert.parameters], lr=recorder.rate)
        self._names = {p: name for name, p in adapted.model.named_parameters()}
        self._recorder = recorder

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        given = {self._names[p]: p.grad.detach().clone() for p in group["params"] if p.grad is not None}
        self._recorder.now.gradient = given
        self._recorder.recording.releases.append(self._recorder.now)
        self._recorder.now = Release()
        super().step()

"""The demo's runs: RAPTOR, and what it is compared with, all evaluated on the same held-out records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raptor_acct import Calibration, SubsampledGaussian
from raptor_train.adapters.switch import Lora, SwitchClassifier, sparse_blocks
from raptor_train.baselines import everything, make_monolithic, make_non_private
from raptor_train.demo.settings import Settings
from raptor_train.demo.texts import Texts
from raptor_train.evaluation import Evaluation, evaluate, train_head
from raptor_train.modeling import load_demo_model
from raptor_train.public import GradientNorms, measure_norms
from raptor_train.roles import Role
from raptor_train.trainer import Trainer, make_private
from raptor_train.workers import tick


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """A role's public gradient norms and the clip norm chosen from them."""

    norms: GradientNorms
    clip_norm: float
    num_parameters: int
    scale: float = 1.0

    def scaled(self, scale: float) -> Clipping:
        """The same role with another LoRA scale: the gradients of its adapters are proportional to it."""
        norms = GradientNorms(self.norms.role, self.norms.norms * scale)
        return replace(self, norms=norms, clip_norm=self.clip_norm * scale, scale=self.scale * scale)

    def to_dict(self) -> dict[str, Any]:
        """Numbers only."""
        clipped = self.norms.share_clipped(self.clip_norm)
        return {
            **self.norms.to_dict(),
            "clip_norm": self.clip_norm,
            "public_share_clipped": clipped,
            "lora_scale": self.scale,
            "parameters": self.num_parameters,
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run and how it did.

    Attributes:
        name: As printed.
        evaluation: On the held-out records.
        seconds: Wall time of the run, public measurements and evaluation included.
        epsilon: What the ledger adds up to at ``delta``; 0 without private data, None without a guarantee.
        clipping: Clip norms by role.
    """

    name: str
    evaluation: Evaluation
    seconds: float = 0.0
    epsilon: float | None = None
    clipping: tuple[Clipping, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Numbers only."""
        return {
            "name": self.name,
            "accuracy": self.evaluation.accuracy,
            "accuracy_95": list(self.evaluation.interval()),
            "nll": self.evaluation.nll,
            "epsilon_spent": self.epsilon,
            "seconds": self.seconds,
            "roles": [c.to_dict() for c in self.clipping],
        }


def start(texts: Texts) -> Outcome:
    """The model before any training: a zero head."""
    return Outcome(name="start (zero head)", evaluation=evaluate(load_demo_model(), texts.test), epsilon=0.0)


def public_head(texts: Texts) -> Outcome:
    """What public text alone gives: a head fitted to the labels of public reviews."""
    started, model = time.perf_counter(), load_demo_model()
    train_head(model, texts.public.take(torch.arange(min(10_000, len(texts.public)))))
    evaluation = evaluate(model, texts.test)
    return Outcome(name="public text alone", evaluation=evaluation, seconds=time.perf_counter() - started, epsilon=0.0)


def raptor(settings: Settings, texts: Texts, layer: int, calibration: Calibration, ledger_path: Path) -> Outcome:
    """RAPTOR at the selected layer."""
    started = time.perf_counter()
    rehearsal = adapt(settings, (layer,))
    shared, expert = measure(settings, texts, rehearsal, [rehearsal.shared, rehearsal.expert])
    imbalance = float(np.median(shared.norms.norms) / np.median(expert.norms.norms))
    expert = expert.scaled(min(settings.largest_scale, max(1.0, imbalance)))
    adapted = adapt(settings, (layer,), scale_expert=expert.scale)
    trainer = make_private(
        adapted,
        optimizer_for(settings, adapted),
        texts.private,
        calibration.plan,
        clip_shared=shared.clip_norm,
        clip_expert=expert.clip_norm,
        ledger_path=ledger_path,
        probe=texts.probe,
        seed=settings.seed,
    )
    trainer.run(after_cycle=tick)
    return _finish("RAPTOR", trainer, adapted, texts, started, calibration.delta, (shared, expert))


def monolithic(
    settings: Settings, texts: Texts, mechanism: SubsampledGaussian, delta: float, ledger_path: Path
) -> Outcome:
    """One DP stream over the head, every attention block and the experts of every sparse layer, at the same total ε."""
    adapted = adapt(settings, tuple(sparse_blocks(load_demo_model())))
    rate = settings.learning_rate_monolithic
    settings = replace(settings, learning_rate_shared=rate, learning_rate_expert=rate)
    return _one_stream("monolithic DP", settings, texts, adapted, everything(adapted), mechanism, delta, ledger_path)


def head_only(
    settings: Settings, texts: Texts, mechanism: SubsampledGaussian, delta: float, ledger_path: Path
) -> Outcome:
    """One DP stream over the head alone, on the frozen model: hard to beat where the features already suffice."""
    adapted = adapt(settings, tuple(sparse_blocks(load_demo_model()))[-1:])
    role = Role(name="head", layers=adapted.shared.layers[-1:])
    for parameter in everything(adapted).parameters:
        parameter.requires_grad_(any(parameter is kept for kept in role.parameters))
    return _one_stream("DP head alone", settings, texts, adapted, role, mechanism, delta, ledger_path)


def _one_stream(
    name: str,
    settings: Settings,
    texts: Texts,
    adapted: SwitchClassifier,
    role: Role,
    mechanism: SubsampledGaussian,
    delta: float,
    ledger_path: Path,
) -> Outcome:
    started = time.perf_counter()
    (clipping,) = measure(settings, texts, adapted, [role])
    trainer = make_monolithic(
        adapted,
        optimizer_for(settings, adapted),
        texts.private,
        mechanism,
        clip_norm=clipping.clip_norm,
        ledger_path=ledger_path,
        probe=texts.probe,
        role=role,
        seed=settings.seed,
    )
    trainer.run(after_cycle=tick)
    return _finish(name, trainer, adapted, texts, started, delta, (clipping,))


def non_private(settings: Settings, texts: Texts, layer: int) -> Outcome:
    """RAPTOR's parameters and number of cycles without clipping and noise."""
    started, adapted = time.perf_counter(), adapt(settings, (layer,))
    trainer = make_non_private(
        adapted,
        optimizer_for(settings, adapted),
        texts.private,
        sampling_probability=settings.sampling_probability(len(texts.private)),
        num_steps=settings.cycles,
        seed=settings.seed,
    )
    trainer.run(after_cycle=tick)
    evaluation = evaluate(adapted.model, texts.test)
    return Outcome(name="non-private", evaluation=evaluation, seconds=time.perf_counter() - started)


def adapt(settings: Settings, layers: tuple[int, ...], scale_expert: float = 1.0) -> SwitchClassifier:
    """A fresh copy of the shipped model with adapters of both roles."""
    return SwitchClassifier(
        load_demo_model(),
        expert_layers=layers,
        shared=Lora(rank=settings.rank),
        expert=Lora(rank=settings.rank, scale=scale_expert),
        seed=settings.seed,
    )


def optimizer_for(settings: Settings, adapted: SwitchClassifier) -> torch.optim.Optimizer:
    """Adam over what is trainable: head, the shared role's adapters and the experts', each with its own rate."""
    *adapters, head = adapted.shared.layers
    groups = [
        (settings.learning_rate_head, Role(name="head", layers=(head,))),
        (settings.learning_rate_shared, Role(name="shared", layers=tuple(adapters))),
        (settings.learning_rate_expert, adapted.expert),
    ]
    return torch.optim.Adam([{"params": role.parameters, "lr": rate} for rate, role in groups if role.parameters])


def measure(settings: Settings, texts: Texts, adapted: SwitchClassifier, roles: Sequence[Role]) -> list[Clipping]:
    """Clip norms of ``roles`` from the gradients of public records."""
    public = texts.public.take(torch.arange(settings.num_rehearsal))
    norms = measure_norms(
        adapted,
        roles,
        public,
        cycles=settings.rehearsal_cycles,
        batch_size=128,
        optimizer=lambda twin: optimizer_for(settings, twin),
    )
    return [
        Clipping(
            norms=norms[role.name],
            clip_norm=norms[role.name].clip_norm(settings.clip_quantile),
            num_parameters=role.num_parameters,
        )
        for role in roles
    ]


def _finish(
    name: str,
    trainer: Trainer,
    adapted: SwitchClassifier,
    texts: Texts,
    started: float,
    delta: float,
    clipping: tuple[Clipping, ...],
) -> Outcome:
    return Outcome(
        name=name,
        evaluation=evaluate(adapted.model, texts.test),
        epsilon=trainer.guarantee.epsilon(delta),
        clipping=clipping,
        seconds=time.perf_counter() - started,
    )

"""The demo's runs: RAPTOR, and what it is compared with, all evaluated on the same held-out records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from raptor_acct import Calibration, SubsampledGaussian, calibrate_sigma
from raptor_train.adapters.switch import Lora, SwitchClassifier, sparse_blocks
from raptor_train.baselines import everything, make_monolithic, make_non_private
from raptor_train.demo.settings import Settings
from raptor_train.demo.texts import Texts
from raptor_train.evaluation import Evaluation, evaluate, train_head
from raptor_train.modeling import load_demo_model
from raptor_train.public import GradientNorms, measure_norms
from raptor_train.roles import Role
from raptor_train.trainer import Trainer, make_private


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """A role's public gradient norms and the clip norm chosen from them."""

    norms: GradientNorms
    clip_norm: float
    scale: float
    num_parameters: int

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


def raptor(
    settings: Settings, texts: Texts, layer: int, calibration: Calibration, ledger_path: Path, progress: bool
) -> Outcome:
    """RAPTOR at the selected layer."""
    started = time.perf_counter()
    adapted = adapt(settings, (layer,))
    shared, expert = measure(settings, texts, adapted, [adapted.shared, adapted.expert])
    trainer = make_private(
        adapted,
        torch.optim.Adam(
            [
                {"params": adapted.shared.parameters, "lr": settings.learning_rate_shared},
                {"params": adapted.expert.parameters, "lr": settings.learning_rate_expert},
            ]
        ),
        texts.private,
        calibration.plan,
        clip_shared=shared.clip_norm,
        clip_expert=expert.clip_norm,
        ledger_path=ledger_path,
        probe=texts.probe,
        seed=settings.seed,
    )
    trainer.run(progress=progress, description="RAPTOR       ")
    return _finish("RAPTOR", trainer, adapted, texts, started, calibration.delta, (shared, expert))


def monolithic(settings: Settings, texts: Texts, delta: float, ledger_path: Path, progress: bool) -> Outcome:
    """One DP stream over the head, every attention block and the experts of every sparse layer, at the same total ε."""
    started = time.perf_counter()
    steps, q = settings.monolithic_steps, settings.sampling_probability(len(texts.private))
    sigma = calibrate_sigma(settings.eps, delta, q, steps)
    adapted = adapt(settings, tuple(sparse_blocks(load_demo_model())))
    role = everything(adapted)
    (clipping,) = measure(settings, texts, adapted, [role])
    trainer = make_monolithic(
        adapted,
        torch.optim.Adam(role.parameters, lr=settings.monolithic_learning_rate),
        texts.private,
        SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma),
        clip_norm=clipping.clip_norm,
        ledger_path=ledger_path,
        probe=texts.probe,
        role=role,
        seed=settings.seed,
    )
    trainer.run(progress=progress, description="monolithic DP")
    return _finish("monolithic DP", trainer, adapted, texts, started, delta, (clipping,))


def non_private(settings: Settings, texts: Texts, layer: int, progress: bool) -> Outcome:
    """RAPTOR's parameters and number of cycles without clipping and noise."""
    started, adapted = time.perf_counter(), adapt(settings, (layer,))
    trainer = make_non_private(
        adapted,
        torch.optim.Adam(everything(adapted).parameters, lr=settings.non_private_learning_rate),
        texts.private,
        sampling_probability=settings.sampling_probability(len(texts.private)),
        num_steps=settings.cycles,
        seed=settings.seed,
    )
    trainer.run(progress=progress, description="non-private  ")
    evaluation = evaluate(adapted.model, texts.test)
    return Outcome(name="non-private", evaluation=evaluation, seconds=time.perf_counter() - started)


def adapt(settings: Settings, layers: tuple[int, ...]) -> SwitchClassifier:
    """A fresh copy of the shipped model with adapters of both roles."""
    return SwitchClassifier(
        load_demo_model(),
        expert_layers=layers,
        shared=Lora(rank=settings.rank, scale=settings.scale_shared),
        expert=Lora(rank=settings.rank, scale=settings.scale_expert),
        seed=settings.seed,
    )


def measure(settings: Settings, texts: Texts, adapted: SwitchClassifier, roles: Sequence[Role]) -> list[Clipping]:
    """Clip norms of ``roles`` from the gradients of public records."""
    public = texts.public.take(torch.arange(settings.num_public))
    norms = measure_norms(
        adapted,
        roles,
        public,
        cycles=settings.rehearsal_cycles,
        batch_size=128,
        learning_rate=settings.non_private_learning_rate,
    )
    scales = {"shared": settings.scale_shared, "expert": settings.scale_expert}
    return [
        Clipping(
            norms=norms[role.name],
            clip_norm=norms[role.name].clip_norm(settings.clip_quantile),
            scale=scales.get(role.name, settings.scale_shared),
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

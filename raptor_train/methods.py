"""Every method and ablation from the same parts: what is clipped together, with which noise, over which denominator.

======================  =====================================  =========================  ========================
method                  clipped together                       batches in a step          accounted as
======================  =====================================  =========================  ========================
raptor                  each role by itself                    one for each role          two streams (P1, P2, P3)
  batches="one"         each role by itself                    one for both               one mechanism (P4)
  clip_scope="full…"    both roles, experts by owner           one                        one mechanism
global_clip             both roles, every activated expert     one                        one mechanism
shared_only             shared role                            one                        one mechanism
expert_only             experts, by owner                      one                        one mechanism (P1)
head_only               classification head                    one                        one mechanism
monolithic(_full)       everything, experts of all layers      one                        one mechanism
non_private_…           nothing                                one                        no guarantee
======================  =====================================  =========================  ========================
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from raptor_acct import (
    Calibration,
    SubsampledGaussian,
    calibrate_sigma,
    calibrate_sigmas,
    hand_back_slack,
    public_denominators,
)
from raptor_train.adapters import Lora, adapt
from raptor_train.adapters.base import AdaptedModel
from raptor_train.adapters.full import FullSwitchClassifier
from raptor_train.baselines import everything
from raptor_train.config import RunConfig, TrainingConfig
from raptor_train.modeling import EncoderClassifier
from raptor_train.public import Moments
from raptor_train.roles import Role
from raptor_train.step import OneBatch, Stream
from raptor_train.tape import RecordedLinear

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def calibrate(config: RunConfig, *, q: float, steps: int, delta: float) -> Calibration | SubsampledGaussian | None:
    """The noise of a method for its whole budget; None for a method without a guarantee.

    Raises:
        ValueError: If the target cannot be met or certified.

    **Guarantee.** What is returned is certified (eps, delta)-private for the configured neighbours, for the batches
    that :func:`streams_for` then releases from.
    """
    if not config.private:
        return None
    budget = config.privacy
    if len(config.clipped_roles) < 2:
        sigma = calibrate_sigma(budget.eps, delta, q, steps, adjacency=budget.adjacency)
        return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)
    split = {"delta_share": budget.delta_share, "adjacency": budget.adjacency}
    if config.batches == "one":
        return calibrate_sigmas(
            budget.eps,
            delta,
            budget.rho,
            q,
            steps,
            composition="joint",
            keep=budget.keep,
            sampling="same_batch",
            **split,  # type: ignore[arg-type]
        )
    basic = calibrate_sigmas(budget.eps, delta, budget.rho, q, steps, **split)  # type: ignore[arg-type]
    return basic if budget.composition == "basic" else hand_back_slack(basic, budget.keep)


def adapted_for(
    config: RunConfig, model: nn.Module, *, layers: Sequence[int], scales: Mapping[str, float]
) -> AdaptedModel:
    """Adapt ``model`` to a method: its layers in two roles, and only what the method trains left trainable.

    Args:
        config: The method and the ranks.
        model: A fresh model.
        layers: Sparse layers whose experts are trained.
        scales: LoRA scale of each role.

    Raises:
        ValueError: If the method cannot be had with this model.
    """
    shared = Lora(rank=config.shared.rank, scale=scales["shared"])
    expert = Lora(rank=config.expert.rank, scale=scales["expert"])
    seed = config.training.seed
    adapted: AdaptedModel
    if not config.method.endswith("_full"):
        adapted = adapt(model, expert_layers=layers, shared=shared, expert=expert, seed=seed)
    elif isinstance(model, EncoderClassifier):
        adapted = FullSwitchClassifier(model, expert_layers=layers, seed=seed)
    else:
        raise ValueError(
            f"expected a Switch model with method={config.method!r}, got {type(model).__name__}: its fused "
            "expert tensors (gate_up_proj, down_proj) have no gradient of each record; use method='monolithic'"
        )
    keep = {p for role in clipped_together(config, adapted) for p in role.parameters}
    for parameter in everything(adapted).parameters:
        parameter.requires_grad_(parameter in keep)
    return adapted


def clipped_together(config: RunConfig, adapted: AdaptedModel) -> tuple[Role, ...]:
    """The roles of a method, each clipped by one norm (or by none, without a guarantee).

    Raises:
        ValueError: If the model has no head and the method trains nothing else.
    """
    if config.clipped_roles:
        return tuple(getattr(adapted, name) for name in config.clipped_roles)
    if config.method == "head_only":
        return (Role(name="head", layers=(_head(config, adapted),)),)
    return (replace(everything(adapted), owned=config.clip_scope == "full_model"),)


def streams_for(
    config: RunConfig,
    adapted: AdaptedModel,
    noise: Calibration | SubsampledGaussian,
    *,
    clip_norms: Mapping[str, float],
    batch_size: float,
    shares: Sequence[float] | None = None,
    moments: Moments | None = None,
) -> list[Stream | OneBatch]:
    """What a private method releases in each cycle.

    Args:
        config: The method.
        adapted: From :func:`adapted_for`.
        noise: From :func:`calibrate`.
        clip_norms: One for each role of :func:`clipped_together`, by its name.
        batch_size: B = qN.
        shares: Public shares of the experts, [experts], where the denominator needs them.
        moments: Public guesses for the shrinkage denominator.
    """
    roles = clipped_together(config, adapted)
    plan: tuple[SubsampledGaussian, ...] = (
        (noise.plan.shared, noise.plan.expert) if isinstance(noise, Calibration) else (noise,)
    )

    def stream(role: Role, mechanism: SubsampledGaussian) -> Stream:
        clip_norm = clip_norms[role.name]
        if role.owned:
            by_expert = _expert_denominators(config, adapted, mechanism, clip_norm, batch_size, shares, moments)
        else:
            by_expert = ()
        return Stream.private(
            role, mechanism, clip_norm=clip_norm, denominator=_denominators(role, batch_size, by_expert)
        )

    parts = [stream(role, mechanism) for role, mechanism in zip(roles, plan, strict=True)]
    return [OneBatch(parts=tuple(parts))] if config.batches == "one" else list(parts)


def optimizer_for(config: RunConfig, adapted: AdaptedModel) -> torch.optim.Optimizer:
    """The optimizer over all that is trainable, with a learning rate for each role and for the head."""
    training = config.training
    head = _head(config, adapted) if config.model.objective == "classification" else None
    rates = [(role.name, role, getattr(config, role.name).learning_rate) for role in (adapted.shared, adapted.expert)]
    groups = []
    for name, role, rate in rates:
        layers = tuple(layer for layer in role.layers if layer is not head)
        parameters = replace(role, layers=layers).parameters
        groups.append({"name": name, "params": parameters, "lr": rate or training.learning_rate})
    if head is not None:
        rate = training.head_learning_rate or config.shared.learning_rate or training.learning_rate
        groups.append({"name": "head", "params": Role(name="head", layers=(head,)).parameters, "lr": rate})
    made: torch.optim.Optimizer = OPTIMIZERS[training.optimizer]([group for group in groups if group["params"]])
    return made


def _head(config: RunConfig, adapted: AdaptedModel) -> RecordedLinear:
    if config.model.objective != "classification":
        raise ValueError(f"expected objective='classification' with method={config.method!r}: there is no other head")
    return adapted.shared.layers[-1]


def _expert_denominators(
    config: RunConfig,
    adapted: AdaptedModel,
    mechanism: SubsampledGaussian,
    clip_norm: float,
    batch_size: float,
    shares: Sequence[float] | None,
    moments: Moments | None,
) -> tuple[float, ...]:
    """D_e of every expert, a public constant."""
    needs: dict[str, object] = {}
    if config.denominator in ("public_share", "shrinkage"):
        needs["public"] = shares
    if config.denominator == "shrinkage":
        assert moments is not None
        needs |= {
            "sampling_probability": mechanism.sampling_probability,
            "clip_norm": clip_norm,
            "noise_multiplier": mechanism.noise_multiplier,
            "num_parameters": adapted.expert.num_parameters / adapted.num_experts,
            "mean_norm": moments.mean_norm,
            "second_moment": min(moments.second_moment, clip_norm**2),
        }
    found = public_denominators(
        config.denominator,
        num_experts=adapted.num_experts,
        batch_size=batch_size,
        **needs,  # type: ignore[arg-type]
    )
    return tuple(float(d) for d in found)


def _denominators(role: Role, batch_size: float, by_expert: Sequence[float]) -> float | tuple[float, ...]:
    """One number where it is the same for all of the role, else one for each of its parameters."""
    values = [
        batch_size if layer.expert is None or not by_expert else by_expert[layer.expert]
        for layer in role.layers
        for parameter in (layer.weight, layer.bias)
        if parameter is not None and parameter.requires_grad
    ]
    return values[0] if len(set(values)) == 1 else tuple(values)


def num_steps(training: TrainingConfig, num_records: int) -> int:
    """Releases of every stream: as given, or enough for the expected number of passes."""
    if training.steps is not None:
        return training.steps
    return math.ceil((training.epochs or 3.0) * num_records / training.batch_size)

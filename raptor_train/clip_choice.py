"""Clip norms and LoRA scales of each role, chosen from gradients of public records (theory.md §7, condition 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from raptor_train.adapters.base import AdaptedModel
from raptor_train.config import FROM_PUBLIC, RunConfig
from raptor_train.methods import clipped_together, optimizer_for
from raptor_train.public import GradientNorms, Moments, Rehearsal, gradient_norms, measure_moments, rehearse
from raptor_train.records import Records

SMALLEST = 1e-9  # clip norm; below, float32 norms underflow
Adapt = Callable[[Mapping[str, float]], AdaptedModel]  # from LoRA scales to a freshly adapted model


@dataclass(frozen=True, kw_only=True)
class ClipChoice:
    """The clip norm of what is clipped together, and where it comes from. Public.

    Attributes:
        role: Name of the role.
        clip_norm: C.
        source: "public" gradients or the "configuration".
        p10: Quantiles of the public per-record gradient norms; None where nothing was measured.
        p50: The median.
        p90: The 90 % point.
        share_clipped: Share of public records whose gradient is longer than the clip norm.
    """

    role: str
    clip_norm: float
    source: str
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    share_clipped: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Scales, clip norms, and the moments that the shrinkage denominator needs. Public."""

    scales: Mapping[str, float]
    clips: tuple[ClipChoice, ...]
    moments: Moments | None = None


def choose(config: RunConfig, adapted: Adapt, public: Records | None) -> Choice:
    """Choose what the configuration leaves to public records; measure nothing if it leaves nothing.

    Args:
        config: Clip norms and scales, each a number or "public".
        adapted: Makes the adapted model for given scales.
        public: Public labelled records; None without any.

    Raises:
        ValueError: If something is to be measured and there are no public labelled records.
    """
    asked = _asked(config)
    scales = {"shared": _fixed(config.shared.scale), "expert": _fixed(config.expert.scale)}
    if FROM_PUBLIC not in asked.values() and config.denominator != "shrinkage":
        clips = tuple(
            ClipChoice(role=name, clip_norm=float(value), source="configuration")
            for name, value in asked.items()
            if name != "scale"
        )
        return Choice(scales=scales, clips=clips)
    if public is None:
        raise ValueError(
            "expected public records with labels to measure gradients on: give --public FILE, or numbers for "
            + ", ".join(_FLAGS.get(name, "--clip-norm") for name, value in asked.items() if value == FROM_PUBLIC)
        )
    if not public.token_labels and len(set(public.labels.tolist())) < 2:
        raise ValueError("expected public records of at least two classes, got one: gradients on them soon vanish")
    rehearsal = _rehearse(config, adapted(scales), public)
    norms = gradient_norms(rehearsal)
    if asked.get("scale") == FROM_PUBLIC:
        scales["expert"] = _scale(config, norms)
        rehearsal = _rehearse(config, adapted(scales), public)
        norms = gradient_norms(rehearsal)
    clips = tuple(
        _choice(norms[role.name], asked[role.name], config.training.clip_quantile) for role in rehearsal.roles
    )
    moments = None
    if config.denominator == "shrinkage":
        moments = measure_moments(rehearsal, next(clip.clip_norm for clip in clips if clip.role != "shared"))
    return Choice(scales=scales, clips=clips, moments=moments)


_FLAGS = {"shared": "--shared-clip-norm", "expert": "--expert-clip-norm", "scale": "--expert-scale"}


def _asked(config: RunConfig) -> dict[str, float | str]:
    """What the configuration says of every clip norm in use, and of the experts' scale where there is one to choose."""
    if not config.private:
        return {}
    if config.one_clip_norm:
        return {"head" if config.method == "head_only" else "all": config.clip_norm}
    asked: dict[str, float | str] = {name: getattr(config, name).clip_norm for name in config.clipped_roles}
    if config.clipped_roles == ("shared", "expert"):  # the experts' gradients are lengthened to the shared role's
        asked["scale"] = config.expert.scale
    return asked


def _fixed(scale: float | str) -> float:
    return 1.0 if isinstance(scale, str) else scale


def _scale(config: RunConfig, norms: Mapping[str, GradientNorms]) -> float:
    """The scale that makes the experts' median gradient as long as the shared role's: lengths go with the scale."""
    shared, expert = (float(np.median(norms[name].norms)) for name in ("shared", "expert"))
    largest = config.training.largest_scale
    return min(largest, max(1.0, shared / expert)) if expert > 0 else largest


def _rehearse(config: RunConfig, adapted: AdaptedModel, public: Records) -> Rehearsal:
    training = config.training
    return rehearse(
        adapted,
        clipped_together(config, adapted),
        public,
        cycles=training.rehearsal_steps,
        batch_size=training.batch_size,
        optimizer=lambda twin: optimizer_for(config, twin),
        seed=training.seed,
    )


def _choice(norms: GradientNorms, asked: float | str, quantile: float) -> ClipChoice:
    measured = isinstance(asked, str)
    clip_norm = norms.clip_norm(quantile) if isinstance(asked, str) else asked
    if not clip_norm >= SMALLEST:
        raise ValueError(
            f"the public gradients of role '{norms.role}' vanish, so they give no clip norm: nothing trains the "
            "zero head, or the public records are too easy; give the clip norm as a number"
        )
    points = norms.to_dict()
    return ClipChoice(
        role=norms.role,
        clip_norm=clip_norm,
        source="public" if measured else "configuration",
        p10=float(points["p10"]),
        p50=float(points["p50"]),
        p90=float(points["p90"]),
        share_clipped=norms.share_clipped(clip_norm),
    )

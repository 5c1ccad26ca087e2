"""The exact mean squared error of every expert's release about the mean of its clipped gradients."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from raptor_acct._release import PerExpert, Release
from raptor_acct._validate import number
from raptor_acct.denominators import bias_factors, public_denominators
from raptor_acct.routing import FloatArray, RoutingStats, Vector, as_stats

_PARTS = ("bias2", "sampling", "noise", "total")


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanSquaredError:
    """E‖g_e - c̄_e‖² of one layer's expert releases, in parts; as private as the statistics and moments behind it.

    Attributes:
        denominator: The rule's name, a key of `raptor_acct.denominators.RULES`; "constants" if D_e was given.
        denominators: [experts], D_e in records; infinite where the release is 0.
        bias2: [experts], (Bπ_e/D_e - 1)² ‖c̄_e‖².
        sampling: [experts], (Bπ_e/D_e²)(1 - q) m_e.
        noise: [experts], (σ_e C_e/D_e)² d_e.
        total: [experts], their sum.
    """

    denominator: str
    denominators: FloatArray
    bias2: FloatArray
    sampling: FloatArray
    noise: FloatArray
    total: FloatArray

    @property
    def mean(self) -> dict[str, float]:
        """The means over experts of the parts and of their total."""
        return {name: float(np.mean(getattr(self, name))) for name in _PARTS}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON; an infinite denominator is None."""
        return {
            "denominator": self.denominator,
            "denominators": [d if np.isfinite(d) else None for d in self.denominators.tolist()],
            **{name: getattr(self, name).tolist() for name in _PARTS},
            "mean": self.mean,
        }


def mse(
    routing_stats: RoutingStats | Vector,
    denominator: str | Vector,
    *,
    batch_size: float,
    sampling_probability: float,
    clip_norm: PerExpert,
    noise_multiplier: PerExpert,
    num_parameters: PerExpert,
    mean_norm: PerExpert,
    second_moment: PerExpert,
    public: RoutingStats | Vector | None = None,
) -> MeanSquaredError:
    """Return E‖g_e - c̄_e‖² of every expert, exactly: squared bias, sampling variance and noise variance.

    The target c̄_e is the mean of the clipped gradients of the records that e owns. An expert that owns none has no
    mean; its target is 0, so its error is its noise.

    This judges one step on its own. Over many steps noise averages out and the learning rate sets the scale, which
    under Adam absorbs any constant D_e (B7): compare the experts with each other by it, not one step size with another.

    To judge a shrinkage denominator made from guesses of the moments that are off, make it with
    `raptor_acct.public_denominators` and give the vector here. 1/D_e enters as a parabola with its minimum at the best
    1/D_e*, so D_e errs no more than B/E exactly where 1/D_e lies between E/B and 2/D_e* - E/B.

    Args:
        routing_stats: π as `RoutingStats`, counts or probabilities.
        denominator: "expected_owner", "batch", "public_share", "shrinkage", or D_e > 0 of every expert, [experts].
        batch_size: B = qN > 0, the expected batch size.
        sampling_probability: q in (0, 1].
        clip_norm: C_e > 0; one number or one for each expert, as everything below.
        noise_multiplier: σ_e > 0.
        num_parameters: d_e, the trainable parameters of an expert.
        mean_norm: ‖c̄_e‖; "shrinkage" also guesses it by this.
        second_moment: m_e, the mean of the squared norms of the clipped gradients, in [‖c̄_e‖², C_e²]; likewise.
        public: π̂ from public records, for "public_share" and "shrinkage".

    Raises:
        ValueError: If an argument is outside its range; for "realized", which is private.

    Source: theory.md §3, B1-B6.

    >>> setting = {"batch_size": 1000, "sampling_probability": 0.01, "clip_norm": 1.0, "noise_multiplier": 2.0}
    >>> moments = {"num_parameters": 10_000, "mean_norm": 0.5, "second_moment": 1.0}
    >>> plain = mse([6, 1, 1, 0], "expected_owner", **setting, **moments)
    >>> plain.bias2, plain.noise
    (array([1.    , 0.0625, 0.0625, 0.    ]), array([0.64, 0.64, 0.64, 0.64]))
    >>> best = mse([6, 1, 1, 0], "shrinkage", public=[6, 1, 1, 0], **setting, **moments)
    >>> round(plain.mean["total"], 4), round(best.mean["total"], 4)
    (0.9252, 0.128)
    """
    stats = as_stats("routing_stats", routing_stats)
    batch = number("batch_size", batch_size, "(0, inf)")
    release = Release.of(
        stats.num_experts,
        sampling_probability=sampling_probability,
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        num_parameters=num_parameters,
        mean_norm=mean_norm,
        second_moment=second_moment,
    )
    divisors = public_denominators(
        denominator,
        num_experts=stats.num_experts,
        batch_size=batch,
        public=None if public is None else as_stats("public", public, layer=stats.layer),
        sampling_probability=sampling_probability,
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        num_parameters=num_parameters,
        mean_norm=mean_norm,
        second_moment=second_moment,
    )
    name = denominator if isinstance(denominator, str) else "constants"
    return _error(name, divisors, stats, batch, release)


def _error(
    name: str, denominators: FloatArray, stats: RoutingStats, batch_size: float, release: Release
) -> MeanSquaredError:
    target = np.where(stats.probabilities > 0, release.mean_norm, 0.0)
    bias2 = (bias_factors(stats, denominators, batch_size) * target) ** 2
    with np.errstate(all="ignore"):  # what is beyond floats is refused just below
        sampling = batch_size * stats.probabilities / denominators * (release.record_variance / denominators)
        noise = (np.sqrt(release.noise_variance) / denominators) ** 2
        total = bias2 + sampling + noise
    if not np.isfinite(total).all():
        i = int(np.isfinite(total).argmin())
        raise ValueError(f"expected denominators with an error that a float can hold, got D[{i}]={denominators[i]:g}")
    return MeanSquaredError(
        denominator=name, denominators=denominators, bias2=bias2, sampling=sampling, noise=noise, total=total
    )

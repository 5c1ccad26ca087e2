"""What dividing by a public constant costs: the bias of the expert stream's denominator D_e.

Expert e releases g_e = (sum of its clipped gradients + noise) / D_e. With a public D_e its expectation is
(Bπ_e/D_e) c̄_e instead of c̄_e, the mean of its clipped gradients, and ‖c̄_e‖ ≤ C.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, overload

from raptor_acct._validate import choice, number
from raptor_acct.entropy import OUTWARD
from raptor_acct.routing import FloatArray, RoutingStats, Vector, as_stats, by_layer

# Bπ_e/D_e - 1 of every expert: the factor of c̄_e that is bias. B cancels in both.
_BIAS_FACTORS: dict[str, Callable[[RoutingStats], FloatArray]] = {
    "expected_owner": lambda stats: stats.deviations,
    "batch": lambda stats: stats.probabilities - 1,
}


@dataclass(frozen=True, kw_only=True)
class BiasBound:
    """Upper bounds on the bias of one layer's expert releases; as private as the routing statistics behind them.

    Bias is in units of the clipped gradient. With factor_e = Bπ_e/D_e - 1, ‖bias_e‖ ≤ C·abs(factor_e).

    Attributes:
        layer: The model's real layer number; None if not given.
        denominator: "expected_owner" (D_e = B/E) or "batch" (D_e = B).
        denominator_value: D_e in records; None if no batch size was given, since the bias does not depend on it.
        clip_norm: C.
        rms: √(1/E Σ_e (C·factor_e)²), the bound on the root mean square over experts of ‖bias_e‖. For D_e = B/E it is
            C·CV(π); for D_e = B it is C·√((1 - 1/E)² + CV²/E²).
        worst: The largest C·abs(factor_e).
        per_expert: [experts], C·abs(factor_e).
        squared_sum: Σ_e (C·factor_e)² = E·rms².
        cv: CV(π).
        chi2: χ²(π‖u) = CV².
        entropy_bounds: The smallest and largest `rms` that the routing entropy alone allows.
    """

    layer: int | None
    denominator: str
    denominator_value: float | None
    clip_norm: float
    rms: float
    worst: float
    per_expert: tuple[float, ...]
    squared_sum: float
    cv: float
    chi2: float
    entropy_bounds: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


@overload
def bias_bound(
    routing_stats: Mapping[Any, RoutingStats | Vector],
    *,
    clip_norm: float = ...,
    denominator: str = ...,
    batch_size: float | None = ...,
) -> dict[int, BiasBound]: ...


@overload
def bias_bound(
    routing_stats: RoutingStats | Vector,
    *,
    clip_norm: float = ...,
    denominator: str = ...,
    batch_size: float | None = ...,
) -> BiasBound: ...


def bias_bound(
    routing_stats: RoutingStats | Vector | Mapping[Any, RoutingStats | Vector],
    *,
    clip_norm: float = 1.0,
    denominator: str = "expected_owner",
    batch_size: float | None = None,
) -> BiasBound | dict[int, BiasBound]:
    """Bound the bias that a public denominator puts on the expert stream.

    One layer gives one bound; a mapping of layers gives one bound a layer, under the real layer number.

    Args:
        routing_stats: A `RoutingStats`, or its [experts] vector: floats that sum to 1 within 1e-6 are probabilities,
            otherwise whole numbers are counts; or a mapping from layer number to either.
        clip_norm: C > 0, the clip norm of the expert stream.
        denominator: "expected_owner" (D_e = B/E), or "batch" (D_e = B, which shrinks every expert by π_e).
        batch_size: B = qN > 0, the expected batch size; only reported, as D_e.

    Raises:
        ValueError: On statistics, numbers or names outside these; for "realized", which is private.

    Source: theory.md B1, B2 and B6; the paper's ablation "w/ D_e = B" (Table 5).

    >>> bound = bias_bound([6, 1, 1, 0], clip_norm=0.5, batch_size=1000)
    >>> bound.per_expert, bound.worst, round(bound.rms, 4), bound.denominator_value
    ((1.0, 0.25, 0.25, 0.5), 1.0, 0.5863, 250.0)
    >>> sorted(bias_bound({1: [6, 1, 1, 0], 3: [2, 2, 2, 2]}))
    [1, 3]
    """
    clip = number("clip_norm", clip_norm, "(0, 1e30]")
    _refuse_realized(denominator)
    name = choice("denominator", denominator, tuple(_BIAS_FACTORS))
    batch = None if batch_size is None else number("batch_size", batch_size, "(0, inf)")
    if isinstance(routing_stats, Mapping):
        layers = by_layer("routing_stats", routing_stats)
        return {layer: _bound(stats, clip, name, batch) for layer, stats in layers.items()}
    return _bound(as_stats("routing_stats", routing_stats), clip, name, batch)


def _bound(stats: RoutingStats, clip_norm: float, denominator: str, batch_size: float | None) -> BiasBound:
    factors = _BIAS_FACTORS[denominator](stats)
    experts = stats.num_experts
    rms = clip_norm * math.sqrt(math.fsum(factors**2) / experts)
    low, high = stats.cv_bounds_from_entropy()
    if denominator == "batch":  # the factors π_e - 1 have mean 1/E - 1 and standard deviation CV/E
        low, high = (math.hypot(1 - 1 / experts, cv / experts) for cv in (low, high))
        low, high = low * (1 - OUTWARD), high * (1 + OUTWARD)
    per_expert = tuple(float(clip_norm * abs(factor)) for factor in factors)
    divisor = experts if denominator == "expected_owner" else 1
    return BiasBound(
        layer=stats.layer,
        denominator=denominator,
        denominator_value=None if batch_size is None else batch_size / divisor,
        clip_norm=clip_norm,
        rms=rms,
        worst=max(per_expert),
        per_expert=per_expert,
        squared_sum=experts * rms * rms,
        cv=stats.cv,
        chi2=stats.chi2,
        entropy_bounds=(clip_norm * low, clip_norm * high),
    )


def _refuse_realized(denominator: object) -> None:
    if denominator in ("realized", "realised"):
        raise ValueError(
            "expected denominator to be a public constant, got denominator='realized': the number of an expert's "
            "records in the batch is private, a release divided by it has no finite sensitivity bound, and a record "
            "whose gradient is zero would change it; use 'expected_owner' (B/E)"
        )

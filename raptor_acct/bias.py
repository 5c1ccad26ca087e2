"""What dividing by a public constant costs without any noise: the bias of the expert stream, ‖c̄_e‖ ≤ C."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, Unpack, overload

from raptor_acct._release import PerExpert
from raptor_acct._validate import number, shown
from raptor_acct.denominators import bias_factors, needs_batch_size, public_denominators
from raptor_acct.entropy import OUTWARD
from raptor_acct.routing import FloatArray, RoutingStats, Vector, as_stats, by_layer

_Layers = Mapping[Any, RoutingStats | Vector]


class ShrinkageArguments(TypedDict, total=False):
    """What only the rule "shrinkage" needs; see `raptor_acct.public_denominators`."""

    sampling_probability: float
    noise_multiplier: PerExpert
    num_parameters: PerExpert
    mean_norm: PerExpert
    second_moment: PerExpert


@dataclass(frozen=True, kw_only=True)
class BiasBound:
    """Upper bounds on the bias of one layer's expert releases; as private as the routing statistics behind them.

    Bias is in units of the clipped gradient. With factor_e = Bπ_e/D_e - 1, ‖bias_e‖ ≤ C·abs(factor_e).

    Attributes:
        layer: The model's real layer number; None if not given.
        denominator: The rule's name, a key of `raptor_acct.denominators.RULES`; "constants" if D_e was given.
        denominator_value: D_e in records; None if no batch size was given, since the bias then does not depend on it,
            or if the experts differ.
        denominators: [experts], every D_e in records, perhaps infinite; None if no batch size was given.
        clip_norm: C.
        rms: √(1/E Σ_e (C·factor_e)²), the bound on the root mean square over experts of ‖bias_e‖. For D_e = B/E it is
            C·CV(π); for D_e = B it is C·√((1 - 1/E)² + CV²/E²).
        worst: The largest C·abs(factor_e).
        per_expert: [experts], C·abs(factor_e).
        squared_sum: Σ_e (C·factor_e)² = E·rms².
        cv: CV(π).
        chi2: χ²(π‖u) = CV².
        entropy_bounds: The smallest and largest `rms` that the routing entropy alone allows; None if the experts'
            denominators differ, since it then matters which expert has which share.
    """

    layer: int | None
    denominator: str
    denominator_value: float | None
    denominators: tuple[float, ...] | None
    clip_norm: float
    rms: float
    worst: float
    per_expert: tuple[float, ...]
    squared_sum: float
    cv: float
    chi2: float
    entropy_bounds: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON; an infinite denominator is None."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        if self.denominators is not None:
            plain["denominators"] = [None if math.isinf(d) else d for d in self.denominators]
        return plain


@overload
def bias_bound(
    routing_stats: _Layers,
    *,
    clip_norm: float = ...,
    denominator: str | Vector = ...,
    batch_size: float | None = ...,
    public: _Layers | None = ...,
    **shrinkage: Unpack[ShrinkageArguments],
) -> dict[int, BiasBound]: ...


@overload
def bias_bound(
    routing_stats: RoutingStats | Vector,
    *,
    clip_norm: float = ...,
    denominator: str | Vector = ...,
    batch_size: float | None = ...,
    public: RoutingStats | Vector | None = ...,
    **shrinkage: Unpack[ShrinkageArguments],
) -> BiasBound: ...


def bias_bound(
    routing_stats: RoutingStats | Vector | _Layers,
    *,
    clip_norm: float = 1.0,
    denominator: str | Vector = "expected_owner",
    batch_size: float | None = None,
    public: RoutingStats | Vector | _Layers | None = None,
    **shrinkage: Unpack[ShrinkageArguments],
) -> BiasBound | dict[int, BiasBound]:
    """Bound the bias that a public denominator puts on the expert stream.

    One layer gives one bound; a mapping of layers gives one bound a layer, under the real layer number.

    D_e = B/E is the better of the two plain rules only up to CV² = (E - 1)/(E + 1); beyond, D_e = B has the smaller
    rms. The best single constant for all experts is (B/E)(1 + CV²), with an rms of C·CV/√(1 + CV²).

    Args:
        routing_stats: A `RoutingStats`, or its [experts] vector: floats that sum to 1 within 1e-6 are probabilities,
            otherwise whole numbers are counts; or a mapping from layer number to either.
        clip_norm: C > 0, the clip norm of the expert stream.
        denominator: "expected_owner" (D_e = B/E), "batch" (D_e = B, which shrinks every expert by π_e),
            "public_share" (D_e = Bπ̂_e), "shrinkage" (B5), or D_e > 0 of every expert, [experts].
        batch_size: B = qN > 0, the expected batch size. Where it cancels it is only reported, as D_e.
        public: π̂ from public records, for "public_share" and "shrinkage"; like ``routing_stats``, for the same layers.
        **shrinkage: What "shrinkage" needs besides; see `raptor_acct.public_denominators`.

    Raises:
        ValueError: On statistics, numbers or names outside these; for "realized", which is private.

    Source: theory.md B1, B2, B4-B6; the paper's ablation "w/ D_e = B" (Table 5).

    >>> bound = bias_bound([6, 1, 1, 0], clip_norm=0.5, batch_size=1000)
    >>> bound.per_expert, bound.worst, round(bound.rms, 4), bound.denominator_value
    ((1.0, 0.25, 0.25, 0.5), 1.0, 0.5863, 250.0)
    >>> sorted(bias_bound({1: [6, 1, 1, 0], 3: [2, 2, 2, 2]}))
    [1, 3]
    >>> bias_bound([6, 1, 1, 0], denominator="public_share", public=[4, 2, 1, 1]).per_expert
    (0.5, 0.5, 0.0, 1.0)
    """
    clip = number("clip_norm", clip_norm, "(0, 1e30]")
    if not isinstance(routing_stats, Mapping):
        return _bound(as_stats("routing_stats", routing_stats), clip, denominator, batch_size, public, shrinkage)
    layers = by_layer("routing_stats", routing_stats)
    publics = {} if public is None else by_layer("public", public)  # type: ignore[arg-type]
    if publics and publics.keys() != layers.keys():
        raise ValueError(f"expected public of layers {list(layers)}, got public of layers {list(publics)}")
    return {
        layer: _bound(stats, clip, denominator, batch_size, publics.get(layer), shrinkage)
        for layer, stats in layers.items()
    }


def _bound(
    stats: RoutingStats,
    clip_norm: float,
    denominator: str | Vector,
    batch_size: float | None,
    public: Any,
    shrinkage: ShrinkageArguments,
) -> BiasBound:
    batch = 1.0 if batch_size is None else batch_size  # any: it cancels
    divisors = public_denominators(
        denominator,
        num_experts=stats.num_experts,
        batch_size=batch,
        public=None if public is None else as_stats("public", public, layer=stats.layer),
        clip_norm=clip_norm,
        **shrinkage,
    )
    if batch_size is None and needs_batch_size(denominator):
        raise ValueError(f"expected batch_size with denominator={shown(denominator)}, got none")
    factors = bias_factors(stats, divisors, batch)
    same = bool((divisors == divisors[0]).all())
    rms = clip_norm * math.sqrt(math.fsum(factors**2) / stats.num_experts)
    per_expert = tuple(float(clip_norm * abs(factor)) for factor in factors)
    return BiasBound(
        layer=stats.layer,
        denominator=denominator if isinstance(denominator, str) else "constants",
        denominator_value=float(divisors[0]) if same and batch_size is not None else None,
        denominators=None if batch_size is None else tuple(divisors.tolist()),
        clip_norm=clip_norm,
        rms=rms,
        worst=max(per_expert),
        per_expert=per_expert,
        squared_sum=stats.num_experts * rms * rms,
        cv=stats.cv,
        chi2=stats.chi2,
        entropy_bounds=_entropy_bounds(stats, clip_norm, divisors, batch) if same else None,
    )


def _entropy_bounds(
    stats: RoutingStats, clip_norm: float, denominators: FloatArray, batch_size: float
) -> tuple[float, float]:
    """For one D: with k = B/(E·D) the factors k·Eπ_e - 1 have mean k - 1 and standard deviation k·CV."""
    low, high = stats.cv_bounds_from_entropy()
    if denominators[0] == batch_size / stats.num_experts:
        return clip_norm * low, clip_norm * high
    k = batch_size / (stats.num_experts * float(denominators[0]))
    low, high = (math.hypot(k - 1, k * cv) for cv in (low, high))
    return clip_norm * low * (1 - OUTWARD), clip_norm * high * (1 + OUTWARD)

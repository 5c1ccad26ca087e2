"""How uneven the private routing can be when it differs from the public one by a known total variation (R5)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from raptor_acct._validate import number
from raptor_acct.entropy import OUTWARD
from raptor_acct.routing import FloatArray, RoutingStats, Vector, as_stats


@dataclass(frozen=True, kw_only=True)
class ShiftBound:
    """What all distributions within a total variation of a layer's shares have in common; exact, both ends attained.

    As private as the statistics and the total variation it was made from.

    Attributes:
        total_variation: τ, the largest ½Σ|p_e - π_e| allowed.
        cv: The smallest and the largest CV.
        entropy: The smallest and the largest entropy, in nats.
        most_even: The shares that attain the smallest CV and the largest entropy.
        most_uneven: The shares that attain the largest CV and the smallest entropy.
    """

    total_variation: float
    cv: tuple[float, float]
    entropy: tuple[float, float]
    most_even: RoutingStats
    most_uneven: RoutingStats

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return {
            "total_variation": self.total_variation,
            "cv": list(self.cv),
            "entropy": list(self.entropy),
            "most_even": self.most_even.to_dict(),
            "most_uneven": self.most_uneven.to_dict(),
        }


def shift_bound(routing_stats: RoutingStats | Vector, total_variation: float) -> ShiftBound:
    """Bound the CV and the entropy of every distribution p with total variation at most τ from the given shares π.

    The most uneven p moves τ from the smallest experts to the largest; the most even one cuts the largest down to one
    level and fills the smallest up to another. For every k, the k largest shares of any other p sum to no more than
    the former's and no less than the latter's, so these two are extreme for CV and entropy at once. Neither CV is
    further from CV(π) than τ√(2E), since ‖p - π‖₂ ≤ τ√2.

    Args:
        routing_stats: A `RoutingStats`, or its [experts] vector of counts or probabilities; public.
        total_variation: τ in [0, 1]. Someone has to know it: measured on private records it is itself private.

    Raises:
        ValueError: If ``total_variation`` is outside [0, 1], or the statistics are not valid.

    Source: theory.md R5, sharpened.

    >>> bound = shift_bound([0.4, 0.3, 0.2, 0.1], 0.1)
    >>> bound.most_even.probabilities.round(3).tolist(), bound.most_uneven.probabilities.round(3).tolist()
    ([0.3, 0.3, 0.2, 0.2], [0.5, 0.3, 0.2, 0.0])
    >>> [round(end, 4) for end in bound.cv]
    [0.2, 0.7211]
    """
    stats = as_stats("routing_stats", routing_stats)
    moved = number("total_variation", total_variation, "[0, 1]")
    order = np.argsort(stats.probabilities)
    shares = stats.probabilities[order]  # smallest first
    even, uneven = np.empty_like(shares), np.empty_like(shares)
    even[order], uneven[order] = _most_even(shares, moved), _most_uneven(shares, moved)
    low = RoutingStats.from_probabilities(even, layer=stats.layer)
    high = RoutingStats.from_probabilities(uneven, layer=stats.layer)
    return ShiftBound(
        total_variation=moved,
        cv=(low.cv * (1 - OUTWARD), high.cv * (1 + OUTWARD)),
        entropy=(high.entropy * (1 - OUTWARD), min(low.entropy * (1 + OUTWARD), math.log(stats.num_experts))),
        most_even=low,
        most_uneven=high,
    )


def _most_uneven(shares: FloatArray, moved: float) -> FloatArray:
    """Return [experts] after ``moved``, or as much as there is, went from the smallest shares, at 0, to the last."""
    rest = np.clip(np.cumsum(shares[:-1]) - moved, 0.0, shares[:-1])
    return np.append(rest, 1 - rest.sum())


def _most_even(shares: FloatArray, moved: float) -> FloatArray:
    """Return [experts] between a floor and a ceiling that each took ``moved``; both are 1/E if they would meet.

    The k smallest shares cannot be filled to more than their mean with ``moved`` on top, and the floor is the least of
    these limits; likewise for the ceiling.
    """
    numbers = np.arange(1, len(shares) + 1)
    floor = np.min((np.cumsum(shares) + moved) / numbers)
    ceiling = np.max((np.cumsum(shares[::-1]) - moved) / numbers)
    uniform = 1 / len(shares)
    return np.clip(shares, min(floor, uniform), max(ceiling, uniform))

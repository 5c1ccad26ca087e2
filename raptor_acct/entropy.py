"""What entropy and coefficient of variation of a routing distribution say about each other: sharp bounds (R2)."""

import math

import numpy as np

from raptor_acct._validate import number, whole

OUTWARD = 1e-12  # relative widening of an interval's ends, far above the error of the root searches behind them
_TINY = 1e-40  # deficit below which the share's deviation is its first order, far within the widening


def cv_bounds(entropy_deficit: float, num_experts: int) -> tuple[float, float]:
    """Return the smallest and the largest CV of any distribution with this entropy; sharp, each end rounded outwards.

    At fixed entropy Σπ² is largest at (a, b, …, b), a ≥ b, and smallest at (a, …, a, b, 0, …, 0), 0 ≤ b ≤ a.

    Args:
        entropy_deficit: log E - H in nats, in [0, log E].
        num_experts: E, at least 2.

    Raises:
        ValueError: If either is outside its range.

    Source: theory.md R2 (Harremoës and Topsøe 2001). All rows of the paper's Table 9 lie inside:

    >>> low, high = cv_bounds((1 - 0.972) * math.log(8), 8)  # SST-2, selected: the paper's CV is 0.344
    >>> round(low, 3), round(high, 3)
    (0.289, 0.38)
    """
    experts = whole("num_experts", num_experts, low=2)
    # the margin is the rounding of a deficit computed elsewhere as log E - H
    deficit = number("entropy_deficit", entropy_deficit, f"[-1e-12, {math.log(experts) + 1e-12!r}]")
    high = _two_level_root(deficit, experts - 1.0, experts) / math.sqrt(experts - 1)
    support = min(max(math.ceil(experts * math.exp(-deficit)), 2), experts)
    t = _two_level_root(deficit - math.log(experts / support), -1.0, support)
    low = math.sqrt((experts - support) / support + experts / support * t * t / (support - 1))
    return low * (1 - OUTWARD), high * (1 + OUTWARD)


def deficit_bounds(cv: float, num_experts: int) -> tuple[float, float]:
    """Return the smallest and the largest log E - H of any distribution with this CV: `cv_bounds` read the other way.

    The same two families are extreme: (a, b, …, b) has the smallest deficit, (a, …, a, b, 0, …, 0) the largest. Both
    ends are in closed form, rounded outwards.

    Args:
        cv: In [0, √(E-1)].
        num_experts: E, at least 2.

    Raises:
        ValueError: If either is outside its range.

    Source: theory.md R2 (Harremoës and Topsøe 2001).

    >>> [round(end, 4) for end in deficit_bounds(0.344, 8)]  # SST-2, selected: the paper prints 0.972, so 0.0582
    [0.0485, 0.0938]
    """
    experts = whole("num_experts", num_experts, low=2)
    largest = math.sqrt(experts - 1)
    c = min(number("cv", cv, f"[0, {largest * (1 + 1e-11)!r}]"), largest)
    smallest_deficit = _two_level(c * largest, experts)
    support = min(max(math.ceil(experts / (1 + c * c)), 2), experts)
    within = max(0.0, (support - experts + support * c * c) / experts)  # CV² over the support alone
    t = -min(math.sqrt(within * (support - 1)), 1.0)
    largest_deficit = math.log(experts / support) + _two_level(t, support)
    return smallest_deficit * (1 - OUTWARD), largest_deficit * (1 + OUTWARD)


def excess(x: float) -> float:
    """(1 + x)·log(1 + x) - x: what an expert with share (1 + x)/E adds to E·KL(π‖u); by its series near 0."""
    if abs(x) < 0.01:
        return x * x * math.fsum((-x) ** (k - 2) / (k * (k - 1)) for k in range(2, 11))
    return (1 + x) * math.log1p(x) - x if x > -1 else 1.0


def _two_level(t: float, k: int) -> float:
    """KL to uniform over k experts of one share (1 + t)/k and k - 1 equal others; its CV² is t²/(k - 1)."""
    return (excess(t) + (k - 1) * excess(-t / (k - 1))) / k


def _two_level_root(deficit: float, end: float, k: int) -> float:
    """Return t between 0 and ``end`` with ``_two_level(t, k) == deficit``, to a few ulp; the nearest end if none."""
    if deficit <= 0:
        return 0.0
    if deficit >= _two_level(end, k):
        return end
    if deficit < _TINY:
        return math.copysign(math.sqrt(2 * (k - 1) * deficit), end)  # the first term of the series
    from scipy.optimize import brentq  # here, since importing it takes longer than all of this package

    rtol = 4 * np.finfo(np.float64).eps
    return float(brentq(lambda t: _two_level(t, k) - deficit, 0.0, end, xtol=1e-300, rtol=rtol, maxiter=1000))

"""The best Gaussian differential privacy (GDP) bound on a privacy profile, and by how much it falls short."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from raptor_acct._search import safe_root
from raptor_acct.bound import Bound

Array = npt.NDArray[np.float64]

_COARSE, _FINE = 60, 60
_WIDTH = 1e-9  # of log mu
_ROUNDING = 1e-12  # of delta; the closed form is good to less


class GaussianBound(Bound):
    """mu of the best GDP bound, with both ends, and its regret.

    Attributes:
        regret: The plan is better than G_mu by at most this: G_mu(fpr) >= fnr(fpr + regret) - regret for all fpr.
    """

    regret: float


def exact_bound(mu: float) -> GaussianBound:
    """Return the bound of a Gaussian mechanism itself."""
    return _bound(mu, mu, 0.0, "closed form")


def _bound(lower: float, upper: float, regret: float, method: str) -> GaussianBound:
    bound = GaussianBound.__new__(GaussianBound, lower, upper, safe="upper", method=method)
    assert isinstance(bound, GaussianBound)
    bound.regret = regret
    return bound


def gaussian_bound(delta: Callable[[float], Bound], reach: float) -> GaussianBound:
    """Return the least mu with delta(eps) <= delta of N(0, 1) against N(mu, 1) for all eps from 0 to ``reach``.

    Between the points where the profile is worked out, its chords in exp(eps) are above it, since it is convex; the
    tangents of the Gaussian's profile are below that. So comparing chords with tangents certifies every point.
    """
    eps = np.linspace(0.0, max(reach, 1e-6), _COARSE)
    curve = [delta(float(x)) for x in eps]
    closest = float(
        eps[int(np.argmax([_least_mu(float(x), bound.lower) for x, bound in zip(eps, curve, strict=True)]))]
    )
    step = eps[1]
    fine = np.linspace(max(0.0, closest - step), min(float(eps[-1]), closest + step), _FINE)
    eps = np.unique(np.concatenate([eps, fine]))
    curve = [delta(float(x)) for x in eps]
    upper, lower = np.array([bound.upper for bound in curve]), np.array([bound.lower for bound in curve])
    least = max(_least_mu(float(x), float(y)) for x, y in zip(eps, lower, strict=True))
    mu = math.exp(
        safe_root(
            lambda log_mu: _excess(math.exp(log_mu), eps, upper),
            math.log(least),
            low=math.log(1e-12),
            high=math.log(1e12),
            width=_WIDTH,
            below="",
            above=f"expected a plan with mu below 1e12, got {least:g}",
        )
    )
    gaussian = _profile(mu, eps)
    gap = (gaussian[:-1] - lower[1:]) / (1 + np.exp(np.minimum(eps[:-1], 700.0)))
    return _bound(least, mu, float(np.max(gap)), curve[0].method)


def _profile(mu: float, eps: Array) -> Array:
    """Return delta of N(0, 1) against N(mu, 1) at each eps (Balle and Wang 2018)."""
    from scipy.special import log_ndtr  # here, since it takes longer to import than the rest of the package

    first, second = log_ndtr(mu / 2 - eps / mu), eps + log_ndtr(-mu / 2 - eps / mu)
    result: Array = np.exp(first) * -np.expm1(np.minimum(0.0, second - first))
    return result


def _least_mu(eps: float, delta: float) -> float:
    """Return the mu of the Gaussian profile through a point, from below."""
    point = np.array([eps])
    low, high = math.log(1e-12), math.log(1e6)
    while high - low > _WIDTH / 4:
        middle = (low + high) / 2
        low, high = (middle, high) if _profile(math.exp(middle), point)[0] <= delta else (low, middle)
    return math.exp(low)


def _excess(mu: float, eps: Array, upper: Array) -> float:
    """Return by how much, in logs, the chords through (exp(eps), upper) exceed the tangents of the profile of mu."""
    from scipy.special import ndtr

    gaussian = _profile(mu, eps) * (1 - _ROUNDING) + 1e-300
    worst = float(np.max(np.log(upper / gaussian)))
    # In x = exp(eps) - exp(left end), scaled; the slope of the profile is -P(loss > eps) under N(0, 1).
    width = np.expm1(np.diff(eps)) * np.exp(np.minimum(eps[:-1], 600.0))
    slope = -ndtr(-mu / 2 - eps / mu)
    left, right = slope[:-1], slope[1:]
    crossing = np.clip((gaussian[1:] - gaussian[:-1] - right * width) / np.minimum(left - right, -1e-300), 0.0, width)
    tangent = np.maximum(gaussian[:-1] + left * crossing, 1e-300)
    chord = upper[:-1] + (upper[1:] - upper[:-1]) * crossing / width
    return max(worst, float(np.max(np.log(chord / tangent))))

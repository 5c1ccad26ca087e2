"""One step of a Poisson-subsampled Gaussian: its privacy profile in closed form.

The three directions, as the pair (upper, lower) of distributions of one whitened coordinate, sensitivity 1:

    remove   (1-q) N(0, σ²) + q N(-1, σ²)   against   N(0, σ²)
    add      N(0, σ²)                       against   (1-q) N(0, σ²) + q N(1, σ²)
    replace  (1-q) N(0, σ²) + q N(-1, σ²)   against   (1-q) N(0, σ²) + q N(1, σ²)

In each the loss log(upper / lower) falls with the coordinate x.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Direction = Literal["remove", "add", "replace"]

_ROUNDING = 2.0**-49
_NOTHING = 1e-300  # instead of 0, which would be below the truth


@dataclass(frozen=True, kw_only=True)
class OneStep:
    """One step, in one direction.

    Attributes:
        noise_multiplier: σ.
        sampling_probability: q.
        direction: Which of the pairs above.

    >>> step = OneStep(noise_multiplier=1.0, sampling_probability=1.0, direction="remove")
    >>> [round(step.delta(eps)[1], 6) for eps in (0.0, 1.0)]
    [0.382925, 0.126937]
    """

    noise_multiplier: float
    sampling_probability: float
    direction: Direction

    def delta(self, eps: float) -> tuple[float, float]:
        """Return a lower and an upper bound on delta of one step at ``eps``, which differ by rounding only."""
        upper, lower = (float(log[0]) for log in self._log_cdfs(self._inverse(np.array([eps]))))
        if upper == -np.inf:
            return 0.0, _NOTHING
        exact = -math.expm1(min(0.0, eps + lower - upper)) if lower > -np.inf else 1.0
        allowance = _ROUNDING * (1 + eps + abs(upper) + (abs(lower) if lower > -np.inf else 0.0))
        scale = math.exp(upper)
        return max(0.0, scale * (exact - allowance)), min(1.0, scale * (exact + allowance) + _NOTHING)

    def _inverse(self, losses: Array) -> Array:
        """Return the largest x whose loss is at least each of ``losses``; infinite where all or none is."""
        if self.direction == "remove":
            return self._inverse_remove(losses)
        if self.direction == "add":
            return -self._inverse_remove(-losses)
        # Solved by hand: loss(x) = l at x = σ² (asinh(-α sinh(l/2)) - l/2), α = exp(1/(2σ²)) (1-q)/q.
        size, variance, q = np.abs(losses), self.noise_multiplier**2, self.sampling_probability
        with np.errstate(divide="ignore"):
            log_sinh = size / 2 + np.log(-np.expm1(-size) / 2)
        log_argument = 1 / (2 * variance) + _log1m(q) - np.log(q) + log_sinh
        asinh = np.logaddexp(np.logaddexp(0.0, 2 * log_argument) / 2, log_argument)
        x: Array = -variance * np.sign(losses) * (asinh + size / 2)
        return x

    def _inverse_remove(self, losses: Array) -> Array:
        q = self.sampling_probability
        small, large = np.clip(losses, -1.0, 1.0), np.where(np.abs(losses) < 1, 1.0, losses)
        with np.errstate(divide="ignore"):  # at or below log(1-q) every x has a larger loss
            of_small = np.log1p(np.maximum(-1.0, np.expm1(small) / q))
            unsampled = np.maximum(-1.0, -(1 - q) * np.exp(np.minimum(-large, 700.0)))
            of_large = large - np.log(q) + np.log1p(unsampled)
        return -(self.noise_multiplier**2) * np.where(np.abs(losses) < 1, of_small, of_large) - 0.5

    def _log_cdfs(self, x: Array) -> tuple[Array, Array]:
        """Return the logarithms of the upper and the lower distribution function at ``x``."""
        from scipy.special import log_ndtr  # here, since it takes longer to import than the rest of the package

        sigma, q = self.noise_multiplier, self.sampling_probability
        plain: Array = log_ndtr(x / sigma)

        def mixed(shift: float) -> Array:
            both: Array = np.logaddexp(_log1m(q) + plain, np.log(q) + log_ndtr((x + shift) / sigma))
            return both

        return (
            plain if self.direction == "add" else mixed(1.0),
            plain if self.direction == "remove" else mixed(-1.0),
        )


def _log1m(q: float) -> float:
    """Return log(1 - q), -inf at 1."""
    return float(np.log1p(-q)) if q < 1 else -np.inf

"""One step of a Poisson-subsampled Gaussian: its privacy loss, the inverse of it, its profile and its spread.

The three directions, as the pair (upper, lower) of distributions of one whitened coordinate, sensitivity 1:

    remove   (1-q) N(0, σ²) + q N(-1, σ²)   against   N(0, σ²)
    add      N(0, σ²)                       against   (1-q) N(0, σ²) + q N(1, σ²)
    replace  (1-q) N(0, σ²) + q N(-1, σ²)   against   (1-q) N(0, σ²) + q N(1, σ²)

In each the loss log(upper / lower) falls with the coordinate x.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Direction = Literal["remove", "add", "replace"]

_REACH = 10.0  # standard deviations kept on each side; the mass outside is 1e-23


@dataclass(frozen=True, kw_only=True)
class OneStep:
    """One step, in one direction.

    Attributes:
        noise_multiplier: σ.
        sampling_probability: q.
        direction: Which of the pairs above.

    >>> step = OneStep(noise_multiplier=1.0, sampling_probability=1.0, direction="remove")
    >>> [round(float(d), 6) for d in step.delta(np.array([0.0, 1.0]))]
    [0.382925, 0.126937]
    """

    noise_multiplier: float
    sampling_probability: float
    direction: Direction

    @property
    def reach(self) -> float:
        """Outside [-reach, reach] the coordinate has a mass of at most 1e-23."""
        return _REACH * self.noise_multiplier + 1

    def loss(self, x: Array) -> Array:
        """Return the privacy loss at the coordinates ``x``."""
        if self.direction == "remove":
            return self._loss_remove(x)
        if self.direction == "add":
            return -self._loss_remove(-x)
        return self._loss_remove(x) - self._loss_remove(-x)

    def delta(self, losses: Array) -> Array:
        """Return the hockey-stick divergence at each of ``losses`` (of either sign), within [0, 1]."""
        x = self._inverse(losses)
        upper, lower = self._log_cdfs(x)
        with np.errstate(invalid="ignore"):  # -inf minus -inf, where the divergence is 0
            difference = -np.exp(upper) * np.expm1(np.minimum(0.0, losses + lower - upper))
        return np.where(np.isneginf(upper), 0.0, difference)

    def standard_deviation(self) -> float:
        """Return the standard deviation of the privacy loss under the upper distribution, by the trapezoid rule."""
        sigma, q = self.noise_multiplier, self.sampling_probability
        x = np.linspace(-self.reach, self.reach, 401 + int(16 / sigma))
        density = np.exp(-0.5 * (x / sigma) ** 2)
        if self.direction != "add":
            density = (1 - q) * density + q * np.exp(-0.5 * ((x + 1) / sigma) ** 2)
        density /= density.sum()
        loss = self.loss(x)
        return float(np.sqrt(density @ (loss - density @ loss) ** 2))

    def _loss_remove(self, x: Array) -> Array:
        q = self.sampling_probability
        unsampled = (-2 * x - 1) / (2 * self.noise_multiplier**2)
        loss: Array = np.logaddexp(_log1m(q), np.log(q) + unsampled)
        return loss

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
        small = np.minimum(losses, 1.0)
        large = np.maximum(losses, 1.0)
        with np.errstate(divide="ignore"):  # at or below log(1-q) every x has a larger loss
            of_small = np.log1p(np.maximum(-1.0, np.expm1(small) / q))
        of_large = large - np.log(q) + np.log1p(-(1 - q) * np.exp(-large))
        return -(self.noise_multiplier**2) * np.where(losses < 1.0, of_small, of_large) - 0.5

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

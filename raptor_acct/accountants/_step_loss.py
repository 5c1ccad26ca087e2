"""One step of each of several streams in a standard normal coordinate z: its loss, its density, its domain.

With R(z) = 1 - q + q exp(z/σ - 1/(2σ²)) and A = log R, one step has

    direction    upper distribution    loss             integrand of M(s) = E_upper[exp(s loss)], over φ(z)
    remove       φ R                   A(z)             R(z)^(1+s)
    add          φ                     -A(z)            R(z)^-s
    replace      φ R                   A(z) - A(-z)     R(z)^(1+s) R(-z)^-s

Where the loss is large the density is faded out, by a factor erfc((z - z0) / 0.5) / 2. What is lost has so small an
upper mass that it counts as delta; no tilt, however strong, is then dominated by events too rare to matter.

The first axis of every array is the stream: ten thousand segments are no loop.
"""

import copy
import math

import numpy as np

from raptor_acct.accountants._fade import Array, Fade
from raptor_acct.accountants._one_step import Direction

FEW_POWERS = 40.0  # below 0, that no height of the strip makes expensive
FADE = 0.5  # width over which the density is faded out, in z
LOG_SQRT_2PI = 0.9189385332046727
_SHARPNESS = 0.25  # widths of the factor between small and large losses, in noise multipliers
_BEYOND = 5.0  # how far the coordinate goes on from there


class StepLoss:
    """One step of each of several streams, all in one direction.

    Args:
        sigma: Noise multipliers, shape [streams].
        q: Sampling probabilities below 1, shape [streams].
        direction: Which record is added, removed or replaced.
        rare: At most 1.5 times this upper mass of a step is lost where the density is faded out.

    Attributes:
        sigma: Noise multipliers, shape [streams, 1].
        direction: As given.
        fade: The factor; None where there is none.
        low: Where the coordinate begins, shape [streams, 1].
        high: Where it ends, shape [streams, 1].
    """

    def __init__(self, sigma: Array, q: Array, direction: Direction, rare: float) -> None:
        self.sigma = sigma[:, None]
        self.direction = direction
        self._q = q[:, None]
        self._often = bool(q.max() > 0.5)
        plain = np.full_like(self.sigma, math.sqrt(-2 * math.log(rare)))  # Φ(-z) <= exp(-z²/2) / 2
        shifted = np.sqrt(-2 * np.log(np.minimum(1.0, rare / self._q)))
        widened = math.sqrt(1 + FADE**2 / 2)
        middle = np.maximum(widened * plain, 1 / self.sigma + widened * shifted)
        self.low = -plain - _BEYOND
        self.high = (plain if direction == "add" else middle) + _BEYOND
        self.fade = None if direction == "add" else Fade(middle=middle, width=np.full_like(middle, FADE))

    @property
    def steepest(self) -> Array:
        """About the tilt that moves the mass to where the density fades out, shape [streams, 1]."""
        if self.fade is None:
            return np.full_like(self.sigma, np.inf)
        tallest = np.maximum(np.abs(self.log_ratio(self.fade.middle)), 1e-300)
        steepest: Array = 0.5 * self.fade.middle**2 / tallest
        return steepest

    def faded(self, fade: Fade | None) -> "StepLoss":
        """Return the same with another factor, or none."""
        result = copy.copy(self)
        result.fade = fade
        return result

    def rises_above(self, loss: float) -> Fade:
        """Return a factor that rises about where the loss, if it rises with z, passes ``loss`` > 0."""
        excess = math.log(math.expm1(loss)) if loss < 30 else loss
        middle = self.sigma * np.logaddexp(0.0, excess - np.log(self._q)) + 0.5 / self.sigma
        middle = middle if self.fade is None else np.minimum(middle, self.fade.middle)
        return Fade(middle=middle, width=np.minimum(FADE, _SHARPNESS * self.sigma), sign=-1)

    def mass_above(self, z: Array) -> Array:
        """Return the upper mass above ``z``, before any factor; not in the direction of adding a record."""
        from scipy.special import ndtr  # here, since it takes longer to import than the rest of the package

        result: Array = (1 - self._q) * ndtr(-z) + self._q * ndtr(1 / self.sigma - z)
        return result

    def powers(self, s: float) -> tuple[float, float]:
        """Return the powers of R(z) and of R(-z) in the integrand of M(s)."""
        return {"remove": (1 + s, 0.0), "add": (-s, 0.0), "replace": (1 + s, -s)}[self.direction]

    def negative(self, s: float) -> float:
        """Return by how much in all the powers are below 0."""
        return sum(max(-power, 0.0) for power in self.powers(s))

    def heights(self, shares: Array, tallest: Array, s: float, cost: float) -> Array:
        """Return heights to be tried: shares of the largest one, shape [streams, 1], and of the largest that is cheap.

        That is where negative powers at M(s), with odds of 1, cost ``cost`` / 8 in logs. Shape [streams, heights].
        """
        if self.negative(s) < FEW_POWERS:
            return shares * tallest
        cheap = self.sigma * math.sqrt(cost / self.negative(s))
        return np.concatenate([shares * tallest, shares * np.minimum(cheap, tallest)], axis=1)

    def power_rate(self, power: float, a: Array, z: Array | None = None) -> Array:
        """Return how fast, in logs, a ratio to the ``-power`` may exceed its modulus at z, or anywhere, up to ``a``."""
        sine = np.sin(a / self.sigma / 2)
        rate: Array = -0.5 * np.log1p(-(sine**2)) / a
        if power >= FEW_POWERS and z is not None:
            sampled = self.sampled(-z if self.direction == "replace" else z)
            k = 4 * sampled * (1 - sampled)
            rate = np.minimum(rate, k / (4 * self.sigma * (1 - k * sine**2)))
        return power * rate

    def log_ratio(self, z: Array) -> Array:
        """Return A(z)."""
        y = z / self.sigma - 0.5 / self.sigma**2
        excess = self._q * np.expm1(np.minimum(y, 500.0))  # R - 1, which is of no use where R itself is small
        small = np.log1p(np.maximum(excess, -0.5))
        if self._often:
            ratio = (1 - self._q) + self._q * np.exp(np.minimum(y, 0.0))
            small = np.where(excess < -0.5, np.log(ratio), small)
        return small + np.maximum(y - 500.0, 0.0)

    def odds(self, z: Array) -> Array:
        """Return the posterior odds that the record was not sampled; they fall with z."""
        return (1 - self._q) / self._q * np.exp(np.minimum(0.5 / self.sigma**2 - z / self.sigma, 600.0))

    def sampled(self, z: Array) -> Array:
        """Return σ A'(z), the posterior probability that the record was sampled; it rises with z."""
        return 1 / (1 + self.odds(z))

    def slope(self, z: Array) -> Array:
        """Return the modulus of the derivative of the loss."""
        both = self.sampled(z) + (self.sampled(-z) if self.direction == "replace" else 0.0)
        return both / self.sigma

    def parts(self, z: Array) -> tuple[Array, Array]:
        """Return the logarithm of the upper density over φ, and the loss."""
        ratio = self.log_ratio(z)
        if self.direction == "add":
            return np.zeros_like(ratio), -ratio
        loss = ratio if self.direction == "remove" else ratio - self.log_ratio(-z)
        return ratio if self.fade is None else ratio + self.fade.log(z), loss

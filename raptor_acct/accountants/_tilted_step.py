"""One step of a stream, with every mass and every loss accurate relative to its own size, however small.

Coordinates are those of :mod:`raptor_acct.accountants._one_step`, in standard deviations of the noise. The losses of a
little-noticed record are 1e-14 and their tails 1e-60, so nothing here is a difference of two larger numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._one_step import Array, Direction

ROUNDING = 2.0**-53


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stream's step. Coordinates y are in standard deviations of the noise, and the loss falls with y."""

    shift: float  # 1 / σ
    q: float
    count: int
    direction: Direction

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Return log P and log P/Q of each panel between ascending ``edges``, by Gauss-Legendre quadrature."""
        middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
        total, left, right = (np.zeros(len(half)) for _ in range(3))
        for node, weight in zip(*np.polynomial.legendre.leggauss(4), strict=True):
            t = node * half
            density = weight * np.exp(-t * (middle + t / 2))
            total += density
            if self.direction != "add":
                left += density * np.expm1(-self.shift * t)
            if self.direction != "remove":
                right += density * np.expm1(self.shift * t)
        plain = np.log(half * total) - middle**2 / 2 - math.log(2 * math.pi) / 2
        return self._pair(
            plain,
            np.log1p(left / total) - self.shift * (middle + self.shift / 2),
            np.log1p(right / total) + self.shift * (middle - self.shift / 2),
        )

    def tail(self, y: float, sign: int) -> tuple[float, float]:
        """Return log P and log Q of the coordinates below ``y`` (sign 1) or above it (sign -1)."""
        from scipy.special import log_ndtr

        plain, left, right = log_ndtr(sign * (y + self.shift * np.array([[0.0], [1.0], [-1.0]])))
        log_p, loss = self._pair(plain, left - plain, right - plain)
        return float(log_p[0]), float(log_p[0] - loss[0])

    def density(self, y: Array) -> tuple[Array, Array]:
        """Return the log density of P, and the loss, at the coordinates ``y``."""
        plain = -(y**2) / 2 - math.log(2 * math.pi) / 2
        return self._pair(plain, -self.shift * (y + self.shift / 2), self.shift * (y - self.shift / 2))

    def loss(self, y: float) -> float:
        """Return the loss at the coordinate ``y``."""
        return float(self.density(np.array([y]))[1][0])

    def coordinate(self, losses: Array) -> Array:
        """Return the coordinates of ``losses``, infinite outside their range."""
        if self.direction == "remove":
            return -self._unmixed(losses) / self.shift - self.shift / 2
        if self.direction == "add":
            return self._unmixed(-losses) / self.shift + self.shift / 2
        # By hand: y = -(asinh(e^(shift²/2) (1-q)/q sinh(l/2)) + l/2) / shift.
        half = np.abs(losses) / 2
        with np.errstate(divide="ignore"):
            log_sinh = half + np.log(-np.expm1(-2 * half) / 2)
        log_sinh += self.shift**2 / 2 + self._log_rest - math.log(self.q)
        asinh = np.where(log_sinh < 300, np.arcsinh(np.exp(np.minimum(log_sinh, 300))), log_sinh + math.log(2))
        return -np.sign(losses) * (asinh + half) / self.shift

    @property
    def _log_rest(self) -> float:
        return math.log1p(-self.q) if self.q < 1 else -math.inf

    def _pair(self, plain: Array, left: Array, right: Array) -> tuple[Array, Array]:
        """Return log P and log P/Q, from log N(0) and the log ratios of the shifted normals to it."""
        upper = np.zeros(1) if self.direction == "add" else self._mixed(left)
        lower = np.zeros(1) if self.direction == "remove" else self._mixed(right)
        return plain + upper, upper - lower

    def _mixed(self, ratio: Array) -> Array:
        """Return log(1 - q + q e^ratio), accurate relative to its own size."""
        small = np.log1p(self.q * np.expm1(np.clip(ratio, -1, 1)))
        return np.where(np.abs(ratio) <= 1, small, np.logaddexp(self._log_rest, math.log(self.q) + ratio))

    def _unmixed(self, losses: Array) -> Array:
        """Return the inverse of :meth:`_mixed`, -inf below its range."""
        small = np.clip(losses, -1.0, 1.0)
        with np.errstate(divide="ignore"):
            of_small = np.log1p(np.maximum(-1.0, np.expm1(small) / self.q))
            rest = (1 - self.q) * np.exp(np.minimum(-losses, 700.0))
            of_large = losses - math.log(self.q) + np.log1p(-np.minimum(1.0, rest))
        return np.where(np.abs(losses) < 1.0, of_small, of_large)


def log_peak(c: float) -> float:
    """Return the logarithm of the largest e^(-c v) (1 - e^-v) over v > 0."""
    return c * (math.log(c) - math.log1p(c)) - math.log1p(c)


def log_total(steps: Sequence[Step], tails: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the logarithms of the masses P and Q of ``tails``, summed over all steps."""
    logs = [[math.log(step.count) + log for log in tail] for step, tail in zip(steps, tails, strict=True)]
    log_p, log_q = np.logaddexp.reduce(logs)
    return float(log_p), float(log_q)


def trapezoid(step: Step, cut: float, end: float) -> tuple[Array, Array]:
    """Return log P and the loss of points that stand for the coordinates from ``cut`` to ``end``."""
    y, spacing = np.linspace(cut, end, 2 + int(10 * (end - cut)), retstep=True)
    mass, loss = step.density(y)
    mass += math.log(spacing)
    mass[[0, -1]] -= math.log(2)
    on_lattice = step.tail(cut, -1)[0]  # exactly, since it may be raised to the power 1e8
    return mass + (on_lattice - np.logaddexp.reduce(mass)), loss

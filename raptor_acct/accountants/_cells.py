"""Bounds on one step's density and phase over cells of z, which rest on monotonicity alone; Riemann sums of them.

Whatever certifies is bounded by such sums. See :mod:`raptor_acct.accountants._step_loss` for the notation.
"""

from functools import cached_property

import numpy as np

from raptor_acct.accountants._fade import Array
from raptor_acct.accountants._step_loss import FEW_POWERS, LOG_SQRT_2PI, StepLoss

HUGE = 600.0  # log of a bound that is of no use
_WIDTHS, _FEW = (0.125, 0.25), 64  # of the cells, in z: for so few streams and for more


class Cells:
    """The domain of z cut into cells, from ``edges[:, i]`` to ``edges[:, i + 1]``, of one ``width`` for each stream."""

    def __init__(self, loss: StepLoss) -> None:
        self._loss = loss
        length = loss.high - loss.low
        count = int(np.ceil(length.max() / _WIDTHS[len(length) > _FEW]))
        self.edges: Array = loss.low + length * np.linspace(0.0, 1.0, count + 1)
        self.width: Array = self.edges[:, 1:2] - self.edges[:, :1]

    def log_sup(self, s: float) -> Array:
        """Return the log of an upper bound on the integrand of M(s) in each cell."""
        up, down = self._loss.powers(s)
        ratio = self._ratio
        bound = self._log_plain_sup + up * (ratio[:, 1:] if up > 0 else ratio[:, :-1])
        return bound + down * self._ratio_back[:, 1:] if down else bound

    def log_inf(self, s: float) -> Array:
        """Return the log of a lower bound on the integrand of M(s) in each cell."""
        up, down = self._loss.powers(s)
        left, right = self.edges[:, :-1], self.edges[:, 1:]
        normal = -0.5 * np.maximum(left**2, right**2) - LOG_SQRT_2PI
        bound = normal + up * (self._ratio[:, :-1] if up > 0 else self._ratio[:, 1:])
        bound = bound if self._loss.fade is None else bound + self._loss.fade.log_inf(self.edges)
        return bound + down * self._ratio_back[:, :-1] if down else bound

    def variance_bound(self, c: float, log_mgf: Array, mean: Array, spare: float) -> tuple[Array, Array]:
        """Return bounds on the tilted mean square of loss - mean, but for a share at large z, and on that share.

        The share is at most ``spare``. Both shapes are [streams, 1].
        """
        mass = np.exp(np.minimum(self.log_sup(c) - log_mgf, HUGE)) * self.width
        above = sum_above(mass)
        kept = above > spare
        distance = np.abs(self._loss.parts(self.edges)[1] - mean)
        farthest = np.maximum(distance[:, :-1], distance[:, 1:])
        variance = np.where(kept, mass * farthest**2, 0.0).sum(axis=1, keepdims=True)
        return variance, np.where(kept, 0.0, above).max(axis=1, keepdims=True)

    def fade_rise(self, a: Array, cells: slice = slice(None)) -> Array:
        """Return by how much, in logs, the fade may exceed its bound at heights ``a``, [streams, heights, cells]."""
        depth, fade = self._fade_depth[:, cells], self._loss.fade
        return np.zeros((*a.shape, depth.shape[1])) if fade is None else fade.rise(a, depth)

    def power_rise(self, power: float, a: Array, cells: slice) -> Array:
        """Return by how much, in logs, a ratio to the ``-power`` may exceed its bound at heights ``a``.

        |R(z + iy)|² = R(z)² (1 - k sin²(y/2σ)), k = 4 odds / (1 + odds)², which is largest where the odds are 1. For
        small powers that will do everywhere. Shape [streams, heights, cells or 1].
        """
        half = a[:, :, None] / self._loss.sigma[:, :, None] / 2
        if power < FEW_POWERS:
            return -power * np.log(np.cos(half))
        odds = (self._odds_back if self._loss.direction == "replace" else self._odds)[:, None, :]
        k = 4 * odds / (1 + odds) / (1 + odds)
        between = (odds[..., :-1] >= 1) & (odds[..., 1:] <= 1)
        largest = np.where(between, 1.0, np.maximum(k[..., :-1], k[..., 1:]))[..., cells]
        rise: Array = -0.5 * power * np.log1p(-largest * np.sin(half) ** 2)
        return rise

    def largest_phase(self, angle: Array, cells: slice) -> Array:
        """Return the largest phase of the ratios in cells at heights ``angle`` σ: [streams, heights, cells]."""
        back = self._odds_back[:, :-1] if self._loss.direction == "replace" else None
        return _phase(angle, self._odds[:, 1:], back, cells)

    def least_phase(self, angle: Array) -> Array:
        """Return the least phase, in the same form."""
        back = self._odds_back[:, 1:] if self._loss.direction == "replace" else None
        return _phase(angle, self._odds[:, :-1], back, slice(None))

    @cached_property
    def log_normal_sup(self) -> Array:
        """The log of an upper bound on the normal density in each cell."""
        left, right = self.edges[:, :-1], self.edges[:, 1:]
        nearest = np.where(left * right < 0, 0.0, np.minimum(np.abs(left), np.abs(right)))
        bound: Array = -0.5 * nearest**2 - LOG_SQRT_2PI
        return bound

    @cached_property
    def _log_plain_sup(self) -> Array:
        """The same times the fade."""
        fade = self._loss.fade
        return self.log_normal_sup if fade is None else self.log_normal_sup + fade.log_sup(self._fade_depth)

    @cached_property
    def _fade_depth(self) -> Array:
        fade = self._loss.fade
        return np.zeros_like(self.edges[:, 1:]) if fade is None else fade.nearest(self.edges)

    @cached_property
    def _ratio(self) -> Array:
        return self._loss.log_ratio(self.edges)

    @cached_property
    def _ratio_back(self) -> Array:
        return self._loss.log_ratio(-self.edges)

    @cached_property
    def _odds(self) -> Array:
        return self._loss.odds(self.edges)

    @cached_property
    def _odds_back(self) -> Array:
        return self._loss.odds(-self.edges)


def _phase(angle: Array, odds: Array, back: Array | None, cells: slice) -> Array:
    """Return the argument of odds + exp(i angle), and that of the ratio at -z: it falls with the odds."""
    sine, cosine = np.sin(angle)[:, :, None], np.cos(angle)[:, :, None]
    phase: Array = np.arctan2(sine, odds[:, None, cells] + cosine)
    if back is not None:
        phase += np.arctan2(sine, back[:, None, cells] + cosine)
    return phase


def sum_above(x: Array) -> Array:
    """Return the sums over the last axis from each cell on."""
    return x[..., ::-1].cumsum(axis=-1)[..., ::-1]

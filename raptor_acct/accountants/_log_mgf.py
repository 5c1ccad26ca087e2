"""One step's privacy loss under an exponential tilt: its log-MGF on a complex line, with error bounds.

In a standard normal coordinate z, with R(z) = 1 - q + q exp(z/σ - 1/(2σ²)) and A = log R, one step has

    direction    upper distribution    loss             integrand of M(s) = E_upper[exp(s loss)], over φ(z)
    remove       φ R                   A(z)             R(z)^(1+s)
    add          φ                     -A(z)            R(z)^-s
    replace      φ R                   A(z) - A(-z)     R(z)^(1+s) R(-z)^-s

Where the loss is large the density is faded out, by a factor erfc((z - z0) / 0.5) / 2. What is lost has so small an
upper mass that it counts as delta; no tilt, however strong, is then dominated by events too rare to matter.

The integral is a midpoint sum of step h. The integrand is analytic for |Im z| < πσ, so for any height a < πσ the sum
errs by at most

    2 S / (exp(2πa/h) - 1)  +  2 a (f(low) + f(high))

where S is the integral of the modulus on Im z = ±a and f the modulus at the two ends, provided that up to height y it
grows there by exp(2πy/h) at most (proofs/c3_quadrature.py). S, and everything else that certifies, is bounded by
an upper Riemann sum over cells of z, which rests on monotonicity alone.

The first axis of every array is the stream: ten thousand segments are no loop.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from raptor_acct.accountants._one_step import Direction

Array = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]

ROUNDING = 2.0**-48  # 16 units in the last place: more than any one formula below loses
_CELL = 0.25
_FADE = 0.5  # width over which the density is faded out, in z
_BEYOND = 5.0  # how far the coordinate goes on from there
_TALLEST = 12.0  # height of the strip tried
_SHRUNK = 400.0  # eight times the logarithm that powers of R below zero may cost
_HEIGHTS = np.array([1.0, 0.5, 0.2, 0.06])  # of the strip, as shares of the largest one; the best is taken
_LOG_SQRT_2PI = 0.9189385332046727
_BLOCK = 1 << 16  # elements of the largest arrays: they stay in the cache
_MOST_NODES, _MOST_TERMS = 1 << 17, 1 << 23  # beyond, the method is the wrong one


class TooFine(Exception):
    """The quadrature would take too many nodes."""


@dataclass(frozen=True, kw_only=True)
class TiltedLoss:
    """The loss of one step under a tilt c, as a discrete distribution: the nodes of the quadrature.

    Attributes:
        share: Tilted probabilities, shape [streams, nodes].
        centred: Loss less its tilted mean, shape [streams, nodes].
        mean: Tilted mean of the loss, shape [streams, 1].
        log_mgf: log M(c), shape [streams, 1].
        mgf_rounding: Bound on the rounding error of log_mgf, shape [streams, 1].
        loss_rounding: Bound on the mean rounding error of the loss, shape [streams, 1].
        error: Bound on the quadrature error of M(c + it) relative to M(c), up to the t it was made for, shape
            [streams, 1].
    """

    share: Array
    centred: Array
    mean: Array
    log_mgf: Array
    mgf_rounding: Array
    loss_rounding: Array
    error: Array

    def ratio(self, t: Array) -> Complex:
        """Return M(c + it) exp(-it mean) / M(c) - 1 without cancellation, shape [streams, len(t)]."""
        streams, nodes = self.share.shape
        if nodes * len(t) > _MOST_TERMS:
            raise TooFine
        result = np.empty((streams, len(t)), dtype=np.complex128)
        count = max(1, _BLOCK // (streams * nodes))
        for start in range(0, len(t), count):
            half = self.centred[:, None, :] * (t[None, start : start + count, None] / 2)
            sine, cosine = np.sin(half), np.cos(half, out=half)
            twice = np.matmul(np.multiply(sine, cosine, out=cosine), self.share[:, :, None])[..., 0]
            square = np.matmul(np.square(sine, out=sine), self.share[:, :, None])[..., 0]
            result[:, start : start + count] = 2j * twice - 2 * square
        return result


class Steps:
    """One step of each of several streams, all in one direction.

    Args:
        sigma: Noise multipliers, shape [streams].
        q: Sampling probabilities below 1, shape [streams].
        direction: Which record is added, removed or replaced.
        rare: At most 1.5 times this upper mass of a step is lost where the density is faded out.
    """

    def __init__(self, sigma: Array, q: Array, direction: Direction, rare: float) -> None:
        self._sigma = sigma[:, None]
        self._q = q[:, None]
        self._direction = direction
        self._often = bool(q.max() > 0.5)
        plain = np.full_like(self._sigma, math.sqrt(-2 * math.log(rare)))  # Φ(-z) <= exp(-z²/2) / 2
        shifted = np.sqrt(-2 * np.log(np.minimum(1.0, rare / self._q)))
        widened = math.sqrt(1 + _FADE**2 / 2)
        self._fading = np.maximum(widened * plain, 1 / self._sigma + widened * shifted)
        self._low = -plain - _BEYOND
        self._high = (plain if direction == "add" else self._fading) + _BEYOND

    @property
    def steepest(self) -> Array:
        """About the tilt that moves the mass to where the density fades out, shape [streams, 1]."""
        tallest = np.maximum(np.abs(self._log_ratio(self._fading)), 1e-300)
        return 0.5 * self._fading**2 / tallest if self._direction != "add" else np.full_like(self._sigma, np.inf)

    def table(self, s: Array) -> Array:
        """Return log M at several tilts, good to about 1e-9 but for the ends, shape [streams, len(s)]."""
        z, width, _ = self._midpoints(s[[0, -1]], np.zeros_like(self._sigma), 0.0, 28.0, 7.0)
        weight, loss = self._parts(z)
        exponent = weight[:, None, :] + s[None, :, None] * loss[:, None, :]
        log_normal = np.log(width) - 0.5 * z**2 - _LOG_SQRT_2PI
        return _log_mean_exp(exponent, log_normal[:, None, :])

    def log_ends(self, s: Array) -> Array:
        """Return the log of a bound on what cutting the coordinate costs the quadrature of M at several tilts.

        This is the second term of the error; the first is as small as one likes. Shape [streams, len(s)].
        """
        z = np.concatenate([self._low, self._high], axis=1)
        weight, loss = self._parts(z)
        logs = weight[:, None, :] + s[None, :, None] * loss[:, None, :] - 0.5 * z[:, None, :] ** 2 - _LOG_SQRT_2PI
        return math.log(2 * _TALLEST) + np.logaddexp(logs[..., 0], logs[..., 1])

    def tilted(self, c: float, log_mgf: Array, t: float, digits: float, margin: float = 7.0) -> TiltedLoss:
        """Return the loss under the tilt c, on nodes fine enough for M(c + it) up to ``t``.

        Args:
            c: The tilt, above 0.
            log_mgf: log M(c), good to a few digits, shape [streams, 1].
            t: The largest imaginary part to be asked for.
            digits: The quadrature's error relative to M(c) is about exp(-digits) at most.
            margin: Cells below exp(-digits - margin) are left out at both sides; what that costs is in the error.
        """
        z, width, outside = self._midpoints(np.array([c]), log_mgf, t, digits, margin)
        weight, loss = self._parts(z)
        exponent = weight + c * loss
        log_normal = np.log(width) - 0.5 * z**2 - _LOG_SQRT_2PI
        log_mgf = _log_mean_exp(exponent, log_normal)[:, None]
        share = np.exp(exponent + log_normal - log_mgf)
        mean = (share * loss).sum(axis=1, keepdims=True)
        # The relative error of exp(y) is the absolute one of y. That of the loss stems from z/σ - 1/(2σ²).
        of_loss = np.abs(loss) + np.abs(weight) + self._slope(z) * (np.abs(z) + 1 / self._sigma)
        change = np.abs(share - np.exp(log_normal - log_mgf)) * (1 + z**2) + share * (1 + c) * of_loss
        return TiltedLoss(
            share=share,
            centred=loss - mean,
            mean=mean,
            log_mgf=log_mgf,
            mgf_rounding=ROUNDING * change.sum(axis=1, keepdims=True),
            loss_rounding=ROUNDING * (share * of_loss).sum(axis=1, keepdims=True),
            error=math.exp(-digits) * (1.4 + 4 * _TALLEST * math.exp(-margin))
            + outside
            + np.exp(np.minimum(self.log_ends(np.array([c])) - log_mgf, 600.0)),
        )

    def variance_bound(self, c: float, log_mgf: Array, mean: Array, spare: float) -> tuple[Array, Array]:
        """Return bounds on the tilted mean square of loss - mean, but for a share at large z, and on that share.

        The share is at most ``spare``. Both shapes are [streams, 1].
        """
        mass = np.exp(self._log_sup(c) - log_mgf) * self._width
        above = mass[:, ::-1].cumsum(axis=1)[:, ::-1]
        kept = above > spare
        distance = np.abs(self._loss_at_edges - mean)
        farthest = np.maximum(distance[:, :-1], distance[:, 1:])
        variance = np.where(kept, mass * farthest**2, 0.0).sum(axis=1, keepdims=True)
        return variance, np.where(kept, 0.0, above).max(axis=1, keepdims=True)

    def decay(self, c: float, log_mgf: Array) -> tuple[Array, Array]:
        """Return shares p and variations v with |M(c + it) / M(c)| <= 1 - p + min(p, v / |t|) for each pair.

        A pair belongs to the piece of the line above an edge z. On it the integral of exp(it loss) against the tilted
        density is, by parts, at most the total variation of density / loss' over t; what lies below z counts in full.
        Both shapes are [streams, edges].
        """
        up, down = self._powers(c)
        left, right = self._edges[:, :-1], self._edges[:, 1:]
        w = self._sampled(self._edges)
        # The logarithmic derivative of density / loss' in z lies in [least, most] on a cell.
        least, most = _product(up + (self._direction != "replace"), w)
        least, most = least - right * self._sigma - 1, most - left * self._sigma - 1
        if self._direction == "replace":
            back = _product(-down, self._sampled(-self._edges))
            least, most = least + back[0], most + back[1] + 2
        slope = np.maximum(np.abs(least), np.abs(most)) / self._sigma + self._fade_slope
        log_density = self._log_integrand_at_edges(c) - np.log(np.abs(self._slope(self._edges))) - log_mgf
        middle = 0.5 * (log_density[:, :-1] + log_density[:, 1:])
        variation = np.exp(middle + 0.5 * self._width * slope) * slope * self._width
        mass = np.exp(self._log_sup(c) - log_mgf) * self._width
        ends = np.exp(log_density[:, :-1]) + np.exp(log_density[:, -1:])
        above = variation[:, ::-1].cumsum(axis=1)[:, ::-1] + ends
        share = np.clip(1 - (mass.cumsum(axis=1) - mass), 0.0, 1.0)
        return share[:, ::4], above[:, ::4]

    def _powers(self, s: float) -> tuple[float, float]:
        """Return the powers of R(z) and of R(-z) in the integrand of M(s)."""
        return {"remove": (1 + s, 0.0), "add": (-s, 0.0), "replace": (1 + s, -s)}[self._direction]

    def _log_ratio(self, z: Array) -> Array:
        """Return A(z)."""
        y = z / self._sigma - 0.5 / self._sigma**2
        excess = self._q * np.expm1(np.minimum(y, 500.0))  # R - 1, which is of no use where R itself is small
        small = np.log1p(np.maximum(excess, -0.5))
        if self._often:
            ratio = (1 - self._q) + self._q * np.exp(np.minimum(y, 0.0))
            small = np.where(excess < -0.5, np.log(ratio), small)
        return small + np.maximum(y - 500.0, 0.0)

    def _sampled(self, z: Array) -> Array:
        """Return σ A'(z), the posterior probability that the record was sampled; it rises with z."""
        y = z / self._sigma - 0.5 / self._sigma**2
        return 1 / (1 + (1 - self._q) / self._q * np.exp(np.minimum(-y, 600.0)))

    def _slope(self, z: Array) -> Array:
        """Return the modulus of the derivative of the loss."""
        both = self._sampled(z) + (self._sampled(-z) if self._direction == "replace" else 0.0)
        return both / self._sigma

    def _parts(self, z: Array) -> tuple[Array, Array]:
        """Return the logarithm of the upper density over φ, and the loss."""
        ratio = self._log_ratio(z)
        if self._direction == "add":
            return np.zeros_like(ratio), -ratio
        loss = ratio if self._direction == "remove" else ratio - self._log_ratio(-z)
        return ratio + self._log_fade(z), loss

    def _log_fade(self, z: Array) -> Array:
        from scipy.special import log_ndtr  # here, since it takes longer to import than the rest of the package

        result: Array = log_ndtr((self._fading - z) * (math.sqrt(2) / _FADE))
        return result

    def _fade_rise(self, a: Array, cells: slice) -> Array:
        """Return by how much, in logs, the fade may exceed its bound on the real line at heights ``a``.

        |erfc(x + iy)| <= exp(y²) erfc(x) for x >= 0, and erfc(x) = 2 - erfc(-x). Shape [streams, heights, cells].
        """
        x, squared = self._fade_distance[:, None, cells], (a[:, :, None] / _FADE) ** 2
        if self._direction == "add":
            return np.zeros(np.broadcast_shapes(x.shape, squared.shape))
        return np.where(x > 0, squared, np.logaddexp(0.0, squared - x**2 - math.log(2)))

    def _midpoints(
        self, tilts: Array, log_mgf: Array, t: float, digits: float, margin: float
    ) -> tuple[Array, Array, Array]:
        """Return nodes z, their spacing, and what lies outside, for all tilts between the given ones.

        See the head of this file. ``log_mgf`` is a lower bound on log M there; the bounds are largest at the ends of
        the range (Hölder). The sum runs over a hull outside of which the integrand is too small to matter.
        """
        bounds = [self._log_sup(float(s)) - log_mgf for s in tilts]
        # The normal density itself is inside, since M - 1 is summed on the same nodes.
        largest = np.maximum(np.maximum(bounds[0], bounds[-1]), self._log_plain_sup - log_mgf)
        first, last = _hull(largest > -digits - margin)
        rows = np.arange(len(first))
        low, high = self._edges[rows, first][:, None], self._edges[rows, last + 1][:, None]
        # Several heights a of the strip are tried, shape [streams, heights]; the best one is taken.
        negative = max(self._negative(float(s)) for s in tilts)
        tallest = np.minimum(_TALLEST, 0.95 * np.pi * self._sigma)
        a = _HEIGHTS * np.minimum(tallest, self._sigma * math.sqrt(_SHRUNK / max(negative, 1e-9)))
        log_half_angle = np.log(np.cos(a / self._sigma / 2))
        begin, end = int(first.min()), int(last.max()) + 1
        fade = self._fade_rise(a, slice(begin, end))
        rise = fade + t * self._phase(a / self._sigma, slice(begin, end)) if t else fade
        totals = [
            _log_sum(bound[:, None, begin:end] + rise)[..., 0] - self._negative(float(s)) * log_half_angle
            for s, bound in zip(tilts, bounds, strict=True)
        ]
        total = np.maximum(totals[0], totals[-1]) + np.log(self._width) + 0.5 * a**2
        inside = (digits + math.log(4.0) + np.maximum(total, 0.0)) / a
        growth = np.maximum(fade[rows, :, first - begin], fade[rows, :, last - begin])
        growth = (growth - negative * log_half_angle) / a + a / 2
        at_ends = growth + t * np.maximum(self._slope(low), self._slope(high)) * np.exp(-log_half_angle)
        frequency = np.maximum(inside, at_ends).min(axis=1, keepdims=True)
        cells = np.arange(bounds[0].shape[1])
        inner = (cells >= first[:, None]) & (cells <= last[:, None])
        mass = np.where(inner, 0.0, np.exp(np.minimum(largest, 0.0))).sum(axis=1, keepdims=True) * self._width
        count = math.ceil(((high - low) * frequency).max() / (2 * math.pi))
        if count > _MOST_NODES:
            raise TooFine
        width = (high - low) / count
        return low + width * (np.arange(count) + 0.5), width, mass

    def _negative(self, s: float) -> float:
        return sum(max(-power, 0.0) for power in self._powers(s))

    def _phase(self, angle: Array, cells: slice) -> Array:
        """Return the largest phase of the ratios in cells at heights ``angle`` σ: [streams, heights, cells]."""
        sine, cosine = np.sin(angle)[:, :, None], np.cos(angle)[:, :, None]
        phase: Array = np.arctan2(sine, self._odds[:, None, 1:][..., cells] + cosine)
        if self._direction == "replace":
            phase += np.arctan2(sine, self._odds_back[:, None, :-1][..., cells] + cosine)
        return phase

    # The cells of the Riemann sums, shape [streams, cells] or [streams, edges] --------------------------------------

    @cached_property
    def _edges(self) -> Array:
        count = int(np.ceil((self._high - self._low).max() / _CELL))
        edges: Array = self._low + (self._high - self._low) * np.linspace(0.0, 1.0, count + 1)
        return edges

    @cached_property
    def _width(self) -> Array:
        return self._edges[:, 1:2] - self._edges[:, :1]

    @cached_property
    def _odds(self) -> Array:
        return (1 - self._q) / self._q * np.exp(np.minimum(0.5 / self._sigma**2 - self._edges / self._sigma, 600.0))

    @cached_property
    def _odds_back(self) -> Array:
        return (1 - self._q) / self._q * np.exp(np.minimum(0.5 / self._sigma**2 + self._edges / self._sigma, 600.0))

    @cached_property
    def _ratio_at_edges(self) -> Array:
        return self._log_ratio(self._edges)

    @cached_property
    def _ratio_back(self) -> Array:
        return self._log_ratio(-self._edges)

    @cached_property
    def _loss_at_edges(self) -> Array:
        return self._parts(self._edges)[1]

    @cached_property
    def _fade_distance(self) -> Array:
        """How far above the start of the fade a cell lies (below: negative), in widths of the fade."""
        x: Array = (self._edges - self._fading) / _FADE
        return np.where(x[:, 1:] < 0, x[:, 1:], np.maximum(x[:, :-1], 0.0))

    @cached_property
    def _log_plain_sup(self) -> Array:
        """The log of an upper bound on the normal density times the fade, in each cell."""
        left, right = self._edges[:, :-1], self._edges[:, 1:]
        nearest = np.where(left * right < 0, 0.0, np.minimum(np.abs(left), np.abs(right)))
        normal = -0.5 * nearest**2 - _LOG_SQRT_2PI
        x = self._fade_distance
        return normal if self._direction == "add" else normal - np.where(x > 0, x**2 + math.log(2), 0.0)

    @cached_property
    def _fade_slope(self) -> Array | float:
        """An upper bound on the logarithmic derivative of the fade in each cell."""
        if self._direction == "add":
            return 0.0
        x = (self._edges[:, 1:] - self._fading) / _FADE
        slope: Array = (1.13 * np.exp(-(np.minimum(x, 0.0) ** 2)) + 2 * np.maximum(x, 0.0)) / _FADE
        return slope

    def _log_sup(self, s: float) -> Array:
        """Return the log of an upper bound on the integrand of M(s) in each cell."""
        up, down = self._powers(s)
        ratio = self._ratio_at_edges
        bound = self._log_plain_sup + up * (ratio[:, 1:] if up > 0 else ratio[:, :-1])
        return bound + down * self._ratio_back[:, 1:] if down else bound

    def _log_integrand_at_edges(self, s: float) -> Array:
        up, down = self._powers(s)
        log = -0.5 * self._edges**2 - _LOG_SQRT_2PI + up * self._ratio_at_edges
        log = log if self._direction == "add" else log + self._log_fade(self._edges)
        return log + down * self._ratio_back if down else log


def _hull(keep: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the first and the last True of each row."""
    return np.argmax(keep, axis=1), keep.shape[1] - 1 - np.argmax(keep[:, ::-1], axis=1)


def _log_sum(x: Array) -> Array:
    """Return log Σ exp(x) over the last axis, which stays."""
    top = x.max(axis=-1, keepdims=True)
    result: Array = top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True))
    return result


def _log_mean_exp(exponent: Array, log_weight: Array) -> Array:
    """Return log Σ exp(log_weight + exponent) over the last axis, where the weights sum to 1: exact also near 0."""
    result: Array = _log_sum(exponent + log_weight)[..., 0]
    small = (np.exp(log_weight) * np.expm1(np.minimum(exponent, 600.0))).sum(axis=-1)
    return np.where(np.abs(result) < 1, np.log1p(small), result)


def _product(factor: float, values: Array) -> tuple[Array, Array]:
    """Return the least and the largest factor · values in each cell, for values that rise or fall with z."""
    left, right = factor * values[:, :-1], factor * values[:, 1:]
    return np.minimum(left, right), np.maximum(left, right)

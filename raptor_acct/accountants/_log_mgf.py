"""One step's privacy loss under an exponential tilt: its log-MGF on a complex line, with error bounds.

The integral over z (see :mod:`raptor_acct.accountants._step_loss`) is a midpoint sum of step h. The integrand is
analytic for |Im z| < πσ, so for any height a < πσ the sum errs by at most

    2 S / (exp(2πa/h) - 1)  +  2 a (f(low) + f(high))

where S is the integral of the modulus on Im z = ±a and f the modulus at the two ends, provided that up to height y it
grows there by exp(2πy/h) at most (proofs/c3_quadrature.py). S is bounded by an upper Riemann sum over cells of z.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from raptor_acct.accountants._cells import Cells
from raptor_acct.accountants._fade import Array, Fade
from raptor_acct.accountants._lifted import Lifted, LiftedPart, lifted, lifted_part
from raptor_acct.accountants._step_loss import LOG_SQRT_2PI, StepLoss

Complex = npt.NDArray[np.complex128]

ROUNDING = 2.0**-48  # 16 units in the last place: more than any one formula below loses
_TALLEST = 12.0  # height of the strip tried
_SHRUNK = 400.0  # eight times the logarithm that powers of R below zero may cost
_HEIGHTS = np.array([1.0, 0.5, 0.2, 0.06])  # of the strip, as shares of the largest one; the best is taken
_SMALL = 1 << 16  # multiplications in a product of matrices: more would be split among threads, which may cost more
_BLOCK = 1 << 15  # elements of the largest arrays: they stay in the cache
_LARGE = 600.0  # of logarithms whose exponentials are floats, with room to spare
_MOST_NODES = 1 << 17  # beyond, the method is the wrong one


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
        loss_rounding: Bound on the mean rounding error of the loss, and of turning by it, shape [streams, 1].
        error: Bound on the quadrature error of M(c + it) relative to M(c), up to the t it was made for, shape
            [streams, 1].
        large: The shares of large losses, by the part of the density that was asked for; shape [streams, nodes].
        large_rounding: Bound on the rounding error of their sum, and on how it grows with t, shape [streams, 1] each.
    """

    share: Array
    centred: Array
    mean: Array
    log_mgf: Array
    mgf_rounding: Array
    loss_rounding: Array
    error: Array
    large: Array
    large_rounding: tuple[Array, Array]

    def ratio(self, t: Array) -> Complex:
        """Return M(c + it) exp(-it mean) / M(c) - 1 without cancellation, shape [streams, len(t)]."""
        streams, nodes = self.share.shape
        result = np.empty((streams, len(t)), dtype=np.complex128)
        count = max(1, _BLOCK // (streams * nodes))
        for start in range(0, len(t), count):
            half = self.centred[:, None, :] * (t[None, start : start + count, None] / 2)
            sine, cosine = np.sin(half), np.cos(half, out=half)
            twice = np.matmul(np.multiply(sine, cosine, out=cosine), self.share[:, :, None])[..., 0]
            square = np.matmul(np.square(sine, out=sine), self.share[:, :, None])[..., 0]
            result[:, start : start + count] = 2j * twice - 2 * square
        return result

    def on_grid(self, spacing: float, count: int, *shares: Array) -> list[Complex]:
        """Return the sums of ``shares`` times exp(it centred) - 1 at t = 0, spacing, ...: [streams, count] each.

        A turn by an angle is one by a coarse and one by a fine part of it, exp(iα + iβ) - 1 = a b + a + b with
        a = exp(iα) - 1 and b = exp(iβ) - 1: few trigonometric functions, and still no cancellation.
        """
        streams, nodes = self.share.shape
        width = math.isqrt(count - 1) + 1
        rounds = -(-count // width)
        sums = [np.zeros((streams, rounds, width), dtype=np.complex128) for _ in shares]
        size = max(1, _BLOCK // (streams * width))
        for start in range(0, nodes, size):
            piece = self.centred[:, start : start + size]
            fine, coarse = _turns(piece * spacing, width), _turns(piece * (spacing * width), rounds)
            for total, share in zip(sums, shares, strict=True):
                total += _product(coarse * share[:, start : start + size], fine)
        for total in sums:
            total[:, 1:, 1:] += total[:, 1:, :1] + total[:, :1, 1:]
            total[:, 0, 0] = 0.0
        return [total.reshape(streams, -1)[:, :count] for total in sums]


class Steps:
    """One step of each of several streams, all in one direction.

    Attributes:
        step: Their loss and density.
        large: The factor that takes the part of large losses out of the density, if it is asked for.
    """

    def __init__(self, step: StepLoss, large: Fade | None = None) -> None:
        self.step = step
        self.large = large

    @cached_property
    def cells(self) -> Cells:
        """The cells of the Riemann sums."""
        return Cells(self.step)

    def table(self, s: Array, digits: float = 28.0) -> tuple[Array, Array]:
        """Return log M at several tilts, and the log of the share that large losses have in it.

        Good to about 1e-9 but for the ends. Shape [streams, len(s)] each.
        """
        z, width, _ = self._midpoints(s[[0, -1]], np.zeros_like(self.step.sigma), 0.0, digits, 7.0)
        weight, loss = self.step.parts(z)
        exponent = weight[:, None, :] + s[None, :, None] * loss[:, None, :]
        log_normal = (np.log(width) - 0.5 * z**2 - LOG_SQRT_2PI)[:, None, :]
        log_mgf = _log_mean_exp(exponent, log_normal)
        if self.large is None:
            return log_mgf, np.full_like(log_mgf, -np.inf)
        return log_mgf, _log_sum(exponent + log_normal + self.large.log(z)[:, None, :])[..., 0] - log_mgf

    def log_ends(self, s: Array) -> Array:
        """Return the log of a bound on what cutting the coordinate costs the quadrature of M at several tilts.

        This is the second term of the error; the first is as small as one likes. Shape [streams, len(s)].
        """
        z = np.concatenate([self.step.low, self.step.high], axis=1)
        weight, loss = self.step.parts(z)
        logs = weight[:, None, :] + s[None, :, None] * loss[:, None, :] - 0.5 * z[:, None, :] ** 2 - LOG_SQRT_2PI
        return math.log(2 * _TALLEST) + np.logaddexp(logs[..., 0], logs[..., 1])

    def tilted(
        self, c: float, log_mgf: Array, t: float, digits: float, *, margin: float = 7.0, most: int = _MOST_NODES
    ) -> TiltedLoss:
        """Return the loss under the tilt c, on nodes fine enough for M(c + it) up to ``t``.

        Args:
            c: The tilt, above 0.
            log_mgf: log M(c), good to a few digits, shape [streams, 1].
            t: The largest imaginary part to be asked for.
            digits: The quadrature's error relative to M(c) is about exp(-digits) at most.
            margin: Cells below exp(-digits - margin) are left out at both sides; what that costs is in the error.
            most: The most nodes.

        Raises:
            TooFine: If that takes more nodes.
        """
        z, width, outside = self._midpoints(np.array([c]), log_mgf, t, digits, margin, most)
        weight, loss = self.step.parts(z)
        exponent = weight + c * loss
        log_normal = np.log(width) - 0.5 * z**2 - LOG_SQRT_2PI
        log_mgf = _log_mean_exp(exponent, log_normal)[:, None]
        share = np.exp(exponent + log_normal - log_mgf)
        mean = (share * loss).sum(axis=1, keepdims=True)
        # The relative error of exp(y) is the absolute one of y. That of the loss stems from z/σ - 1/(2σ²).
        of_loss = np.abs(loss) + np.abs(weight) + self.step.slope(z) * (np.abs(z) + 1 / self.step.sigma)
        large, depth = np.zeros_like(share), np.zeros_like(z)
        if self.large is not None:
            large, depth = share * np.exp(self.large.log(z)), (z - self.large.middle) / self.large.width
        turned = of_loss + 2 * np.abs(loss - mean)  # as much is lost in turning by it: 4.3 units for each doubling
        change = np.abs(share - np.exp(log_normal - log_mgf)) * (1 + z**2) + share * (1 + c) * of_loss
        return TiltedLoss(
            share=share,
            centred=loss - mean,
            mean=mean,
            log_mgf=log_mgf,
            mgf_rounding=ROUNDING * change.sum(axis=1, keepdims=True),
            loss_rounding=ROUNDING * (share * turned).sum(axis=1, keepdims=True),
            large=large,
            large_rounding=(
                ROUNDING * (large * (1 + z**2 + 2 * depth**2 + (1 + c) * of_loss)).sum(axis=1, keepdims=True),
                ROUNDING * (large * turned).sum(axis=1, keepdims=True),
            ),
            error=math.exp(-digits) * (1.4 + 4 * _TALLEST * math.exp(-margin))
            + outside
            + np.exp(np.minimum(self.log_ends(np.array([c])) - log_mgf, 600.0)),
        )

    def lifted(self, c: float, log_mgf: Array) -> Lifted:
        """Return by how much |M(c + it)| is below M(c) at large t."""
        return lifted(self.step, self.cells, c, log_mgf)

    def lifted_part(self, c: float, log_mgf: Array) -> LiftedPart:
        """Return what large losses contribute to |M(c + it)|, at most, at large t."""
        assert self.large is not None
        return lifted_part(self.step, self.cells, self.large, c, log_mgf)

    def large_mass(self) -> Array:
        """Return a bound on the upper mass of large losses, shape [streams]."""
        assert self.large is not None
        log_sup = self.cells.log_sup(0.0) + self.large.log_sup(self.large.nearest(self.cells.edges))
        result: Array = (np.exp(log_sup) * self.cells.width).sum(axis=1)
        return result

    def _midpoints(
        self, tilts: Array, log_mgf: Array, t: float, digits: float, margin: float, most: int = _MOST_NODES
    ) -> tuple[Array, Array, Array]:
        """Return nodes z, their spacing, and what lies outside, for all tilts between the given ones.

        See the head of this file. ``log_mgf`` is a lower bound on log M there; the bounds are largest at the ends of
        the range (Hölder). The sum runs over a hull outside of which the integrand is too small to matter.
        """
        step, cells = self.step, self.cells
        bounds = [cells.log_sup(float(s)) - log_mgf for s in tilts]
        # The normal density itself is inside, since M - 1 is summed on the same nodes.
        largest = np.maximum(np.maximum(bounds[0], bounds[-1]), cells.log_normal_sup - log_mgf)
        first, last = _hull(largest > -digits - margin)
        rows = np.arange(len(first))
        low, high = cells.edges[rows, first][:, None], cells.edges[rows, last + 1][:, None]
        # Several heights a of the strip are tried, shape [streams, heights]; the best one is taken.
        negative = max(step.negative(float(s)) for s in tilts)
        tallest = np.minimum(_TALLEST, 0.95 * np.pi * step.sigma)
        a = _HEIGHTS * np.minimum(tallest, step.sigma * math.sqrt(_SHRUNK / max(negative, 1e-9)))
        log_half_angle = np.log(np.cos(a / step.sigma / 2))
        begin, end = int(first.min()), int(last.max()) + 1
        fade = cells.fade_rise(a, slice(begin, end))
        if self.large is not None:  # the nodes have to be fine enough for the part as well as for the whole
            depth = self.large.nearest(cells.edges)[:, begin:end]
            fade = fade + np.maximum(self.large.rise(a, depth) + self.large.log_sup(depth)[:, None, :], 0.0)
        rise = fade + t * cells.largest_phase(a / step.sigma, slice(begin, end)) if t else fade
        totals = [
            _log_sum(bound[:, None, begin:end] + rise)[..., 0] - step.negative(float(s)) * log_half_angle
            for s, bound in zip(tilts, bounds, strict=True)
        ]
        total = np.maximum(totals[0], totals[-1]) + np.log(cells.width) + 0.5 * a**2
        inside = (digits + math.log(4.0) + np.maximum(total, 0.0)) / a
        growth = np.maximum(fade[rows, :, first - begin], fade[rows, :, last - begin])
        growth = (growth - negative * log_half_angle) / a + a / 2
        at_ends = growth + t * np.maximum(step.slope(low), step.slope(high)) * np.exp(-log_half_angle)
        frequency = np.maximum(inside, at_ends).min(axis=1, keepdims=True)
        index = np.arange(bounds[0].shape[1])
        inner = (index >= first[:, None]) & (index <= last[:, None])
        mass = np.where(inner, 0.0, np.exp(np.minimum(largest, 0.0))).sum(axis=1, keepdims=True) * cells.width
        count = math.ceil(((high - low) * frequency).max() / (2 * math.pi))
        if count > most:
            raise TooFine
        width = (high - low) / count
        return low + width * (np.arange(count) + 0.5), width, mass


def _turns(angle: Array, count: int) -> Complex:
    """Return 1, and exp(ik angle) - 1 for k = 1, 2, ... by doubling: [count, streams, nodes] for [streams, nodes]."""
    result = np.empty((max(count, 2), *angle.shape), dtype=np.complex128)
    sine, cosine = np.sin(0.5 * angle), np.cos(0.5 * angle)
    result[0] = 1.0
    result[1].real, result[1].imag = -2 * sine**2, 2 * sine * cosine
    known = 2
    while known < count:
        more = min(known - 1, count - known)
        few, last, new = result[1 : 1 + more], result[known - 1], result[known : known + more]
        np.multiply(few, last, out=new)
        new += few
        new += last
        known += more
    return result[:count]


def _product(left: Complex, right: Complex) -> Complex:
    """Return the sums over nodes of [i, streams, nodes] times [j, streams, nodes]: [streams, i, j]."""
    left, right = left.transpose(1, 0, 2), right.transpose(1, 2, 0)
    total = np.zeros((*left.shape[:2], right.shape[2]), dtype=np.complex128)
    some = max(1, _SMALL // (left.shape[1] * right.shape[2]))
    for start in range(0, left.shape[2], some):
        total += np.matmul(left[..., start : start + some], right[:, start : start + some])
    return total


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
    weight = np.exp(log_weight)
    if exponent.max() < _LARGE:
        change = (weight * np.expm1(exponent)).sum(axis=-1)
    else:  # where the weight is too small for a float, what it is multiplied by may be as large
        large = np.exp(np.minimum(exponent + log_weight, _LARGE)) - weight
        change = np.where(exponent < 1, weight * np.expm1(np.minimum(exponent, 1.0)), large).sum(axis=-1)
    near: Array = np.log1p(np.maximum(change, -0.5))
    if change.min() > -0.5 and near.max() < _LARGE:
        return near
    return np.where((change > -0.5) & (near < _LARGE), near, _log_sum(exponent + log_weight)[..., 0])

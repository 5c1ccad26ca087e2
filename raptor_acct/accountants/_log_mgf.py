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
from raptor_acct.accountants._tilted_loss import ROUNDING, TiltedLoss

Index = npt.NDArray[np.intp]

_TALLEST = 12.0  # height of the strip tried
_SHRUNK = 400.0  # eight times the logarithm that powers of R below zero may cost
_HEIGHTS = np.array([1.0, 0.5, 0.2, 0.06])  # of the strip, as shares of the largest one; the best is taken
_LARGE = 600.0  # of logarithms whose exponentials are floats, with room to spare
_NOTHING = -1e9  # such a logarithm
_MANY = 5000.0  # radians
_MOST_NODES = 1 << 17  # beyond, the method is the wrong one


class TooFine(Exception):
    """The quadrature would take too many nodes."""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes of a quadrature.

    Attributes:
        z: Where they are, shape [streams, nodes].
        log_density: The logarithm of the upper density over φ there, in the same form.
        loss: The loss, in the same form.
        log_normal: Log of φ times the spacing, in the same form.
        count: How many there are of the rest; those of large losses follow.
        outside: Bound on what lies outside of them, relative to M(c), shape [streams, 1].
    """

    z: Array
    log_density: Array
    loss: Array
    log_normal: Array
    count: int
    outside: Array

    def with_large(self, large: "Nodes") -> "Nodes":
        """Return these nodes and then those of large losses."""

        def both(name: str) -> Array:
            return np.concatenate([getattr(self, name), getattr(large, name)], axis=1)

        arrays = {name: both(name) for name in ("z", "log_density", "loss", "log_normal")}
        return Nodes(**arrays, count=self.count, outside=self.outside + large.outside)


class Steps:
    """One step of each of several streams, all in one direction.

    If large losses are asked for, their density is that of ``step`` times the factor ``large``. The rest is a step with
    what this factor lacks to 1 as its only one; it has nodes of its own, since it needs far fewer.

    Attributes:
        step: Their loss and density.
        large: The factor that takes the part of large losses out of the density, if it is asked for.
        rest: The steps without that part.
    """

    def __init__(self, step: StepLoss, large: Fade | None = None) -> None:
        self.step = step
        self.large = large
        self.rest = None if large is None else Steps(step.faded(large.mirrored()))

    @cached_property
    def cells(self) -> Cells:
        """The cells of the Riemann sums."""
        return Cells(self.step)

    def table(self, s: Array, digits: float = 28.0) -> tuple[Array, Array]:
        """Return log M at several tilts, and the log of the share that large losses have in it.

        Good to about 1e-9 but for the ends. Shape [streams, len(s)] each.
        """
        nodes = self._nodes(s[[0, -1]], np.zeros_like(self.step.sigma), 0.0, digits, 7.0)
        exponent = nodes.log_density[:, None, :] + s[None, :, None] * nodes.loss[:, None, :]
        log_normal = nodes.log_normal[:, None, :]
        log_mgf = _log_mean_exp(exponent, log_normal, nodes.count)
        if self.large is None:
            return log_mgf, np.full_like(log_mgf, -np.inf)
        return log_mgf, _log_sum((exponent + log_normal)[..., nodes.count :])[..., 0] - log_mgf

    def log_ends(self, s: Array) -> Array:
        """Return the log of a bound on what cutting the coordinate costs the quadrature of M at several tilts.

        This is the second term of the error; the first is as small as one likes. Shape [streams, len(s)].
        """
        z = np.concatenate([self.step.low, self.step.high], axis=1)
        weight, loss = self.step.parts(z)
        logs = weight[:, None, :] + s[None, :, None] * loss[:, None, :] - 0.5 * z[:, None, :] ** 2 - LOG_SQRT_2PI
        ends: Array = math.log(2 * _TALLEST) + np.logaddexp(logs[..., 0], logs[..., 1])
        return ends if self.rest is None else np.logaddexp(ends, self.rest.log_ends(s))

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
        nodes = self._nodes(np.array([c]), log_mgf, t, digits, margin, most)
        z, loss, log_normal, count = nodes.z, nodes.loss, nodes.log_normal, nodes.count
        exponent = nodes.log_density + c * loss
        log_mgf = _log_mean_exp(exponent, log_normal, count)[:, None]
        share = np.exp(exponent + log_normal - log_mgf)
        mean = (share * loss).sum(axis=1, keepdims=True)
        # The relative error of exp(y) is the absolute one of y. That of the loss stems from z/σ - 1/(2σ²).
        of_loss = np.abs(loss) + np.abs(nodes.log_density) + self.step.slope(z) * (np.abs(z) + 1 / self.step.sigma)
        large, depth, plain = share.copy(), np.zeros_like(z), np.exp(log_normal - log_mgf)
        large[:, :count], plain[:, count:] = 0.0, 0.0
        if self.large is not None:
            depth = (z - self.large.middle) / self.large.width
        turned = of_loss + 2 * np.abs(loss - mean)  # as much is lost in turning by it: 4.3 units for each doubling
        change = np.abs(share - plain) * (1 + z**2) + share * (1 + c) * of_loss
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
            error=(1 if self.large is None else 2) * math.exp(-digits) * (1.4 + 4 * _TALLEST * math.exp(-margin))
            + nodes.outside
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

    def _nodes(
        self, tilts: Array, log_mgf: Array, t: float, digits: float, margin: float, most: int = _MOST_NODES
    ) -> Nodes:
        """Return nodes for all tilts between the given ones: of the rest, then of large losses if these are asked for.

        See the head of this file. ``log_mgf`` is a lower bound on log M there; the bounds are largest at the ends of
        the range (Hölder). The sum runs over a hull outside of which the integrand is too small to matter.
        """
        cells, least = self.cells, -digits - margin
        bounds = [cells.log_sup(float(s)) - log_mgf for s in tilts]
        if self.large is not None:
            factor = self.large.log_sup(self.large.nearest(cells.edges))
            bounds = [bound + factor for bound in bounds]
        largest = np.maximum(bounds[0], bounds[-1])
        first, last = inner = _hull(largest >= np.minimum(least, largest.max(axis=1, keepdims=True)))
        lost = np.exp(np.minimum(largest, 0.0)) * cells.width
        if self.large is None:  # the normal density itself has to be inside, since M - 1 is summed on the same nodes
            normal = cells.log_normal_sup - log_mgf
            left, right = _hull(normal > least)
            first, last = np.minimum(first, left), np.maximum(last, right)
            lost = np.maximum(lost, np.exp(np.minimum(normal, 0.0)) * cells.width)
        low, high = _ends(cells, first, last)
        outside = _sum_outside(lost, first, last)
        frequency, kept = self._frequency(tilts, bounds, t, digits, first, last), (low, high)
        if ((high - low) * frequency).max() > _MANY:  # where the integrand itself is smaller, it may end sooner
            within, reach = (_widened(inner, more, first, last) for more in (1, 2))
            sooner = self._frequency(tilts, bounds, t, digits, *reach, exact=False)
            frequency, kept = np.maximum(sooner, 2 * math.pi / cells.width), _ends(cells, *within)
            outside += _sum_outside(np.exp(np.minimum(largest, 0.0)) * cells.width, *within)
        count = math.ceil(((high - low) * frequency).max() / (2 * math.pi))
        if count > most:
            raise TooFine
        width = (high - low) / count
        z = low + width * (np.arange(count) + 0.5)
        log_density, loss = self._parts(z)
        if kept[0] is not low:
            inside = (z > kept[0]) & (z < kept[1])
            log_density, loss = np.where(inside, log_density, _NOTHING), np.where(inside, loss, 0.0)
        log_normal = np.log(width) - 0.5 * z**2 - LOG_SQRT_2PI
        own = Nodes(z=z, log_density=log_density, loss=loss, log_normal=log_normal, count=count, outside=outside)
        return own if self.rest is None else self.rest._nodes(tilts, log_mgf, t, digits, margin, most).with_large(own)

    def _frequency(
        self, tilts: Array, bounds: list[Array], t: float, digits: float, first: Index, last: Index, exact: bool = True
    ) -> Array:
        """Return how fine the nodes between two cells have to be, 2π over their spacing, shape [streams, 1].

        Unless the ends are exact, the sum may end a cell or two sooner.
        """
        step, cells, farthest = self.step, self.cells, float(tilts[-1])
        rows, (low, high) = np.arange(len(first)), _ends(cells, first, last)
        # Several heights a of the strip are tried, shape [streams, heights]; the best one is taken.
        a = step.heights(_HEIGHTS, np.minimum(_TALLEST, 0.95 * np.pi * step.sigma), farthest, _SHRUNK)
        begin, end = int(first.min()), int(last.max()) + 1
        fade = cells.fade_rise(a, slice(begin, end))
        if self.large is not None:
            fade = fade + self.large.rise(a, self.large.nearest(cells.edges)[:, begin:end])
        rise = fade + t * cells.largest_phase(a / step.sigma, slice(begin, end)) if t else fade
        totals = [
            _log_sum(bound[:, None, begin:end] + rise + cells.power_rise(step.negative(float(s)), a, slice(begin, end)))
            for s, bound in zip(tilts, bounds, strict=True)
        ]
        total = np.maximum(totals[0], totals[-1])[..., 0] + np.log(cells.width) + 0.5 * a**2
        inside = (digits + math.log(4.0) + np.maximum(total, 0.0)) / a
        growth = np.maximum(fade[rows, :, first - begin], fade[rows, :, last - begin])
        growth = growth / a + a / 2
        if negative := step.negative(farthest):
            ends = (low, high) if exact else (None, None)
            growth += np.maximum(*(step.power_rate(negative, a, z) for z in ends))
        at_ends = growth + t * np.maximum(step.slope(low), step.slope(high)) / np.cos(a / step.sigma / 2)
        frequency: Array = np.maximum(inside, at_ends).min(axis=1, keepdims=True)
        return frequency

    def _parts(self, z: Array) -> tuple[Array, Array]:
        """Return the logarithm of the upper density over φ, of large losses if they are asked for, and the loss."""
        log_density, loss = self.step.parts(z)
        return log_density if self.large is None else log_density + self.large.log(z), loss


def _ends(cells: Cells, first: Index, last: Index) -> tuple[Array, Array]:
    """Return where the first cells begin and where the last ones end, shape [streams, 1] each."""
    rows = np.arange(len(first))
    return cells.edges[rows, first][:, None], cells.edges[rows, last + 1][:, None]


def _widened(inner: tuple[Index, Index], cells: int, first: Index, last: Index) -> tuple[Index, Index]:
    """Return a range of cells widened at both ends, but not beyond another."""
    return np.maximum(inner[0] - cells, first), np.minimum(inner[1] + cells, last)


def _sum_outside(x: Array, first: Index, last: Index) -> Array:
    """Return the sums over the cells that are not between the first and the last, shape [streams, 1]."""
    index = np.arange(x.shape[1])
    result: Array = np.where((index < first[:, None]) | (index > last[:, None]), x, 0.0).sum(axis=1, keepdims=True)
    return result


def _hull(keep: npt.NDArray[np.bool_]) -> tuple[Index, Index]:
    """Return the first and the last True of each row."""
    return np.argmax(keep, axis=1), keep.shape[1] - 1 - np.argmax(keep[:, ::-1], axis=1)


def _log_sum(x: Array) -> Array:
    """Return log Σ exp(x) over the last axis, which stays."""
    top = x.max(axis=-1, keepdims=True)
    result: Array = top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True))
    return result


def _log_mean_exp(exponent: Array, log_weight: Array, count: int) -> Array:
    """Return log Σ exp(log_weight + exponent) over the last axis, exact also near 0.

    The first ``count`` weights sum to 1; what the others add is no less exact than that.
    """
    near, far, weight = exponent[..., :count], exponent[..., count:], np.exp(log_weight[..., :count])
    if near.max() < _LARGE:
        change = (weight * np.expm1(near)).sum(axis=-1)
    else:  # where the weight is too small for a float, what it is multiplied by may be as large
        large = np.exp(np.minimum(near + log_weight[..., :count], _LARGE)) - weight
        change = np.where(near < 1, weight * np.expm1(np.minimum(near, 1.0)), large).sum(axis=-1)
    if far.size:
        change += np.exp(np.minimum(far + log_weight[..., count:], _LARGE)).sum(axis=-1)
    result: Array = np.log1p(np.maximum(change, -0.5))
    if change.min() > -0.5 and result.max() < _LARGE:
        return result
    return np.where((change > -0.5) & (result < _LARGE), result, _log_sum(exponent + log_weight)[..., 0])

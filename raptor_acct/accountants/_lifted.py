"""How much of a step's characteristic function is lost at a frequency: its integral over z, on a path lifted up.

The integral for M(c + it) runs along the real axis up to some z1, straight up (where the loss falls with z: down) to a
height a, on at that height to the end of the domain, and back down. Up there the integrand is smaller by
exp(-t phase), where the phase is that of the ratio R. So

    |M(c + it)| <= M(c) - mass above z1 + what is left of it on the lifted path,

for all larger t as well. The masses are Riemann sums, of lower bounds for what is taken away and of upper bounds for
what is left; proofs/c4_nodes_left_out.py derives it.
"""

from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._cells import HUGE, Cells, sum_above
from raptor_acct.accountants._fade import Array, Fade
from raptor_acct.accountants._step_loss import StepLoss

_HEIGHTS = np.array([1.0, 0.5, 0.25, 0.1])  # tried, as shares of the largest one; the best is taken
_PART_HEIGHTS, _PART_TALLEST = np.array([1.0, 0.7, 0.5, 0.3, 0.15]), 3.0  # likewise; that one in widths of the factor
_TALLEST, _WIDEST = 3.0, 1.2  # height in z, and as an angle: its cosine has to be positive
_COST = 50.0  # eight times the logarithm that powers of R below zero may cost
_UNSURE = 1e-8  # relatively, more than a tabulated M(c) may be off


@dataclass(frozen=True, kw_only=True)
class Lifted:
    """Paths for each height and each z1, the left edge of a cell. Masses are shares of M(c).

    Attributes:
        above: At most the mass above z1, shape [streams, 1, cells].
        log_mass: Log of at least what a cell holds at the height, but for the phase, shape [streams, heights, cells].
        phase: At most its phase, in the same form.
        log_jump: Log of at least the density on the way up at z1, times the height, but for the phase, in the same
            form.
        rise: At most how fast the phase rises on that way, times the height, in the same form.
        end: At least the way back down, shape [streams, heights, 1].
    """

    above: Array
    log_mass: Array
    phase: Array
    log_jump: Array
    rise: Array
    end: Array

    def lost(self, t: float) -> Array:
        """Return p with |M(c + iu) / M(c)| <= 1 - p for all u >= ``t`` > 0, shape [streams]."""
        left = sum_above(np.exp(np.minimum(self.log_mass - t * self.phase, HUGE)))
        left = left + np.exp(np.minimum(self.log_jump, HUGE)) / np.maximum(1.0, t * self.rise) + self.end
        result: Array = np.maximum((self.above - (1 + _UNSURE) * left).max(axis=(1, 2)), 0.0)
        return result


@dataclass(frozen=True, kw_only=True)
class LiftedPart:
    """Paths for each height along the whole domain, for a part of the density. Masses are shares of M(c).

    Attributes:
        log_mass: Log of at least what a cell holds at the height, but for the phase, shape [streams, heights, cells].
        phase: At most its phase, in the same form.
        ends: At least the ways up and down at the two ends, shape [streams, heights].
    """

    log_mass: Array
    phase: Array
    ends: Array

    def left(self, t: float) -> Array:
        """Return a bound on the part's |M(c + iu)| for all u >= ``t``, shape [streams]."""
        left = np.exp(np.minimum(self.log_mass - t * self.phase, HUGE)).sum(axis=2) + self.ends
        result: Array = (1 + _UNSURE) * left.min(axis=1)
        return result


def lifted_part(loss: StepLoss, cells: Cells, part: Fade, c: float, log_mgf: Array) -> LiftedPart:
    """Return paths for the tilt ``c`` and the part of the density that a factor takes out of it."""
    a = loss.heights(_PART_HEIGHTS, np.minimum(_PART_TALLEST * part.width, _tallest(loss)), c, _COST)
    depth = part.nearest(cells.edges)
    log_density = cells.log_sup(c) - log_mgf + part.log_sup(depth)
    log_density = log_density[:, None, :] + _growth(loss, cells, c, a) + part.rise(a, depth)
    return LiftedPart(
        log_mass=log_density + np.log(cells.width)[:, :, None],
        phase=cells.least_phase(a / loss.sigma),
        ends=a * np.exp(np.minimum(log_density[..., [0, -1]], HUGE)).sum(axis=2),
    )


def _tallest(loss: StepLoss) -> Array:
    """Return the largest height to be tried, shape [streams, 1]."""
    tallest: Array = np.minimum(_TALLEST, loss.sigma * _WIDEST)
    return tallest


def _growth(loss: StepLoss, cells: Cells, c: float, a: Array) -> Array:
    """Return by how much the modulus may exceed its bound at heights ``a``, in logs, [streams, heights, cells]."""
    growth: Array = 0.5 * a[:, :, None] ** 2 + cells.fade_rise(a)
    return growth + cells.power_rise(loss.negative(c), a, slice(None))


def lifted(loss: StepLoss, cells: Cells, c: float, log_mgf: Array) -> Lifted:
    """Return paths for the tilt ``c``, with log M(c) good to nine digits, shape [streams, 1]."""
    a = loss.heights(_HEIGHTS, _tallest(loss), c, _COST)
    angle, growth = a / loss.sigma, _growth(loss, cells, c, a)
    log_sup, width = cells.log_sup(c) - log_mgf, cells.width
    mass, least = np.exp(np.minimum(log_sup, HUGE)) * width, np.exp(cells.log_inf(c) - log_mgf) * width
    below = mass.cumsum(axis=1) - mass
    above = np.maximum(1 - (1 + _UNSURE) * below - _UNSURE, (1 - _UNSURE) * sum_above(least))
    log_jump = log_sup[:, None, :] + growth + np.log(a)[:, :, None]
    return Lifted(
        above=np.maximum(above, 0.0)[:, None, :],
        log_mass=log_sup[:, None, :] + growth + np.log(width)[:, :, None],
        phase=cells.least_phase(angle),
        log_jump=log_jump,
        rise=_least_rise(loss, cells.edges[:, :-1], angle) * angle[:, :, None],
        end=np.exp(np.minimum(log_jump[:, :, -1:], HUGE)),
    )


def _least_rise(loss: StepLoss, z: Array, angle: Array) -> Array:
    """Return the least derivative of the phase by the angle, up to ``angle``, shape [streams, heights, z].

    For each ratio it is w (w + (1 - w) x) / (1 - 2 w (1 - w) (1 - x)), w the probability that the record was sampled
    and x the angle's cosine, and monotone in x.
    """
    x = np.cos(angle)[:, :, None]
    total = np.zeros(np.broadcast_shapes(x.shape, z[:, None, :].shape))
    for w in (loss.sampled(z), loss.sampled(-z)) if loss.direction == "replace" else (loss.sampled(z),):
        w = w[:, None, :]
        total += np.minimum(w, w * (w + (1 - w) * x) / (1 - 2 * w * (1 - w) * (1 - x)))
    return total

"""Chernoff's bound on delta of steps without large losses, by Riemann sums that rest on monotonicity alone.

A factor that falls with z takes the large losses out of the upper law of each step. Even so much faded, far out they
would dominate every strong tilt: beyond some z they are cut off altogether, and their mass counts as delta.

With A = R(z), B = R(-z) and powers u and d, the integrand of M over φ is A^u B^d. It rises with z, so over a cell it is
largest at the right end, and the factor at the left. In the bulk that is too rough, for A and B have mean 1 and what
counts is of second order. There the integrand is 1 + u (A - 1) + d (B - 1) plus a remainder that is convex in (A, B),
largest at a corner of the cell; and the linear part has a closed form.
"""

import itertools

import numpy as np

from raptor_acct.accountants._fade import Array, Fade
from raptor_acct.accountants._line import Plan, Table
from raptor_acct.accountants._step_loss import StepLoss
from raptor_acct.accountants._tilted_loss import ROUNDING
from raptor_acct.accountants.contour import Chernoff

_TILTS = 2.0 ** (np.arange(-4, 25) / 2)  # tried, over epsilon
_MOST_CELLS, _LEAST_CELLS = 1 << 12, 1 << 8  # of z: over the streams of a block, of a stream
_BULK = -1e-3  # log of the factor
_LARGEST = 600.0  # log of a term


def small_losses(plan: Plan, near: float, allowed: float) -> Chernoff:
    """Return the bound for what a plan of large losses leaves, made for an epsilon but valid at any.

    Args:
        plan: The plan, not in the direction of adding a record.
        near: The epsilon, above 0.
        allowed: Mass that may be cut off and count as delta.
    """
    tilts = _TILTS / near
    total, outside = 0.5 * plan.gaussian * tilts * (tilts + 1), 0.0
    for steps, number in plan.blocks:
        assert steps.large is not None
        log_mgf, lost = _bounds(steps.step, steps.large.mirrored(), tilts, allowed / plan.steps)
        total = total + (number * log_mgf).sum(axis=0)
        outside += float((number * lost).sum())
    none = np.zeros_like(tilts)
    return Chernoff(table=Table(tilts=tilts, log_mgfs=[], total=total, log_part=none, ends=none), outside=outside)


def _bounds(step: StepLoss, fade: Fade, tilts: Array, allowed: float) -> tuple[Array, Array]:
    """Return upper bounds on log M, shape [streams, tilts], and on the mass cut off, shape [streams, 1]."""
    from scipy.special import ndtr  # here, since it takes longer to import than the rest of the package

    count = max(_MOST_CELLS // len(step.sigma), _LEAST_CELLS)
    edges = step.low + (step.high - step.low) * np.linspace(0.0, 1.0, count + 1)
    log_factor, index = fade.log(edges), np.arange(count)
    beyond = np.exp(log_factor) * step.mass_above(edges)
    cut = np.minimum((beyond > allowed).sum(axis=1, keepdims=True), count)
    bulk = np.minimum(np.maximum((log_factor > _BULK).sum(axis=1, keepdims=True) - 1, 0), cut)
    left, right = edges[:, :-1], edges[:, 1:]
    mass = np.where(left > 0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))
    powers = np.array([step.powers(float(s)) for s in tilts])
    up, down = powers[None, :, :1], powers[None, :, 1:]
    a, b = step.log_ratio(edges), step.log_ratio(-edges) if powers[:, 1].any() else np.zeros_like(edges)

    def log_integrand(log_a: Array, log_b: Array) -> Array:
        result: Array = up * log_a[:, None, :] + down * log_b[:, None, :]
        return result

    def excess(log: Array) -> Array:
        result: Array = np.expm1(np.minimum(log, _LARGEST))
        return result

    corners = itertools.product((a[:, :-1], a[:, 1:]), (b[:, :-1], b[:, 1:]) if powers[:, 1].any() else (b[:, 1:],))
    remainders = [
        excess(log_integrand(x, y)) - log_integrand(excess(x), excess(y))  # the linear part is linear in A - 1, B - 1
        for x, y in corners
    ]
    largest = excess(log_integrand(a[:, 1:], b[:, 1:]) + log_factor[:, None, :-1])
    bound = np.where((index < bulk)[:, None, :], np.maximum.reduce(remainders), largest)
    change = (np.where(index < cut, mass, 0.0)[:, None, :] * bound).sum(axis=2, keepdims=True)

    def above(z: Array) -> Array:  # the mean of A - 1 above z
        return (step.mass_above(z) - ndtr(-z))[:, None, :]

    start, end = edges[:, :1], np.take_along_axis(edges, bulk, axis=1)
    change += up * (above(start) - above(end)) + down * (above(-end) - above(-start)) + ROUNDING * (up - down)
    last = log_integrand(np.take_along_axis(a, cut, axis=1), np.take_along_axis(b, cut, axis=1))
    log_mgf = np.where(last < _LARGEST, np.log1p(np.maximum(change, -0.5)), np.inf)[..., 0]
    return log_mgf, np.take_along_axis(beyond, cut, axis=1)

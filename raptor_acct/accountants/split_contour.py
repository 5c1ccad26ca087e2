"""Delta as several contour integrals: of what has no large loss in any of its steps, and of what has one, by its size.

Where a record is seldom sampled, nearly all mass stays at no loss at all and delta comes from a few events. On a line
on which these count, the integrand of :mod:`raptor_acct.accountants.contour` is that mass, for ever longer, and its
terms cancel. So let smooth factors at ever larger losses cut the upper law of each step, U_0 < U_1 < ... < P. Then

    P^n = U_0^n + (U_1^n - U_0^n) + (U_2^n - U_1^n) + ...,

all measures, and delta adds. With V = U_1 - U_0 the second has the log-MGF log(U_1^n - U_0^n), without cancellation
from what V contributes to M; its integrand falls off as that of V does, at once, and all its losses are of one size.
The first is a sum of small losses, nearly normal, if Chernoff's bound does not already say that it does not matter.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raptor_acct.accountants._line import Plan
from raptor_acct.accountants._log_mgf import Steps
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._small_losses import small_losses
from raptor_acct.accountants._step_loss import StepLoss
from raptor_acct.accountants.contour import Chernoff, Contour, inverted

_SPLIT = 2.0  # epsilon over the loss at which to split
_FINER, _COARSER = (3.0, 4.0, 6.0, 10.0, 20.0, 40.0), (1.4, 1.0)  # tried where that does not do
_RATIO = 16.0  # of the ratio of the densities, less 1, at one such loss to the next
_LARGEST = 0.25  # loss with a next one: farther on, losses rise but linearly with z
_NARROW = 2e-7  # relative width that is good enough
_NO_MATTER = 1e-8  # share of delta


@dataclass(frozen=True, kw_only=True)
class SplitContour:
    """The parts.

    Attributes:
        small: Of all steps without large losses.
        large: Of the rest, by the size of the largest.
        outside: Mass that may be in none of them.
        twice: Mass that may be in two of them.
    """

    small: Contour | Chernoff
    large: tuple[Contour, ...]
    outside: float
    twice: float

    def delta(self, eps: float) -> tuple[float, float]:
        """Return a lower and an upper bound on delta at ``eps`` >= 0."""
        lower, upper = map(sum, zip(*(part.delta(eps) for part in (self.small, *self.large)), strict=True))
        return max(0.0, lower - self.twice), min(1.0, upper + self.outside)

    def width(self, eps: float) -> float:
        """Return the relative width of delta at ``eps``."""
        lower, upper = self.delta(eps)
        return 1 - lower / upper if upper else 0.0


def split_contour(
    streams: Sequence[tuple[float, float, int]], direction: Direction, near: float, expected: float
) -> SplitContour | None:
    """Return the parts, with large losses those that matter at ``near``; arguments as in :func:`contour`.

    Returns:
        The parts; None if no contour resolves the large losses.
    """

    def at(split: float) -> SplitContour | None:
        return _split_at(near / split, streams, direction, near, expected)

    best = at(_SPLIT)
    if best is None:
        return next(filter(None, map(at, _COARSER)), None)
    for split in _FINER:
        width = best.width(near)
        parts = at(split) if width > _NARROW else None
        if parts is None:
            break
        best = min(best, parts, key=lambda parts: parts.width(near))
        if best.width(near) > width / 2:  # what is left is not the small losses'
            break
    return best


def _split_at(
    loss: float, streams: Sequence[tuple[float, float, int]], direction: Direction, near: float, expected: float
) -> SplitContour | None:
    """Return the parts for losses that are small below ``loss``.

    The less that is, the finer a contour the large ones need, and the less is left for the others.
    """

    def above(low: float) -> Plan:
        return Plan(streams, direction, expected, lambda step: Steps(step, step.rises_above(low)))

    def between(low: float, high: float) -> Plan:
        return Plan(streams, direction, expected, lambda step: Steps(_faded(step, high), step.rises_above(low)))

    negligible, most_often = _NO_MATTER * expected, max(q for _, q, _ in streams if q < 1)
    places, plans = [loss], [above(loss)]
    while places[-1] < _LARGEST and plans[-1].mass > 0.1 * negligible:
        places.append(math.log1p(_RATIO * math.expm1(places[-1]) + (_RATIO - 1) * most_often))
        plans.append(above(places[-1]))
    wanted, outside = list(itertools.starmap(between, itertools.pairwise(places))), plans[-1].mass
    if outside > 0.1 * negligible:
        wanted, outside = [*wanted, plans[-1]], 0.0
    large = []
    for plan in wanted:
        part = inverted(plan, near, expected)
        if isinstance(part, Chernoff):
            return None
        large.append(part)
    small: Contour | Chernoff = small_losses(plans[0], near, 0.1 * negligible)
    if small.delta(near)[1] > negligible:
        exact = inverted(Plan(streams, direction, expected, lambda step: Steps(_faded(step, loss))), near, expected)
        small = exact if exact.delta(near)[1] < small.delta(near)[1] else small
    twice = sum(itertools.starmap(_overlap, itertools.pairwise(plans)))
    return SplitContour(small=small, large=tuple(large), outside=outside + plans[-1].outside, twice=twice)


def _faded(step: StepLoss, loss: float) -> StepLoss:
    """Return a step without losses above ``loss``."""
    return step.faded(step.rises_above(loss).mirrored())


def _overlap(lower: Plan, upper: Plan) -> float:
    """Return a bound on the mass that is below the place where the one plan begins and above that of the other.

    With both factors erfc/2, their middles d widths apart, it is at most exp(-d²)/2 below the first middle, and beyond
    it exp(-d²/4) of the mass there; and it is above the second place.
    """
    total = 0.0
    for (low, number), (high, _) in zip(lower.blocks, upper.blocks, strict=True):
        assert low.large is not None
        assert high.large is not None
        squared = ((high.large.middle - low.large.middle) / high.large.width) ** 2
        mass = 0.5 * np.exp(-squared) + np.exp(-squared / 4) * low.step.mass_above(low.large.middle)
        total += float((number * np.minimum(mass, high.large_mass()[:, None])).sum())
    return total + upper.outside

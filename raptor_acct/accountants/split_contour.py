"""Delta as two contour integrals: of what has a large loss in one of its steps, and of what has none.

Where a record is seldom sampled, nearly all mass stays at no loss at all and delta comes from a few events. On a line
on which these count, the integrand of :mod:`raptor_acct.accountants.contour` is that mass, for ever longer, and its
terms cancel. So let a smooth factor split the upper law of each step into small and large losses, P = U + V. Then

    P^n = U^n + (P^n - U^n),

both measures, and delta adds. The second has the log-MGF log(M^n - U^n), without cancellation from what V contributes
to M; its integrand falls off as that of V does, at once. The first is a sum of small losses, nearly normal: another
line suits it, if Chernoff's bound does not already say that it does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raptor_acct.accountants._line import NO_TABLE, Plan, table_about
from raptor_acct.accountants._log_mgf import Steps, TooFine
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._step_loss import StepLoss
from raptor_acct.accountants.contour import Chernoff, Contour, inverted

_SPLITS = 2.0, 3.0, 4.0, 6.0, 10.0, 20.0  # epsilon over the loss at which to split, tried in turn
_NO_MATTER = 1e-10  # share of delta


@dataclass(frozen=True, kw_only=True)
class SplitContour:
    """The two parts.

    Attributes:
        small: Of all steps without large losses.
        large: Of the rest.
        outside: Mass that may be counted in the first, but is outside of the second.
    """

    small: Contour | Chernoff
    large: Contour | Chernoff
    outside: float

    def delta(self, eps: float) -> tuple[float, float]:
        """Return a lower and an upper bound on delta at ``eps`` >= 0."""
        small, large = self.small.delta(eps), self.large.delta(eps)
        return max(0.0, small[0] - self.outside) + large[0], min(1.0, small[1] + large[1])


def split_contour(
    streams: Sequence[tuple[float, float, int]], direction: Direction, near: float, expected: float
) -> SplitContour | Chernoff:
    """Return both parts, with large losses those that matter at ``near``; arguments as in :func:`contour`."""
    for split in _SPLITS:
        loss = near / split

        def small_of(step: StepLoss, loss: float = loss) -> Steps:
            return Steps(step.faded(step.rises_above(loss).mirrored()))

        def large_of(step: StepLoss, loss: float = loss) -> Steps:
            return Steps(step, step.rises_above(loss))

        small = Plan(streams, direction, expected, small_of)
        try:
            table = table_about(small, near)
        except TooFine:
            continue
        bound = Chernoff(table=table, outside=0.0)
        matters = bound.delta(near)[1] > _NO_MATTER * expected
        if matters and split < _SPLITS[-1]:
            continue
        large = Plan(streams, direction, expected, large_of)
        return SplitContour(
            small=inverted(small, near, expected) if matters else bound,
            large=inverted(large, near, expected),
            outside=large.outside,
        )
    return Chernoff(table=NO_TABLE, outside=0.0)

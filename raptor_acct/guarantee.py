"""What a plan guarantees: privacy parameters and what they mean for an attacker, each with both ends certified."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raptor_acct._gdp import GaussianBound, exact_bound, gaussian_bound
from raptor_acct._validate import number
from raptor_acct.accountants import GaussianProfile, Profile, Stream, privacy_profile
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.bound import Bound

SMALLEST_DELTA = 1e-30
_LARGEST_EPS = 600.0  # exp() stays finite
_NO_MATTER = 1e-18  # a delta that is lost beside 1
_DELTA_RANGE = f"[{SMALLEST_DELTA:g}, 1)"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The privacy of independent streams, for one adjacency. All values are public.

    Every number is a float on the safe side that also carries ``.lower`` and ``.upper``, between which the true value
    is certified to lie; see :class:`raptor_acct.Bound`. Numbers are worked out when first asked for, then kept.

    Attributes:
        streams: The streams that were composed.
        adjacency: Which data sets count as neighbours; see :mod:`raptor_acct.adjacency`.

    Guarantee:
        ``epsilon``, ``delta``, ``advantage`` and ``gdp_mu`` are upper bounds and ``fnr`` a lower bound on the true
        values, given what :class:`raptor_acct.SubsampledGaussian` assumes of the streams. For replace-one the values
        are those of the dominating pair of :mod:`raptor_acct.adjacency`, which is attained.

    >>> from raptor_acct import SubsampledGaussian
    >>> stream = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0)
    >>> guarantee = stream.guarantee()
    >>> round(guarantee.epsilon(1e-5), 6), round(guarantee.fnr(0.001), 4), round(guarantee.advantage(), 3)
    (1.828237, 0.9959, 0.161)
    """

    streams: tuple[Stream, ...]
    adjacency: Adjacency

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        if not self.streams:
            raise ValueError("expected at least one stream, got none")

    @cached_property
    def _profile(self) -> Profile:
        return privacy_profile(self.streams, self.adjacency)

    def delta(self, eps: float) -> Bound:
        """Return delta at ``eps``.

        Raises:
            ValueError: If ``eps`` is negative or not finite.
        """
        return self._profile.delta(number("eps", eps, "[0, inf)"))

    def epsilon(self, delta: float) -> Bound:
        """Return epsilon at ``delta``; always finite.

        Raises:
            ValueError: If ``delta`` is outside [1e-30, 1).
        """
        return self._profile.epsilon(number("delta", delta, _DELTA_RANGE))

    def excess(self, eps: float, delta: float, *, leading: bool = False) -> float:
        """Return the log of delta at ``eps`` over ``delta``: not positive where (eps, delta) is certified.

        Where it is positive it may be less than the whole excess. It costs less than :meth:`delta`.

        Args:
            eps: At least 0.
            delta: In [1e-30, 1).
            leading: Look at one direction of the adjacency only, which certifies nothing: a guide for searches.

        Raises:
            ValueError: If ``eps`` is negative or not finite, or ``delta`` outside [1e-30, 1).
        """
        return self._profile.excess(
            number("eps", eps, "[0, inf)"), number("delta", delta, _DELTA_RANGE), leading=leading
        )

    def fnr(self, fpr: float) -> Bound:
        """Return the false negative rate of the best attack with false positive rate ``fpr`` (theory P6).

        No attack that decides whether a record was used misses fewer records than this: its true positive rate is at
        most ``1 - fnr``. It is the best point of the whole profile,

            fnr = max over eps >= 0 of  1 - delta(eps) - exp(eps) fpr  and  exp(-eps) (1 - delta(eps) - fpr).

        Each point alone is a valid bound, so an imperfect search stays on the safe side; the upper end follows from
        the concavity of both in exp(±eps).

        Raises:
            ValueError: If ``fpr`` is outside [0, 1].
        """
        fpr = number("fpr", fpr, "[0, 1]")
        if fpr == 1:
            return Bound(0.0, 0.0, safe="lower", method="closed form")
        if fpr == 0:  # what one data set can give, the other can: no event is proof
            return Bound(1.0, 1.0, safe="lower", method="closed form")

        def falling(eps: float) -> tuple[float, float]:
            delta = self._profile.delta(eps, _NO_MATTER)
            return 1 - delta.upper - math.exp(eps) * fpr, 1 - delta.lower - math.exp(eps) * fpr

        def rising(eps: float) -> tuple[float, float]:
            delta = self._profile.delta(eps, _NO_MATTER)
            return math.exp(-eps) * (1 - delta.upper - fpr), math.exp(-eps) * (1 - delta.lower - fpr)

        # Where delta is half of 1 - fpr the second form is exp(-eps) delta, and log 2 farther on it is smaller.
        half = max((1 - fpr) / 2, SMALLEST_DELTA)
        # Beyond the epsilon at which delta no longer matters, the first form falls.
        first = _largest(falling, min(_LARGEST_EPS, -math.log(fpr), float(self.epsilon(_NO_MATTER))), 1)
        second = _largest(rising, min(_LARGEST_EPS, float(self.epsilon(half)) + math.log(2)), -1)
        lower, upper = max(0.0, first[0], second[0]), min(1.0, max(0.0, first[1], second[1]))
        return Bound(lower, upper, safe="lower", method=self.delta(0.0).method)

    def advantage(self) -> Bound:
        """Return the largest TPR - FPR of any attack: the total variation distance, delta at epsilon 0."""
        return self.delta(0.0)

    def gdp_mu(self, slack: float = 1e-9) -> GaussianBound:
        """Return the least mu for which the plan is mu-GDP but for ``slack``.

        With it, every attack has fnr >= G_mu(fpr) - slack, where G_mu is the trade-off function of N(0, 1) against
        N(mu, 1). A subsampled Gaussian has no useful mu without slack: far enough out its tail is that of the noise
        without sampling.

        Args:
            slack: Delta below which the profile is not compared, in [1e-30, 0.1].

        Returns:
            mu, with ``.regret``: by how much at most the plan is better than G_mu, as the shift of both error rates
            (Gomez et al. 2025).

        Raises:
            ValueError: If ``slack`` is outside its range.
        """
        slack = number("slack", slack, f"[{SMALLEST_DELTA:g}, 0.1]")
        if isinstance(self._profile, GaussianProfile):
            return exact_bound(self._profile.mu)
        return gaussian_bound(self.delta, float(self.epsilon(slack)))

    def to_dict(self) -> dict[str, Any]:
        """Return what defines this guarantee, ready for JSON."""
        streams = [
            {
                "num_steps": stream.num_steps,
                "sampling_probability": stream.sampling_probability,
                "noise_multiplier": stream.noise_multiplier,
            }
            for stream in self.streams
        ]
        return {"adjacency": self.adjacency, "streams": streams}


_NARROW = 3e-9  # a range of eps over which rounding hides the slopes
_STEPS = 3e-4, 6e-5, 1.2e-5  # to the neighbours of the best point, as shares of the range; the finest may be hidden


def _largest(value: Callable[[float], tuple[float, float]], high: float, power: int) -> tuple[float, float]:
    """Return bounds on the largest value on [0, high] of a function of eps that is concave in exp(power · eps).

    ``value`` gives both ends. About the best point found, the lines through its neighbours bound the rest.
    """
    from scipy.optimize import minimize_scalar  # here, since it takes longer to import than the rest of the package

    if math.expm1(high) < _NARROW:  # as a function of eps, no value rises faster than at slope 1
        lower, upper = value(0.0)
        return lower, upper + math.expm1(high)
    points = [high * i / 16 for i in range(17)]
    values = [value(x)[0] for x in points]
    best = max(range(17), key=values.__getitem__)
    around = (points[max(best - 1, 0)], points[min(best + 1, 16)])
    found = minimize_scalar(lambda x: -value(float(x))[0], bounds=around, method="bounded", options={"xatol": 1e-7})
    middle = float(found.x) if -found.fun > values[best] else points[best]
    lower, upper = 0.0, 1.0
    for step in (share * high for share in _STEPS):
        nearest = min(max(middle, step), high - step)
        places = [nearest - step, nearest, nearest + step]
        left, centre, right = (value(max(0.0, x)) for x in places)
        below, above = (abs(math.exp(power * places[i]) - math.exp(power * nearest)) for i in (0, 2))
        rise = (centre[1] - left[0]) / below * above
        fall = (centre[1] - right[0]) / above * below
        peaked = centre[0] > right[1] and (centre[0] > left[1] or nearest <= step)  # the largest value is between them
        upper = min(upper, centre[1] + max(rise, fall, 0.0)) if peaked else upper
        lower = max(lower, left[0], centre[0], right[0])
    return lower, upper

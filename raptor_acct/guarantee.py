"""What a plan guarantees: privacy parameters and what they mean for an attacker, each a bound on the safe side."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raptor_acct._validate import number
from raptor_acct.accountants import Profile, Stream, privacy_profile
from raptor_acct.adjacency import Adjacency, check_adjacency

_LARGEST_EPS = 700.0  # exp() stays finite


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The privacy of independent streams, for one adjacency. All values are public.

    The numbers are worked out when first asked for, then kept.

    Attributes:
        streams: The streams that were composed.
        adjacency: Which data sets count as neighbours; see :mod:`raptor_acct.adjacency`.

    Guarantee:
        ``epsilon``, ``delta`` and ``advantage`` are upper bounds and ``fnr`` a lower bound on the true values, given
        what :class:`raptor_acct.SubsampledGaussian` assumes of the streams.

    >>> from raptor_acct import SubsampledGaussian
    >>> stream = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0)
    >>> guarantee = stream.guarantee()
    >>> round(guarantee.epsilon(1e-5), 3), round(guarantee.fnr(0.001), 4), round(guarantee.advantage(), 3)
    (1.828, 0.9959, 0.161)
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

    @property
    def smallest_delta(self) -> float:
        """The smallest delta that :meth:`epsilon` accepts; below it the arithmetic could not certify an answer."""
        return self._profile.smallest_delta

    def delta(self, eps: float) -> float:
        """Return an upper bound on delta at ``eps``.

        Raises:
            ValueError: If ``eps`` is negative or not finite.
        """
        return self._profile.delta(number("eps", eps, "[0, inf)"))

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``; always finite.

        Raises:
            ValueError: If ``delta`` is outside (0, 1) or below :attr:`smallest_delta`.
        """
        return self._profile.epsilon(number("delta", delta, "(0, 1)"))

    def fnr(self, fpr: float) -> float:
        """Return a lower bound on an attack's false negative rate (theory P6).

        No attack that decides whether a record was used, with false positive rate ``fpr``, misses fewer records than
        this: its true positive rate is at most ``1 - fnr``. The bound takes the best point of the whole profile,

            fnr >= 1 - delta(eps) - exp(eps) fpr    and    fnr >= exp(-eps) (1 - delta(eps) - fpr),

        over all ``eps``; each point alone is a valid bound, so an imperfect search stays on the safe side.

        Raises:
            ValueError: If ``fpr`` is outside [0, 1].
        """
        fpr = number("fpr", fpr, "[0, 1]")
        reach = min(_LARGEST_EPS, self.epsilon(self.smallest_delta))
        cross = min(reach, -math.log(fpr)) if fpr > 0 else reach
        return max(
            0.0,
            _largest(lambda eps: 1 - self.delta(eps) - math.exp(eps) * fpr, cross),
            _largest(lambda eps: math.exp(-eps) * (1 - self.delta(eps) - fpr), reach),
        )

    def advantage(self) -> float:
        """Return an upper bound on TPR - FPR of any attack: the total variation distance, delta at epsilon 0."""
        return self.delta(0.0)

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
        return {"adjacency": self.adjacency, "smallest_delta": self.smallest_delta, "streams": streams}


def _largest(value: Callable[[float], float], high: float) -> float:
    """Return about the largest ``value`` on [0, high], of a function with one hump; never more than its maximum."""
    from scipy.optimize import minimize_scalar  # here, since it takes longer to import than the rest of the package

    points = [high * i / 16 for i in range(17)]
    values = [value(x) for x in points]
    best = max(range(17), key=values.__getitem__)
    if high <= 0:
        return values[best]
    around = (points[max(best - 1, 0)], points[min(best + 1, 16)])
    found = minimize_scalar(lambda x: -value(float(x)), bounds=around, method="bounded", options={"xatol": 1e-5 * high})
    return max(values[best], -float(found.fun))

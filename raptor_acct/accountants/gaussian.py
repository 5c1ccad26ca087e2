"""Closed form: every stream uses every record at every step, so the composition is one Gaussian mechanism."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from raptor_acct._search import safe_root
from raptor_acct._validate import number
from raptor_acct.accountants._stream import Stream
from raptor_acct.adjacency import Adjacency

_ROUNDING = 8 * 2.0**-52
SMALLEST_DELTA = 1e-30


@dataclass(frozen=True, kw_only=True)
class GaussianProfile:
    """The privacy profile of N(0, 1) against N(mu, 1), to which composed Gaussian mechanisms reduce exactly.

    Both directions of add/remove have this same profile. Values carry an allowance for rounding, so they are upper
    bounds; the allowance is below 1e-9 of the value for delta down to 1e-30 and mu between 1e-4 and 1e3.

    Attributes:
        mu: Distance of the two means in standard deviations.
        smallest_delta: The smallest delta that :meth:`epsilon` accepts.

    >>> profile = GaussianProfile(mu=1.0)
    >>> round(profile.delta(1.0), 6), round(profile.epsilon(1e-5), 6)
    (0.126937, 4.377178)
    """

    mu: float
    smallest_delta: float = SMALLEST_DELTA

    def delta(self, eps: float) -> float:
        """Return an upper bound on delta at ``eps`` >= 0 (Balle and Wang 2018, Theorem 8)."""
        from scipy.special import log_ndtr  # here, since it takes longer to import than the rest of the package

        first = float(log_ndtr(self.mu / 2 - eps / self.mu))
        second = eps + float(log_ndtr(-self.mu / 2 - eps / self.mu))
        allowance = _ROUNDING * (1 + abs(first) + eps)
        bound = math.exp(first) * (allowance - math.expm1(min(0.0, second - first)))
        return min(1.0, max(sys.float_info.min, bound))  # never 0, which would be below the truth

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``; 0 where ``delta`` covers the total variation distance.

        Raises:
            ValueError: If ``delta`` is below 1e-30 or not below 1.
        """
        delta = number("delta", delta, f"[{self.smallest_delta:g}, 1)")
        if self.delta(0.0) <= delta:
            return 0.0
        # Φ(-t) <= exp(-t²/2) puts the answer below this.
        high = self.mu * (self.mu / 2 + math.sqrt(-2 * math.log(delta))) * 1.01
        return safe_root(
            lambda eps: math.log(self.delta(eps) / delta),
            high / 2,
            low=0.0,
            high=high,
            width=1e-12 * high,
            below="",
            above=f"expected a smaller noise or a larger delta, got mu={self.mu:g} and delta={delta:g}",
        )


def gaussian_profile(streams: Sequence[Stream], adjacency: Adjacency) -> GaussianProfile:
    """Compose streams with sampling probability 1: mu² = Σ steps / noise_multiplier².

    With replace-one the two means are twice as far apart, so mu doubles (Dong, Roth and Su 2022, Corollary 3.3).

    Raises:
        ValueError: If a stream samples.
    """
    for stream in streams:
        if stream.sampling_probability != 1:
            raise ValueError(f"expected sampling_probability=1, got {stream.sampling_probability!r}")
    square = sum(stream.num_steps / stream.noise_multiplier**2 for stream in streams)
    return GaussianProfile(mu=math.sqrt(square) * (2 if adjacency == "replace_one" else 1))

"""Closed form: every stream uses every record at every step, so the composition is one Gaussian mechanism."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from raptor_acct.accountants._inverse import epsilon_of
from raptor_acct.accountants._stream import Stream
from raptor_acct.adjacency import Adjacency
from raptor_acct.bound import Bound

_ROUNDING = 8 * 2.0**-52


@dataclass(frozen=True, kw_only=True)
class GaussianProfile:
    """The privacy profile of N(0, 1) against N(mu, 1), to which composed Gaussian mechanisms reduce exactly.

    Both directions of add/remove have this same profile. Both ends of a value carry an allowance for rounding, below
    1e-9 of the value for delta down to 1e-30 and mu between 1e-4 and 1e3.

    Attributes:
        mu: Distance of the two means in standard deviations.

    >>> profile = GaussianProfile(mu=1.0)
    >>> round(profile.delta(1.0), 6), round(profile.epsilon(1e-5), 6)
    (0.126937, 4.377178)
    """

    mu: float

    def delta(self, eps: float, negligible: float = 0.0) -> Bound:
        """Return delta at ``eps`` >= 0 (Balle and Wang 2018, Theorem 8), however small."""
        from scipy.special import log_ndtr  # here, since it takes longer to import than the rest of the package

        first = float(log_ndtr(self.mu / 2 - eps / self.mu))
        second = eps + float(log_ndtr(-self.mu / 2 - eps / self.mu))
        allowance = _ROUNDING * (1 + abs(first) + eps)
        scale, exact = math.exp(first), -math.expm1(min(0.0, second - first))
        lower = max(0.0, scale * (exact - allowance) * (1 - _ROUNDING))
        upper = max(sys.float_info.min, scale * (exact + allowance))  # never 0, which would be below the truth
        return Bound(lower, min(1.0, upper), safe="upper", method="closed form")

    def epsilon(self, delta: float) -> Bound:
        """Return epsilon at ``delta``; 0 where ``delta`` covers the total variation distance.

        Raises:
            ValueError: If ``delta`` is below 1e-30 or not below 1.
        """
        # Φ(-t) <= exp(-t²/2) puts the answer below this.
        high = self.mu * (self.mu / 2 + math.sqrt(-2 * math.log(delta))) * 1.01
        return epsilon_of(self, delta, high / 2)

    def excess(self, eps: float, delta: float, *, leading: bool = False) -> float:
        """Return the log of delta at ``eps`` over ``delta``; both directions are the same."""
        return math.log(self.delta(eps).upper / delta)


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

"""What the accountants need to know of a stream, and what they give back."""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from raptor_acct.bound import Bound


class Stream(Protocol):
    """A Poisson-subsampled Gaussian mechanism of sensitivity 1, repeated."""

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise, in units of the clip norm."""

    @property
    def sampling_probability(self) -> float:
        """Probability that a record takes part in one step, independently of everything else."""

    @property
    def num_steps(self) -> int:
        """Number of releases."""


class Profile(Protocol):
    """The privacy profile of a composition, certified from both sides."""

    def delta(self, eps: float, negligible: float = 0.0) -> Bound:
        """Return delta at ``eps`` >= 0; below ``negligible`` an upper bound is enough."""

    def excess(self, eps: float, delta: float, *, leading: bool = False) -> float:
        """Return the log of (an upper bound on) delta at ``eps`` over ``delta``: not positive where it is certified.

        Where it is positive it may be less than the whole excess. With ``leading`` only one direction is looked at.
        """

    def epsilon(self, delta: float) -> Bound:
        """Return epsilon at ``delta``, or raise ValueError; never infinite."""


class Evaluation(Protocol):
    """One direction of a composition, worked out about one epsilon but valid at any."""

    def delta(self, eps: float) -> tuple[float, float]:
        """Return a lower and an upper bound on delta at ``eps`` >= 0."""


Plan = tuple[tuple[float, float, int], ...]  # (noise multiplier, sampling probability, number of steps), ...


def merged(streams: Iterable[Stream]) -> Plan:
    """Return the streams with equal ones taken together, in order: splitting a stream in two changes nothing."""
    counts: Counter[tuple[float, float]] = Counter()
    for stream in streams:
        counts[stream.noise_multiplier, stream.sampling_probability] += stream.num_steps
    return tuple((sigma, q, count) for (sigma, q), count in sorted(counts.items()))

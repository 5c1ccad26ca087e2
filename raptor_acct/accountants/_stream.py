"""What the accountants need to know of a stream, and what they give back."""

from typing import Protocol


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
    """The privacy profile of a composition: upper bounds on delta(eps) and on epsilon(delta)."""

    @property
    def smallest_delta(self) -> float:
        """The smallest delta that :meth:`epsilon` accepts."""

    def delta(self, eps: float) -> float:
        """Return an upper bound on delta at ``eps`` >= 0."""

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``, or raise ValueError; never infinite."""

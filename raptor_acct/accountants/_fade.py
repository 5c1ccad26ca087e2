"""A smooth cut: the factor erfc(±(z - middle) / width) / 2, its bounds over cells of z and off the real axis."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_LOG_2 = 0.6931471805599453


@dataclass(frozen=True, kw_only=True)
class Fade:
    """A factor that falls from 1 to 0 about ``middle``, or rises.

    Attributes:
        middle: Where it is a half, shape [streams, 1].
        width: Over which it changes, shape [streams, 1].
        sign: 1 where it falls with z, -1 where it rises.
    """

    middle: Array
    width: Array
    sign: int = 1

    def mirrored(self) -> "Fade":
        """Return what is missing to 1."""
        return Fade(middle=self.middle, width=self.width, sign=-self.sign)

    def log(self, z: Array) -> Array:
        """Return the logarithm of the factor."""
        from scipy.special import log_ndtr  # here, since it takes longer to import than the rest of the package

        result: Array = log_ndtr(-math.sqrt(2) * self._depth(z))
        return result

    def log_sup(self, x: Array) -> Array:
        """Return the log of an upper bound on cells of the :meth:`nearest` depth x: erfc(x) <= exp(-x²) for x >= 0."""
        return -np.where(x > 0, x**2 + _LOG_2, 0.0)

    def log_inf(self, edges: Array) -> Array:
        """Return the log of a lower bound on each cell."""
        return self.log(edges[:, 1:] if self.sign > 0 else edges[:, :-1])

    def rise(self, a: Array, x: Array) -> Array:
        """Return by how much, in logs, the modulus may exceed that upper bound at heights ``a``.

        |erfc(x + iy)| <= exp(y²) erfc(x) for x >= 0, and erfc(x) = 2 - erfc(-x). Shape [streams, heights, cells].
        """
        x, squared = x[:, None, :], (a / self.width)[:, :, None] ** 2
        return np.where(x > 0, squared, np.log(1 + np.exp(squared - x**2 - _LOG_2)))

    def nearest(self, edges: Array) -> Array:
        """Return the depth of each cell: its least where that is above 0, else its largest, at most 0."""
        x = self._depth(edges)
        least, largest = np.minimum(x[:, :-1], x[:, 1:]), np.maximum(x[:, :-1], x[:, 1:])
        return np.where(largest < 0, largest, np.maximum(least, 0.0))

    def _depth(self, z: Array) -> Array:
        """Return how far into the side where the factor vanishes ``z`` lies, in widths."""
        return self.sign * (z - self.middle) / self.width

"""One step's privacy loss under an exponential tilt, as a discrete distribution, and its characteristic function."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raptor_acct.accountants._fade import Array

Complex = npt.NDArray[np.complex128]

ROUNDING = 2.0**-48  # 16 units in the last place: more than any one formula here and in _log_mgf loses
_SMALL = 1 << 16  # multiplications in a product of matrices: more would be split among threads, which may cost more
_BLOCK = 1 << 15  # elements of the largest arrays: they stay in the cache


@dataclass(frozen=True, kw_only=True)
class TiltedLoss:
    """The loss of one step under a tilt c, as a discrete distribution: the nodes of the quadrature.

    Attributes:
        share: Tilted probabilities, shape [streams, nodes].
        centred: Loss less its tilted mean, shape [streams, nodes].
        mean: Tilted mean of the loss, shape [streams, 1].
        log_mgf: log M(c), shape [streams, 1].
        mgf_rounding: Bound on the rounding error of log_mgf, shape [streams, 1].
        loss_rounding: Bound on the mean rounding error of the loss, and of turning by it, shape [streams, 1].
        error: Bound on the quadrature error of M(c + it) relative to M(c), up to the t it was made for, shape
            [streams, 1].
        large: The shares of large losses, by the part of the density that was asked for; shape [streams, nodes].
        large_rounding: Bound on the rounding error of their sum, and on how it grows with t, shape [streams, 1] each.
    """

    share: Array
    centred: Array
    mean: Array
    log_mgf: Array
    mgf_rounding: Array
    loss_rounding: Array
    error: Array
    large: Array
    large_rounding: tuple[Array, Array]

    def ratio(self, t: Array) -> Complex:
        """Return M(c + it) exp(-it mean) / M(c) - 1 without cancellation, shape [streams, len(t)]."""
        streams, nodes = self.share.shape
        result = np.empty((streams, len(t)), dtype=np.complex128)
        count = max(1, _BLOCK // (streams * nodes))
        for start in range(0, len(t), count):
            half = self.centred[:, None, :] * (t[None, start : start + count, None] / 2)
            sine, cosine = np.sin(half), np.cos(half, out=half)
            twice = np.matmul(np.multiply(sine, cosine, out=cosine), self.share[:, :, None])[..., 0]
            square = np.matmul(np.square(sine, out=sine), self.share[:, :, None])[..., 0]
            result[:, start : start + count] = 2j * twice - 2 * square
        return result

    def on_grid(self, spacing: float, count: int, *shares: Array) -> list[Complex]:
        """Return the sums of ``shares`` times exp(it centred) - 1 at t = 0, spacing, ...: [streams, count] each.

        A turn by an angle is one by a coarse and one by a fine part of it, exp(iα + iβ) - 1 = a b + a + b with
        a = exp(iα) - 1 and b = exp(iβ) - 1: few trigonometric functions, and still no cancellation.
        """
        streams, nodes = self.share.shape
        width = math.isqrt(count - 1) + 1
        rounds = -(-count // width)
        sums = [np.zeros((streams, rounds, width), dtype=np.complex128) for _ in shares]
        size = max(1, _BLOCK // (streams * width))
        for start in range(0, nodes, size):
            piece = self.centred[:, start : start + size]
            fine, coarse = _turns(piece * spacing, width), _turns(piece * (spacing * width), rounds)
            for total, share in zip(sums, shares, strict=True):
                total += _product(coarse * share[:, start : start + size], fine)
        for total in sums:
            total[:, 1:, 1:] += total[:, 1:, :1] + total[:, :1, 1:]
            total[:, 0, 0] = 0.0
        return [total.reshape(streams, -1)[:, :count] for total in sums]


def _turns(angle: Array, count: int) -> Complex:
    """Return 1, and exp(ik angle) - 1 for k = 1, 2, ... by doubling: [count, streams, nodes] for [streams, nodes]."""
    result = np.empty((max(count, 2), *angle.shape), dtype=np.complex128)
    sine, cosine = np.sin(0.5 * angle), np.cos(0.5 * angle)
    result[0] = 1.0
    result[1].real, result[1].imag = -2 * sine**2, 2 * sine * cosine
    known = 2
    while known < count:
        more = min(known - 1, count - known)
        few, last, new = result[1 : 1 + more], result[known - 1], result[known : known + more]
        np.multiply(few, last, out=new)
        new += few
        new += last
        known += more
    return result[:count]


def _product(left: Complex, right: Complex) -> Complex:
    """Return the sums over nodes of [i, streams, nodes] times [j, streams, nodes]: [streams, i, j]."""
    left, right = left.transpose(1, 0, 2), right.transpose(1, 2, 0)
    total = np.zeros((*left.shape[:2], right.shape[2]), dtype=np.complex128)
    some = max(1, _SMALL // (left.shape[1] * right.shape[2]))
    for start in range(0, left.shape[2], some):
        total += np.matmul(left[..., start : start + some], right[:, start : start + some])
    return total

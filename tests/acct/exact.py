"""Exact privacy profiles for the tests: a slow twin of the accountants, and points worked out with it."""

import math

import mpmath
import numpy as np
from mpmath import mp, mpf

from raptor_acct.accountants._one_step import Direction

Streams = list[tuple[float, float, int]]  # (noise multiplier, sampling probability, number of steps), ...
_DIGITS = 50


def exact_delta(streams: Streams, direction: Direction, eps: float, c: float, period: float) -> mpf:
    """Return delta by contour inversion in 50 digits; good to about 18 where ``c`` and ``period`` are as in EXACT.

    delta = 1/pi sum h Re exp(K(s) - s eps) / (s (s+1)) on s = c + ikh, h = 2 pi / period, the first term halved.
    M(s) is a trapezoid sum in z = x / sigma. Nothing is faded out, and no table, logarithm or root is shared with the
    package. With python-flint's `acb` for `mpc` and 200 bits, the same lines gave the last column of EXACT; there the
    balls of rounding are below 1e-25, and neither half the spacing of z, nor half of h, nor another c changes a digit.
    """
    with mp.workdps(_DIGITS):
        spacing = 2 * mp.pi / mpf(period)
        line, tables = mpf(c), []
        plain = sum(n * (mpf(2 if direction == "replace" else 1) / s) ** 2 for s, q, n in streams if q == 1)
        for sigma, q, n in streams:
            if q < 1:
                nodes = [_node(z, sigma, q, direction, line, spacing) for z in _coordinates(sigma, q, direction, c)]
                tables.append((n, [weight for weight, _ in nodes], [turn for _, turn in nodes]))
        total, small, k = mpf(0), 0, 0
        while small < 8:
            s = mpmath.mpc(line, k * spacing)
            value = mpmath.exp(plain * s * (s + 1) / 2 - s * eps) / (s * (s + 1))
            for n, weights, turns in tables:
                value *= mpmath.fsum(weights) ** n
                weights[:] = [weight * turn for weight, turn in zip(weights, turns, strict=True)]
            total += value.real / (1 if k else 2)
            small = small + 1 if abs(value) < mpf(10) ** -22 * abs(total) else 0
            k += 1
        return total * spacing / mp.pi


def _node(z: mpf, sigma: float, q: float, direction: Direction, c: mpf, spacing: mpf) -> tuple[mpf, mpf]:
    """Return the weight exp(c loss) of a coordinate, and by what it turns from one node of the line to the next."""
    there, back = (1 - mpf(q) + q * mpmath.exp(side * z / sigma - 1 / (2 * mpf(sigma) ** 2)) for side in (1, -1))
    loss = {"remove": mpmath.log(there), "add": -mpmath.log(there), "replace": mpmath.log(there / back)}[direction]
    density = mpmath.exp(-z * z / 2) * (1 if direction == "add" else there)
    return density * mpmath.exp(c * loss) * _spacing(sigma) / mpmath.sqrt(2 * mp.pi), mpmath.expj(spacing * loss)


def _spacing(sigma: float) -> float:
    return min(0.25, 0.125 * sigma)


def _coordinates(sigma: float, q: float, direction: Direction, c: float) -> list[mpf]:
    """Return the coordinates where the tilted density is above 1e-55 of its largest value."""
    h = _spacing(sigma)
    reach = math.ceil((35 + (1.2 * c + 3) / sigma) / h)
    z = h * np.arange(-reach, reach + 1)
    there, back = (np.logaddexp(math.log1p(-q), math.log(q) + side * z / sigma - 0.5 / sigma**2) for side in (1, -1))
    power = {"remove": (1 + c) * there, "add": -c * there, "replace": (1 + c) * there - c * back}[direction]
    log = power - z * z / 2
    return [mpf(int(k) - reach) * h for k in np.flatnonzero(log > log.max() - 126)]


def one_step(sigma: float, q: float, direction: Direction, eps: mpf) -> mpf:
    """Return delta of a single step at ``eps`` of either sign, in 50 digits: the loss rises or falls with z."""
    with mp.workdps(_DIGITS):
        shift, rest = 1 / mpf(sigma), 1 - mpf(q)

        def inverse(loss: mpf) -> mpf:
            """Return z with log(1 - q + q exp(z/sigma - 1/(2 sigma^2))) = loss."""
            return (mpmath.log((mpmath.exp(loss) - rest) / q) + shift**2 / 2) / shift

        def mixed(z: mpf, side: int) -> mpf:
            """Return the mass above z of the mixture that moves to ``side``."""
            return rest * mpmath.ncdf(-z) + q * mpmath.ncdf(side * shift - z)

        if direction == "remove":
            if mpmath.exp(eps) <= rest:
                return 1 - mpmath.exp(eps)
            z = inverse(mpf(eps))
            return mixed(z, 1) - mpmath.exp(eps) * mpmath.ncdf(-z)
        if direction == "add":
            if mpmath.exp(-eps) <= rest:
                return mpf(0)
            z = inverse(-mpf(eps))
            return mpmath.ncdf(z) - mpmath.exp(eps) * (1 - mixed(z, 1))
        half = mpmath.sinh(mpf(eps) / 2) * rest / q * mpmath.exp(shift**2 / 2)
        z = (mpmath.asinh(half) + mpf(eps) / 2) / shift
        return mixed(z, 1) - mpmath.exp(eps) * mixed(z, -1)


def two_steps(first: tuple[float, float], second: tuple[float, float], direction: Direction, eps: float) -> mpf:
    """Return delta of one step of (sigma, q) and one of another, as an integral over the first's coordinate.

    The spacing of 1/16 is fine enough for 15 digits where sigma >= 2; below, the profile bends too sharply.
    """
    (sigma, q), h = first, mpf(1) / 16
    with mp.workdps(_DIGITS):

        def term(z: mpf) -> mpf:
            there, back = (
                1 - mpf(q) + q * mpmath.exp(side * z / sigma - 1 / (2 * mpf(sigma) ** 2)) for side in (1, -1)
            )
            loss = {"remove": there, "add": 1 / there, "replace": there / back}[direction]
            density = mpmath.npdf(z) * (1 if direction == "add" else there)
            return density * one_step(*second, direction, eps - mpmath.log(loss))

        reach = 14 + math.ceil(1 / sigma)
        return h * mpmath.fsum(term(h * k) for k in range(-16 * reach, 16 * reach + 1))


# Name, direction: streams, eps, c, period, delta.
EXACT: dict[str, tuple[Streams, Direction, float, float, float, str]] = {
    "tiny delta, remove": ([(4.0, 0.00033, 10000)], "remove", 0.0672138503, 127.0, 0.772, "1.0997517958076386e-18"),
    "plain, remove": ([(1.0, 0.01, 1000)], "remove", 2.0, 4.08, 20.9, "2.6655719247617912e-6"),
    "plain, add": ([(1.0, 0.01, 1000)], "add", 2.0, 19.4, 4.78, "1.0671620213686782e-9"),
    "plain, replace": ([(1.0, 0.01, 1000)], "replace", 2.0, 4.2, 21.9, "8.3070613533954930e-4"),
    "S3, remove": (
        [(0.887860507, 0.0001, 1000000), (5.1946046954, 0.0001, 1000000)],
        "remove",
        0.8871041803,
        6.32,
        13.4,
        "9.9999999391902929e-10",
    ),
    "S3, add": (
        [(0.887860507, 0.0001, 1000000), (5.1946046954, 0.0001, 1000000)],
        "add",
        0.8871041803,
        36.7,
        2.56,
        "5.8908980798035842e-10",
    ),
    "S3, replace": (
        [(0.887860507, 0.0001, 1000000), (5.1946046954, 0.0001, 1000000)],
        "replace",
        0.8871041803,
        6.23,
        13.0,
        "3.1002276757703571e-5",
    ),
    "1e-30, remove": ([(2.0, 0.01, 10000)], "remove", 6.75, 19.7, 8.01, "1.0222032053271783e-34"),
    "1e-30, add": ([(2.0, 0.01, 10000)], "add", 6.0, 23.3, 6.47, "8.3676106014275315e-32"),
    "half, remove": ([(2.0, 0.05, 30000)], "remove", 11.0, 0.249, 268.0, "3.7536890234528050e-1"),
    "half, replace": ([(2.0, 0.05, 30000)], "replace", 45.0, 0.186, 360.0, "1.5955936399120340e-1"),
    "eps 1e-6, remove": ([(10000.0, 0.01, 1000)], "remove", 1e-06, 45200.0, 0.00204, "1.2121976630979007e-5"),
    "eps 1e-6, add": ([(10000.0, 0.01, 1000)], "add", 1e-06, 45200.0, 0.00204, "1.2121975382652097e-5"),
    "eps 1e3, remove": ([(0.3, 0.9, 150)], "remove", 1000.0, 0.141, 629.0, "1.8411540329880563e-10"),
    "q .999, remove": ([(30.0, 0.999, 1000)], "remove", 5.0, 4.38, 18.8, "2.2580256469250676e-6"),
    "q .999, add": ([(30.0, 0.999, 1000)], "add", 5.0, 4.38, 18.8, "2.2577419494110150e-6"),
    "q .999, replace": ([(30.0, 0.999, 1000)], "replace", 9.0, 1.74, 43.8, "2.3435142428511041e-4"),
    "q 1-1e-9, remove": ([(0.25, 0.999999999, 20)], "remove", 200.0, 0.149, 466.0, "1.1050427245444581e-2"),
    "q 1-1e-9, replace": ([(0.6, 0.999999999, 12)], "replace", 40.0, 0.0332, 1930.0, "9.8657255950528345e-1"),
    "q 1-1e-14, add": ([(0.25, 0.99999999999999, 20)], "add", 200.0, 0.149, 466.0, "1.1050413077999682e-2"),
    "sigma 1e6, remove": ([(1000000.0, 0.01, 100000000)], "remove", 0.0004, 44500.0, 0.0023, "7.1466876454138292e-10"),
    "sigma 1e6, add": ([(1000000.0, 0.01, 100000000)], "add", 0.0004, 44500.0, 0.0023, "7.1466875924064594e-10"),
    "sigma 1e6, replace": (
        [(1000000.0, 0.01, 100000000)],
        "replace",
        0.0004,
        13700.0,
        0.00677,
        "1.6984801787582344e-6",
    ),
    "5 steps, replace": ([(1.0, 0.3, 5)], "replace", 3.0, 0.76, 94.1, "1.6476420371789476e-2"),
    "20 steps, add": ([(1.0, 0.1, 20)], "add", 1.2, 19.5, 4.17, "4.0374838779798920e-5"),
    "20 steps, replace": ([(1.0, 0.1, 20)], "replace", 3.0, 2.01, 37.2, "1.0000511984470026e-3"),
    "1e8 steps, remove": ([(300.0, 0.01, 100000000)], "remove", 1.8, 16.7, 5.42, "4.6985026750529106e-9"),
    "1e8 steps, add": ([(300.0, 0.01, 100000000)], "add", 1.8, 16.7, 5.42, "4.6982350338883245e-9"),
    "1e8 steps, replace": ([(300.0, 0.01, 100000000)], "replace", 1.8, 4.33, 17.4, "1.6584554744626345e-3"),
    "with a plain stream, remove": (
        [(2.0, 0.02, 500), (30.0, 1.0, 100)],
        "remove",
        2.0,
        11.9,
        7.29,
        "1.4732814973601800e-7",
    ),
    "with a plain stream, add": ([(2.0, 0.02, 500), (30.0, 1.0, 100)], "add", 2.0, 12.8, 6.82, "7.7824308510108844e-8"),
    "with a plain stream, replace": (
        [(2.0, 0.02, 500), (30.0, 1.0, 100)],
        "replace",
        2.0,
        3.4,
        21.7,
        "4.2263088785822043e-3",
    ),
    "hardly ever, add": ([(0.6541, 0.0003669, 2105)], "add", 0.23288, 258.0, 0.409, "1.8901034793721476e-13"),
    "two kinds, remove": (
        [(0.4845, 2.642e-06, 53), (43.36, 3.908e-06, 5968994), (3.247, 0.02235, 1065)],
        "remove",
        3.0685,
        2.82,
        32.3,
        "6.9576935710713690e-16",
    ),
    "two kinds, add": (
        [(13.75, 0.196, 81), (0.3558, 5.425e-05, 2588190)],
        "add",
        13.855,
        3.68,
        24.3,
        "3.5716717744820080e-9",
    ),
    "seldom and large, remove": (
        [(59.44, 0.0002652, 94905), (0.4705, 0.0008541, 220030), (46.29, 0.03324, 1407)],
        "remove",
        14.884,
        0.658,
        110.0,
        "3.7200710436580671e-3",
    ),
    "million of tiny, remove": (
        [(11.62, 2.873e-06, 6393920)],
        "remove",
        0.00037815,
        1670.0,
        0.0516,
        "1.0503016323374859e-4",
    ),
    "few and large, remove": ([(0.4224, 4.422e-05, 1048483)], "remove", 7.99, 1.5, 60.0, "3.8101539280023892646e-8"),
    "fewer and large, remove": ([(0.3952, 9.635e-05, 45159)], "remove", 8.889, 1.35, 90.0, "2.0311508446694495123e-8"),
    "few and small, remove": ([(0.5879, 9.144e-05, 486295)], "remove", 1.615, 4.1, 50.0, "6.7812945464099232924e-7"),
    "few of two kinds, replace": (
        [(0.48, 2e-05, 200000), (0.62, 0.0001, 150000)],
        "replace",
        2.5,
        2.5,
        60.0,
        "8.0467312257093271473e-8",
    ),
}

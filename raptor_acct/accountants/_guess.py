"""What delta is about: guesses, that only say where a search starts. No bound rests on them."""

import math

import numpy as np

from raptor_acct._search import safe_root
from raptor_acct.accountants._line import Plan, table_about
from raptor_acct.accountants._log_mgf import TooFine
from raptor_acct.accountants._one_step import Direction, OneStep
from raptor_acct.accountants._stream import Plan as Streams
from raptor_acct.accountants.gaussian import GaussianProfile

_SELDOM = 0.3  # expected samples, up to which a second one hardly matters
_HALF = 2  # tilts on either side that the derivatives are taken from


def central_mu(streams: Streams) -> float:
    """Return the mu of the central limit theorem for many steps (Bu et al. 2020)."""
    square = sum(n * min(sigma**-2, q**2 * math.expm1(min(sigma**-2, 50.0))) for sigma, q, n in streams)
    return min(max(math.sqrt(square), 1e-12), 1e6)


def guessed_epsilon(streams: Streams, direction: Direction, delta: float) -> float:
    """Return about epsilon at ``delta``."""
    central = GaussianProfile(mu=central_mu(streams) * (2 if direction == "replace" else 1)).epsilon(delta)
    if not _seldom(streams):
        return float(central)
    try:
        log_eps = safe_root(
            lambda x: _single_event(streams, direction, math.exp(x)) - math.log(delta),
            math.log(max(central, 1e-12)),
            low=math.log(1e-12),
            high=math.log(1e6),
            width=1e-4,
            below=None,
            above="",
        )
    except ValueError:
        return float(central)
    return math.exp(log_eps)


def guessed_log_delta(streams: Streams, direction: Direction, eps: float, expected: float) -> float:
    """Return about log delta, or nan where no approximation applies.

    Args:
        streams: (noise multiplier, sampling probability, number of steps) of each.
        direction: Which record is added, removed or replaced.
        eps: Epsilon.
        expected: About what delta will be.
    """
    if _seldom(streams):
        return _single_event(streams, direction, eps)
    return _saddle(streams, direction, eps, expected)


def _seldom(streams: Streams) -> bool:
    return sum(n * q for _, q, n in streams) < _SELDOM


def _single_event(streams: Streams, direction: Direction, eps: float) -> float:
    """Return log delta if the record is sampled once at most: the deltas of all steps add up."""
    steps = [(n, OneStep(noise_multiplier=s, sampling_probability=q, direction=direction)) for s, q, n in streams]
    return math.log(sum(n * step.delta(eps)[1] for n, step in steps))


def _saddle(streams: Streams, direction: Direction, eps: float, expected: float) -> float:
    """Return log delta by the saddle-point approximation with its second term, or nan where it does not apply.

    With f(s) = K(s) - s eps - log(s (s + 1)), least at s0, delta is about

        exp(f(s0)) / √(2π f''(s0)) · (1 + f⁗ / (8 f''²) - 5 f‴² / (24 f''³)).

    Source: Daniels 1954; for accountants, Alghamdi et al. 2023.
    """
    try:
        table = table_about(Plan(streams, direction, expected), eps)
    except TooFine:
        return math.nan
    s = table.tilts
    f = table.total - s * eps - np.log(s) - np.log1p(s)
    i = min(max(int(np.argmin(f)), _HALF), len(s) - 1 - _HALF)
    step = float(s[1] - s[0])
    before2, before, here, after, after2 = (float(x) for x in f[i - _HALF : i + _HALF + 1])
    first = (before2 - 8 * before + 8 * after - after2) / 12
    second = (-before2 + 16 * before - 30 * here + 16 * after - after2) / 12
    third = (after2 - 2 * after + 2 * before - before2) / 2
    fourth = before2 - 4 * before + 6 * here - 4 * after + after2
    x = 0.0  # where the quartic through the five is least, in steps from the middle one
    for _ in range(3):
        curved = second + third * x + fourth * x * x / 2
        if curved <= 0:
            return math.nan
        x -= (first + second * x + third * x**2 / 2 + fourth * x**3 / 6) / curved
    least = here + first * x + second * x**2 / 2 + third * x**3 / 6 + fourth * x**4 / 24
    curved, third = second + third * x + fourth * x * x / 2, third + fourth * x
    correction = fourth / (8 * curved**2) - 5 * third**2 / (24 * curved**3)
    if curved <= 0 or abs(x) > _HALF or abs(correction) > 0.5:
        return math.nan
    return least - 0.5 * math.log(2 * math.pi * curved / step**2) + math.log1p(correction)

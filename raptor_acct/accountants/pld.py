"""Sampled streams by a discretised privacy loss distribution (PLD), composed by dp-accounting.

Each step's loss is discretised by connect-the-dots (Doroshenko et al. 2022), which dominates it, on a grid fine
against its standard deviation; dp-accounting raises the result to the number of steps by FFT and convolves streams.

Rounding. The FFT works in double precision without tilting, so far tails drown. Against the same FFT in extended
precision, delta was off by at most 0.95 · steps · 2⁻⁵² (140 compositions, 3 to 200,000 steps, delta <= 1e-4, both
directions). Twice steps · 2⁻⁵² is therefore added to every delta; near or below that allowance a delta says nothing,
and :meth:`PLDProfile.epsilon` refuses it. The tails truncated, 1e-15 a stream, count as delta.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raptor_acct._validate import number
from raptor_acct.accountants._one_step import Direction, OneStep
from raptor_acct.accountants._stream import Stream
from raptor_acct.adjacency import Adjacency

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf

SMALLEST_DELTA = 1e-10
_ROUNDING = 2 * 2.0**-52  # of delta, per step
_DIRECTIONS: dict[Adjacency, tuple[Direction, ...]] = {"add_remove": ("remove", "add"), "replace_one": ("replace",)}

# The grid's interval, in standard deviations of one step's loss: an interval of r adds about r²/12 to epsilon,
# relatively. The coarse end is the default; the fine end is used as far as the cheap sizes allow; beyond the hard
# sizes (about 0.5 GB) the grid gets coarser still, which is looser and just as safe.
_COARSE, _FINE = 0.1, 0.02
_CHEAP_STEP, _CHEAP_WINDOW = 20_000, 1 << 17
_HARD_STEP, _HARD_WINDOW = 200_000, 1 << 22


@dataclass(frozen=True, kw_only=True)
class PLDProfile:
    """The privacy profile of a composition, one discretised PLD a direction; the worse direction counts.

    Attributes:
        pmfs: The composed distributions.
        allowance: What is added to every delta for rounding.
    """

    pmfs: tuple["PLDPmf", ...]
    allowance: float

    @property
    def smallest_delta(self) -> float:
        """The smallest delta that :meth:`epsilon` accepts."""
        return max(SMALLEST_DELTA, 1.1 * self.allowance)

    def delta(self, eps: float) -> float:
        """Return an upper bound on delta at ``eps`` >= 0."""
        worst = max(float(pmf.get_delta_for_epsilon(float(eps))) for pmf in self.pmfs)
        return min(1.0, max(0.0, worst) + self.allowance)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on epsilon at ``delta``.

        Raises:
            ValueError: If ``delta`` is below :attr:`smallest_delta` or not below 1.
        """
        hint = "smaller values drown in the rounding of the FFT over this many steps"
        delta = number("delta", delta, f"[{self.smallest_delta:.3g}, 1)", hint=hint)
        eps = max(float(pmf.get_epsilon_for_delta(delta - self.allowance)) for pmf in self.pmfs)
        if not math.isfinite(eps):
            raise ValueError(
                f"expected a larger delta or more noise, got delta={delta!r}: no finite epsilon is certified"
            )
        step = 1e-13 * (1 + eps)
        while self.delta(eps) > delta:  # only by the last digits
            eps, step = eps + step, 2 * step
        return eps


def pld_profile(streams: Sequence[Stream], adjacency: Adjacency) -> PLDProfile:
    """Compose independent Poisson-subsampled Gaussian streams.

    Args:
        streams: The streams; equal ones are merged first, so splitting a stream in two changes nothing.
        adjacency: Decides the directions covered.

    >>> from types import SimpleNamespace
    >>> stream = SimpleNamespace(noise_multiplier=1.0, sampling_probability=0.01, num_steps=1000)
    >>> profile = pld_profile([stream], "add_remove")
    >>> 1.8282 <= profile.epsilon(1e-5) <= 1.8284
    True
    """
    merged: Counter[tuple[float, float]] = Counter()
    for stream in streams:
        merged[stream.noise_multiplier, stream.sampling_probability] += stream.num_steps
    # Without sampling, a whole stream is one Gaussian step.
    plan = [(s / math.sqrt(n), 1.0, 1) if q == 1 else (s, q, n) for (s, q), n in sorted(merged.items())]
    return PLDProfile(
        pmfs=tuple(_composed(plan, direction) for direction in _DIRECTIONS[adjacency]),
        allowance=_ROUNDING * (16 + sum(count for _, _, count in plan)),
    )


def _composed(plan: Sequence[tuple[float, float, int]], direction: Direction) -> "PLDPmf":
    from dp_accounting.pld.pld_pmf import compose_pmfs

    steps = [
        (OneStep(noise_multiplier=sigma, sampling_probability=q, direction=direction), count)
        for sigma, q, count in plan
    ]
    interval = _interval(steps)
    first, *others = (_discretised(step, interval).self_compose(count, 1e-15) for step, count in steps)
    for other in others:
        first = compose_pmfs(first, other)
    return first


def _discretised(step: OneStep, interval: float) -> "PLDPmf":
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap

    high, low = step.loss(np.array([-step.reach, step.reach])) / interval
    bottom, top = math.floor(low), math.ceil(high)
    deltas = np.minimum.accumulate(step.delta(np.arange(bottom, top + 1) * interval))
    # A sparse distribution would work out size ** steps before it turns dense.
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, bottom, top, deltas).to_dense_pmf()


def _interval(steps: Sequence[tuple[OneStep, int]]) -> float:
    """Return the grid's interval: 0.1 root-mean-square one-step deviations, finer where cheap, capped in size."""
    spreads = [step.standard_deviation() for step, _ in steps]
    total = sum(count for _, count in steps)
    square = sum(count * spread**2 for (_, count), spread in zip(steps, spreads, strict=True))
    interval = _COARSE * math.sqrt(square / total)
    lengths = [float(np.ptp(step.loss(np.array([-step.reach, step.reach])))) / interval for step, _ in steps]
    window = sum(
        _window(count, spread / interval, length)
        for (_, count), spread, length in zip(steps, spreads, lengths, strict=True)
    )
    longest = max(lengths)
    wanted = max(longest / _CHEAP_STEP, window / _CHEAP_WINDOW)
    floor = max(longest / _HARD_STEP, window / _HARD_WINDOW)
    return interval * max(floor, min(1.0, max(_FINE / _COARSE, wanted)))


def _window(count: int, spread: float, length: float) -> float:
    """Return about how many cells dp-accounting's Chernoff window keeps of ``count`` steps, all in cells."""
    variance = count * spread**2
    order = min(max(math.sqrt(70 / variance), 1 / length), 20 / length)
    return min(count * length, variance * order + 70 / order)

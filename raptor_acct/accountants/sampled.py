"""The profile of sampled streams: for each direction and epsilon the engine that is tightest there.

The contour integral is exact to about 1e-9 wherever the tilted loss is smooth. Where hardly ever anything happens, it
is that for losses of each size by themselves. Where neither holds, with hardly any noise or hardly any delta, a
discretised privacy loss distribution takes over. All certify their ends: where several answer, the intersection holds.
"""

import math
from collections.abc import Sequence

from raptor_acct.accountants._guess import central_mu, guessed_epsilon
from raptor_acct.accountants._inverse import epsilon_of
from raptor_acct.accountants._one_step import Direction, OneStep
from raptor_acct.accountants._stream import Evaluation, Plan, Stream, merged
from raptor_acct.accountants._tilted_lattice import MassLost
from raptor_acct.accountants.contour import contour
from raptor_acct.accountants.gaussian import GaussianProfile
from raptor_acct.accountants.split_contour import split_contour
from raptor_acct.accountants.tilted_pld import tilted_pld
from raptor_acct.adjacency import Adjacency
from raptor_acct.bound import Bound

_DIRECTIONS: dict[Adjacency, tuple[Direction, ...]] = {"add_remove": ("remove", "add"), "replace_one": ("replace",)}
_TIGHT = 1e-8  # relative width of delta that is good enough
_ROUGH = 1e-2  # width, as a share of the distance from a target, that is good enough to step on
_WIDE = 1e-6  # beyond this another engine is tried
_SIZES, _MOST_STREAMS = (1 << 14, 1 << 18), 300  # of a privacy loss distribution; also of parts by size
_TRIES = 3
_SMALLEST = 1e-36  # a delta below is not resolved
_KEPT = 4  # evaluations that are remembered


class SampledProfile:
    """The profile of independent streams, of which some sample.

    Args:
        streams: The streams.
        adjacency: Decides the directions; the worse one counts.

    >>> from types import SimpleNamespace
    >>> stream = SimpleNamespace(noise_multiplier=1.0, sampling_probability=0.01, num_steps=1000)
    >>> eps = SampledProfile([stream], "add_remove").epsilon(1e-5)
    >>> round(eps, 6), eps.width < 1e-8, eps.method
    (1.828237, True, 'contour integral')
    """

    def __init__(self, streams: Sequence[Stream], adjacency: Adjacency) -> None:
        self._plan = plan = merged(streams)
        self._leading = _DIRECTIONS[adjacency][0]
        distance = 2 if adjacency == "replace_one" else 1
        self._central = GaussianProfile(mu=central_mu(plan) * distance)
        unsampled = GaussianProfile(mu=distance * math.sqrt(sum(n / sigma**2 for sigma, _, n in plan)))
        ever = -math.expm1(sum(n * math.log1p(-q) if q < 1 else -math.inf for _, q, n in plan))
        self._ever = ever * (1 + 1e-12)  # the probability that the record is sampled at all; delta is at most that
        self._directions = [_Directed(plan, direction, unsampled, self._ever) for direction in _DIRECTIONS[adjacency]]
        self._latest = 0.0  # the latest epsilon asked about; the next is often close

    def delta(self, eps: float, negligible: float = 0.0) -> Bound:
        """Return delta at ``eps`` >= 0; below ``negligible`` an upper bound is enough."""
        return self._worst(eps, float(self._central.delta(eps)), None, negligible)

    def excess(self, eps: float, delta: float, *, leading: bool = False) -> float:
        """Return the log of delta at ``eps`` over ``delta``, of the first direction where it is positive."""
        self._latest = eps
        if self._ever <= delta:
            return math.log(self._ever / delta)
        if leading:
            return math.log(self._directions[0].delta(eps, delta, delta, 0.0).upper / delta)
        return math.log(self._worst(eps, delta, delta, 0.0).upper / delta)

    def epsilon(self, delta: float) -> Bound:
        """Return epsilon at ``delta``; 0 where ``delta`` covers the total variation distance.

        Raises:
            ValueError: If no epsilon is certified.
        """
        return epsilon_of(self, delta, self._latest or guessed_epsilon(self._plan, self._leading, delta))

    def _worst(self, eps: float, expected: float, target: float | None, negligible: float) -> Bound:
        """Return delta of the worst direction, or of the first one that exceeds a ``target``."""
        worst = Bound(0.0, 0.0, safe="upper", method="")
        for directed in self._directions:
            bound = directed.delta(eps, expected, target, max(worst.lower, negligible))
            lower, worst = max(worst.lower, bound.lower), max(worst, bound)
            worst = Bound(lower, worst.upper, safe="upper", method=worst.method)
            if target is not None and worst.upper > target:
                break
        return worst


class _Directed:
    """One direction, with the latest evaluations, and what holds if each step samples the record or none does.

    Delta is at most the probability that the record is ``ever`` sampled times delta of all steps ``unsampled``.
    """

    def __init__(self, plan: Plan, direction: Direction, unsampled: GaussianProfile, ever: float) -> None:
        self._plan = plan
        self._unsampled = unsampled
        self._ever = ever
        self._direction = direction
        self._attained = 0.0, 0.0  # an epsilon, and the relative width that is known to be the best about it
        self._evaluations: list[tuple[Evaluation, str]] = []
        (sigma, q, count), *others = plan
        self._closed = count == 1 and not others
        if self._closed:
            step = OneStep(noise_multiplier=sigma, sampling_probability=q, direction=direction)
            self._evaluations = [(step, "closed form")]

    def delta(self, eps: float, expected: float, target: float | None, negligible: float) -> Bound:
        """Return delta in this direction.

        Below ``negligible`` no digits are of interest; far from a ``target`` few.
        """
        bound = self._known(eps)

        def enough() -> bool:
            rough = 0.0 if target is None else _ROUGH * abs(bound.upper - target)
            near, attained = self._attained
            best = attained if abs(eps - near) < 0.1 * near else 0.0
            wanted = max(max(_TIGHT, best) * bound.upper, rough)
            return self._closed or bound.width <= wanted or bound.upper <= max(negligible, _SMALLEST)

        for _ in range(_TRIES):
            if enough():
                return bound
            expected = min(max(expected, bound.lower, _SMALLEST), bound.upper)
            self._add(contour(self._plan, self._direction, eps, expected), "contour integral")
            bound = self._known(eps)
            if bound.upper > 0.1 * expected:
                break
        widths: list[float] = []
        tried = 0.0  # delta that the parts were made for
        few = len(self._plan) <= _MOST_STREAMS
        for size in _SIZES if few else ():
            if enough():
                return bound
            if bound.width <= _WIDE * bound.upper:
                break
            expected = min(max(expected, bound.lower, _SMALLEST), bound.upper)
            if self._direction != "add" and eps > 0 and not tried / 3 < expected < 3 * tried:
                tried = expected
                parts = split_contour(self._plan, self._direction, eps, expected)
                if parts is not None:
                    self._add(parts, "contour integrals by size of the losses")
                bound = self._known(eps)
                if enough() or bound.width <= _WIDE * bound.upper:
                    break
            if len(widths) > 1 and widths[-1] > widths[-2] / 3:  # a finer lattice does not help
                break
            try:
                self._add(tilted_pld(self._plan, self._direction, eps, size=size), "privacy loss distribution")
            except MassLost:
                break
            bound = self._known(eps)
            widths.append(bound.width)
        self._attained = eps, 2 * bound.width / bound.upper
        return bound

    def _add(self, evaluation: Evaluation, method: str) -> None:
        self._evaluations = [*self._evaluations[1 - _KEPT :], (evaluation, method)]

    def _known(self, eps: float) -> Bound:
        """Return what the evaluations kept say together."""
        lower, upper, method = 0.0, min(1.0, self._ever) * self._unsampled.delta(eps).upper, "closed form"
        for evaluation, name in self._evaluations:
            low, high = evaluation.delta(eps)
            lower = max(lower, low)
            if high < upper:
                upper, method = high, name
        assert lower <= upper, f"the accountants contradict each other at eps={eps!r}: please report {self._plan}"
        return Bound(lower, upper, safe="upper", method=method)

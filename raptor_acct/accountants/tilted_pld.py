"""A certified bracket on the privacy profile of sampled streams, down to delta = 1e-30: a tilted, discretised PLD.

One step of a stream is a pair of distributions (P, Q) with loss l = log(P/Q). It is put on a lattice of losses twice:

    upper  a cell's mass goes to the two lattice points around it, keeping its P and its Q: R = P/Q, of mean 1 under Q,
           is spread, so the pair dominates (connect the dots).
    lower  mass from just above and just below a lattice point is merged there, which is post-processing; what is left
           of P above Q·e^point is dropped, which only lowers delta.

Steps whose loss exceeds a *cut* leave the lattice: E is the event that one does. On E the test that always rejects
wins P(E) - e^ε Q(E), and no test wins more than Q(E) e^ε D more, D = Σ (Q - e^x P)+ of the other steps at
x = cut - ε, bounded by Chernoff. So rare large losses need no long window.

Without E, delta = Σ_{l > ε} p(l) (1 - e^(ε-l)). With weights π(l) = p(l) e^(c l - K(c)), K = log Σ p e^(c l), it is
e^(K - cε) Σ π(l) e^(-c(l-ε)) (1 - e^(ε-l)): c > 0 makes the losses near ε the likely ones, so that the FFT of length n,
step h and window W = n h loses nothing to rounding. Its errors, each bounded and counted:

    wrap   adding mass only raises the upper end. The lower end pays, for an order t > c and an order 0 < t < c,
           Σ_m e^(±m c W) P(l >= ε ± m W) <= e^(K(t) - tε) / (e^(|t-c| W) - 1).
    reach  above the window's end b, P(l >= b) <= e^(K(t) - t b) counts as delta in the upper end.
    round  every output of an FFT differs by at most (8 log2 n + 64) 2⁻⁵³ times the 1-norm of its input; powers and
           products amplify this as worked out in :func:`_compose`. Masses and losses: see :class:`TiltedPLD`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from raptor_acct.accountants._one_step import Array, Direction
from raptor_acct.accountants._tilted_lattice import Pmf, discretised
from raptor_acct.accountants._tilted_plan import Plan, Planner
from raptor_acct.accountants._tilted_step import ROUNDING, Step, log_peak, log_total

_SHARPEST = 0.005  # the least noise, in sensitivities, that is discretised
_ROUGH = 1 << 12  # points of the first run, which finds out how small delta is


@dataclass(frozen=True, kw_only=True)
class _Composed:
    """Tilted weights of the sum at the losses start + step · k, each within ``error`` of the wrapped truth."""

    start: float
    weights: Array
    error: float
    log_norm: float


def _compose(pmfs: Sequence[Pmf], plan: Plan, size: int) -> _Composed:
    """Raise to powers and multiply, each stream about its heaviest weight a.

    Its transform is a (1 + z), with z the transform of the other weights over a, so where nearly all mass is a spike
    little is left to round. z is known within e = u · Σ other/a, its power within a^T T e (|1 + z| + e)^(T-1).
    """
    from scipy.fft import irfft, rfft

    u = (8 * math.log2(size) + 64) * ROUNDING
    base = log_spike = moved = 0.0
    exponent, log_bound, relative = np.zeros(size // 2 + 1, complex), np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    for pmf in pmfs:
        centre = int(pmf.weights.argmax())
        peak = float(pmf.weights[centre])
        others = pmf.weights / peak
        others[centre] = 0.0
        z = rfft(np.bincount((np.arange(len(others)) - centre) % size, others, minlength=size))
        modulus, error = np.abs(1 + z), u * float(others.sum())
        small = np.log1p(np.maximum(z.real * (2 + z.real) + z.imag**2, -0.9)) / 2
        exponent.real += pmf.count * np.where(np.abs(z) < 0.5, small, np.log(np.maximum(modulus, 1e-300)))
        exponent.imag += pmf.count * np.angle(1 + z)
        log_bound += pmf.count * np.log(modulus + error)
        relative += pmf.count * error / (modulus + error)
        base += pmf.count * (pmf.first + plan.step * centre)
        log_spike += pmf.count * math.log(peak)
        moved += pmf.count * float(others.sum())
    spike = math.exp(log_spike) if moved < 1 else 0.0  # taken out before rounding
    values = spike * _expm1(exponent) if spike else np.exp(exponent + log_spike)
    weights = irfft(values, size)
    weights[0] += spike
    first = math.floor((plan.low - base) / plan.step)
    errors = np.exp(log_bound + log_spike) * relative + u * np.abs(values)
    return _Composed(
        start=base + plan.step * first,
        weights=np.roll(weights, -(first % size)),
        error=2 / size * float(errors.sum()) + 4 * ROUNDING * spike,
        log_norm=sum(pmf.count * pmf.log_norm for pmf in pmfs),
    )


def _expm1(z: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """Return e^z - 1, accurate relative to its size, which numpy does not promise."""
    result = np.empty_like(z)
    result.real = np.expm1(z.real) * np.cos(z.imag) - 2 * np.sin(z.imag / 2) ** 2
    result.imag = np.exp(z.real) * np.sin(z.imag)
    return result


@dataclass(frozen=True, kw_only=True)
class TiltedPLD:
    """A certified bracket on delta, in one direction: :func:`tilted_pld` builds it, tight near one eps.

    Rounding of one step: computed masses are within (64 + 4 · largest logarithm) 2⁻⁵³, relatively, and losses within
    64 · 2⁻⁵³ of the largest loss, so that delta is within a factor e^±relative of one at eps ± moved.
    """

    step: float
    order: float
    upper: _Composed
    lower: _Composed
    beyond: tuple[float, float]  # order t and K(t)
    wraps: tuple[tuple[float, float], tuple[float, float]]
    cut: float  # the smallest loss that makes E happen
    probability: float  # P(E)
    log_q: tuple[float, float]  # of Q(E), and of the bound that sums over steps
    back: tuple[float, float]  # t and K(-1-t)
    q_bottom: float  # Q of the losses below the lattice
    relative: float
    moved: float
    sharp: bool = False  # too little noise: the lower end is that of more noise, the upper end 1

    def delta(self, eps: float) -> tuple[float, float]:
        """Return a lower and an upper bound on delta at ``eps`` >= 0."""
        return self._lower(eps + self.moved), self._upper(eps - self.moved)

    def _sum(self, start: float, weights: Array, eps: float) -> float:
        """Return the logarithm of Σ weight · e^(-c v) (1 - e^-v) over the v = loss - eps > 0."""
        first = min(max(0.0, (eps - start) / self.step), len(weights))
        k = np.arange(int(first), len(weights))
        v = start - eps + self.step * k
        terms = np.where(v > 0, np.exp(-self.order * np.maximum(v, 0)) * -np.expm1(-np.maximum(v, 0)), 0.0)
        total = float(weights[k] @ terms)
        return math.log(total) if total > 0 else -math.inf

    def _upper(self, eps: float) -> float:
        composed, peak = self.upper, log_peak(self.order)
        inside = self._sum(composed.start, np.maximum(composed.weights, 0) + composed.error, eps)
        if eps < composed.start:
            inside = float(np.logaddexp(inside, peak))  # the losses between eps and the window
        inside = min(inside, peak) + composed.log_norm - self.order * eps
        order, norm = self.beyond
        outside = norm - order * max(composed.start + self.step * len(composed.weights), eps)
        without = _exp(inside + self.relative) + _exp(outside + self.relative)
        return 1.0 if self.sharp else min(1.0, without + self._upper_on_cut(eps) + 5e-324)

    def _upper_on_cut(self, eps: float) -> float:
        order, norm = self.back
        others = min(1.0, _exp(norm + self.relative - order * (self.cut - eps)) + self.q_bottom)
        exact, summed = self.log_q
        won = self.probability - _exp(min(eps, 700.0) + exact) * (1 - 1e-11)
        return min(self.probability, won + _exp(eps + summed + math.log(others))) * (1 + 1e-11)

    def _lower(self, eps: float) -> float:
        composed = self.lower
        inside = self._sum(composed.start, np.maximum(composed.weights - composed.error, 0), eps)
        without = _exp(inside + composed.log_norm - self.order * eps - self.relative)
        for order, norm in self.wraps:
            width = abs(order - self.order) * self.step * len(composed.weights) + 1e-300
            without -= _exp(norm + self.relative - order * eps - width - math.log(-math.expm1(-width)))
        on_cut = self.probability * (1 - 1e-11) - _exp(eps + self.log_q[0]) * (1 + 1e-11)
        return max(0.0, without) + max(0.0, on_cut)


def _exp(x: float) -> float:
    """Return e^x, at most 1, for what bounds a probability."""
    return math.exp(min(x, 0.0))


def tilted_pld(
    streams: Sequence[tuple[float, float, int]], direction: Direction, near: float, *, size: int = 1 << 17
) -> TiltedPLD:
    """Compose independent Poisson-subsampled Gaussian streams in one direction.

    Args:
        streams: Noise multiplier, sampling probability and number of steps of each.
        direction: See :mod:`raptor_acct.accountants._one_step`.
        near: The eps >= 0 at which the bracket should be tightest.
        size: Number of lattice points of the window; the width of the bracket falls with its square.

    Raises:
        MassLost: With hardly any noise, if the masses of one step lie too far apart.

    >>> low, high = tilted_pld([(1.0, 0.01, 1000)], "remove", 2.0).delta(2.0)
    >>> f"{low:.4e} {high:.4e}"
    '2.6655e-06 2.6656e-06'
    """
    # Without sampling, a whole stream is one Gaussian step.
    merged = [(s / math.sqrt(n), q, 1) if q == 1 else (s, q, n) for s, q, n in streams]
    steps = [Step(shift=1 / max(s, _SHARPEST), q=q, count=n, direction=direction) for s, q, n in merged]
    planner = Planner(steps, near)
    if size > _ROUGH:
        low, high = _built(steps, planner.rough(_ROUGH), _ROUGH).delta(near)
        found = (math.log(high) + math.log(max(low, high / 100, 1e-300))) / 2
        planner.log_delta = min(planner.log_delta, max(found, -80.0))
    built = _built(steps, planner.fine(size), size)
    return replace(built, sharp=any(s < _SHARPEST for s, _, _ in merged))


def _built(steps: Sequence[Step], plan: Plan, size: int) -> TiltedPLD:
    made = [discretised(step, plan, cut) for step, cut in zip(steps, plan.cuts, strict=True)]
    uppers, lowers = [one.upper for one in made], [one.lower for one in made]
    tops = [step.tail(cut, 1) for step, cut in zip(steps, plan.cuts, strict=True)]
    cuts = [step.loss(cut) for step, cut in zip(steps, plan.cuts, strict=True)]

    def norm(pmfs: Sequence[Pmf], order: float) -> tuple[float, float]:
        return order, sum(pmf.norm(order, plan) for pmf in pmfs)

    def log_happens(side: int) -> float:
        never = sum(
            one.count * math.log1p(-min(math.exp(top[side]), 1 - ROUNDING))
            for one, top in zip(steps, tops, strict=True)
        )
        return math.log(-math.expm1(never)) if never < 0 else -math.inf

    back = sum(
        pmf.count * float(np.logaddexp(pmf.norm(-1 - plan.back, plan) / pmf.count, top[1] - plan.back * cut))
        for pmf, top, cut in zip(uppers, tops, cuts, strict=True)
    )
    largest = [max(abs(cut), abs(step.loss(plan.end))) for step, cut in zip(steps, cuts, strict=True)]
    return TiltedPLD(
        step=plan.step,
        order=plan.order,
        upper=_compose(uppers, plan, size),
        lower=_compose(lowers, plan, size),
        beyond=norm(uppers, plan.beyond),
        wraps=(norm(lowers, plan.wraps[0]), norm(lowers, plan.wraps[1])),
        cut=min(cuts),
        probability=math.exp(log_happens(0)),
        log_q=(log_happens(1), log_total(steps, tops)[1]),
        back=(plan.back, back),
        q_bottom=math.exp(log_total(steps, [step.tail(plan.end, -1) for step in steps])[1]),
        relative=sum(step.count * (64 + 4 * one.worst) for step, one in zip(steps, made, strict=True)) * ROUNDING,
        moved=sum(step.count * 64 * loss for step, loss in zip(steps, largest, strict=True)) * ROUNDING,
    )

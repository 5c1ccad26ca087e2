"""How many right guesses about the canaries of one run are possible at all, under (ε, δ)-DP and under f-DP.

m canaries are included by fair coins. After the run, r of them are guessed, r fixed beforehand, and W guesses are
right. Coins of different canaries share the one run, so W is not binomial; but what privacy allows each canary, summed
over the canaries, ties P[W = k + 1] to P[W = k] (proofs/a2, a3). From that follows the largest P[W >= v].
"""

import math
from collections.abc import Callable

import numpy as np

from raptor_acct._validate import number, whole
from raptor_acct.guarantee import Guarantee

_OUTWARD = 1e-9  # what rounding may do, relatively: less
_LARGEST_EPS, _LARGEST_MU = 40.0, 40.0
_HALVINGS = 50
_PROFILE_POINTS = 200


def one_run_p_value(num_canaries: int, num_guesses: int, num_correct: int, *, eps: float, delta: float) -> float:
    """Return the largest probability of so many right guesses, or more, under (ε, δ)-DP.

    With S = P[Bin(r, e^ε/(1+e^ε)) >= v] it is S + (1 - S) min(1, m δ S/(v P[Bin = v])): attained by some mechanism and
    guesser, so no smaller value holds. Theorem 5.2 of Steinke, Nasr and Jagielski adds 2mδ max_i P[v > Bin >= v - i]/i
    to S instead, which is more wherever S < 1/2.

    Args:
        num_canaries: m, each included by a fair coin of its own.
        num_guesses: r <= m, fixed before the run.
        num_correct: v <= r.
        eps: At least 0.
        delta: In [0, 1).

    Raises:
        ValueError: If an argument is outside its range.

    Source: Steinke, Nasr and Jagielski 2023 for the game and for δ = 0; proofs/a2.

    >>> round(one_run_p_value(1000, 100, 75, eps=0.5, delta=1e-4), 6)
    0.007542
    """
    m, r, v = _counts(num_canaries, num_guesses, num_correct)
    return _pure_value(m, r, v, number("eps", eps, "[0, 700]"), number("delta", delta, "[0, 1)"))


def one_run_epsilon(num_canaries: int, num_guesses: int, num_correct: int, *, delta: float, error: float) -> float:
    """Return a lower bound on ε at ``delta`` that fails with a chance of at most ``error``; arguments as above."""
    m, r, v = _counts(num_canaries, num_guesses, num_correct)
    return _largest(lambda eps: _pure_value(m, r, v, eps, delta) <= error, _LARGEST_EPS)


def one_run_mu(num_canaries: int, num_guesses: int, num_correct: int, *, error: float) -> float:
    """Return a lower bound on the μ of Gaussian DP that fails with a chance of at most ``error``; arguments as above.

    Source: Mahloujifar, Melis and Chaudhuri 2024; proofs/a3.

    >>> round(one_run_mu(1000, 200, 173, error=0.05), 3), round(one_run_mu(1000, 1000, 500, error=0.05), 3)
    (0.594, 0.0)
    """
    from scipy.special import ndtr, ndtri  # here, since they take longer to import than the rest of the package

    m, r, v = _counts(num_canaries, num_guesses, num_correct)
    return _largest(lambda mu: _refuted(m, r, v, error, lambda tpr: float(ndtr(ndtri(tpr) - mu))), _LARGEST_MU)


def one_run_refutes(
    num_canaries: int, num_guesses: int, num_correct: int, guarantee: Guarantee, *, confidence: float = 0.95
) -> bool:
    """Return whether so many right guesses refute a guarantee by its whole privacy profile.

    The answer is yes with a chance of at most 1 - ``confidence`` if the mechanism keeps the guarantee.

    Source: Mahloujifar, Melis and Chaudhuri 2024; proofs/a3.

    >>> from raptor_acct import SubsampledGaussian
    >>> plan = SubsampledGaussian(num_steps=1, sampling_probability=1.0, noise_multiplier=2.0).guarantee()  # mu = 0.5
    >>> one_run_refutes(1000, 200, 173, plan), one_run_refutes(1000, 200, 165, plan)
    (True, False)
    """
    m, r, v = _counts(num_canaries, num_guesses, num_correct)
    error = 1 - number("confidence", confidence, "(0, 1)")
    eps = np.linspace(0.0, float(guarantee.epsilon(min(1e-9, error / m))), _PROFILE_POINTS)
    delta = np.array([guarantee.delta(float(x)).upper for x in eps])
    grow, shrink = np.exp(eps), np.exp(-eps)

    def least_fpr(tpr: float) -> float:
        """Both directions of TPR <= e^ε FPR + δ (P6); every point of the profile alone is a bound."""
        return float(max(0.0, np.max((tpr - delta) * shrink), np.max(1 - delta - grow * (1 - tpr))))

    return _refuted(m, r, v, error, least_fpr)


def _counts(num_canaries: int, num_guesses: int, num_correct: int) -> tuple[int, int, int]:
    m = whole("num_canaries", num_canaries, high=10**6)
    r = whole("num_guesses", num_guesses, high=m)
    return m, r, whole("num_correct", num_correct, low=0, high=r)


def _pure_value(m: int, r: int, v: int, eps: float, delta: float) -> float:
    from scipy.special import betainc, expit

    if v == 0:
        return 1.0
    tail = float(betainc(v, r - v + 1, expit(eps)))
    k = np.arange(v, r)
    with np.errstate(over="ignore"):  # infinitely many times P[Bin = v], far below the mean, means all of it
        beyond = 1 + float(np.cumprod(math.exp(eps) * (r - k) / (k + 1)).sum())  # P[Bin >= v]/P[Bin = v]
    return min(1.0, (tail + (1 - tail) * min(1.0, m * delta * beyond / v)) * (1 + _OUTWARD))


def _refuted(m: int, r: int, v: int, error: float, least_fpr: Callable[[float], float]) -> bool:
    """Return whether P[W >= v] >= ``error`` is impossible, as it would take a mass of more than 1.

    A mass of ``error`` at v is the cheapest. Of what is right, Σ_{j>k} j w_j, at least ``least_fpr`` must be as wrong,
    Σ_{j>=k} (r-j) w_j, both over m: so there is some least mass at k, from v - 1 down to 0.
    """
    mass = error
    right, wrong = v * mass / m, (r - v) * mass / m
    for k in range(v - 1, -1, -1):
        least = least_fpr(right)
        if least > wrong:
            more = m * (least - wrong) / (r - k)
            mass += more
            if mass > 1 + _OUTWARD:
                return True
            right, wrong = right + k * more / m, least
    return False


def _largest(holds: Callable[[float], bool], high: float) -> float:
    """Return a point of [0, high] that was found to hold, the largest if what holds is an interval; 0 if it is empty.

    That the point itself was tried is what makes it a bound: see proofs/a2 (c).
    """
    low = 0.0
    if not holds(low):
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

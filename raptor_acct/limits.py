"""The inverse questions: how many steps, how large a sample, or how little noise a target allows.

Each answer is certified: it was evaluated, and meets the target with the upper end of its bound.
"""

import math

from raptor_acct._arguments import check_q, check_target
from raptor_acct._noise_search import HIGHEST_LOG_NOISE, LOWEST_LOG_NOISE
from raptor_acct._search import safe_root
from raptor_acct._validate import number, whole
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.mechanisms import MOST_STEPS, NOISE_RANGE, SMALLEST_SAMPLING, SubsampledGaussian

_WIDTH = 1e-9  # of the logarithm of steps or q
_TPR_WIDTH = 1e-6  # of the logarithm of the noise


def max_steps(eps: float, delta: float, *, sigma: float, q: float, adjacency: Adjacency = "add_remove") -> int:
    """Return the most steps for which a stream is certified (eps, delta)-private.

    Args:
        eps: The target, above 0.
        delta: The target, in [1e-30, 1).
        sigma: Noise multiplier.
        q: Sampling probability of a record.
        adjacency: Which data sets count as neighbours.

    Raises:
        ValueError: If an argument is outside its range, or a single step already spends more.

    >>> steps = max_steps(1.0, 1e-5, sigma=1.4152, q=0.01)
    >>> 900 < steps < 1100
    True
    """
    eps, delta = check_target(eps, delta)
    sigma, q = number("sigma", sigma, NOISE_RANGE), check_q("q", q)
    check_adjacency(adjacency)

    def excess(steps: int) -> float:
        stream = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)
        return stream.guarantee(adjacency).excess(eps, delta)

    if excess(1) > 0:
        raise ValueError(f"expected a target that one step meets, got eps={eps:g} and delta={delta:g}; raise sigma")
    if excess(MOST_STEPS) <= 0:
        return MOST_STEPS
    # A decreasing function of -log steps.
    found = safe_root(
        lambda x: excess(max(1, round(math.exp(-x)))),
        -math.log(1000.0),
        low=-math.log(MOST_STEPS),
        high=0.0,
        width=_WIDTH,
        below=None,
        above="",
    )
    steps = max(1, round(math.exp(-found)))
    while excess(steps + 1) <= 0:
        steps += 1
    return steps


def max_sampling_probability(
    eps: float, delta: float, *, sigma: float, steps: int, adjacency: Adjacency = "add_remove"
) -> float:
    """Return the largest sampling probability for which a stream is certified (eps, delta)-private.

    Args:
        eps: The target, above 0.
        delta: The target, in [1e-30, 1).
        sigma: Noise multiplier.
        steps: Number of releases.
        adjacency: Which data sets count as neighbours.

    Raises:
        ValueError: If an argument is outside its range, or the smallest probability supported already spends more.

    >>> round(max_sampling_probability(1.0, 1e-5, sigma=1.4152, steps=1000), 4)
    0.01
    """
    eps, delta = check_target(eps, delta)
    sigma, steps = number("sigma", sigma, NOISE_RANGE), whole("steps", steps, high=MOST_STEPS)
    check_adjacency(adjacency)

    def excess(x: float) -> float:
        stream = SubsampledGaussian(num_steps=steps, sampling_probability=math.exp(-x), noise_multiplier=sigma)
        return stream.guarantee(adjacency).excess(eps, delta)

    found = safe_root(
        excess,
        -math.log(0.01),
        low=0.0,
        high=-math.log(SMALLEST_SAMPLING),
        width=_WIDTH,
        below=None,
        above=f"expected a target that q={SMALLEST_SAMPLING:g} meets, got eps={eps:g} and delta={delta:g}; raise sigma",
    )
    return math.exp(-found)


def calibrate_sigma_to_tpr(
    tpr: float, fpr: float, q: float, steps: int, *, adjacency: Adjacency = "add_remove"
) -> float:
    """Return the least noise multiplier with which no attack has a true positive rate above ``tpr`` at ``fpr``.

    The epsilon of such a stream at any delta is ``SubsampledGaussian(...).guarantee().epsilon(delta)``; asking for the
    rate directly needs less noise than going through one pair (eps, delta), since it uses the whole profile (P6).

    Args:
        tpr: The ceiling, in (fpr, 1).
        fpr: The false positive rate, in (0, 1).
        q: Sampling probability of a record.
        steps: Number of releases.
        adjacency: Which data sets count as neighbours.

    Raises:
        ValueError: If an argument is outside its range, or the target outside what is supported.

    >>> sigma = calibrate_sigma_to_tpr(0.002, 0.001, q=0.01, steps=1000)
    >>> guarantee = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=sigma).guarantee()
    >>> 0.00199 < 1 - guarantee.fnr(0.001) <= 0.002
    True
    """
    fpr = number("fpr", fpr, "(0, 1)")
    tpr = number("tpr", tpr, f"({fpr!r}, 1)")
    q, steps = check_q("q", q), whole("steps", steps, high=MOST_STEPS)
    check_adjacency(adjacency)

    def excess(log_noise: float) -> float:
        stream = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=math.exp(log_noise))
        return math.log((1 - stream.guarantee(adjacency).fnr(fpr).lower) / tpr)

    message = f"expected a ceiling that some noise multiplier supported gives, got tpr={tpr:g} at fpr={fpr:g}"
    return math.exp(
        safe_root(
            excess,
            0.0,
            low=LOWEST_LOG_NOISE,
            high=HIGHEST_LOG_NOISE,
            width=_TPR_WIDTH,
            below=message,
            above=message,
        )
    )

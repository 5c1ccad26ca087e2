"""Exact confidence bounds on a probability from the number of successes (Clopper and Pearson 1934)."""

from raptor_acct.audit._inputs import error_of

_OUTWARD = 1e-9  # relatively; the quantiles are good to less


def at_least(successes: int, trials: int, error: float) -> float:
    """Return a bound that the success probability exceeds or meets but for a chance of at most ``error``.

    It is the p at which so many successes, or more, have the probability ``error``.

    >>> round(at_least(95, 100, 0.05), 4)
    0.8977
    """
    from scipy.special import betaincinv  # here, since it takes longer to import than the rest of the package

    if successes == 0:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, error)) * (1 - _OUTWARD)


def at_most(successes: int, trials: int, error: float) -> float:
    """Return a bound that the success probability is at most, but for a chance of at most ``error``.

    >>> round(at_most(0, 1000, 0.05), 6)
    0.002991
    """
    from scipy.special import betainccinv  # not 1 - betaincinv, which loses the digits of a small probability

    if successes == trials:
        return 1.0
    return min(1.0, float(betainccinv(successes + 1, trials - successes, error)) * (1 + _OUTWARD))


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the two-sided interval: each end fails with a chance of at most (1 - ``confidence``)/2.

    Raises:
        ValueError: If ``confidence`` is outside (0, 1).

    >>> [round(end, 4) for end in clopper_pearson(1, 1000, 0.95)]
    [0.0, 0.0056]
    """
    half = error_of(confidence) / 2
    return at_least(successes, trials, half), at_most(successes, trials, half)

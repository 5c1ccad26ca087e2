"""Exact tests of what the trainer draws; a check that uses them raises a false alarm at the rate ALPHA at most."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy import stats

ALPHA = 1e-6


def require(p_values: dict[str, float]) -> None:
    """Fail if one of several tests rejects, each at its share of ALPHA (Bonferroni)."""
    rejected = {name: p for name, p in p_values.items() if not p >= ALPHA / len(p_values)}
    assert not rejected, f"rejected at the false-alarm rate {ALPHA}: {rejected}"


def scale_p_value(standardised: np.ndarray) -> float:
    """Two-sided p-value of independent N(0, 1) values having variance 1: their sum of squares is chi-square."""
    total, n = float(np.square(standardised).sum()), standardised.size
    return min(1.0, 2 * min(stats.chi2.cdf(total, n), stats.chi2.sf(total, n)))


def scale_power(n: int, ratio: float, level: float = ALPHA) -> float:
    """Probability that n values drawn with ``ratio`` times the stated deviation are rejected."""
    low, high = stats.chi2.ppf(level / 2, n), stats.chi2.isf(level / 2, n)
    return float(stats.chi2.cdf(low / ratio**2, n) + stats.chi2.sf(high / ratio**2, n))


def law_p_value(standardised: np.ndarray) -> float:
    """Kolmogorov-Smirnov p-value of independent values being N(0, 1)."""
    return float(stats.kstest(standardised, "norm").pvalue)


def correlation_p_value(left: np.ndarray, right: np.ndarray) -> float:
    """Two-sided p-value of two N(0, 1) vectors being independent: given one, its product with the other is normal."""
    return float(2 * stats.norm.sf(abs(float(left @ right)) / np.linalg.norm(right)))


def count_p_value(count: int, trials: int, probability: float) -> float:
    """Two-sided exact p-value of a binomial count."""
    return float(stats.binomtest(count, trials, probability).pvalue)


def dispersion_p_value(counts: Iterable[int], trials: int, probability: float) -> float:
    """Two-sided exact p-value of independent Binomial(trials, probability) counts varying as such counts do.

    The statistic is the sum of squared distances to the expected count, a whole number here; its law is a convolution.
    """
    counts, mean = list(counts), round(trials * probability)
    assert math.isclose(mean, trials * probability), "the expected count must be a whole number"
    k = np.arange(trials + 1)
    one = np.zeros(int(((k - mean) ** 2).max()) + 1)
    np.add.at(one, (k - mean) ** 2, stats.binom.pmf(k, trials, probability))
    law = np.ones(1)
    for _ in counts:
        law = np.convolve(law, one)
    total = sum((count - mean) ** 2 for count in counts)
    return float(min(1.0, 2 * min(law[: total + 1].sum(), law[total:].sum())))

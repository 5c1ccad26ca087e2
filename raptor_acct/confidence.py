"""What n records say about the routing of the population they come from: intervals for its entropy and CV (R4).

Every statement here is about sampling: the records are assumed to be independent draws from one population, whose
shares π of the E experts are unknown. A population that differs from theirs is another matter: `raptor_acct.shift`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number, whole
from raptor_acct.entropy import OUTWARD, cv_bounds, deficit_bounds

Interval = tuple[float, float]
Array = npt.NDArray[Any]

_BLOCK = 2**20  # numbers held at once while resampling
_MOST_RECORDS = 10**100  # more are taken for this many: a wider interval, and one that floats can hold


@dataclass(frozen=True, kw_only=True)
class RoutingConfidence:
    """Intervals for the entropy and the CV of the population behind a layer's records, which were drawn independently.

    As private as the counts it was made from.

    Attributes:
        level: The confidence level.
        num_records: n.
        num_experts: E.
        entropy: Ĥ, measured, in nats; its expectation is below the population's by up to log(1 + (E-1)/n).
        cv: ĈV, measured.
        entropy_rigorous: Holds at any n and π, in nats.
        cv_rigorous: Holds at any n and π; both rigorous intervals together with probability at least ``level``.
        entropy_bootstrap: Approximate: holds with probability near ``level`` where n is large, in nats.
        cv_bootstrap: Approximate, likewise.
        entropy_miller_madow: Approximate: Ĥ + (experts seen - 1)/(2n), in nats, its bias corrected to first order.
        resamples: How many samples the bootstrap drew.

    Source: theory.md R4; Table 7.
    """

    level: float
    num_records: int
    num_experts: int
    entropy: float
    cv: float
    entropy_rigorous: Interval
    cv_rigorous: Interval
    entropy_bootstrap: Interval
    cv_bootstrap: Interval
    entropy_miller_madow: float
    resamples: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def deficit_interval(deficit: float, cv: float, num_records: int, num_experts: int, *, error: float) -> Interval:
    """Return an interval that holds the population's log E - H with probability at least 1 - ``error``.

    It rests on the same event as `cv_interval`, so with the same arguments both hold together.

    One record moves Ĥ by at most c, the entropy of (1/n, 1 - 1/n), so by McDiarmid each of Ĥ - E Ĥ and E Ĥ - Ĥ exceeds
    c√(n·log(4/error)/2) with probability at most error/4; and H - log(1 + (E-1)/n) ≤ E Ĥ ≤ H. The CV's interval and
    `deficit_bounds` often say more, near uniform far more.

    Args:
        deficit: log E - Ĥ, measured, in nats.
        cv: ĈV, measured.
        num_records: n.
        num_experts: E.
        error: In (0, 1].

    Source: theory.md R4; McDiarmid 1989; Antos and Kontoyiannis 2001; Paninski 2003.

    >>> [round(end, 4) for end in deficit_interval(0.06, 0.344, 67_349, 8, error=0.05)]
    [0.0427, 0.1164]
    """
    low_cv, high_cv = _cv_from_sample(cv, num_records, num_experts, error)
    low, high = _deficit_from_sample(deficit, num_records, num_experts, error)
    return max(low, deficit_bounds(low_cv, num_experts)[0]), min(high, deficit_bounds(high_cv, num_experts)[1])


def cv_interval(deficit: float, cv: float, num_records: int, num_experts: int, *, error: float) -> Interval:
    """Return an interval that holds the population's CV with probability at least 1 - ``error``; as `deficit_interval`.

    One record moves ĈV = √E‖π̂ - u‖₂ by at most √(2E)/n, so each side of ĈV - E ĈV exceeds √(E·log(4/error)/n) with
    probability at most error/4; and CV ≤ E ĈV ≤ √(E ĈV²), where E ĈV² = CV²(1 - 1/n) + (E-1)/n. This is usually
    narrower than √E(1 + √log(1/β))/n^½ about ĈV: nothing is added above, and below the noise is taken off in squares.

    Source: theory.md R4; McDiarmid 1989.

    >>> [round(end, 4) for end in cv_interval(0.06, 0.344, 67_349, 8, error=0.05)]
    [0.321, 0.3668]
    """
    low, high = _cv_from_sample(cv, num_records, num_experts, error)
    low_deficit, high_deficit = _deficit_from_sample(deficit, num_records, num_experts, error)
    return max(low, cv_bounds(low_deficit, num_experts)[0]), min(high, cv_bounds(high_deficit, num_experts)[1])


def routing_confidence(
    counts: Sequence[int],
    *,
    entropy: float,
    entropy_deficit: float,
    cv: float,
    level: float,
    resamples: int,
    seed: int,
) -> RoutingConfidence:
    """Return every interval; `RoutingStats.confidence` calls it with its own statistics, checked, of ``counts``.

    Raises:
        ValueError: If ``level``, ``resamples`` or ``seed`` is outside its range, or the counts sum to more than 2**53.
    """
    chosen = number("level", level, "(0, 1)")
    drawn = whole("resamples", resamples, low=1, high=10**6)
    rng = np.random.default_rng(whole("seed", seed, low=0))
    records = whole("num_records", sum(counts), low=1, high=2**53)
    experts = len(counts)
    largest = math.log(experts)
    error = 1 - chosen
    low, high = deficit_interval(entropy_deficit, cv, records, experts, error=error)
    by_entropy, by_cv = _bootstrap(counts, (entropy, cv), level=chosen, resamples=drawn, rng=rng)
    return RoutingConfidence(
        level=chosen,
        num_records=records,
        num_experts=experts,
        entropy=entropy,
        cv=cv,
        entropy_rigorous=(max(0.0, largest - high), largest - low),
        cv_rigorous=cv_interval(entropy_deficit, cv, records, experts, error=error),
        entropy_bootstrap=by_entropy,
        cv_bootstrap=by_cv,
        entropy_miller_madow=min(entropy + (sum(count > 0 for count in counts) - 1) / (2 * records), largest),
        resamples=drawn,
    )


def entropies(counts: Array) -> npt.NDArray[np.float64]:
    """Return the entropy in nats of many samples at once, [...], from their counts, [..., experts].

    >>> entropies(np.array([[6, 1, 1, 0], [2, 2, 2, 2]])).round(4)
    array([0.7356, 1.3863])
    """
    totals = counts.sum(axis=-1)
    spread = (counts * np.log(np.maximum(counts, 1))).sum(axis=-1) / totals
    result: npt.NDArray[np.float64] = np.maximum(np.log(totals) - spread, 0.0)
    return result


def blocks(resamples: int, width: int) -> Iterator[int]:
    """Split so many samples of ``width`` numbers each into blocks small enough to hold at once.

    >>> list(blocks(10, 2**18))
    [4, 4, 2]
    """
    block = max(1, _BLOCK // width)
    for start in range(0, resamples, block):
        yield min(block, resamples - start)


def _cv_from_sample(cv: float, num_records: int, num_experts: int, error: float) -> Interval:
    n = min(num_records, _MOST_RECORDS)
    largest = math.sqrt(num_experts - 1) * (1 + OUTWARD)
    reach = math.sqrt(num_experts * math.log(4 / error) / n)
    mean = max(0.0, cv - reach) * (1 - OUTWARD)  # at most E ĈV
    low = math.sqrt(max(0.0, (mean**2 - (num_experts - 1) / n) / (1 - 1 / n))) if n > 1 else 0.0
    return low * (1 - OUTWARD), min((cv + reach) * (1 + OUTWARD), largest)


def _deficit_from_sample(deficit: float, num_records: int, num_experts: int, error: float) -> Interval:
    n = min(num_records, _MOST_RECORDS)
    change = math.log(n) / n - (n - 1) / n * math.log1p(-1 / n) if n > 1 else 0.0
    reach = change * math.sqrt(n * math.log(4 / error) / 2)
    bias = math.log1p((num_experts - 1) / n)
    low, high = (deficit - bias - reach) * (1 - OUTWARD), (deficit + reach) * (1 + OUTWARD)
    return max(0.0, low), min(high, math.log(num_experts))


def _bootstrap(
    counts: Sequence[int], measured: Interval, *, level: float, resamples: int, rng: np.random.Generator
) -> tuple[Interval, Interval]:
    """Return the basic intervals, mirrored at the measured values, of H and, by its square, of CV.

    Mirrored, since resampling repeats the bias of the sample; the square, since near uniform ĈV² - CV² does not depend
    on CV, and ĈV - CV does.
    """
    experts, records = len(counts), sum(counts)
    samples = (rng.multinomial(records, np.array(counts) / records, size=b) for b in blocks(resamples, experts))
    pairs = [(entropies(s), ((s * (experts / records) - 1) ** 2).mean(axis=-1)) for s in samples]
    ends = ((1 + level) / 2, (1 - level) / 2)
    entropy, cv = measured
    by_entropy = 2 * entropy - np.quantile(np.concatenate([pair[0] for pair in pairs]), ends)
    by_chi2 = 2 * cv**2 - np.quantile(np.concatenate([pair[1] for pair in pairs]), ends)
    low, high = np.clip(by_entropy, 0.0, math.log(experts)).tolist()
    low_cv, high_cv = np.sqrt(np.clip(by_chi2, 0.0, experts - 1.0)).tolist()
    return (low, high), (low_cv, high_cv)

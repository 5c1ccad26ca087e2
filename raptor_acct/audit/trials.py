"""Lower bounds from independent runs with and without a canary: the threshold from one half, the rates from the other.

A threshold chosen on the trials that are then counted finds leakage in noise: its rates are not binomial.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number, whole
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.audit._inputs import FloatArray, error_of, scored_members
from raptor_acct.audit.binomial import at_least, at_most
from raptor_acct.audit.leakage import Leakage

RateBound = Callable[[float, float], float]  # of TPR at least and FPR at most so much


def trials_lower_bound(
    scores: npt.ArrayLike,
    members: npt.ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    adjacency: Adjacency = "add_remove",
    seed: int = 0,
) -> Leakage:
    """Return lower bounds on ε and μ from one score of each of many independent trials.

    Half of the trials of each kind, drawn at random, choose two thresholds, one for ε and one for μ; the others give
    Clopper and Pearson's bounds on TPR from below and FPR from above, each at half of the error. The result's counts
    are those at ε's threshold.

    Args:
        scores: [trials], each from a run of its own, with the canary or without; higher for "with it".
        members: [trials], 1 if the canary was in the run; at least 2 trials of each kind. Fixed or random.
        delta: In [0, 1).
        confidence: In (0, 1).
        adjacency: What the two kinds of runs differ by; see `Leakage`.
        seed: Of the split. Choose it before the audit: the best of several seeds has no confidence.

    Raises:
        ValueError: If an argument is outside its range or of the wrong shape.

    **Guarantee.** If trials are independent, and those of a kind alike, each bound holds with a chance of at least
    ``confidence``. Records of one run are no such trials: for those, `canary_lower_bound`.

    Source: Jagielski et al. 2020; Nasr et al. 2021; proofs/a1.

    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(2000) % 2
    >>> found = trials_lower_bound(rng.normal(2.0 * members), members, delta=1e-5)  # mu = 2, epsilon = 10
    >>> round(found.epsilon, 2), round(found.mu, 2)
    (2.82, 1.72)
    """
    inside, outside = scored_members(scores, members)
    delta = number("delta", delta, "[0, 1)")
    check_adjacency(adjacency)
    if min(inside.size, outside.size) < 2:
        raise ValueError(f"expected at least 2 trials of each kind, got {inside.size} with and {outside.size} without")
    error = error_of(confidence) / 2
    rng = np.random.default_rng(whole("seed", seed, low=0))
    (first_in, second_in), (first_out, second_out) = _halves(inside, rng), _halves(outside, rng)

    def best(bound: RateBound) -> tuple[float, int, int]:
        """Return the bound with the true and false positives it rests on."""
        threshold = _best_threshold(first_in, first_out, bound, error)
        (true,), (false,) = _above(second_in, threshold), _above(second_out, threshold)
        return bound(*_rates(true, false, second_in.size, second_out.size, error)), true, false

    epsilon, true, false = best(lambda tpr, fpr: _epsilon(tpr, fpr, delta))
    counted = second_in.size + second_out.size
    return Leakage(
        game="trials",
        adjacency=adjacency,
        confidence=confidence,
        delta=delta,
        epsilon=epsilon,
        mu=best(_mu)[0],
        num_canaries=counted,
        num_guesses=counted,
        num_correct=true + second_out.size - false,
        true_positives=true,
        false_positives=false,
        method="threshold on one half, Clopper and Pearson on the other",
    )


def _halves(scores: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return two random halves, the second the larger."""
    shuffled = rng.permutation(scores)
    return shuffled[: scores.size // 2], shuffled[scores.size // 2 :]


def _best_threshold(inside: FloatArray, outside: FloatArray, bound: RateBound, error: float) -> float:
    """Return the threshold at which these trials alone would give the largest bound."""
    places = np.unique(np.concatenate([inside, outside]))
    true, false = (_above(scores, places) for scores in (inside, outside))
    found = [bound(*_rates(*counts, inside.size, outside.size, error)) for counts in zip(true, false, strict=True)]
    return float(places[int(np.argmax(found))])


def _above(scores: FloatArray, thresholds: npt.ArrayLike) -> list[int]:
    """Return how many of the scores are above each threshold."""
    counts: list[int] = (
        scores.size - np.searchsorted(np.sort(scores), np.atleast_1d(thresholds), side="right")
    ).tolist()
    return counts


def _rates(true: int, false: int, num_inside: int, num_outside: int, error: float) -> tuple[float, float]:
    """Return what TPR is at least and FPR at most, each but for a chance of ``error``."""
    return at_least(true, num_inside, error), at_most(false, num_outside, error)


def _epsilon(tpr: float, fpr: float, delta: float) -> float:
    """Return the least ε >= 0 with tpr <= e^ε fpr + δ and 1 - fpr <= e^ε (1 - tpr) + δ (P6); tpr < 1 and fpr > 0."""
    ratios = ((tpr - delta) / fpr, (1 - fpr - delta) / (1 - tpr))
    return math.log(max(1.0, *ratios))


def _mu(tpr: float, fpr: float) -> float:
    """Return the least mu >= 0 whose trade-off allows the rates."""
    from scipy.special import ndtri  # here, since it takes longer to import than the rest of the package

    return max(0.0, float(ndtri(tpr) - ndtri(fpr)))

"""The audit of one run with many canaries: guess the ones that stand out most, and bound ε and μ by the right ones."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number, whole
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.audit._inputs import BoolArray, FloatArray, error_of, memberships, real_array
from raptor_acct.audit.binomial import at_least, at_most
from raptor_acct.audit.leakage import Leakage
from raptor_acct.audit.one_run import one_run_epsilon, one_run_mu

_UNFAIR = 1e-9  # coins less likely than this are taken for a mistake
_METHOD = "one run: epsilon by the largest count of (ε, δ)-DP, mu by the f-DP recursion"


def canary_lower_bound(
    scores: npt.ArrayLike,
    included: npt.ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | Sequence[int] | None = None,
    adjacency: Adjacency = "add_remove",
    seed: int = 0,
) -> Leakage:
    """Return lower bounds on ε and μ from one run, into which each canary went by a fair coin.

    The highest scores are guessed "included" and as many of the lowest "not included", with abstention in between.
    Canaries with equal scores are put in random order.

    Args:
        scores: [canaries], higher for "included"; any function of what the run released, not of the coins.
        included: [canaries], the coins.
        delta: In [0, 1).
        confidence: In (0, 1).
        guesses: r, how many canaries to guess (the odd one "included"); a fifth of them by default. If several are
            given the best counts, and each is held to its share of the error. Choose them before the audit.
        adjacency: What a canary's coin decides; see `Leakage`. For ``"replace_one"``, which of two records is used.
        seed: Of the order of equal scores.

    Raises:
        ValueError: If an argument is outside its range or of the wrong shape, or the coins are plainly not fair ones.

    **Guarantee.** Whatever the mechanism, both bounds hold with a chance of at least ``confidence`` over the coins and
    the run, if the coins were fair and independent, used for nothing else, and the guesser saw the run's release only.
    A fixed number of included canaries is no set of independent coins.

    Source: theory.md §6; Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024; proofs/a2, a3.

    >>> rng = np.random.default_rng(0)
    >>> included = rng.random(2000) < 0.5
    >>> found = canary_lower_bound(rng.normal(2.0 * included), included, delta=1e-5)  # mu = 2, epsilon = 10
    >>> found.num_guesses, found.num_correct, round(found.epsilon, 2), round(found.mu, 2)
    (400, 397, 3.93, 1.39)
    """
    scored = real_array("scores", scores, dimensions=(1,))
    coins = memberships("included", included, scored.shape)
    m = scored.size
    _check_fair(int(coins.sum()), m)
    delta = number("delta", delta, "[0, 1)")
    check_adjacency(adjacency)
    tried = _tried(guesses, m)
    error = error_of(confidence) / len(tried)
    order = _order(scored, np.random.default_rng(whole("seed", seed, low=0)))
    found = [_audit(coins[order], r, delta, error, confidence, adjacency) for r in tried]
    return max(found, key=lambda leakage: (leakage.epsilon, leakage.mu))


def _order(scores: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the canaries from the highest score to the lowest; the given order may depend on the coins, ties not."""
    shuffled = rng.permutation(scores.size)
    ordered: npt.NDArray[np.int64] = shuffled[np.argsort(-scores[shuffled], kind="stable")]
    return ordered


def _audit(coins: BoolArray, r: int, delta: float, error: float, confidence: float, adjacency: Adjacency) -> Leakage:
    """Return the bounds from guessing ``r`` canaries of those in order."""
    m, low = coins.size, r // 2
    true = int(coins[: r - low].sum())
    correct = true + int((~coins[m - low :]).sum())
    return Leakage(
        game="one_run",
        adjacency=adjacency,
        confidence=confidence,
        delta=delta,
        epsilon=one_run_epsilon(m, r, correct, delta=delta, error=error),
        mu=one_run_mu(m, r, correct, error=error),
        num_canaries=m,
        num_guesses=r,
        num_correct=correct,
        true_positives=true,
        false_positives=r - low - true,
        method=_METHOD,
    )


def _tried(guesses: int | Sequence[int] | None, m: int) -> list[int]:
    if guesses is None:
        return [max(1, m // 5)]
    several = list(guesses) if isinstance(guesses, Sequence) else [guesses]
    if not several:
        raise ValueError("expected guesses, got an empty sequence")
    return [whole("guesses", r, high=m) for r in several]


def _check_fair(heads: int, m: int) -> None:
    if at_least(heads, m, _UNFAIR) > 0.5 or at_most(heads, m, _UNFAIR) < 0.5:
        got = f"{heads} of {m} included"
        raise ValueError(f"expected included to be a fair coin for each canary, got {got}; draw them before the run")

"""Rates of an attack over independent trials, what they say about the mechanism, and how the threshold may be chosen.

Claims. Bin(n, p) has mass b_p(k); T_p(k) = P[Bin(n, p) >= k]. β is the error.
(a) Clopper and Pearson's lower bound L(k), the p with T_p(k) = β (0 for k = 0), exceeds the true p with probability at
    most β. By symmetry so for the upper bound.
(b) If the threshold depends on other trials only, true and false positives are binomial given the threshold. So with
    β/2 each, TPR >= L and FPR <= U hold together with probability at least 1 - β.
(c) If so, the mechanism is not (ε, δ)-DP for e^ε < (L - δ)/U or e^ε < (1 - U - δ)/(1 - L), nor μ-GDP for
    μ < Φ⁻¹(L) - Φ⁻¹(U).
(d) With the best threshold of the trials that are counted, (a) fails at it.
(e) Let the threshold be the (a+1)-th highest score of the n non-members. The probability that a non-member's score is
    above it exceeds u with probability at most P[Bin(n, u) <= a], with equality where no scores tie. So the upper bound
    for a successes covers the FPR, and without ties, when a non-members are above, the lower bound does, too.

Proof. (a) T_p(k) rises with p, so L(k) > p means T_p(k) < β. Such k are those from some k₀ on, and P[K >= k₀] =
T_p(k₀) < β. (c) P6, with TPR >= L and FPR <= U put into TPR <= e^ε FPR + δ and 1 - FPR <= e^ε (1 - TPR) + δ, which are
monotone in both; μ-GDP is TPR <= Φ(Φ⁻¹(FPR) + μ). (e) Break ties at random: the chance to be above only grows, and a
non-member is among the top share u with probability u. More than u of the law is above the (a+1)-th highest if and
only if at most a of the n are among the top u. The lower end: less than u is above it if and only if at least a + 1 are
among the top u, of probability T_u(a + 1) <= T_u(a), which is β/2 at the lower bound for a.

Assumptions. Trials are independent, those with the canary alike, and those without. The rates of (c) are those of one
pair of neighbours.

Found. (d): with 9 trials of each kind and no leak at all, at some threshold the 95 % lower bound on the TPR is above
the measured FPR in 35 % of cases. The best of several thresholds, or of a table of them, has no confidence.

Source. theory.md §6; Clopper and Pearson 1934; Jagielski, Ullman and Oprea 2020; Nasr et al. 2021.

Code. raptor_acct.audit.trials_lower_bound, raptor_acct.audit.clopper_pearson, raptor_acct.audit.roc
"""

import itertools
import math
from fractions import Fraction

import sympy as sp

from proofs._check import Unproved, equal, not_negative
from raptor_acct.audit.binomial import at_least, at_most

ERROR = Fraction(1, 20)


def mass(k: int, n: int, p: Fraction) -> Fraction:
    """Return b_p(k)."""
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


def tail(k: int, n: int, p: Fraction) -> Fraction:
    """Return T_p(k)."""
    return sum((mass(j, n, p) for j in range(k, n + 1)), Fraction(0))


def rising() -> None:
    """(a) dT_p(k)/dp = n b_p(k - 1) of n - 1 trials: each mass's derivative telescopes (symbolic in p and k)."""
    p, k, n = sp.symbols("p k n", positive=True)
    below = n * sp.binomial(n - 1, k - 1) * p ** (k - 1) * (1 - p) ** (n - k)
    above = n * sp.binomial(n - 1, k) * p**k * (1 - p) ** (n - 1 - k)
    one = sp.binomial(n, k) * p**k * (1 - p) ** (n - k)
    equal("n b(k-1) - n b(k), of n - 1", sp.combsimp((sp.diff(one, p) - below + above) / one))


def coverage() -> None:
    """(a) the error over all outcomes (exact), for the code's bounds."""
    for n, p in itertools.product((1, 4, 11), (Fraction(1, 100), Fraction(3, 10), Fraction(1, 2), Fraction(97, 100))):
        above = sum((mass(k, n, p) for k in range(n + 1) if at_least(k, n, float(ERROR)) > p), Fraction(0))
        below = sum((mass(k, n, p) for k in range(n + 1) if at_most(k, n, float(ERROR)) < p), Fraction(0))
        if max(above, below) > ERROR:
            raise Unproved(f"(a) {n} trials, p = {p}: errors {above} and {below}")


def consequences() -> None:
    """(c) both forms are monotone in the rates (symbolic)."""
    low, up, more, less, delta, ratio = sp.symbols("L U more less delta ratio", nonnegative=True)
    # TPR = L + more, FPR = U - less, and what is refuted: e^ε U + δ < L
    first = (low + more) - (ratio * (up - less) + delta) - (low - ratio * up - delta)
    not_negative("TPR - e^ε FPR - δ is at least L - e^ε U - δ", sp.expand(first))
    second = (1 - (up - less)) - (ratio * (1 - low - more) + delta) - (1 - up - ratio * (1 - low) - delta)
    not_negative("the other direction", sp.expand(second))


def no_second_half() -> None:
    """(d) without a leak all orders of the scores are equally likely: the best threshold of each (exact counts)."""
    n = 9
    lower = [at_least(k, n, float(ERROR)) for k in range(n + 1)]
    found = 0
    for members in itertools.combinations(range(2 * n), n):
        true = list(itertools.accumulate(int(i in members) for i in range(2 * n)))
        found += any(lower[hits] > (i + 1 - hits) / n for i, hits in enumerate(true) if i + 1 > hits)
    if not Fraction(found, math.comb(2 * n, n)) > Fraction(1, 3):
        raise Unproved("(d) the error would be small")


def order_statistic() -> None:
    """(e) all samples of laws with and without ties (exact); without ties, as a fine uniform law has hardly any."""
    laws = ([Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)], [Fraction(1, 10)] * 10)  # of scores 0, 1, 2, ...
    n = 4
    for law, a in itertools.product(laws, range(n)):
        above = [sum(law[t + 1 :], Fraction(0)) for t in range(len(law))]
        chance: dict[Fraction, Fraction] = {}
        for sample in itertools.product(range(len(law)), repeat=n):
            rate = above[sorted(sample, reverse=True)[a]]
            chance[rate] = chance.get(rate, Fraction(0)) + math.prod(law[x] for x in sample)
        for u in above:
            if sum((p for rate, p in chance.items() if rate > u), Fraction(0)) > 1 - tail(a + 1, n, u):
                raise Unproved(f"(e) {law}, a = {a}, u = {u}")


def prove() -> None:
    """Check every step."""
    rising()
    coverage()
    consequences()
    no_second_half()
    order_statistic()


if __name__ == "__main__":
    prove()
    print("a1_split_threshold: proved")

"""Dividing by the expected number of the expert's own records, D = Bπ_e: no bias, and noise that grows as 1/π_e².

Claims. With D_e = Bπ_e, π_e > 0:
(a) bias_e = 0; the noise variance is σ²C²d/(Bπ_e)², which has no bound as π_e → 0.
(b) The mean over experts of 1/π_e² is at least E², and is E² only for uniform routing: no routing gives the oracle
    less noise than B/E has, on average over experts.
(c) With x = Eπ_e and V = Bπ(1 - q)m + σ²C²d, B/E has the smaller error if and only if
        x < 1 and (1 - x)‖c̄‖² < (1 + x) V/(Bπ)².
    An expert with more than its share (x > 1) is better off with the oracle; one with little enough is with B/E.
(d) Public and sufficient for B/E on every expert with less than its share: σ√d ≥ B/E.

Proof. (b): 1/x² - 3 + 2x = (x - 1)²(2x + 1)/x² ≥ 0; summed with x = Eπ_e, Σ 1/x² ≥ 3E - 2E. (c): the difference of
the two errors, factored. (d): V ≥ σ²C²d and ‖c̄‖ ≤ C, so σ²d/(Bπ)² ≥ (B/E)²/(Bπ)² = 1/x² > (1 - x)/(1 + x).

Assumptions. Those of the decomposition (B0). π is private (it is the private records' own share), so this
denominator is an oracle: nobody may use it; it is here to compare with.

Found. At π_e = 0 the oracle divides by zero: it is undefined, and a library has to refuse it.

Source. theory.md B3.

Code. raptor_acct.mse.mse (an array of denominators)
"""

import sympy as sp

from proofs._check import equal, positive
from proofs.b0_mse import terms

B, E, SHARE = sp.symbols("B E pi", positive=True)
Q, MEAN2, SECOND, NOISE2 = sp.symbols("q c m v", nonnegative=True)


def no_bias() -> None:
    """(a) the terms."""
    bias2, _, noise = terms(B, Q, SHARE, B * SHARE, MEAN2, SECOND, NOISE2)
    equal("bias²", bias2, 0)
    equal("noise", noise, NOISE2 / (B * SHARE) ** 2)
    equal("no bound", sp.limit(1 / noise, SHARE, 0, "+"), 0)


def mean_over_experts() -> None:
    """(b) the tangent at x = 1, then summed for any number of experts: Σ(3 - 2x) = 3E - 2EΣπ = E."""
    x = sp.symbols("x", positive=True)
    above = 1 / x**2 - (3 - 2 * x)
    equal("above the tangent", above, (x - 1) ** 2 * (2 * x + 1) / x**2)
    positive("what multiplies (x - 1)²", (2 * x + 1) / x**2)
    count, total = E, 1  # Σ1 and Σπ
    equal("the tangents' sum", 3 * count - 2 * E * total, E)
    # So Σ 1/(Eπ)² >= E, that is, the mean of 1/π² is at least E²; with equality only if every Eπ is 1.


def against_expected_owner() -> None:
    """(c) the difference of the errors, in x = Eπ."""
    x = E * SHARE
    own = sum(terms(B, Q, SHARE, B * SHARE, MEAN2, SECOND, NOISE2))
    owner = sum(terms(B, Q, SHARE, B / E, MEAN2, SECOND, NOISE2))
    spread = B * SHARE * (1 - Q) * SECOND + NOISE2  # V
    gain = (1 - x) * ((1 + x) * spread / (B * SHARE) ** 2 - (1 - x) * MEAN2)
    equal("error of the oracle less that of B/E", sp.expand(own - owner), sp.expand(gain))
    # For x > 1 the first factor is below 0 and the second above.
    more, v = sp.symbols("g V", positive=True)
    positive("x > 1: the second factor", (2 + more) * v + more * MEAN2)


def whatever_the_data() -> None:
    """(d) in units of C: ‖c̄‖² <= 1 and V >= σ²d = (1 + k)(B/E)², where Bπ = x B/E."""
    gap, more = sp.symbols("g k", nonnegative=True)
    x = 1 / (1 + gap)
    factor = (1 + x) * (1 + more) / x**2 - (1 - x)
    positive("the second factor of (c)", sp.factor(factor))


def prove() -> None:
    """Check every step."""
    no_bias()
    mean_over_experts()
    against_expected_owner()
    whatever_the_data()


if __name__ == "__main__":
    prove()
    print("b3_oracle: proved")

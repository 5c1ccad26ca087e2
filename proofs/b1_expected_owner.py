"""Dividing by the expected number of an expert's records, D = B/E: the bias is what routing puts into π, C·CV at most.

Claims. With D_e = B/E for every expert, for every E and every π:
(a) bias_e = (Eπ_e - 1) c̄_e, and the mean over experts of ‖bias_e‖² is at most C²·CV(π)².
(b) It is equal if and only if ‖c̄_e‖ = C wherever Eπ_e ≠ 1; and ‖c̄_e‖ = C only if all of e's clipped gradients are
    one vector of norm C.
(c) CV² = EΣπ² - 1 = χ²(π‖u), from 0 (uniform) to E - 1 (one expert owns all).
(d) The noise variance is E²σ²C²d/B²: π is not in it.
(e) From the entropy alone: √(mean ‖bias‖²) ≤ C·CV⁺(H), where (log E - H, CV⁺) runs over the curve
    (1/E)[(1+t) log(1+t) + (E-1)(1-s) log(1-s)], CV⁺ = t/√(E-1), s = t/(E-1), for t from 0 to E - 1. CV⁺ falls as H
    rises; near the uniform, CV⁺² ≈ 2(log E - H). It is attained, by π = ((1+t)/E, (1-s)/E, …, (1-s)/E) and gradients
    as in (b).

Proof. (a), (c): sums over experts are linear in Σ1 = E, Σπ = 1, Σπ². (b): C² - ‖c̄‖² = (C² - m) + mean ‖x_i - c̄‖²,
two terms that are at least 0. (e): R2 says that the curve has the largest CV at its entropy; both coordinates rise
with t.

Assumptions. Those of the decomposition (B0). ‖c̄_e‖ ≤ C since every clipped gradient is. Where C_e differ by expert,
C is their largest.

Found. The bound holds for experts without records only by the convention that ‖c̄_e‖ ≤ C there: they have no c̄_e.
The entropy bounds CV from below, too, but not the bias: where all c̄_e = 0 there is none.

Source. theory.md B1, R2; the paper's public expected-owner denominator.

Code. raptor_acct.bias_bound, raptor_acct.BiasBound (rms, entropy_bounds), raptor_acct.routing.RoutingStats.chi2,
raptor_acct.entropy.cv_bounds
"""

import sympy as sp

from proofs._check import equal, not_negative, positive
from proofs.b0_mse import over_experts, terms

E, B, C = sp.symbols("E B C", positive=True)
SHARE, SQUARES = sp.symbols("pi S", nonnegative=True)  # π_e and Σπ²
CV2 = E * SQUARES - 1
MOMENTS = (E, 1, SQUARES)


def factor() -> None:
    """(a), (d) the factor of c̄, and the noise."""
    q, mean2, second, noise2 = sp.symbols("q c m v", nonnegative=True)
    bias2, _, noise = terms(B, q, SHARE, B / E, mean2, second, noise2)
    equal("bias²", bias2, (E * SHARE - 1) ** 2 * mean2)
    equal("noise", noise, E**2 * noise2 / B**2)
    equal("routing is not in the noise", sp.diff(noise, SHARE), 0)


def mean_over_experts() -> None:
    """(a), (c) for any number of experts: the mean of (Eπ - 1)² is CV², by its three definitions."""
    factor2 = (E * SHARE - 1) ** 2
    equal("mean of factor²", over_experts(factor2, SHARE, MOMENTS) / E, CV2)
    variance = over_experts((SHARE - 1 / E) ** 2, SHARE, MOMENTS) / E
    equal("CV² = variance / mean²", variance / (1 / E) ** 2, CV2)
    equal("χ²(π‖u)", over_experts((SHARE - 1 / E) ** 2 / (1 / E), SHARE, MOMENTS), CV2)
    equal("one expert owns all", CV2.subs(SQUARES, 1), E - 1)
    below = sp.symbols("g", nonnegative=True)  # what C² exceeds ‖c̄_e‖² by
    slack = factor2 * C**2 - factor2 * (C**2 - below)
    equal("an expert's part of the slack is 0 only if Eπ = 1 or ‖c̄‖ = C", slack, (E * SHARE - 1) ** 2 * below)
    not_negative("the slack", slack)


def largest_mean() -> None:
    """(b) in any dimension: mean ‖x - c̄‖² = m - ‖c̄‖², by linearity in ‖x‖², ⟨x, c̄⟩ and ‖c̄‖²."""
    squares, with_mean, mean2 = sp.symbols("xx xc cc", real=True)
    distance = squares - 2 * with_mean + mean2
    second, spare = sp.symbols("m spare", nonnegative=True)  # spare = C² - m
    spread = distance.subs({squares: second, with_mean: mean2})  # the means of ‖x‖² and of ⟨x, c̄⟩
    equal("mean ‖x - c̄‖²", spread, second - mean2)
    equal("C² - ‖c̄‖²", (second + spare) - mean2, spare + spread)


def entropy_alone() -> None:
    """(e) the curve: its shares sum to one, and its deficit and its CV both rise with t, from one end to the other."""
    t, rest = sp.symbols("t r", positive=True)  # E - 1 = t + rest: t lies inside
    s = t / (E - 1)
    equal("shares", (1 + t) / E + (E - 1) * (1 - s) / E, 1)
    equal("CV²", E * (((1 + t) / E) ** 2 + (E - 1) * ((1 - s) / E) ** 2) - 1, t**2 / (E - 1))
    deficit = ((1 + t) * sp.log(1 + t) + (E - 1) * (1 - s) * sp.log(1 - s)) / E
    equal("slope", sp.diff(deficit, t), (sp.log(1 + t) - sp.log(1 - s)) / E)
    positive("the first logarithm is the larger", ((1 + t) - (1 - s)).subs(E, 1 + t + rest))
    positive("both exist", (1 - s).subs(E, 1 + t + rest))
    equal("uniform", sp.limit(deficit, t, 0), 0)
    end = sp.limit(deficit.subs(E, 1 + t + rest), rest, 0, "+")
    equal("one expert owns all", sp.expand_log(end - sp.log(1 + t)), 0)
    bend = sp.diff(deficit, t, 2).subs(t, 0)
    equal("CV² / (log E - H) tends to 2", (2 / (E - 1)) / bend, 2)


def prove() -> None:
    """Check every step."""
    factor()
    mean_over_experts()
    largest_mean()
    entropy_alone()


if __name__ == "__main__":
    prove()
    print("b1_expected_owner: proved")

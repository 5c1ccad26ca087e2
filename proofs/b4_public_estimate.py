"""Dividing by B times a public estimate π̂ of π: the bias is the estimate's relative error, and privacy is not touched.

Claims. With D_e = Bπ̂_e, π̂_e > 0, Σπ̂ = 1, from public data, and τ = TV(π, π̂) = ½ Σ|π_e - π̂_e|:
(a) bias_e = (π_e/π̂_e - 1) c̄_e. Weighted by π̂, the mean of the squared factors is χ²(π‖π̂); for π̂ = u that is B1.
(b) |π_e - π̂_e| ≤ τ and Σ(π - π̂)² ≤ 2τ², so the mean over experts of ‖bias_e‖² is at most 2C²τ²/(E min π̂²). The
    first two are attained. For π̂ = u: CV ≤ τ√(2E), the bound of R5.
(c) If π̂/k ≤ π ≤ kπ̂ for a k ≥ 1, ‖bias_e‖ ≤ C(k - 1).
(d) It costs no privacy: dividing by a constant is a one-to-one map of the output, under which every privacy loss is
    the same number; π̂ is a constant as far as the private records are concerned.

Assumptions. Those of the decomposition (B0); π̂ was not made from private records, nor chosen by looking at them.

Found. Unlike B1's factor, which is below E, this one has no bound as π̂_e → 0, and at π̂_e = 0, which an estimate by
counts often has, D_e = 0. An estimate needs a floor: π̂ ≥ f/E keeps the factor below E/f, and adding one to every
count of n records keeps it below n + E.

Source. theory.md B4, R5.

Code. raptor_acct.public_denominators, raptor_acct.bias_bound and raptor_acct.mse.mse (denominator "public_share")
"""

import sympy as sp

from proofs._check import equal, not_negative, positive
from proofs.b0_mse import terms

B, E = sp.symbols("B E", positive=True)
SHARE, ESTIMATE = sp.symbols("pi p", positive=True)


def factor() -> None:
    """(a) the factor of c̄, and what its squares average to."""
    q, mean2, second, noise2 = sp.symbols("q c m v", nonnegative=True)
    bias2, _, _ = terms(B, q, SHARE, B * ESTIMATE, mean2, second, noise2)
    equal("bias²", bias2, (SHARE / ESTIMATE - 1) ** 2 * mean2)
    equal("a term of χ²(π‖π̂)", ESTIMATE * (SHARE / ESTIMATE - 1) ** 2, (SHARE - ESTIMATE) ** 2 / ESTIMATE)
    equal("π̂ = u", (SHARE / ESTIMATE - 1).subs(ESTIMATE, 1 / E), E * SHARE - 1)


def total_variation() -> None:
    """(b) for any number of experts: the differences sum to 0, so the others' absolute values sum to |d_e| at least."""
    one, more = sp.symbols("d g", nonnegative=True)  # |d_e|, and Σ of the others' |d| less |d_e|
    tau = (one + (one + more)) / 2
    not_negative("τ - |d_e|", tau - one)
    largest, rest = sp.symbols("a r", nonnegative=True)  # |d_e| = a is at most τ = a + r
    equal("Σ|d|·τ - Σd², an expert's part", largest * (largest + rest) - largest**2, largest * rest)
    total = 2 * sp.Symbol("tau", positive=True)  # Σ|d|
    equal("Σ|d|·τ", total * total / 2, 2 * (total / 2) ** 2)
    equal("attained by τ moved from one expert to another", 2 * (total / 2) ** 2, (total / 2) ** 2 + (-total / 2) ** 2)
    mean_square = 2 * (total / 2) ** 2 / (E * (1 / E) ** 2)
    equal("π̂ = u: τ√(2E)", sp.sqrt(mean_square), total / 2 * sp.sqrt(2 * E))


def ratio() -> None:
    """(c) kπ̂ and π̂/k are off by k - 1 at most."""
    more = sp.symbols("g", nonnegative=True)
    k = 1 + more
    equal("above", (k * ESTIMATE) / ESTIMATE - 1, k - 1)
    not_negative("below", (k - 1) - (1 - (ESTIMATE / k) / ESTIMATE))


def privacy() -> None:
    """(d) the loss of one coordinate's Gaussian pair, and of any other: densities of g = x/D are D times those at x."""
    g, mean, other = sp.symbols("g mu nu", real=True)
    sigma, denominator = sp.symbols("sigma D", positive=True)

    def log_density(x: sp.Expr, mean: sp.Expr, scale: sp.Expr) -> sp.Expr:
        return -((x - mean) ** 2) / (2 * scale**2) - sp.log(scale)

    scaled = [log_density(g, m / denominator, sigma / denominator) for m in (mean, other)]
    plain = [log_density(denominator * g, m, sigma) for m in (mean, other)]
    equal("the loss at g is the loss at D·g", sp.expand(scaled[0] - scaled[1]), sp.expand(plain[0] - plain[1]))
    upper, lower = sp.Function("p", positive=True), sp.Function("q", positive=True)
    ratio = (denominator * upper(denominator * g)) / (denominator * lower(denominator * g))
    equal("of any pair", ratio, upper(denominator * g) / lower(denominator * g))


def floor() -> None:
    """Found: the factor without a floor, and with one."""
    equal("no bound", sp.limit(1 / (SHARE / ESTIMATE - 1), ESTIMATE, 0, "+"), 0)
    share_left, above, f = sp.symbols("r g f", positive=True)  # π = 1 - r, π̂ = f/E + g
    gap = E / f - ((SHARE / ESTIMATE - 1).subs({SHARE: 1 / (1 + share_left), ESTIMATE: f / E + above}))
    positive("with a floor", sp.factor(gap))


def prove() -> None:
    """Check every step."""
    factor()
    total_variation()
    ratio()
    privacy()
    floor()


if __name__ == "__main__":
    prove()
    print("b4_public_estimate: proved")

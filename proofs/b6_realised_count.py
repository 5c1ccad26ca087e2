"""Dividing by the realised count |S∩D_e|: no amount of noise makes that private.

The release is (Σ of the n sampled clipped gradients + σC z)/max(n, 1), z ~ N(0, I) in d dimensions.

Claims.
(a) Take n records and one more, all with gradient 0, and q = 1. With D public the two releases have one law; divided
    by n they are N(0, (σC/n)² I) and N(0, (σC/(n+1))² I). In units of the first law the loss is, in each coordinate,
    ξ²(2n+1)/(2n²) - log(1 + 1/n): it has no upper bound, and σ is not in it. No noise multiplier lowers delta.
(b) Its mean over d coordinates is at least d(1/n² - 1/(3n³)), its variance d(2n+1)²/(2n⁴). So
    delta(ε) → 1 as d grows.
(c) For every q: an expert with one record, and with two, all with gradient 0. The second law is (1 - q²) times the
    first plus q² N(0, (σC/2)² I): delta(ε) → q² as d grows, at every ε and σ.
(d) If the noise is added after the division, the quotient moves by at most 2C/(n+1) for n ≥ 1, and by C for n = 0:
    at most C, which is attained, not by C/D. Noise of standard deviation σC/D there has the noise multiplier σ/D in
    truth.

Proof. (a) the ratio of two densities. (b) -log(1+h) + h + h²/2 ≥ h² - h³/3 with h = 1/n; delta(ε) = E(1 - e^{ε-L})₊
≥ P(L ≥ ε + u)(1 - e^{-u}), and Cantelli's inequality. (c) the event ‖z‖² ≤ (σC)² d/2 has under N(0, (σC)² I) a
probability that tends to 0 and under N(0, (σC/2)² I) one that tends to 1 (law of large numbers). (d) Σ/n -
(Σ+x)/(n+1) = (Σ/n - x)/(n+1).

Assumptions. Counterexamples with add/remove neighbours; they hold for any accounting that charges by σ.

Found. theory.md's "no finite sensitivity bound" is the right warning with the wrong reason. The quotient's
sensitivity is finite, by (d). What has no bound is the loss of a noise whose scale tells the count (a). At the
paper's size, n = 125 and d = 983,040 parameters an expert, one release with q = 1 has delta(8) above 0.9, whatever σ
is.

Source. theory.md B6.

Code. raptor_acct.public_denominators, raptor_acct.bias_bound, raptor_acct.mse.mse (all refuse denominator
"realized")
"""

from fractions import Fraction

import mpmath as mp
import sympy as sp

from proofs._check import at_most, close, equal, not_negative, positive

N, SCALE = sp.symbols("n s", positive=True)  # s = σC
XI = sp.symbols("xi", real=True)


def loss() -> None:
    """(a) one coordinate, at z = (s/n)ξ."""
    z = XI * SCALE / N

    def log_density(count: sp.Expr) -> sp.Expr:
        return sp.log(count / SCALE) - (z * count / SCALE) ** 2 / 2

    claimed = XI**2 * (2 * N + 1) / (2 * N**2) - sp.log(1 + 1 / N)
    difference = sp.expand_log(log_density(N) - log_density(N + 1) - claimed, force=True)
    equal("log of the ratio", sp.simplify(difference))
    equal("no σ in it", sp.diff(claimed, SCALE))
    positive("it rises without bound with ξ²", sp.diff(claimed.subs(XI**2, sp.Symbol("x")), sp.Symbol("x")))


def moments() -> None:
    """(b) mean and variance of one coordinate's loss: E ξ² = 1, Var ξ² = 2; and a bound on the mean."""
    density = sp.exp(-(XI**2) / 2) / sp.sqrt(2 * sp.pi)
    second, fourth = (sp.integrate(XI**k * density, (XI, -sp.oo, sp.oo)) for k in (2, 4))
    weight = (2 * N + 1) / (2 * N**2)
    equal("variance", weight**2 * (fourth - second**2), (2 * N + 1) ** 2 / (2 * N**4))
    h = sp.symbols("h", positive=True)
    equal("the weight, h = 1/n", (weight * second).subs(N, 1 / h), h + h**2 / 2)
    spare = h + h**2 / 2 - sp.log(1 + h) - (h**2 - h**3 / 3)
    equal("0 at h = 0", spare.subs(h, 0))
    equal("its slope", sp.diff(spare, h), h**3 / (1 + h))
    positive("rises", h**3 / (1 + h))


def many_parameters() -> None:
    """(b) delta's bound tends to 1, and the number quoted under Found; u = 20."""
    d, mean, variance, threshold = sp.symbols("d mu V t", positive=True)
    missed = d * variance / (d * variance + (d * mean - threshold) ** 2)  # Cantelli: P(L < t) for t < d·mean
    equal("P(L < ε + u) tends to 0", sp.limit(missed, d, sp.oo))
    size, n = 983_040, 125
    average, spread = size * (Fraction(1, n**2) - Fraction(1, 3 * n**3)), Fraction(size * (2 * n + 1) ** 2, 2 * n**4)
    certain = 1 - spread / (spread + (average - 28) ** 2)
    at_most("delta(8) > 0.9", mp.mpf("0.9"), mp.mpf(certain.numerator) / certain.denominator * (1 - mp.exp(-20)))


def one_coordinate() -> None:
    """(a) delta in one dimension in closed form, against the integral of (p - e^ε q)₊ for two σ (numeric)."""
    for n, eps in ((1, 1), (1, 4), (10, mp.mpf("0.1"))):
        edge = mp.sqrt((eps + mp.log1p(mp.mpf(1) / n)) * 2 * n**2 / (2 * n + 1))
        closed = mp.erfc(edge / mp.sqrt(2)) - mp.exp(eps) * mp.erfc(edge * (n + 1) / n / mp.sqrt(2))
        at_most("delta > 0", mp.mpf("1e-9"), closed)
        for s in (mp.mpf(1), mp.mpf(100)):

            def excess(z: mp.mpf, n: int = n, s: mp.mpf = s, eps: mp.mpf = eps) -> mp.mpf:
                return mp.npdf(z, 0, s / n) - mp.exp(eps) * mp.npdf(z, 0, s / (n + 1))

            pieces = [edge * s / n * k for k in (1, 2, 4, 8, 16, 32)]
            close("delta", 2 * mp.quad(excess, pieces), closed, digits=10)
    claimed = mp.ncdf(mp.mpf("0.05") - 10) - mp.e * mp.ncdf(-mp.mpf("0.05") - 10)  # σ = 10, ε = 1, sensitivity C
    at_most("what the accounting claims", claimed, mp.mpf("1e-22"))


def sampled() -> None:
    """(c) the mixture's weights, and its delta against q² (numeric in d; the limit is the law of large numbers)."""
    q = sp.symbols("q", positive=True)
    equal("max(n, 1) = 1 for n = 0 and n = 1", (1 - q) ** 2 + 2 * q * (1 - q), 1 - q**2)
    q_number, eps = mp.mpf("0.1"), 8

    def ball(d: int, squared: mp.mpf) -> mp.mpf:
        return mp.gammainc(mp.mpf(d) / 2, 0, squared / 2, regularized=True)

    bounds = []
    for d in (50, 200, 800):
        narrow, wide = ball(d, mp.mpf(2 * d)), ball(d, mp.mpf(d) / 2)  # ‖z‖² <= s² d/2 under s/2 and under s
        bounds.append((1 - q_number**2) * wide + q_number**2 * narrow - mp.exp(eps) * wide)
    close("q² in the end", bounds[-1], q_number**2, digits=12)
    at_most("rising", bounds[0], bounds[1])


def quotient() -> None:
    """(d) the quotient's sensitivity, along one direction; the norm of a difference is at most the sum of the norms."""
    total, x = sp.symbols("T x", real=True)
    equal("difference", total / N - (total + x) / (N + 1), (total / N - x) / (N + 1))
    clip, more = sp.symbols("C g", nonnegative=True)
    not_negative("at most C for n >= 1", (clip - 2 * clip / (N + 1)).subs(N, 1 + more).factor())
    equal(
        "attained by one record and its opposite",
        (total / N - (total + x) / (N + 1)).subs({N: 1, total: clip, x: -clip}),
        clip,
    )


def prove() -> None:
    """Check every step."""
    loss()
    moments()
    many_parameters()
    one_coordinate()
    sampled()
    quotient()


if __name__ == "__main__":
    prove()
    print("b6_realised_count: proved")

"""Delta as that of what has a large loss in one of its steps, by its size, and that of what has none.

Claims. Let a weight 0 <= ω_i(z) <= 1 split the upper law of each step into U_i = (1 - ω_i) P_i and V_i = ω_i P_i.
(a) ×P_i - ×U_i is a measure, and the delta of ×P_i is the sum of its delta and that of ×U_i.
(b) With m_i = M_i(c + it), u_i likewise of U_i, |m_i|, |u_i| <= M_i(c):
        |Π m_i - Π u_i|  <=  Σ_i |m_i - u_i| / M_i(c) · Π M_j(c),
    and it is Π m_i (1 - exp X), X = Σ log(1 - v_i/m_i).
(c) If V, M are known within a, b <= |M|/2, then V/M is within 2 (a + |V/M| b) / |M|; if 1 - y is known within
    x |1 - y|, x <= 1/2, its logarithm is within 2x; and 1 - exp X within |exp X| (exp d - 1) if X is within d.
(d) Where V has the modulus v(y) on Im z = y <= a, all along and at both ends up to it, and the phase of the ratio is
    at least p(a) there, |v_i| <= ∫ v(a) exp(-T p(a)) dz + a (v(low) + v(high)) for all t >= T. For the factor
    ω = erfc((z1 - z)/w)/2 the bounds of C3 hold as for the fade, mirrored.
(e) exp(iα + iβ) - 1 = (exp(iα) - 1)(exp(iβ) - 1) + (exp(iα) - 1) + (exp(iβ) - 1).
(f) Weights ω_0, ..., ω_K that rise at ever larger losses, W_k = 1 - ω_k: with A_k = P W_{k-1} + P W_k ω_{k-1} <= P, and
    A_0 = P W_0, delta of ×A_K is the sum of those of ×A_0 and of all ×A_k - ×(P W_{k-1}), k = 1, ..., K, less at most
    the mass n ∫ P W_{k-1} ω_k for each k < K; and P - A_K = P ω_{K-1} ω_K. For ω = erfc((m - z)/w)/2 with middles d
    widths apart, ω_k W_{k-1} is at most exp(-d²)/2 below m_{k-1}, and exp(-d²/4) beyond it.
(g) Of small losses, M_U(s) <= 1 + Σ over cells of (mass of φ) · (largest of f/φ - 1): beyond the last cell f may be cut
    off, before the first f <= φ. The integrand is A^u B^d with A = R(z), B = R(-z), u = 1 + s, d = 0 or -s; less
    1 + u (A - 1) + d (B - 1) it is convex in (A, B), and >= 0; and ∫_z^∞ φ (A - 1) = q (Φ(1/σ - z) - Φ(-z)).

Assumptions. None on where to split: any place is safe.

Source. Worked out here.

Code. raptor_acct.accountants.split_contour.split_contour, raptor_acct.accountants._small_losses.small_losses,
raptor_acct.accountants._lifted.lifted_part, raptor_acct.accountants._log_mgf.Steps.tilted,
raptor_acct.accountants._fade.Fade, raptor_acct.accountants.contour.inverted
"""

import itertools
import random

import mpmath as mp
import sympy as sp

from proofs._check import close, equal, instances, not_negative, positive


def measures() -> None:
    """(a) on random three-point laws (exact): delta is linear in the upper law while the losses stay."""
    draw = random.Random(8)
    for _ in range(20):
        steps = []
        for _ in range(2):
            p = [sp.Rational(draw.randint(1, 9), 27) for _ in range(3)]
            weight = [sp.Rational(draw.randint(0, 8), 8) for _ in range(3)]
            steps.append((p, weight, [sp.Integer(draw.randint(1, 9)) for _ in range(3)]))
        whole = small = large = sp.S(0)
        for i, j in itertools.product(range(3), repeat=2):
            (p, weight, ratio), (p2, weight2, ratio2) = steps
            both, kept = p[i] * p2[j], (1 - weight[i]) * p[i] * (1 - weight2[j]) * p2[j]
            not_negative("a measure", both - kept)
            worth = max(1 - sp.Integer(12) / (ratio[i] * ratio2[j]), sp.S(0))
            whole, small, large = whole + both * worth, small + kept * worth, large + (both - kept) * worth
        equal("the deltas add", whole, small + large)


def products() -> None:
    """(b) the telescoping sum (symbolic for three factors; the step is the same for more), and the quotient."""
    m, u = sp.symbols("m1:4"), sp.symbols("u1:4")
    telescope = (m[0] - u[0]) * m[1] * m[2] + u[0] * (m[1] - u[1]) * m[2] + u[0] * u[1] * (m[2] - u[2])
    equal("telescoping", sp.expand(m[0] * m[1] * m[2] - u[0] * u[1] * u[2] - telescope), 0)
    v, x = sp.symbols("v x", nonzero=True)
    equal("quotient", sp.simplify(x - (x - v) - x * (1 - (1 - v / x))), 0)


def errors() -> None:
    """(c) (symbolic identities, numeric instances)."""
    v, m, a, b = sp.symbols("v m a b")
    equal("V'/M' - V/M", sp.simplify((v + a) / (m + b) - v / m - (a - v / m * b) / (m + b)), 0)  # |M + b| >= |M|/2
    instances("log", lambda x, t: abs(mp.log(1 + x * mp.expj(t))) <= 2 * x, (0, 0.5), (0, 6.3))
    instances(
        "1 - exp X",
        lambda x, y, d, t: (
            abs(mp.exp(mp.mpc(x, y) + d * mp.expj(t)) - mp.exp(mp.mpc(x, y))) <= mp.exp(x) * mp.expm1(d) * (1 + 1e-40)
        ),
        (-3, 3),
        (0, 6.3),
        (0, 3),
        (0, 6.3),
    )


def factor() -> None:
    """(d) the factor is the fade's complement, so C3's bounds hold with z mirrored; (e) the identity."""
    z, z1, w = sp.symbols("z z1 w", positive=True)
    fade = sp.erfc((z - z1) / w) / 2
    equal("complement", sp.simplify((1 - fade - sp.erfc((z1 - z) / w) / 2).rewrite(sp.erf)), 0)
    alpha, beta = sp.symbols("alpha beta", real=True)
    one, two = sp.exp(sp.I * alpha) - 1, sp.exp(sp.I * beta) - 1
    equal("coarse and fine", sp.expand(sp.exp(sp.I * alpha) * sp.exp(sp.I * beta) - 1 - (one * two + one + two)), 0)


def chain() -> None:
    """(f) the identities (symbolic), the sum on random laws (exact), and the overlap (numeric instances)."""
    p, before, here, after = sp.symbols("p w0 w1 w2", nonnegative=True)  # P, then W_{k-1}, W_k, W_{k+1}
    part = p * before + p * here * (1 - before)
    equal("P - A", sp.expand(p - part - p * (1 - before) * (1 - here)), 0)
    equal("A_k - P W_k", sp.expand(part - p * here - p * before * (1 - here)), 0)
    draw = random.Random(9)
    for _ in range(20):
        masses = [sp.Rational(draw.randint(1, 9), 36) for _ in range(4)]
        worth = [sp.Rational(draw.randint(0, 9), 9) for _ in range(16)]
        weights = [[sp.Rational(draw.randint(0, 8), 8) for _ in range(4)] for _ in range(3)]
        weights = [[max(column[: k + 1]) for column in zip(*weights, strict=True)] for k in range(3)]  # rising with k

        def delta(law: list[sp.Rational], worth: list[sp.Rational] = worth) -> sp.Rational:
            return sum(x * y * v for (x, y), v in zip(itertools.product(law, repeat=2), worth, strict=True))

        def kept(
            k: int, masses: list[sp.Rational] = masses, weights: list[list[sp.Rational]] = weights
        ) -> list[sp.Rational]:
            return [m * w for m, w in zip(masses, weights[k], strict=True)]

        parts = [kept(0)]
        for k in (1, 2):
            columns = zip(masses, weights[k - 1], weights[k], strict=True)
            parts.append([m * (low + high * (1 - low)) for m, low, high in columns])
        total = delta(parts[0]) + sum(delta(parts[k]) - delta(kept(k - 1)) for k in (1, 2))
        overlap = 2 * sum(m * low * (1 - high) for m, low, high in zip(masses, weights[0], weights[1], strict=True))
        not_negative("no less than the last", total - delta(parts[2]))
        not_negative("more by the overlap at most", delta(parts[2]) + overlap - total)

    def product(x: mp.mpf, d: mp.mpf) -> mp.mpf:  # at x widths above the first middle
        return mp.erfc(d - x) / 2 * mp.erfc(x) / 2

    instances("below", lambda x, d: product(-x, d) <= mp.exp(-(d**2)) / 2, (0, 9), (0, 9))
    instances("beyond", lambda x, d: product(x, d) <= mp.exp(-(d**2) / 4), (0, 18), (0, 9))
    equal("either is d/2 away", sp.expand(after - here - (after - (after + here) / 2) - ((after + here) / 2 - here)), 0)


def small() -> None:
    """(g) convexity (symbolic) and the closed form (symbolic)."""
    a, b, s = sp.symbols("a b s", positive=True)
    whole = a ** (1 + s) * b ** (-s)
    hessian = sp.hessian(whole, (a, b))
    positive("in A", sp.simplify(hessian[0, 0]))
    positive("in B", sp.simplify(hessian[1, 1]))
    equal("and in no direction less", sp.simplify(hessian.det()), 0)
    remainder = whole - 1 - (1 + s) * (a - 1) + s * (b - 1)
    at_one = {a: 1, b: 1}
    for value in (remainder, sp.diff(remainder, a), sp.diff(remainder, b)):
        equal("0 with its slopes where A = B = 1, so >= 0", sp.simplify(value.subs(at_one)), 0)
    z, sigma = sp.symbols("z sigma", positive=True)
    tilted = sp.exp(-(z**2) / 2) * sp.exp(z / sigma - 1 / (2 * sigma**2))
    equal("φ e^{z/σ - 1/(2σ²)} is φ shifted", sp.simplify(tilted / sp.exp(-((z - 1 / sigma) ** 2) / 2)), 1)


def example() -> None:
    """(a), (b) on a step with a rare large loss: M^n - U^n from V alone, against the difference itself (20 digits)."""
    sigma, q, n, s = mp.mpf("0.5"), mp.mpf("1e-4"), 100, mp.mpc(1, 7)
    z1, w = mp.mpf(3), mp.mpf("0.125")

    def density(z: mp.mpf) -> mp.mpc:
        return mp.npdf(z) * (1 - q + q * mp.exp(z / sigma - 1 / (2 * sigma**2))) ** (1 + s)

    def share(z: mp.mpf) -> mp.mpf:
        return mp.erfc((z1 - z) / w) / 2

    pieces = mp.linspace(-12, 18, 31)
    with mp.workdps(30):
        whole = mp.quad(density, pieces)
        small = mp.quad(lambda z: density(z) * (1 - share(z)), pieces)
        large = mp.quad(lambda z: density(z) * share(z), pieces)
        x = n * mp.log(1 - large / whole)
        close("M^n (1 - exp X)", whole**n * (-mp.expm1(x)), whole**n - small**n, 20)


def prove() -> None:
    """Check every step."""
    measures()
    products()
    errors()
    factor()
    chain()
    small()
    example()


if __name__ == "__main__":
    prove()
    print("c8_split: proved")

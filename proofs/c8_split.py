"""Delta as that of what has a large loss in one of its steps, and that of what has none.

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

Assumptions. None on where to split: any place is safe.

Source. Worked out here.

Code. raptor_acct.accountants.split_contour.split_contour, raptor_acct.accountants._lifted.lifted_part,
raptor_acct.accountants._fade.Fade, raptor_acct.accountants.contour.inverted
"""

import itertools
import random

import mpmath as mp
import sympy as sp

from proofs._check import close, equal, instances, not_negative


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
    example()


if __name__ == "__main__":
    prove()
    print("c8_split: proved")

"""What fading out and cutting the upper density may cost.

Claim. Let each step i have upper law P_i, loss L_i and a weight 0 <= χ_i <= 1, ε_i = ∫ (1 - χ_i) dP_i, and let
delta = ∫ (1 - exp(eps - ΣL))_+ d(×P_i), delta_χ the same under ×(χ_i P_i). Then
    delta_χ  <=  delta  <=  delta_χ + Σ ε_i.
The weight χ(z) = erfc((z - z0)/v)/2 takes Φ(-(z0 - m)/√(1 + v²/2)) from N(m, 1). With
    z0 = max(√(1+v²/2) √(2 log 1/rare),  1/σ + √(1+v²/2) √(2 log max(1, q/rare)))
and low = -√(2 log 1/rare) - 5, high = z0 + 5 (without the fade: 5 + √(2 log 1/rare)), a step's ε is below 1.5 rare, in
all three directions: (1-q) N(0, 1) + q N(1/σ, 1), and N(0, 1) for add.

Assumptions. rare < 1; the loss itself stays that of the original pair.

Source. Elementary; Φ(-x) <= exp(-x²/2)/2 for x >= 0 is Chernoff's bound halved (Craig's formula).

Code. raptor_acct.accountants._step_loss.StepLoss, raptor_acct.accountants._line.Plan
"""

import itertools
import random

import mpmath as mp
import sympy as sp

from proofs._check import DIGITS, at_most, close, equal, instances, not_negative, positive


def product() -> None:
    """1 - Π χ_i <= Σ (1 - χ_i) (symbolic, by induction), with an integrand within [0, 1]."""
    chi, rest, total = sp.symbols("chi rest total", nonnegative=True)
    # Induction: with Π = rest so far, 1 - rest <= total; 1 - χ rest = (1 - χ) rest + (1 - rest) <= (1 - χ) + total.
    equal("step", sp.expand((1 - chi) * rest + (1 - rest) - (1 - chi * rest)), 0)
    lost, gone = sp.symbols("lost gone", nonnegative=True)  # 1 - χ, 1 - rest
    not_negative("for rest <= 1", sp.factor((lost + total) - (lost * (1 - gone) + total)))
    u = sp.symbols("u", positive=True)
    positive("(1 - exp(-u)) > 0", 1 - 1 / (1 + u))
    positive("(1 - exp(-u)) < 1", 1 / (1 + u))


def discrete() -> None:
    """Both inequalities on products of random three-point laws (exact)."""
    draw = random.Random(5)
    for _ in range(20):
        steps = []
        for _ in range(2):
            p, q = (
                [sp.Integer(draw.randint(1, 9)) for _ in range(3)],
                [sp.Integer(draw.randint(1, 9)) for _ in range(3)],
            )
            chi = [sp.Rational(draw.randint(0, 8), 8) for _ in range(3)]
            steps.append(([x / sum(p) for x in p], [x / sum(q) for x in q], chi))
        factor = sp.Rational(3, 2)  # exp(eps)
        whole = faded = sp.S(0)
        for i, j in itertools.product(range(3), repeat=2):
            (p, q, chi), (p2, q2, chi2) = steps
            part = max(p[i] * p2[j] - factor * q[i] * q2[j], sp.S(0))
            whole += part
            faded += chi[i] * chi2[j] * part
        lost = sum((1 - c) * x for p, _, chi in steps for x, c in zip(p, chi, strict=True))
        not_negative("delta - delta_χ", whole - faded)
        not_negative("delta_χ + lost - delta", faded + lost - whole)


def fade() -> None:
    """∫ φ(z - m) (1 - χ) dz (symbolic derivation, 40 digits).

    1 - χ(z) = P(W <= z - z0) with W ~ N(0, v²/2), so the integral is P(W - Z <= m - z0), W - Z ~ N(0, 1 + v²/2).
    """
    v = sp.symbols("v", positive=True)
    w = sp.symbols("w", real=True)
    density = sp.exp(-(w**2) / v**2) / (v * sp.sqrt(sp.pi))
    equal("W's density", sp.simplify(sp.diff(-sp.erfc(w / v) / 2, w) - density), 0)
    equal("W's variance", sp.integrate(w**2 * density, (w, -sp.oo, sp.oo)), v**2 / 2)
    with mp.workdps(DIGITS + 10):
        for z0, mean, width in [(3.0, 0.0, 0.5), (9.0, 2.0, 0.5), (1.0, 1.5, 2.0)]:
            z0, mean, width = map(mp.mpf, (z0, mean, width))
            lost = mp.quad(
                lambda z, a=z0, m=mean, b=width: mp.npdf(z - m) * mp.erfc((a - z) / b) / 2, mp.linspace(-14, 20, 35)
            )
            close("lost", lost, mp.ncdf(-(z0 - mean) / mp.sqrt(1 + width**2 / 2)))


def tail() -> None:
    """Φ(-x) <= exp(-x²/2)/2 for x >= 0 (symbolic): the difference is 0 at 0 and infinity and rises, then falls."""
    x = sp.symbols("x", positive=True)
    gap = sp.exp(-(x**2) / 2) / 2 - sp.erfc(x / sp.sqrt(2)) / 2
    equal("at 0", sp.limit(gap, x, 0), 0)
    equal("at infinity", sp.limit(gap, x, sp.oo), 0)
    slope = sp.simplify(sp.diff(gap, x) * sp.exp(x**2 / 2))
    equal("one change of sign", slope, 1 / sp.sqrt(2 * sp.pi) - x / 2)


def step() -> None:
    """A step loses less than 1.5 rare (symbolic split, numeric remainder)."""
    q, rare = sp.symbols("q rare", positive=True)
    # Fade: (1-q) rare/2 from N(0, 1), and from N(1/σ, 1): q min(1, rare/q)/2 = min(q, rare)/2. Together below rare.
    equal("the shifted part, q > rare", q * (rare / q) / 2, rare / 2)
    equal("both", (1 - q) * rare / 2 + rare / 2, rare * (1 - q / 2))
    # Outside of [low, high]: below low, as N(1/σ, 1) has less there, Φ(-x - 5) with x² = 2 log 1/rare; above high,
    # with the fade, at most erfc(10)/2 of what is beyond z0; without it, Φ(-x - 5) again.
    x = sp.symbols("x", positive=True)
    equal(
        "exp(-(x+5)²/2)/2 over exp(-x²/2)",
        sp.simplify(sp.exp(-((x + 5) ** 2) / 2) / 2 / sp.exp(-(x**2) / 2)),
        sp.exp(-5 * x - sp.Rational(25, 2)) / 2,
    )
    at_most("two such tails are below rare/2", 2 * mp.exp(mp.mpf("-12.5")) / 2, mp.mpf("0.25"))
    at_most("erfc(10)/2 of the rest", mp.erfc(10) / 2, mp.mpf(10) ** -44)

    def total(log_rare: mp.mpf, log_q: mp.mpf, log_sigma: mp.mpf) -> bool:
        rare, q, shift = mp.mpf(10) ** log_rare, mp.mpf(10) ** log_q, mp.mpf(10) ** -log_sigma
        width = mp.mpf("0.5")
        plain, widened = mp.sqrt(-2 * mp.log(rare)), mp.sqrt(1 + width**2 / 2)
        z0 = max(widened * plain, shift + widened * mp.sqrt(-2 * mp.log(min(1, rare / q))))
        faded = (1 - q) * mp.ncdf(-z0 / widened) + q * mp.ncdf(-(z0 - shift) / widened)
        high = mp.erfc(5 / width) / 2 * ((1 - q) * mp.ncdf(-z0 - 5) + q * mp.ncdf(shift - z0 - 5))
        low = (1 - q) * mp.ncdf(-plain - 5) + q * mp.ncdf(-plain - 5 - shift)
        return faded + high + low <= 1.5 * rare and 2 * mp.ncdf(-plain - 5) <= 1.5 * rare

    instances("a step loses at most 1.5 rare", total, (-60, -10), (-9, -0.001), (-2, 4))


def prove() -> None:
    """Check every step."""
    product()
    discrete()
    fade()
    tail()
    step()


if __name__ == "__main__":
    prove()
    print("c5_fading: proved")

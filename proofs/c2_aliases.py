"""The trapezoid sum on the line errs upwards only, by aliases that are bounded.

Claim. With nodes c + ikh, k any integer, and Λ = 2π/h,
    h/(2π) Σ_k M(s) exp(-s eps) / (s (s + 1)) = Σ_m exp(mcΛ) delta(eps + mΛ),    s = c + ikh,
where every term is at least 0 and m = 0 is delta(eps). The others together are at most
    1 / (exp(cΛ) - 1)  +  exp(B(s)) / (exp((s - c)Λ) - 1)    for any s > c,
with B(s) = K(s) - s eps + s log s - (1 + s) log(1 + s).

Assumptions. P has mass at most 1, M(c) and M(s) are finite.

Source. Poisson's summation; the bound on a profile by its log-MGF is Balle et al. 2020 (Hypothesis testing
interpretations and Rényi differential privacy), here at complex orders' real part and for masses below 1.

Code. raptor_acct.accountants.contour.Contour.delta, raptor_acct.accountants._line.Table.chernoff
"""

import mpmath as mp
import sympy as sp

from proofs._check import DIGITS, at_most, close, equal, instances, positive
from proofs.c1_inversion import gaussian_delta


def summation() -> None:
    """Poisson's formula for g(u) = exp(-cu) (1 - exp(-u))_+, from its Fourier series (symbolic).

    Σ_m g(x + mΛ) is Λ-periodic, continuous and of bounded variation, so its Fourier series, whose coefficients are
    O(k^-2), converges to it everywhere. With E and x = L - eps, and Fubini as in c1_inversion, that is the claim.
    """
    x, period, c = sp.symbols("x Lambda c", positive=True)
    k, m = sp.symbols("k m", integer=True)
    s = c + 2 * sp.pi * sp.I * k / period
    # On 0 <= x < Λ the terms m >= 0 count, two geometric series.
    wrapped = sum(sign * sp.exp(-rate * x) / (1 - sp.exp(-rate * period)) for sign, rate in ((1, c), (-1, c + 1)))
    for rate in (c, c + 1):
        ratio = sp.exp(-rate * period)
        equal("geometric", (1 - ratio) * (1 / (1 - ratio)), 1)
        equal(
            "a term over the one before",
            sp.exp(-rate * (x + (m + 1) * period)) / sp.exp(-rate * (x + m * period)),
            ratio,
        )
    equal("continuous across the period's ends", sp.simplify(wrapped.subs(x, period) - wrapped.subs(x, 0)), 0)
    turn = sp.exp(-2 * sp.pi * sp.I * k)
    equal("a whole turn", sp.simplify(turn), 1)
    coefficient = sp.S(0)
    for sign, rate in ((1, c), (-1, c + 1)):
        exponent = rate + 2 * sp.pi * sp.I * k / period
        primitive = -sp.exp(-exponent * x) / exponent
        equal("primitive", sp.diff(primitive, x), sp.exp(-exponent * x))
        # exp(-exponent Λ) = exp(-rate Λ), by the whole turn, cancels the geometric factor.
        coefficient += sign / exponent / period
    equal("coefficient", sp.simplify(coefficient - 1 / (period * s * (s + 1))), 0)


def left_aliases() -> None:
    """Delta is at most 1, also at negative arguments, so the terms m < 0 sum to at most 1/(exp(cΛ) - 1) (symbolic)."""
    v, r = sp.symbols("v r", positive=True)
    positive("1 - exp(-u), with exp(u) = 1 + v", 1 - 1 / (1 + v))
    positive("and 1 less that", 1 - (1 - 1 / (1 + v)))
    n = sp.symbols("n", integer=True, positive=True)  # and r = exp(cΛ) - 1
    total = sp.summation((1 / (1 + r)) ** n, (n, 1, sp.oo))
    equal("Σ exp(-ncΛ)", sp.simplify(total.args[0][0] if isinstance(total, sp.Piecewise) else total), 1 / r)


def chernoff() -> None:
    """The largest exp(-su) (1-exp(-u)), so delta(x) <= exp(K(s) - sx) s^s / (1+s)^(1+s) (symbolic); Σ over m > 0."""
    u, s = sp.symbols("u s", positive=True)
    factor = sp.exp(-s * u) * (1 - sp.exp(-u))
    slope = sp.diff(factor, u) * sp.exp(s * u)
    equal("its derivative has the sign of (1+s) exp(-u) - s", slope, (1 + s) * sp.exp(-u) - s)
    positive("which falls", -sp.diff(slope, u))
    top = sp.log((1 + s) / s)
    equal("and is 0 at u = log((1+s)/s)", sp.simplify(slope.subs(u, top)), 0)
    equal(
        "where the factor is s^s / (1+s)^(1+s)",
        sp.simplify(sp.log(factor.subs(u, top)).expand(force=True) - (s * sp.log(s) - (1 + s) * sp.log(1 + s))),
        0,
    )
    period, c, m = sp.symbols("Lambda c m", positive=True)
    equal(
        "an alias, with exp(mcΛ)",
        sp.exp(m * c * period) * sp.exp(-s * m * period),
        sp.exp(-(s - c) * period) ** m,
    )
    instances(
        "(1 - exp(-u)) exp(-su), numeric",
        lambda u, s: (
            (1 - mp.exp(-u)) * mp.exp(-s * u)
            <= mp.exp(s * mp.log(s) - (1 + s) * mp.log(1 + s)) * (1 + mp.mpf(10) ** -45)
        ),
        (0, 20),
        (1e-3, 30),
    )


def gaussian() -> None:
    """The sum over nodes and the sum over aliases agree for a Gaussian loss (30 digits), as do the bounds."""
    with mp.workdps(DIGITS + 10):
        for mu, eps, c, h in [(1.0, 1.0, 1.0, 0.5), (0.5, 1.0, 2.0, 1.0), (1.5, 0.2, 0.4, 0.3)]:
            mu, eps, c, h = map(mp.mpf, (mu, eps, c, h))
            nodes = (mp.mpc(c, k * h) for k in range(-int(14 / mu / h) - 1, int(14 / mu / h) + 2))
            total = (
                h
                / (2 * mp.pi)
                * mp.re(mp.fsum(mp.exp(mu**2 * s * (s + 1) / 2 - s * eps) / (s * (s + 1)) for s in nodes))
            )
            period = 2 * mp.pi / h
            left = mp.fsum(mp.exp(-m * c * period) * gaussian_delta(mu, eps - m * period) for m in range(1, 200))
            right = mp.fsum(mp.exp(m * c * period) * gaussian_delta(mu, eps + m * period) for m in range(1, 40))
            close("trapezoid = delta + aliases", total, gaussian_delta(mu, eps) + left + right, 30)
            at_most("left", left, 1 / mp.expm1(c * period))
            for s in (1.2 * c, 2 * c, 5 * c):
                bound = mp.exp(mu**2 * s * (s + 1) / 2 - s * eps + s * mp.log(s) - (1 + s) * mp.log(1 + s))
                at_most("right", right, bound / mp.expm1((s - c) * period))


def prove() -> None:
    """Check every step."""
    summation()
    left_aliases()
    chernoff()
    gaussian()


if __name__ == "__main__":
    prove()
    print("c2_aliases: proved")

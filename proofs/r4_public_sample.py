"""What n independent records say about the entropy and the CV of the population they come from.

Claims. π̂ are the shares of n independent records with owners drawn from π over E experts; m <= E of the π are
positive.
(a) If replacing one record moves f by at most c, each of f - E f and E f - f exceeds t with probability at most
    exp(-2t²/(nc²)).
(b) ‖π̂ - π‖₂ <= (√(1 - 1/E) + √log(1/β))/√n with probability at least 1 - β; and |ĈV - CV| <= √E ‖π̂ - π‖₂.
(c) One record moves ĈV by at most √(2E)/n, and CV <= E ĈV <= √(E ĈV²), E ĈV² = CV²(1 - 1/n) + (E-1)/n.
(d) One record moves Ĥ by at most the entropy of (1/n, 1 - 1/n), and some record does; it is at most (1 + log n)/n.
(e) H - log(1 + (m-1)/n) <= E Ĥ <= H.
(f) E Ĥ = H - (m-1)/(2n) + (1 - Σ1/π)/(12n²) + O(n⁻³) for a fixed π, the sum over the m.

By (a) each side of (c) and (d) is exceeded with probability at most β at t = √(E log(1/β)/n) and c √(n log(1/β)/2).

Assumptions. The records are independent draws. A population that differs from theirs is R5's matter.

Source. theory.md R4; McDiarmid 1989; Antos and Kontoyiannis 2001 for (d); Paninski 2003 for (e); Miller 1955 for (f).

Found. theory.md's 1 + √log(1/β) may be √(1 - 1/E) + √log(1/β), and (c) is narrower for the same β on each side. Miller
and Madow's (m-1)/(2n) is first order only: it may leave too much or too little (`either_sign`), and with the experts
seen in place of m, as is usual, also where some were not seen. It bounds nothing; (e) does.

Code. raptor_acct.confidence.deficit_interval, raptor_acct.confidence.cv_interval,
raptor_acct.routing.RoutingStats.confidence
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import mpmath as mp
import sympy as sp

from proofs._check import Unproved, at_most, close, equal, not_negative
from proofs.r2_sharp_bounds import entropy

POPULATIONS = [
    [Fraction(1, 2), Fraction(1, 2)],
    [Fraction(9, 10), Fraction(1, 10)],
    [Fraction(1, 3)] * 3,
    [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)],
    [Fraction(1, 2), Fraction(1, 2), Fraction(0)],
    [Fraction(4, 10), Fraction(3, 10), Fraction(2, 10), Fraction(1, 10)],
]


def mcdiarmid() -> None:
    """(a) Hoeffding's lemma and Chernoff's bound (symbolic).

    Let D_k = E[f | first k records] - E[f | first k - 1]: given those it has mean 0 and values in an interval of length
    c. By convexity E exp(sD) is largest for two values, -wc and (1-w)c, with probabilities 1 - w and w; its logarithm ψ
    has ψ(0) = ψ'(0) = 0 and ψ'' <= c²/4, so ψ <= s²c²/8. The D_k sum to f - E f: E exp(s(f - E f)) <= exp(ns²c²/8).
    """
    s, c, n, t, w, other = sp.symbols("s c n t w other", positive=True)  # other = 1 - w
    psi = sp.log(other + w * sp.exp(s * c)) - s * w * c
    equal("ψ(0)", psi.subs({s: 0, other: 1 - w}))
    equal("ψ'(0)", sp.diff(psi, s).subs({s: 0, other: 1 - w}))
    u = w * sp.exp(s * c) / (other + w * sp.exp(s * c))
    equal("ψ''", sp.diff(psi, s, 2), c**2 * u * (1 - u))
    shift = sp.symbols("shift", real=True)  # u = 1/2 + shift
    not_negative(
        "u (1 - u) <= 1/4", sp.expand(sp.Rational(1, 4) - (sp.Rational(1, 2) + shift) * (sp.Rational(1, 2) - shift))
    )
    chernoff = -s * t + n * s**2 * c**2 / 8
    equal("Chernoff", chernoff.subs(s, 4 * t / (n * c**2)), -2 * t**2 / (n * c**2))


def distance() -> None:
    """(b), (c) how far one record moves π̂, how far π̂ is on average, and what that is in the CV (symbolic in E, n)."""
    experts, n, squares, share, level = sp.symbols("E n S share level", positive=True)  # S = Σπ², level = log(1/β)
    equal("π̂ moves by (e_i - e_j)/n", sp.sqrt((1 / n) ** 2 + (1 / n) ** 2), sp.sqrt(2) / n)
    exponent = -2 * level / n / (n * (sp.sqrt(2) / n) ** 2)
    equal("t = √(log(1/β)/n)", exponent, -level)
    exponent = -2 * (experts * level / n) / (n * (sp.sqrt(2 * experts) / n) ** 2)
    equal("t = √(E log(1/β)/n) for √E as much", exponent, -level)
    # E‖e_a - π‖² for the owner a of one record is Σ π_a (1 - 2π_a + S); the mean of n independent ones has 1/n of it.
    one = sp.expand(share * (1 - 2 * share + squares))
    summed = one.coeff(share, 1) + one.coeff(share, 2) * squares  # Σπ = 1, Σπ² = S
    equal("E‖π̂ - π‖²", summed / n, (1 - squares) / n)
    more = sp.symbols("more", nonnegative=True)  # S = 1/E + CV²/E
    not_negative("at most (1 - 1/E)/n", (1 - 1 / experts) - (1 - squares).subs(squares, (1 + more) / experts))
    # ĈV² = E‖π̂ - u‖², and u is fixed: its mean is E‖π - u‖² + E·E‖π̂ - π‖². As a norm of π̂ - u, ĈV is convex.
    chi2 = experts * squares - 1
    equal("E ĈV²", chi2 + experts * summed / n, chi2 * (1 - 1 / n) + (experts - 1) / n)


def entropy_moves() -> None:
    """(d) with g(k) = -k/n log(k/n), a move from a to b records changes Ĥ by G(b) - G(a-1), G(k) = g(k+1) - g(k).

    G falls in k, as g is concave: the change is largest from a = n to b = 0, and so is its reverse (symbolic).
    """
    n, k, more = sp.symbols("n k more", positive=True)
    g = -k / n * sp.log(k / n)
    equal("g concave", sp.diff(g, k, 2), -1 / (k * n))
    rest, between = 1 - 1 / n, g.subs(k, 1) + g.subs(k, n - 1)  # G(0) - G(n-1), as g(0) = g(n) = 0
    equal("the entropy of (1/n, 1 - 1/n)", between, sp.log(n) / n - rest * sp.log(sp.factor(rest)))
    # -(1 - x) log(1 - x) <= x, x = 1/n, is log z <= z - 1 (R1) at z = 1/(1 - x).
    x, z = 1 / (1 + more), (1 + more) / more
    equal("at most (1 + log n)/n", (1 - x) * (z - 1), x)
    equal("z = 1/(1 - x)", z, 1 / (1 - x))


def entropy_bias() -> None:
    """(e) H - E Ĥ = E KL(π̂‖π), which is at least 0 and at most E log(1 + χ²) <= log(1 + E χ²) (symbolic; R1's Jensen).

    KL(π̂‖π) = -Ĥ - Σ π̂ log π, and E π̂ = π. χ²(π̂‖π) = Σ (π̂ - π)²/π, and E (π̂ - π)² = π(1 - π)/n.
    """
    share, n, m = sp.symbols("share n m", positive=True)
    one = sp.expand(share * (1 - share) / n / share)
    equal("E χ²", m * one.subs(share, 0) + one.coeff(share, 1), (m - 1) / n)  # over the m, Σπ = 1


def miller_madow() -> None:
    """(f) the Taylor series of -x log x at π to the fourth order, with the binomial's central moments (symbolic)."""
    p, n, s, x = sp.symbols("p n s x", positive=True)
    cumulants = n * sp.log(1 - p + p * sp.exp(s / n)) - p * s
    moments = [sp.factor(sp.diff(sp.exp(cumulants), s, k).subs(s, 0)) for k in range(5)]
    series = sum(sp.diff(-x * sp.log(x), x, k).subs(x, p) * moments[k] / sp.factorial(k) for k in range(2, 5))
    at = sp.series(sp.expand(series).subs(n, 1 / x), x, 0, 3).removeO()
    equal("order 1/n, summed -(m-1)/2", at.coeff(x, 1), -(1 - p) / 2)
    equal("order 1/n², summed (1 - Σ1/π)/12", at.coeff(x, 2), (p - 1 / p) / 12)


def exact() -> None:
    """(b) to (e) over all outcomes of small samples; and (b) fails without its first term (exact)."""
    for population, n in itertools.product(POPULATIONS, (1, 2, 5, 9)):
        experts, seen = len(population), sum(p > 0 for p in population)
        expected = _chi2(population) * (1 - Fraction(1, n)) + Fraction(experts - 1, n)
        close("(c)", _mean(lambda shares: _real(_chi2(shares)), population, n), _real(expected))
        bias = _entropy(population) - _mean(_entropy, population, n)
        at_most("(e) above", 0, bias)
        at_most("(e) below", bias, mp.log1p(mp.mpf(seen - 1) / n))
        for root in (Fraction(1, 4), Fraction(1), Fraction(2)):  # √log(1/β)
            reach = mp.sqrt(1 - mp.mpf(1) / experts) + _real(root)
            at_most("(b)", _real(_beyond(reach, population, n)), mp.exp(-(_real(root) ** 2)))
    if _real(_beyond(mp.mpf(1) / 4, POPULATIONS[2], 5)) <= mp.exp(-mp.mpf(1) / 16):
        raise Unproved("(b) would hold without its first term")


def one_record() -> None:
    """(d) over all moves within small samples (exact counts)."""
    for n in range(1, 13):
        moves = [(a, b) for a in range(1, n + 1) for b in range(n - a + 1)]
        changes = [_entropy([Fraction(a, n), Fraction(b, n)]) - _entropy(_moved(a, b, n)) for a, b in moves]
        close("largest", max(map(abs, changes)), _entropy(_moved(n, 0, n)))


def either_sign() -> None:
    """(f) bounds nothing: with (m-1)/(2n) added, the mean is below H for one π and above for another."""
    for population, sign in (([Fraction(1, 2), Fraction(1, 2)], 1), ([Fraction(99, 100), Fraction(1, 100)], -1)):
        left = _entropy(population) - _mean(_entropy, population, 5) - mp.mpf(1) / 10
        at_most("what is left of the bias", mp.mpf(1) / 100, sign * left)


def _moved(a: int, b: int, n: int) -> list[Fraction]:
    return [Fraction(a - 1, n), Fraction(b + 1, n)]


def _entropy(shares: Sequence[Fraction]) -> mp.mpf:
    return entropy([_real(share) for share in shares])


def _chi2(shares: Sequence[Fraction]) -> Fraction:
    return len(shares) * sum((share**2 for share in shares), Fraction(0)) - 1


def _real(fraction: Fraction) -> mp.mpf:
    return mp.mpf(fraction.numerator) / fraction.denominator


def _outcomes(population: Sequence[Fraction], n: int) -> Iterator[tuple[Fraction, list[Fraction]]]:
    """Yield the probability and the shares of every outcome of ``n`` records."""
    for counts in itertools.product(range(n + 1), repeat=len(population)):
        if sum(counts) == n:
            ways = math.factorial(n) // math.prod(math.factorial(count) for count in counts)
            chance = math.prod((p**count for p, count in zip(population, counts, strict=True)), start=Fraction(ways))
            yield chance, [Fraction(count, n) for count in counts]


def _mean(f: Callable[[Sequence[Fraction]], mp.mpf], population: Sequence[Fraction], n: int) -> mp.mpf:
    return mp.fsum(_real(chance) * f(shares) for chance, shares in _outcomes(population, n))


def _beyond(reach: mp.mpf, population: Sequence[Fraction], n: int) -> Fraction:
    """Return the probability that √n‖π̂ - π‖₂ exceeds ``reach``."""
    chances = [
        chance
        for chance, shares in _outcomes(population, n)
        if _real(n * sum(((a - b) ** 2 for a, b in zip(shares, population, strict=True)), Fraction(0))) > reach**2
    ]
    return sum(chances, Fraction(0))


def prove() -> None:
    """Check every step."""
    mcdiarmid()
    distance()
    entropy_moves()
    entropy_bias()
    miller_madow()
    with mp.workdps(60):
        exact()
        one_record()
        either_sign()


if __name__ == "__main__":
    prove()
    print("r4_public_sample: proved")

"""Entropy and coefficient of variation of a routing distribution bound each other.

Claims. Let π be a distribution over E >= 2 experts, u the uniform one, KL = KL(π‖u) = log E - H, CV² = EΣπ² - 1.
(a) exp(KL) - 1 <= CV², with equality exactly where π is uniform on some of the experts.
(b) CV² <= E·KL.
(c) The best constant: CV² <= K·KL with K = E(E - 2)/((E - 1) log(E - 1)), and K = 2 for E = 2. It is attained where one
    expert has the share 1 - 1/E and the others are equal; for E = 2 that is uniform, and K a limit. K <= E.

Assumptions. None on π: shares may be 0. (c) takes from R2 that at fixed entropy the CV is largest at (a, b, ..., b).

Source. theory.md R1. (b) is Pinsker's inequality, and ‖π - u‖₁² >= 2‖π - u‖₂² (R5); (c) is the two-point inequality of
Kearns and Saul 1998.

Found. The E of (b) is best possible for E = 2 only: K is 2, 3.52, 15.2 and 81.9 for 2, 8, 64 and 512 experts.

Code. raptor_acct.routing.RoutingStats.entropy_deficit, raptor_acct.routing.RoutingStats.chi2,
raptor_acct.entropy.excess
"""

import mpmath as mp
import sympy as sp

from proofs._check import at_most, close, equal, instances, not_negative, positive


def below_its_tangent() -> None:
    """(a), (c) log z <= z - 1, with equality at z = 1 alone: z - 1 - log z falls before 1, rises after (symbolic)."""
    z, w = sp.symbols("z w", positive=True)
    gap = z - 1 - sp.log(z)
    equal("at 1", gap.subs(z, 1))
    positive("rises after 1", sp.factor(sp.diff(gap, z).subs(z, 1 + w)))
    positive("falls before 1", -sp.factor(sp.diff(gap, z).subs(z, 1 / (1 + w))))


def lower() -> None:
    """(a) Jensen: log lies below its tangent at m = EΣπ² = 1 + CV²; average at z = Eπ over π (symbolic in E and Σπ²).

    Equality takes Eπ = m wherever π > 0.
    """
    experts, squares, m, z = sp.symbols("E S m z", positive=True)  # S = Σπ²
    tangent = z / m - 1 + sp.log(m)
    equal("log z <= z - 1 at z/m", sp.expand_log(z / m - 1 - sp.log(z / m)), tangent - sp.log(z))
    averaged = experts * squares / m - 1 + sp.log(m)  # Σ π (Eπ/m - 1 + log m), as Σπ = 1
    equal("KL <= log(1 + CV²)", averaged.subs(m, experts * squares), sp.log(experts * squares))
    some = sp.symbols("some", positive=True)  # of the experts: π is uniform on them
    equal("equality", sp.exp(sp.log(experts / some)) - 1, experts * some * (1 / some) ** 2 - 1)


def upper() -> None:
    """(b) with x = Eπ - 1, φ = (1+x) log(1+x) - x >= 3x²/(2(3+x)); then Cauchy and Schwarz (symbolic in E and KL)."""
    x, w, y = sp.symbols("x w y", positive=True)
    gap = (1 + x) * sp.log(1 + x) - x - 3 * x**2 / (2 * (3 + x))
    equal("0 at 0", gap.subs(x, 0))
    equal("with its slope", sp.diff(gap, x).subs(x, 0))
    equal("and convex", sp.diff(gap, x, 2), x**2 * (9 + x) / ((1 + x) * (3 + x) ** 3))
    positive("also for x = w - 1 < 0", ((9 + x) / ((1 + x) * (3 + x) ** 3)).subs(x, w - 1))
    # (Σ|x|)² <= Σ x²/(3+x) · Σ(3+x) <= 2/3 Σφ · 3E, as Σx = 0. And Σφ = E·KL, Σ|x| = E‖π - u‖₁.
    experts, divergence = sp.symbols("E KL", positive=True)
    squared = sp.Rational(2, 3) * (experts * divergence) * 3 * experts / experts**2
    equal("‖π - u‖₁² <= 2 KL", squared, 2 * divergence)
    # ‖π - u‖₂² <= ‖π - u‖₁²/2 by R5 (a). For a sum over experts replace y by Σπ = 1, y² by Σπ², and multiply 1 by E:
    equal("E‖π - u‖₂² = EΣπ² - 1", sp.expand(experts * (y - 1 / experts) ** 2), experts * y**2 - 2 * y + 1 / experts)


def two_levels() -> None:
    """(c) at (a, b, ..., b) KL is the binary d(a‖p), p = 1/E, and CV² = E²(a - p)²/(E - 1) (symbolic in E)."""
    a, rest, odds = sp.symbols("a rest odds", positive=True)  # rest = 1 - a, odds = E - 1 = (1 - p)/p
    experts, b = odds + 1, rest / odds
    divergence = a * sp.log(a * experts) + odds * b * sp.log(b * experts)
    equal("KL", sp.expand_log(divergence), sp.expand_log(_divergence(a, rest, odds)))
    equal("CV²", experts * (a**2 + odds * ((1 - a) / odds) ** 2) - 1, experts**2 * (a - 1 / experts) ** 2 / odds)
    equal("d >= c (a - p)² is CV² <= K·KL", experts**2 / odds / _two_point(odds), _constant(odds))
    equal("K(2)", sp.limit(_constant(odds), odds, 1), 2)
    # (E - 1) log(E - 1) >= E - 2 is log z <= z - 1 at z = 1/(E - 1)
    equal("K <= E", odds * (1 / odds - 1 + sp.log(odds)), odds * sp.log(odds) - (odds - 1))


def two_points() -> None:
    """(c) g(a) = d(a‖p) - c (a - p)² >= 0, with equality at p and 1 - p only; 0 < p < 1/2 (symbolic).

    g' is 0 at p, 1/2 and 1 - p. g'' is 0 where a(1 - a) = 1/(2c), so at most twice: by Rolle g' has no other zero, and
    these are simple. As g' starts from -∞ its signs are -, +, -, +, and g is smallest at p and 1 - p.
    """
    a, odds, c = sp.symbols("a odds c", positive=True)
    p = 1 / (odds + 1)
    g = _divergence(a, 1 - a, odds) - c * (a - p) ** 2
    slope, bend = sp.diff(g, a), sp.diff(g, a, 2)
    best = _two_point(odds)
    for zero in (p, odds * p):
        equal("g = 0", sp.expand_log(sp.factor(g.subs({a: zero, c: best}), deep=True)))
    for zero in (p, sp.Rational(1, 2), odds * p):
        equal("g' = 0", sp.expand_log(sp.factor(slope.subs({a: zero, c: best}), deep=True)))
    equal("g''", bend, 1 / (a * (1 - a)) - 2 * c)
    equal("is 0 at most twice", sp.degree(sp.numer(sp.together(bend)), a), 2)
    equal("exp(g') starts from 0", sp.limit(sp.exp(sp.expand_log(slope)).simplify(), a, 0, "+"))
    # p = 1/2: c = 2 and g'' >= 0, with equality at 1/2 only, so g = 0 there only.
    shift = sp.symbols("shift", real=True)
    at = sp.Rational(1, 2) + shift
    not_negative("p = 1/2", sp.expand(1 - 4 * at * (1 - at)))


def _divergence(a: sp.Expr, rest: sp.Expr, odds: sp.Expr) -> sp.Expr:
    """d(a‖p) with rest = 1 - a and p = 1/(odds + 1)."""
    return a * sp.log(a * (odds + 1)) + rest * sp.log(rest * (odds + 1) / odds)


def _two_point(odds: sp.Expr) -> sp.Expr:
    """Return c = log((1 - p)/p)/(1 - 2p)."""
    return sp.log(odds) * (odds + 1) / (odds - 1)


def _constant(odds: sp.Expr) -> sp.Expr:
    """K for E = odds + 1 experts."""
    return (odds + 1) * (odds - 1) / (odds * sp.log(odds))


def example() -> None:
    """Random distributions over 5 experts, some of them empty, and the case of equality of (c) (numeric)."""
    instances("both bounds", lambda *weights: _holds([max(w, 0) for w in weights]), *5 * [(-0.4, 1)])
    with mp.workdps(30):
        for experts in (3, 8, 64, 512):
            a = 1 - mp.mpf(1) / experts
            divergence, chi2 = _statistics([a, *(experts - 1) * [(1 - a) / (experts - 1)]])
            best = mp.mpf(experts) * (experts - 2) / ((experts - 1) * mp.log(experts - 1))
            close("K is attained", chi2, best * divergence, 25)


def _holds(weights: list[mp.mpf]) -> bool:
    if not any(weights):
        return True
    divergence, chi2 = _statistics([w / mp.fsum(weights) for w in weights])
    at_most("(a)", mp.expm1(divergence), chi2)
    at_most("(c)", chi2, 15 / (4 * mp.log(4)) * divergence)
    return chi2 <= 5 * divergence


def _statistics(shares: list[mp.mpf]) -> tuple[mp.mpf, mp.mpf]:
    """KL to uniform and CV²."""
    experts = len(shares)
    divergence = mp.fsum(p * mp.log(p * experts) for p in shares if p > 0)
    return divergence, experts * mp.fsum(p * p for p in shares) - 1


def prove() -> None:
    """Check every step."""
    below_its_tangent()
    lower()
    upper()
    two_levels()
    two_points()
    example()


if __name__ == "__main__":
    prove()
    print("r1_entropy_and_cv: proved")

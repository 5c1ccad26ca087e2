"""The best public denominator D*, and exactly which others are better than B/E.

Claims. Let a = Bπ > 0, s = ‖c̄‖² > 0, V = a(1 - q)m + σ²C²d, and f(1/D) the error of the decomposition (B0).
(a) f is a convex quadratic of y = 1/D with the unique minimum y* = as/(a²s + V): f(y) = f(y*) + (a²s + V)(y - y*)².
    So D* = a + V/(as) = Bπ + V/(πB‖c̄‖²): never below Bπ; infinite, "take no step", as s → 0 or π → 0.
(b) 1/f(y*) = 1/s + a²/V: below the error of no step at all (s) and below the oracle's (V/a²). D* = a/κ with the
    shrinkage factor κ = a²s/(a²s + V).
(c) D beats B/E if and only if |1/D - 1/D*| < |E/B - 1/D*|: D lies strictly between b = B/E and D′ = bD*/(2b - D*),
    or, where D* ≥ 2b, anywhere above b. Where D* = b nothing beats it.
(d) D = B beats B/E if and only if D* > 2B/(E + 1).
(e) D* ≥ 2σ√d for every routing and all data. So where σ√d ≥ B/E, a public condition, every D > B/E beats B/E on
    every expert that has records.
(f) Guesses: let π̂ = π and let the guess of V/s be r times the truth: D_r = a + r(D* - a). It beats the oracle Bπ
    for all r ≤ 2, and for all r > 0 if V ≥ a²s; it beats taking no step for all r ≥ 1/2. A wrong π̂ can make it
    worse than B/E.

Proof. (a)-(d) complete the square; f(1/D) - f(1/b) = (a²s + V)(1/D - 1/b)(1/D - 1/D′). (e): a + V/(as) ≥ 2√(V/s),
with V ≥ σ²C²d and s ≤ C². (f): in w = V/(a²s), D_r = a(1 + rw), and (c) with the oracle's 1/a, or with 0, for E/B.

Assumptions. Those of the decomposition (B0). D* needs π, ‖c̄‖ and m, which are private: usable is only (f), with
public guesses, which cost no privacy for B4's reason.

Found. By (e) the question is often empty: with d = 983,040 parameters an expert, σ = 5.24, B = 1000 and E = 8 (the
paper's size, at ε = 4), σ√d = 5195 against B/E = 125: D* is above 10,390 for every expert, even D = B is better than
B/E in mean squared error, and the optimum is almost no step. Errors of this kind weigh one step as if it were the
last; over many steps noise averages out and the learning rate sets the scale. What it does tell is how experts
should be scaled against each other.

Source. theory.md B5.

Code. raptor_acct.public_denominators and raptor_acct.mse.mse (denominator "shrinkage")
"""

from fractions import Fraction

import sympy as sp

from proofs._check import equal, not_negative, positive
from proofs.b0_mse import terms

A, S, V, Y, D, R = sp.symbols("a s V y D r", positive=True)
BEST = A * S / (A**2 * S + V)


def error(y: sp.Expr) -> sp.Expr:
    """The error as a function of y = 1/D."""
    return (A * y - 1) ** 2 * S + V * y**2


def optimum() -> None:
    """(a) the error is this quadratic, and its minimum."""
    batch, q, share, second, noise2 = sp.symbols("B q pi m v", positive=True)
    owned = batch * share
    spread = owned * (1 - q) * second + noise2
    equal(
        "the decomposition", sum(terms(batch, q, share, D, S, second, noise2)), error(1 / D).subs({V: spread, A: owned})
    )
    equal("stationary", sp.diff(error(Y), Y).subs(Y, BEST))
    equal("square completed", error(Y), error(BEST) + (A**2 * S + V) * (Y - BEST) ** 2)
    positive("convex, strictly", sp.diff(error(Y), Y, 2))
    equal("D*", 1 / BEST, A + V / (A * S))
    equal("theory.md's form", (1 / BEST).subs(A, owned), owned + V / (share * batch * S))
    equal("no signal", sp.limit(BEST, S, 0, "+"))
    equal("no records", sp.limit(BEST, A, 0, "+"))


def value() -> None:
    """(b) the least error."""
    equal("1/f(y*)", 1 / error(BEST), 1 / S + A**2 / V)
    positive("below no step", S - error(BEST))
    positive("below the oracle", sp.factor(V / A**2 - error(BEST)))
    equal("shrinkage", 1 / BEST, A / (A**2 * S / (A**2 * S + V)))


def against_expected_owner() -> None:
    """(c), (d) the difference of the errors, factored; b = B/E."""
    b, experts, batch = sp.symbols("b E B", positive=True)
    reflected = 2 * BEST - 1 / b  # 1/D′
    difference = error(1 / D) - error(1 / b)
    equal("factors", difference, (A**2 * S + V) * (1 / D - 1 / b) * (1 / D - reflected))
    best = sp.symbols("D_best", positive=True)
    equal("D′", 1 / (2 / best - 1 / b), b * best / (2 * b - best))
    more = sp.symbols("g", nonnegative=True)
    not_negative("D* >= 2b: 1/D′ <= 0", 1 / b - 2 / (2 * b + more))
    # With D = B the first factor is (1 - E)/B < 0, and the second is above 0 just where D* > 2B/(E + 1).
    second = 1 / batch - (2 / best - experts / batch)
    equal("D = B", second.subs(best, 2 * batch / (experts + 1)))
    positive("rises with D*", sp.diff(second, best))


def whatever_the_data() -> None:
    """(e) the sum of a and w/a is at least 2√w, and w = V/s is at least σ²d."""
    root, sigma, d, clip = sp.symbols("w sigma d C", positive=True)
    equal("a + w/a - 2√w", A + root**2 / A - 2 * root, (A - root) ** 2 / A)
    more, below = sp.symbols("g h", nonnegative=True)  # V = σ²C²d + g, s = C²/(1 + h)
    not_negative("V/s >= σ²d", sp.expand((sigma**2 * clip**2 * d + more) / (clip**2 / (1 + below)) - sigma**2 * d))


def guesses() -> None:
    """(f) D_r against the oracle and against no step, by (c)'s rule, in w = V/(a²s); and a wrong π̂ (an example)."""
    w = sp.symbols("w", positive=True)
    guess, best = 1 / (A * (1 + R * w)), BEST.subs(V, w * A**2 * S)
    equal("D_r", 1 / guess, A + R * (1 / best - A))
    # Both lie on the other side of 1/D* than its reflection if these are above 0.
    against_oracle = sp.factor(sp.together(guess - (2 * best - 1 / A)))
    equal("against 1/a", against_oracle, w * (2 - R * (1 - w)) / (A * (1 + w) * (1 + R * w)))
    less, more = sp.symbols("h g", nonnegative=True)
    positive("r <= 2", (2 - R * (1 - w)).subs(R, 2 / (1 + less)).factor())
    positive("w >= 1", (2 - R * (1 - w)).subs(w, 1 + more).expand())
    against_none = sp.factor(sp.together(2 * best - guess))
    positive("r >= 1/2", against_none.subs(R, sp.Rational(1, 2) + more).factor())
    share, estimate, batch = Fraction(1, 2), Fraction(1, 10), Fraction(10)
    mean2 = second = Fraction(1)
    noise2, q = Fraction(1, 100), Fraction(1)
    wrong = batch * estimate + noise2 / (batch * estimate)
    at = [error_at(denominator, batch, q, share, mean2, second, noise2) for denominator in (wrong, batch / 2)]
    positive("a wrong π̂: worse than B/E", sp.Rational(at[0] - at[1]))


def error_at(denominator: Fraction, batch: Fraction, q: Fraction, share: Fraction, *moments: Fraction) -> Fraction:
    """The error at a denominator, as a number."""
    return sum(terms(batch, q, share, denominator, *moments), Fraction(0))


def paper_size() -> None:
    """Found: the numbers quoted, squared."""
    noise, owner = Fraction(524, 100) ** 2 * 983_040, Fraction(1000, 8)
    positive("σ√d > 5195", sp.Rational(noise - 5195**2))
    positive("far above B/E", sp.Rational(noise - owner**2))


def prove() -> None:
    """Check every step."""
    optimum()
    value()
    against_expected_owner()
    whatever_the_data()
    guesses()
    paper_size()


if __name__ == "__main__":
    prove()
    print("b5_shrinkage: proved")

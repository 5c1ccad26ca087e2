"""A tilted privacy loss distribution on a lattice brackets delta.

Write α = exp(eps), R = P/Q, and delta = E_Q (R - α)_+ for sub-probability measures.
(a) Above. An atom with a <= R <= b may be replaced by two, at R = a and R = b, with the same P and Q in total: delta
    does not fall, for any α and in any composition. With b = a e^h the upper one takes the share
    (R/a - 1)/(e^h - 1) of Q. As this is linear in (P, Q), a panel inside the cell is spread by its totals.
(b) Below. Atoms may be merged (post-processing), split at random, and their P lowered: delta does not rise. The Q-mean
    of R/a - 1 above a point a, the excess, and of 1 - R/a below it, the deficit, decide what can be merged at R = a:
    the part excess/deficit of what lies below; the rest of it is lowered to the point a e^-h.
(c) On the event E that some step's loss exceeds its cut, of which the smallest is l,
        P(E) - αQ(E)  <=  ∫_E (P - αQ)_+  <=  P(E) - αQ(E) + α Σ_i Q_i(E_i) D,
    D = ∫ (Q - e^(l - eps) P)_+ over the other steps, at most exp(K(-1-t) - t (l - eps)), K(-1-t) = log E_Q R^-t, t > 0.
(d) Tilting by c changes nothing; wrapping with a window W only adds, at most exp(K(t) - t eps) / (exp(|t-c| W) - 1)
    from above for any t > c, as much from below for any 0 < t < c; beyond b there is at most exp(K(t) - tb).
(e) With |z' - z| <= e, |(1+z')^T - (1+z)^T| <= T e (|1+z| + e)^(T-1); a product of such powers moves by at most
    Π (|1+z_i| + e_i)^T_i Σ T_i e_i / (|1+z_i| + e_i).

Assumptions. Losses are finite below the cut. Rounding of one step's masses and of an FFT is not proved here.

Source. (a) Doroshenko et al. 2022, connect the dots; (d) tilting: Chernoff, and Esscher 1932.

Code. raptor_acct.accountants.tilted_pld.TiltedPLD, raptor_acct.accountants._tilted_lattice.discretised
"""

import itertools
import random
from collections.abc import Sequence

import mpmath as mp
import sympy as sp

from proofs._check import Unproved, equal, instances, not_negative, positive

Pair = list[tuple[sp.Rational, sp.Rational]]  # atoms (P, Q)


def spread() -> None:
    """(a) and the formulas of the lattice (symbolic)."""
    a, q, v, w = sp.symbols("a q v w", positive=True)
    b, ratio = a * (1 + v + w), a * (1 + v)  # a < R < b
    share = (ratio / a - 1) / (b / a - 1)
    equal("Q is kept", q * share + q * (1 - share), q)
    equal("P is kept", sp.simplify(q * share * b + q * (1 - share) * a - q * ratio), 0)
    # (R - α)_+ is convex, so its mean under the two atoms is at least its value at R; the same holds for any convex
    # function of R, such as delta as a function of one step's R with the others averaged out.
    gap, rise, mass = sp.symbols(
        "gap rise mass", positive=True
    )  # e^h - 1, e^((1+c)h), Q e^((1+c) l) at the lower point
    up = mass * (ratio / a - 1) / gap
    equal("excess", up * gap, mass * (ratio / a - 1))
    upper = a * (1 + gap)
    equal("deficit", sp.simplify((mass - up) * rise * gap / (1 + gap) - mass * rise * (1 - ratio / upper)), 0)
    # A point's weight is P exp(cl) = Q e^((1+c) l): moving a cell's Q from its lower to its upper point multiplies it
    # by e^((1+c)h).
    c, h, low = sp.symbols("c h l", real=True)
    equal("rise", sp.exp((1 + c) * (low + h)) / sp.exp((1 + c) * low), sp.exp((1 + c) * h))


def merge() -> None:
    """(b) (symbolic)."""
    p1, p2, q1, q2, alpha = sp.symbols("P_1 P_2 Q_1 Q_2 alpha", positive=True)
    # (x + y)_+ <= x_+ + y_+ makes merging lose; (·)_+ rises, so lowering P loses.
    equal("merged", (p1 + p2) - alpha * (q1 + q2), (p1 - alpha * q1) + (p2 - alpha * q2))
    a, excess, deficit, v = sp.symbols("a excess deficit v", positive=True)
    above, below = sp.symbols("above below", positive=True)  # Q above and below the point, with means:
    total = above * a * (1 + excess / above) + excess / (deficit + excess) * below * a * (
        1 - (deficit + excess) / below
    )
    part = excess / (deficit + excess)
    equal("merged at R = a exactly", sp.simplify(total - a * (above + part * below)), 0)
    positive("the part is below 1", 1 - part)
    positive("what falls to a/(1 + v) had a larger R", a / (1 + v) * (1 + v / 2) - a / (1 + v))


def on_the_cut() -> None:
    """(c) (symbolic, with one step above its cut)."""
    p, q, alpha = sp.symbols("P Q alpha", positive=True)
    positive_part = sp.Piecewise((p - alpha * q, p > alpha * q), (0, True))
    missing = sp.Piecewise((0, p > alpha * q), (alpha * q - p, True))
    equal("(P - αQ)_+ = P - αQ + (αQ - P)_+", sp.simplify(positive_part - (p - alpha * q) - missing), 0)
    one, others_p, others_q, cut, extra = sp.symbols("Q_i P_o Q_o e_l extra", positive=True)
    ratio = cut + extra  # above the cut
    difference = one * (alpha * others_q - cut * others_p) - (alpha * one * others_q - ratio * one * others_p)
    positive("αQ - P <= Q_i (α Q_o - e^l P_o)", sp.expand(difference))
    equal(
        "= α Q_i (Q_o - e^l/α P_o)",
        sp.expand(one * (alpha * others_q - cut * others_p) - alpha * one * (others_q - cut / alpha * others_p)),
        0,
    )
    instances(
        "(1 - y)_+ <= y^-t",
        lambda y, t: max(0, 1 - y) <= y**-t * (1 + mp.mpf(10) ** -40),
        (1e-6, 4),
        (1e-3, 30),
    )
    x, t = sp.symbols("x t", positive=True)
    positive("R^-t is convex, so E_Q R^-t >= 1 where E_Q R <= 1, and more steps have more", sp.diff(x**-t, x, 2))


def tilt() -> None:
    """(d) (symbolic)."""
    loss, eps, c, norm, t, window = sp.symbols("l eps c K t W", real=True)
    m = sp.symbols("m", integer=True)
    p = sp.symbols("p", positive=True)
    weight = p * sp.exp(c * loss - norm)
    back = sp.exp(norm - c * eps) * weight * sp.exp(-c * (loss - eps))
    equal("tilting cancels", sp.simplify(back), p)
    alias = sp.exp(norm - c * eps) * p * sp.exp(c * (loss + m * window) - norm) * sp.exp(-c * (loss - eps))
    equal("a wrapped mass counts exp(cmW) times", sp.simplify(alias / p), sp.exp(c * m * window))
    equal(
        "Chernoff, from above",
        sp.simplify(sp.exp(c * m * window) * sp.exp(norm - t * (eps + m * window)) / sp.exp(norm - t * eps)),
        sp.exp(-(t - c) * m * window),
    )
    r = sp.symbols("r", positive=True)  # exp(|t - c| W) - 1
    n = sp.symbols("n", integer=True, positive=True)
    total = sp.summation((1 / (1 + r)) ** n, (n, 1, sp.oo))
    equal("Σ", sp.simplify(total.args[0][0] if isinstance(total, sp.Piecewise) else total), 1 / r)


def powers() -> None:
    """(e) (symbolic for T up to 6, numeric for products)."""
    a, b = sp.symbols("a b")
    for count in range(1, 7):
        terms = sum(a**i * b ** (count - 1 - i) for i in range(count))
        equal("a^T - b^T", sp.expand((a - b) * terms), a**count - b**count)
    # Each of the T terms is at most (|1+z| + e)^(T-1). For products, Π m^T >= Π (m + e)^T (1 - Σ T e/(m + e)):
    instances(
        "1 - Π (1 - x)^T <= Σ T x",
        lambda x, y, t, u: 1 - (1 - x) ** int(t) * (1 - y) ** int(u) <= int(t) * x + int(u) * y + mp.mpf(10) ** -40,
        (0, 1),
        (0, 1),
        (1, 50),
        (1, 50),
    )


def bracket() -> None:
    """(a) and (b) on random exact pairs, composed twice (exact)."""
    draw = random.Random(11)
    for _ in range(20):
        pair: Pair = [(sp.Integer(draw.randint(1, 40)), sp.Integer(draw.randint(1, 40))) for _ in range(5)]
        p, q = sum(x for x, _ in pair), sum(y for _, y in pair)
        pair = [(x / p, y / q) for x, y in pair]
        alpha = sp.Rational(draw.randint(1, 30), 10)
        low, true, high = (_delta(one, alpha) for one in (_lower(pair), pair, _upper(pair)))
        if not low <= true <= high:
            raise Unproved(f"bracket: {low}, {true}, {high} for {pair} at {alpha}")
        not_negative("mass of Q", sum(y for _, y in _lower(pair)))


def _delta(pair: Pair, alpha: sp.Rational) -> sp.Rational:
    """Return delta of two steps."""
    return sum(max(p * x - alpha * q * y, sp.S(0)) for (p, q), (x, y) in itertools.product(pair, repeat=2))


def _cells(pair: Pair) -> Sequence[tuple[sp.Rational, sp.Rational, sp.Rational, sp.Rational]]:
    """Return each atom with the lattice points 2^k around its ratio."""
    found = []
    for p, q in pair:
        below = sp.S(1)
        while below > p / q:
            below /= 2
        while 2 * below <= p / q:
            below *= 2
        found.append((p, q, below, 2 * below))
    return found


def _upper(pair: Pair) -> Pair:
    atoms = []
    for p, q, a, b in _cells(pair):
        up = q * (p / q / a - 1)
        atoms += [(up * b, up), ((q - up) * a, q - up)]
    return atoms


def _lower(pair: Pair) -> Pair:
    """Merge at each point what is above it, within its cell, with a fitting part of what is below it."""
    cells = _cells(pair)
    atoms = []
    for point in sorted({a for _, _, a, _ in cells} | {b for _, _, _, b in cells}):
        over = [(p, q) for p, q, a, _ in cells if a == point and p / q < sp.Rational(3, 2) * a]
        under = [(p, q, a) for p, q, a, b in cells if b == point and p / q >= sp.Rational(3, 2) * a]
        excess = sum((p - q * point for p, q in over), sp.S(0))
        deficit = sum((q * point - p for p, q, _ in under), sp.S(0))
        part = min(sp.S(1), excess / deficit) if deficit else sp.S(1)
        mass = sum((q for _, q in over), sp.S(0)) + part * sum((q for _, q, _ in under), sp.S(0))
        atoms.append((mass * point, mass))
        atoms += [((1 - part) * q * a, (1 - part) * q) for _, q, a in under]
    return atoms


def prove() -> None:
    """Check every step."""
    spread()
    merge()
    on_the_cut()
    tilt()
    powers()
    bracket()


if __name__ == "__main__":
    prove()
    print("l1_lattice: proved")

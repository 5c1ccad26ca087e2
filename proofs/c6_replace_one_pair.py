"""Replace-one neighbours: one pair of distributions in one dimension dominates all others.

Claim. Poisson sampling with probability q, N(0, I) noise (in units of σ), clipped contributions u and v of the record
and of its replacement, |u|, |v| <= r = 1/σ, in any dimension and in any blocks. For every factor α = exp(eps) >= 0
    H(u, v) = sup_A P_u(A) - α P_v(A),    P_x = (1 - q) N(0, I) + q N(x, I),
is largest for u = -v of length r: the pair ((1-q) N(0,1) + q N(r,1), (1-q) N(0,1) + q N(-r,1)).

Proof. With N0 = N(0, I) and the likelihood ratios l_x = exp(<x, z> - |x|²/2), under which (log l_u, log l_v) is jointly
normal with covariance <u, v>, H = E g(log l_u, log l_v), g(X, Y) = (k + q e^X - αq e^Y)_+, k = (1-q)(1-α).
1. g is submodular: its mixed derivative is -αq² e^(X+Y) times the second derivative of (·)_+, which is a measure >= 0.
   By Plackett's identity dE g/dρ = E g_XY <= 0: at fixed lengths H falls with <u, v>, and -|u||v| is the least.
2. Add to u a vector w orthogonal to u and v (in a new dimension if need be): l_{u+w} = l_u l_w, l_w independent of
   (l_u, l_v), of mean 1. As (·)_+ is convex, H(u + w, v) >= H(u, v) by Jensen; <u + w, v> = <u, v>. So u may be given
   length r, then v likewise, then by 1 the inner product lowered to -r². Vectors in different blocks have <u, v> = 0.

Assumptions. The other records' contributions are a shift common to both sides: given which of them take part, and by
joint convexity of H after averaging over that. Composition: pairs that dominate step by step dominate together, also
adaptively (P2, `adaptive`; Zhu, Dong and Wang 2022, theorem 10).

Source. Plackett 1954, Slepian 1962; theory section 2, P1.

Code. raptor_acct.accountants._one_step.OneStep, raptor_acct.accountants._step_loss.StepLoss (direction "replace")
"""

import math
import random

import mpmath as mp
import numpy as np
import sympy as sp

from proofs._check import at_most, equal, not_negative


def integrand() -> None:
    """H as an expectation under N0 (symbolic)."""
    q, alpha, left, right = sp.symbols("q alpha l_u l_v", positive=True)
    difference = (1 - q + q * left) - alpha * (1 - q + q * right)
    equal("k", sp.expand(difference - ((1 - q) * (1 - alpha) + q * left - alpha * q * right)), 0)
    a, b, x, y = sp.symbols("a b x y", real=True)  # u = (a, 0), v = (b, ·), z = (x, y)
    normal = sp.exp(-(x**2 + y**2) / 2)
    shifted = sp.exp(-((x - a) ** 2 + (y - b) ** 2) / 2)
    equal("likelihood ratio", sp.simplify(shifted / normal), sp.exp(a * x + b * y - (a**2 + b**2) / 2))


def submodular() -> None:
    """The mixed derivative for any smooth convex function in place of (·)_+ (symbolic)."""
    x, y = sp.symbols("X Y", real=True)
    q, alpha = sp.symbols("q alpha", positive=True)
    k, root = sp.symbols("k", real=True), sp.symbols("root", positive=True)
    inner = k + q * sp.exp(x) - alpha * q * sp.exp(y)
    # A smooth convex stand-in, ((·)² + root²)^(1/2) + (·), half of which tends to (·)_+ uniformly as root -> 0.
    curve = sp.Function("h")
    mixed = sp.diff(curve(inner), x, y)
    second = sp.Subs(sp.diff(curve(sp.Symbol("w")), sp.Symbol("w"), 2), sp.Symbol("w"), inner)
    equal("mixed = -α q² e^(X+Y) h''", sp.simplify(mixed.doit() + alpha * q**2 * sp.exp(x + y) * second.doit()), 0)
    w = sp.symbols("w", real=True)
    smooth = (sp.sqrt(w**2 + root**2) + w) / 2
    bend = sp.diff(smooth, w, 2)
    equal(
        "h'' = root² / 2(w² + root²)^(3/2)",
        sp.simplify(bend - root**2 / (2 * (w**2 + root**2) ** sp.Rational(3, 2))),
        0,
    )
    not_negative("h'' >= 0", root**2 / (2 * (w**2 + root**2) ** sp.Rational(3, 2)))


def plackett() -> None:
    """The bivariate normal density's derivative in the covariance is its mixed derivative (symbolic)."""
    x, y, m, n = sp.symbols("x y m n", real=True)
    a, b = sp.symbols("a b", positive=True)  # variances
    c = sp.symbols("c", real=True)  # covariance
    gap = a * b - c**2
    form = (b * (x - m) ** 2 - 2 * c * (x - m) * (y - n) + a * (y - n) ** 2) / gap
    density = sp.exp(-form / 2) / (2 * sp.pi * sp.sqrt(gap))
    equal("Plackett", sp.simplify((sp.diff(density, c) - sp.diff(density, x, y)) / density), 0)
    # Integrated against g, twice by parts: dE g/dc = E g_XY; the means -|u|²/2, -|v|²/2 do not depend on c = <u, v>.


def spread() -> None:
    """Lengthening by an orthogonal vector keeps the mean of the ratio (symbolic), and factors."""
    y = sp.symbols("y", real=True)
    b = sp.symbols("b", positive=True)
    ratio = sp.exp(b * y - b**2 / 2)
    mean = sp.integrate(ratio * sp.exp(-(y**2) / 2) / sp.sqrt(2 * sp.pi), (y, -sp.oo, sp.oo))
    equal("E l_w = 1", sp.simplify(mean), 1)
    x, a = sp.symbols("x a", real=True)
    equal("l_(u+w) = l_u l_w", sp.exp(a * x - a**2 / 2) * ratio, sp.exp(a * x + b * y - (a**2 + b**2) / 2))
    t, e, f = sp.symbols("t e f", real=True)
    chord = t * sp.Max(e, 0) + (1 - t) * sp.Max(f, 0)
    for values in ({e: 2, f: 3}, {e: -2, f: 3}, {e: -2, f: -3}):  # both, one or none of two points above 0
        for share in (sp.Rational(1, 5), sp.Rational(1, 2), sp.Rational(9, 10)):
            joint = (t * e + (1 - t) * f).subs(values).subs(t, share)
            not_negative("(·)_+ is convex", chord.subs(values).subs(t, share) - sp.Max(joint, 0))


def random_pairs() -> None:
    """Random pairs in the plane against the claimed worst one (numeric, in double precision, to 2e-4)."""
    draw = random.Random(7)
    nodes = np.linspace(-9.0, 9.0, 721)
    weight = np.exp(-np.add.outer(nodes**2, nodes**2) / 2) / (2 * math.pi) * (nodes[1] - nodes[0]) ** 2
    for _ in range(60):
        q, r, alpha = draw.uniform(0.01, 1), draw.uniform(0.2, 2.5), math.exp(draw.uniform(-2, 2))

        def value(u: tuple[float, float], v: tuple[float, float], q: float = q, alpha: float = alpha) -> float:
            ratio = [np.exp(np.add.outer(x[0] * nodes, x[1] * nodes) - (x[0] ** 2 + x[1] ** 2) / 2) for x in (u, v)]
            return float(np.sum(weight * np.maximum(0, (1 - q) * (1 - alpha) + q * ratio[0] - alpha * q * ratio[1])))

        worst = value((r, 0.0), (-r, 0.0))
        first, second, angle = draw.uniform(0, r), draw.uniform(0, r), draw.uniform(0, math.pi)
        other = value((first, 0.0), (second * math.cos(angle), second * math.sin(angle)))
        at_most("random pair", mp.mpf(other), mp.mpf(worst) + mp.mpf("2e-4") * (1 + alpha) * q)
        blocks = value((r, 0.0), (0.0, r))
        at_most("different blocks", mp.mpf(blocks), mp.mpf(worst) + mp.mpf("2e-4") * (1 + alpha) * q)
        at_most(
            "at one block, same length and direction",
            mp.mpf(value((r, 0.0), (r, 0.0))),
            mp.mpf(blocks) + mp.mpf("2e-4"),
        )


def prove() -> None:
    """Check every step."""
    integrand()
    submodular()
    plackett()
    spread()
    random_pairs()


if __name__ == "__main__":
    prove()
    print("c6_replace_one_pair: proved")

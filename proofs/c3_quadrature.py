"""The midpoint rule of an analytic function on a cut line: its error, and the pieces the bound is made of.

Claim. Let f be analytic on the rectangle low <= Re z <= high = low + nh, |Im z| <= a. Then h Σ f(low + (k + 1/2) h)
differs from ∫ f by at most
    2 S / (exp(2πa/h) - 1)  +  Σ_ends Σ_± ∫_0^a |f(end ± iy)| / (1 + exp(2πy/h)) dy
with S the larger of ∫ |f(x ± ia)| dx. If |f(end ± iy)| <= f(end) exp(yr) for 0 <= y <= a and r <= 2π/h, the second
term is at most 2a (f(low) + f(high)).

The integrand is f(z) = φ(z) R(z)^p R(-z)^-m χ(z) exp(it loss(z)), with R(z) = 1 - q + q exp(z/σ - 1/(2σ²)) and
χ(z) = erfc((z - z0)/v)/2. For θ = y/σ < π and the posterior of having been sampled, w = 1/(1 + odds) with
odds = (1-q)/q exp(1/(2σ²) - z/σ):

    |φ(z + iy)| = φ(z) exp(y²/2)
    R(z) cos(θ/2) <= |R(z + iy)| <= R(z)
    arg R(z + iy) = atan2(sin θ, odds + cos θ) rises with z, and with y at a rate of at most w / (σ cos(θ/2))
    |erfc(x + iy)| <= exp(y²) erfc(x), erfc(x) <= exp(-x²) for x >= 0, erfc(z) = 2 - erfc(-z)

The first of |R|'s bounds is that of all odds; |R(z + iy)|² = R(z)² (1 - k sin²(θ/2)), k = 4w(1-w) = 4 odds/(1+odds)²,
says more where m is large: k is largest over a cell at an edge, or 1 if the odds pass 1 in it, and 1/|R| exceeds its
modulus at z by exp(y k/(4σ (1 - k sin²(a/2σ)))) at most, for y <= a.

So r = a/2 + N/a + F/a + |t| Σ w/(σ cos(a/2σ)) will do, where N = -m log cos(a/2σ) and F, the fade's, is (a/v)² for
x >= 0; all of y²/2, -log cos(y/2σ), (y/v)² are convex in y and 0 at y = 0. Sums of exp(linear in s) are log-convex in
s (Hölder). Where the total is near 1, it is taken as 1 + Σ h φ (g - 1), g = f/φ: this adds |Σ h φ - 1|, the error of
the same rule for φ alone with what φ has outside of the nodes' interval. The sum of f may end sooner than that of φ,
half a step from a node: the claim holds for each rectangle, on the same nodes.

Assumptions. θ < π on the rectangle, so that log R is analytic there.

Source. Trefethen and Weideman 2014 for the kernel; the vertical ends are worked out here.

Code. raptor_acct.accountants._log_mgf.Steps.tilted, raptor_acct.accountants._log_mgf._log_mean_exp, and
log_sup, fade_rise, largest_phase of raptor_acct.accountants._cells.Cells
"""

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import numpy.typing as npt
import sympy as sp
from scipy.special import erfc

from proofs._check import at_most, close, equal, instances, not_negative, positive

Complex = npt.NDArray[np.complex128]


def kernel() -> None:
    """The kernel 1/(1 + exp(∓2πi (z - low)/h)) (symbolic)."""
    x, y = sp.symbols("x y", real=True)
    h, low = sp.symbols("h low", positive=True)
    k = sp.symbols("k", integer=True)
    z = sp.symbols("z")
    turn = sp.exp(2 * sp.pi * sp.I * (z - low) / h)
    node = low + (k + sp.Rational(1, 2)) * h
    equal("a pole at every node", sp.simplify(1 + turn.subs(z, node)), 0)
    equal("of residue -h/(2πi)", sp.simplify(1 / sp.diff(turn, z).subs(z, node)), -h / (2 * sp.pi * sp.I))
    # Hence h Σ f = -∮ f / (1 + turn), anticlockwise. On the upper side 1/(1 + turn) = 1 - 1/(1 + 1/turn), whose 1 turns
    # the upper path, from right to left, into ∫ f but for the two ends: there f is integrated over [0, a] with weight
    # 1 - 1/(1 + turn) = 1/(1 + 1/turn). All that is left has a kernel whose modulus falls off with |Im z|.
    equal("split", sp.simplify(1 / (1 + turn) + 1 / (1 + 1 / turn)), 1)
    at_height = turn.subs(z, x + sp.I * y)
    equal("|turn| = exp(-2πy/h)", sp.simplify(at_height * sp.conjugate(at_height)), sp.exp(-4 * sp.pi * y / h))
    n = sp.symbols("n", integer=True)
    equal("at the ends it is real", sp.simplify(turn.subs(z, low + n * h + sp.I * y)), sp.exp(-2 * sp.pi * y / h))
    # |1 + w| >= |w| - 1 with |w| = exp(2πa/h) gives the first term, for either sign, the real kernel the second.
    v = sp.symbols("v", positive=True)  # exp(2πy/h)
    positive("1/(1 + v) < 1/v", sp.together(1 / v - 1 / (1 + v)))
    # so |f(end ± iy)| / (1 + exp(2πy/h)) <= f(end) exp(y (r - 2π/h)) <= f(end) where r <= 2π/h: 2a f(end) for each end.


def ratio() -> None:
    """Modulus and phase of R above the real line (symbolic)."""
    q, e = sp.symbols("q e", positive=True)  # e = exp(z/σ - 1/(2σ²))
    rest = sp.symbols("rest", positive=True)  # 1 - q
    theta = sp.symbols("theta", real=True)
    half = theta / 2
    total = rest + q * e
    w = q * e / total
    square = sp.expand((rest + q * e * sp.cos(theta)) ** 2 + (q * e * sp.sin(theta)) ** 2)
    equal("|R|² = R² (1 - 4w(1-w) sin²)", sp.simplify(square - total**2 * (1 - 4 * w * (1 - w) * sp.sin(half) ** 2)), 0)
    not_negative("so |R| <= R", sp.factor(sp.simplify(4 * w * (1 - w))))
    remaining = 1 - 4 * w * (1 - w) * sp.sin(half) ** 2 - sp.cos(half) ** 2
    equal("and |R|² - R² cos² = R² sin² (1-2w)²", sp.simplify(remaining - sp.sin(half) ** 2 * (1 - 2 * w) ** 2), 0)

    odds = sp.symbols("odds", positive=True)
    k = 4 * odds / (1 + odds) ** 2
    equal("4w(1-w)", sp.simplify(4 / (1 + odds) * (1 - 1 / (1 + odds)) - k), 0)
    equal("rises below odds of 1, then falls", sp.simplify(sp.diff(k, odds) - 4 * (1 - odds) / (1 + odds) ** 3), 0)
    c = sp.symbols("c", positive=True)  # k, at most 1
    slope = sp.diff(-sp.log(1 - c * sp.sin(half) ** 2) / 2, theta)
    equal("slope", sp.simplify(slope - c * sp.sin(theta) / (4 * (1 - c * sp.sin(half) ** 2))), 0)
    # With sin θ <= 1, and sin²(θ/2) rising up to θ = π, the slope in θ up to a/σ is at most k / (4 (1 - k sin²(a/2σ))).
    phase = sp.atan2(sp.sin(theta), odds + sp.cos(theta))
    length = odds**2 + 2 * odds * sp.cos(theta) + 1
    equal(
        "R / (q e) = odds + exp(iθ)",
        sp.expand(rest + q * e * sp.exp(sp.I * theta) - q * e * (rest / (q * e) + sp.exp(sp.I * theta))),
        0,
    )
    equal(
        "the phase falls with the odds, which fall with z",
        sp.simplify(sp.diff(phase, odds) + sp.sin(theta) / length),
        0,
    )
    # For 0 <= θ < π. Its derivative in θ is Re(exp(iθ) / (odds + exp(iθ))), at most 1/|odds + exp(iθ)|.
    rate = (1 + odds * sp.cos(theta)) / length
    equal("rate", sp.simplify(sp.diff(phase, theta) - rate), 0)
    equal("1 - rate² |odds + exp(iθ)|²", sp.simplify((1 - rate**2 * length) * length - (odds * sp.sin(theta)) ** 2), 0)
    equal(
        "|odds + exp(iθ)| >= (1 + odds) cos(θ/2), and 1/(1 + odds) = w",
        sp.simplify(length - (1 + odds) ** 2 * sp.cos(half) ** 2 - (1 - odds) ** 2 * sp.sin(half) ** 2),
        0,
    )


def convexity() -> None:
    """The exponents that grow with y are convex and 0 at 0, so each is at most y/a times its value at a (symbolic)."""
    y, sigma = sp.symbols("y sigma", positive=True)
    for growth in (y**2 / 2, -sp.log(sp.cos(y / (2 * sigma)))):
        equal("at 0", growth.subs(y, 0), 0)
    positive("parabola", sp.diff(y**2 / 2, y, 2))
    second = sp.diff(-sp.log(sp.cos(y / (2 * sigma))), y, 2)
    equal("-log cos", sp.simplify(second * sp.cos(y / (2 * sigma)) ** 2 * 4 * sigma**2), 1)
    x = sp.symbols("x", real=True)
    shifted = sp.exp(-((x + sp.I * y) ** 2) / 2)
    equal("|φ(x + iy)|", sp.simplify(sp.Abs(shifted) / sp.exp(-(x**2) / 2)), sp.exp(y**2 / 2))
    # Hölder: the second derivative of log Σ c exp(l s) is the variance of l under the weights c exp(l s).
    s = sp.symbols("s", real=True)
    logs, masses = sp.symbols("l1:4", real=True), sp.symbols("c1:4", positive=True)
    terms = [mass * sp.exp(log * s) for mass, log in zip(masses, logs, strict=True)]
    pairs = sum(terms[i] * terms[j] * (logs[i] - logs[j]) ** 2 for i in range(3) for j in range(i))
    equal("log-convex", sp.simplify(sp.diff(sp.log(sum(terms)), s, 2) * sum(terms) ** 2 - pairs), 0)


def fade() -> None:
    """The bounds on erfc, from exp(z²) erfc(z) = 2/√π ∫_0^∞ exp(-u² - 2uz) du (symbolic and 40 digits)."""
    u, x = sp.symbols("u x", real=True)
    equal("substitution v = x + u", sp.expand(-((x + u) ** 2)), sp.expand(-(x**2) - u**2 - 2 * u * x))
    y = sp.symbols("y", real=True)
    equal("|exp(-z²)|", sp.expand(sp.re(sp.expand(-((x + sp.I * y) ** 2)))), y**2 - x**2)
    equal("|exp(-2uz)|", sp.re(sp.expand(-2 * u * (x + sp.I * y))), -2 * u * x)
    equal("at x = 0 the integral is 1", 2 / sp.sqrt(sp.pi) * sp.integrate(sp.exp(-(u**2)), (u, 0, sp.oo)), 1)
    # For x >= 0 the integrand is at most that of x = 0, hence erfc(x) <= exp(-x²).
    equal("reflection", sp.erfc(-x), 2 - sp.erfc(x))
    with mp.workdps(50):
        for z in (mp.mpc(0.3, 2), mp.mpc(4, 3), mp.mpc(2, 9)):
            integral = 2 / mp.sqrt(mp.pi) * mp.quad(lambda u, z=z: mp.exp(-u * u - 2 * u * z), mp.linspace(0, 12, 13))
            close("representation", integral, mp.exp(z * z) * mp.erfc(z))
    tiny = 1 + mp.mpf(10) ** -40
    instances(
        "|erfc(x + iy)|", lambda x, y: abs(mp.erfc(mp.mpc(x, y))) <= mp.exp(y * y) * mp.erfc(x) * tiny, (-3, 8), (0, 9)
    )
    instances("erfc(x) <= exp(-x²)", lambda x: mp.erfc(x) <= mp.exp(-x * x) * tiny, (0, 20))
    instances(
        "below the fade's start",
        lambda x, y: abs(mp.erfc(mp.mpc(-x, y))) / 2 <= (1 + mp.exp(y * y - x * x) / 2) * tiny,
        (0, 6),
        (0, 9),
    )


def midpoint_errors() -> None:
    """The whole bound against the true error, for integrands of the code's kind (numeric, in double precision)."""
    for case in [
        {"sigma": 1.0, "q": 0.1, "up": 3.0, "down": 0.0, "t": 0.0, "low": -6.0, "high": 9.0, "nodes": 12},
        {"sigma": 1.0, "q": 0.1, "up": 3.0, "down": 0.0, "t": 4.0, "low": -6.0, "high": 9.0, "nodes": 25},
        {"sigma": 0.6, "q": 0.3, "up": -2.0, "down": 0.0, "t": 3.0, "low": -5.0, "high": 4.0, "nodes": 20},
        {"sigma": 2.0, "q": 0.2, "up": 2.0, "down": -1.0, "t": 6.0, "low": -2.0, "high": 3.0, "nodes": 10},  # bad ends
    ]:
        error, bound = _midpoint(**case)
        at_most("midpoint error", mp.mpf(error), mp.mpf(bound))
        at_most("and the bound is of use", mp.mpf(bound), mp.mpf(10) ** 5 * error)


def _midpoint(
    *, sigma: float, q: float, up: float, down: float, t: float, low: float, high: float, nodes: int
) -> tuple[float, float]:
    """Return the true error and the best bound over a few heights."""

    def ratio(z: Complex) -> Complex:
        return 1 - q + q * np.exp(z / sigma - 1 / (2 * sigma**2))

    def f(z: Complex) -> Complex:
        back = np.log(ratio(-z)) if down else np.zeros_like(z)
        loss = np.log(ratio(z)) - back if up > 0 else -np.log(ratio(z))
        fade = erfc((z - 3) * 2) / 2 if up > 0 else 1
        return np.exp(-z * z / 2 + up * np.log(ratio(z)) + down * back + 1j * t * loss) / math.sqrt(2 * math.pi) * fade

    def integral(values: Callable[[Complex], Complex], left: float, right: float, panels: int = 100) -> complex:
        x, weight = np.polynomial.legendre.leggauss(12)
        half = (right - left) / panels / 2
        middles = left + half * (2 * np.arange(panels) + 1)
        return complex(half * np.sum(weight * values(np.add.outer(middles, half * x).astype(complex))))

    h = (high - low) / nodes
    error = abs(h * np.sum(f(low + h * (np.arange(nodes) + 0.5) + 0j)) - integral(f, low, high))
    bounds = []
    for a in (0.3, 0.6, 0.9, 1.2, 1.5):
        if a < 0.95 * math.pi * sigma:
            top = max(integral(lambda x, y=y: abs(f(x + 1j * y)), low, high).real for y in (a, -a))
            ends = sum(
                integral(lambda y, i=sign, e=end: abs(f(e + i * y)) / (1 + np.exp(2 * np.pi * y / h)), 0.0, a).real
                for end in (low, high)
                for sign in (1j, -1j)
            )
            bounds.append(2 * top / math.expm1(2 * math.pi * a / h) + ends)
    return error, min(bounds)


def prove() -> None:
    """Check every step."""
    kernel()
    ratio()
    convexity()
    fade()
    midpoint_errors()


if __name__ == "__main__":
    prove()
    print("c3_quadrature: proved")

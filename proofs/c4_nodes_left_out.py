"""How little the nodes left out can add: bounds on a characteristic function between and beyond points.

Claims. Let φ(t) = M(c + it) / M(c), the characteristic function of the loss X under the tilt c.
(a) Between points t1 < t2, |φ|² <= max(|φ(t1)|², |φ(t2)|²) + (t2 - t1)²/4 · E(X - m)², for any m.
(b) Let p be the tilted density over z, X = L(z) monotone, G = p/|L'|, and P the mass of p above z1. For t > 0
        |φ(t)| <= 1 - P + min(P, v/t),    v = G(z1) + G(high) + TV(G on [z1, high]),
    where P may be replaced by any smaller number. Over a cell of width d on which |(log G)'| <= k, the total variation
    is at most dk √(G(left) G(right)) exp(dk/2). With u = σA' at z, b at -z, the derivative σ(log G)' is
        remove, add    (p + 1) u - σz - 1                            p the power of R(z) in the integrand
        replace        p u + s b - σz - (u(1-u) - b(1-b)) / (u + b)  the last term within [-1, 1]
    less σ times the fade's hazard, 2/(v√π) exp(-x²)/erfc(x) <= (2/√π + 2 max(x, 0)) / v.
(c) The nodes kh in [E, E') add at most max|φ| (1/(E - h) - 1/E') / π, where 0 < h < E.

Assumptions. p vanishes outside [low, high]; (b) takes L' to have one sign.

Source. (a) interpolation error; (b) van der Corput's lemma in its simplest form; the hazard's slope: Sampford 1953.

Code. raptor_acct.accountants._truncation.truncate; decay, variance_bound and _fade_slope of
raptor_acct.accountants._log_mgf.Steps
"""

import itertools

import mpmath as mp
import sympy as sp

from proofs._check import at_most, equal, instances, not_negative, positive


def between() -> None:
    """(a) |φ|² is E cos(t(X - X')) for an independent copy X' (symbolic for three values, which is the general case).

    Its second derivative is -E (X - X')² cos, at most 2 Var X in modulus, and a function whose second derivative is at
    most k in modulus exceeds its chord over a distance d by at most k d²/8.
    """
    t = sp.symbols("t", real=True)
    x, p = sp.symbols("x1:4", real=True), sp.symbols("p1:4", positive=True)
    phi = sum(mass * sp.exp(sp.I * t * value) for mass, value in zip(p, x, strict=True))
    square = sp.expand((phi * sp.conjugate(phi)).rewrite(sp.cos), complex=False)
    cosines = sum(p[i] * p[j] * sp.cos(t * (x[i] - x[j])) for i in range(3) for j in range(3))
    equal("|φ|²", sp.simplify(sp.expand_trig(square) - sp.expand_trig(cosines)), 0)
    mean = sum(mass * value for mass, value in zip(p, x, strict=True)) / sum(p)
    second = sum(p[i] * p[j] * (x[i] - x[j]) ** 2 for i in range(3) for j in range(3))
    variance = sum(mass * (value - mean) ** 2 for mass, value in zip(p, x, strict=True)) / sum(p)
    equal("E (X - X')² = 2 Var X", sp.simplify(second - 2 * variance * sum(p) ** 2), 0)
    m = sp.symbols("m", real=True)
    about = sum(mass * (value - m) ** 2 for mass, value in zip(p, x, strict=True)) / sum(p)
    equal("E (X - m)² - Var X", sp.simplify(about - variance - (mean - m) ** 2), 0)
    # The chord: with |g''| <= k, g + k y (d - y)/2 ... minus the chord is convex and 0 at both ends, so at most 0.
    y, d, k = sp.symbols("y d k", positive=True)
    bump = k * y * (d - y) / 2
    equal("second derivative", sp.diff(bump, y, 2), -k)
    equal("largest in the middle", bump.subs(y, d / 2), k * d**2 / 8)
    not_negative("and nowhere larger", sp.factor(k * d**2 / 8 - sp.expand(bump)).subs(y, d / 2 + m))
    equal("as a square", sp.expand(k * d**2 / 8 - bump - k * (y - d / 2) ** 2 / 2), 0)


def parts() -> None:
    """(b) integration by parts, the mass below, and the variation of G on a cell (symbolic; the last also numeric)."""
    z, t = sp.symbols("z t", real=True)
    loss, density = sp.Function("L", real=True)(z), sp.Function("p", real=True)(z)
    g = density / sp.diff(loss, z)
    wave = sp.exp(sp.I * t * loss)
    whole = sp.diff(g * wave / (sp.I * t), z) - sp.diff(g, z) * wave / (sp.I * t)
    equal("p exp(itL) = (G exp(itL)/(it))' - G' exp(itL)/(it)", sp.simplify(whole - density * wave), 0)
    # |exp(itL)| = 1, so ∫ <= (G(z1) + G(high) + ∫|G'|) / t; it is also at most P; what is below z1 is at most 1 - P.
    mass, less, x = sp.symbols("P less x", nonnegative=True)
    bound = 1 - mass + sp.Min(mass, x)
    equal("1 - P + min(P, x) = max(1 - P + x, 1) where P <= x, or falls with P", bound.subs(x, mass + less), 1)
    equal("beyond", bound.subs(mass, x + less), 1 - less)
    left, right, slope, width, y = sp.symbols("left right slope width y", real=True)
    # log G lies below both lines of slope ±k through its ends, so below their mean.
    equal(
        "mean of the two lines",
        sp.expand((left + slope * y + right + slope * (width - y)) / 2 - ((left + right) / 2 + slope * width / 2)),
        0,
    )
    instances(
        "min of two lines <= their mean",
        lambda a, b, k, w, f: min(a + k * w * f, b + k * w * (1 - f)) <= (a + b) / 2 + k * w / 2 + mp.mpf(10) ** -40,
        (-9, 9),
        (-9, 9),
        (0, 9),
        (0, 1),
        (0, 1),
    )


def derivatives() -> None:
    """(b) the logarithmic derivatives in the three directions (symbolic)."""
    z = sp.symbols("z", real=True)
    sigma, q, s, rest = sp.symbols("sigma q s rest", positive=True)  # rest = 1 - q
    x, y = sp.symbols("x y", positive=True)  # exp(±z/σ - 1/(2σ²))

    def derivative(expression: sp.Expr) -> sp.Expr:
        """Return σ d/dz, by the chain rule: σ dx/dz = x, σ dy/dz = -y."""
        return sigma * sp.diff(expression, z) + x * sp.diff(expression, x) - y * sp.diff(expression, y)

    for sign, name in ((1, x), (-1, y)):
        exact = sp.exp(sign * z / sigma - 1 / (2 * sigma**2))
        equal("chain rule", sp.simplify(sigma * sp.diff(exact, z) / exact), sign)
        equal("as used", derivative(name), sign * name)
    here, there = rest + q * x, rest + q * y
    u, b = q * x / here, q * y / there
    equal("σ A' = u", derivative(sp.log(here)), u)
    equal("σ u' = u (1 - u)", sp.factor(derivative(u) - u * (1 - u)), 0)
    equal("σ b' = -b (1 - b)", sp.factor(derivative(b) + b * (1 - b)), 0)
    for power in (1 + s, -s):
        log_g = -(z**2) / 2 + power * sp.log(here) - sp.log(u / sigma)
        equal("remove, add", sp.factor(derivative(log_g) - ((power + 1) * u - sigma * z - 1)), 0)
    log_g = -(z**2) / 2 + (1 + s) * sp.log(here) - s * sp.log(there) - sp.log((u + b) / sigma)
    claimed = (1 + s) * u + s * b - sigma * z - (u * (1 - u) - b * (1 - b)) / (u + b)
    equal("replace", sp.factor(derivative(log_g) - claimed), 0)
    v, w = sp.symbols("v w", positive=True)  # odds of u and b
    u, b = 1 / (1 + v), 1 / (1 + w)
    last = (u * (1 - u) - b * (1 - b)) / (u + b)
    positive("last < 1", sp.factor(sp.together(1 - last)))
    positive("last > -1", sp.factor(sp.together(1 + last)))
    positive("u rises with z, as its odds fall", -sp.diff(u, v))


def hazard() -> None:
    """The fade's logarithmic derivative: r(x) = 2/√π exp(-x²)/erfc(x) is below 2/√π + 2 max(x, 0) (symbolic, numeric).

    r' = r (r - 2x), and r (r - 2x) = 2 - 4 Var for the variance of a normal of variance 1/2 cut off below x, hence
    r' < 2; for x <= 0, erfc(x) >= 1.
    """
    x = sp.symbols("x", real=True)
    r = 2 / sp.sqrt(sp.pi) * sp.exp(-(x**2)) / sp.erfc(x)
    equal("minus the logarithmic derivative of erfc", sp.simplify(-sp.diff(sp.log(sp.erfc(x)), x) - r), 0)
    equal("r'", sp.simplify(sp.diff(r, x) - r * (r - 2 * x)), 0)
    y = sp.symbols("y", real=True)
    total = sp.integrate(sp.exp(-(y**2)), (y, x, sp.oo))
    mean = sp.integrate(y * sp.exp(-(y**2)), (y, x, sp.oo)) / total
    square = sp.integrate(y**2 * sp.exp(-(y**2)), (y, x, sp.oo)) / total
    equal("variance", sp.simplify(2 - 4 * (square - mean**2) - sp.diff(r, x)), 0)
    equal("at 0", r.subs(x, 0), 2 / sp.sqrt(sp.pi))
    positive("1.13 covers it", sp.Rational(113, 100) - 2 / sp.sqrt(sp.pi))
    instances(
        "hazard",
        lambda x: (
            2 / mp.sqrt(mp.pi) * mp.exp(-x * x) / mp.erfc(x) <= 2 / mp.sqrt(mp.pi) + 2 * max(x, 0) + mp.mpf(10) ** -40
        ),
        (-4, 20),
    )


def nodes() -> None:
    """(c) the telescoping sum, and the kernel's modulus (symbolic)."""
    k, h = sp.symbols("k h", positive=True)
    step = 1 / ((k - 1) * h) - 1 / (k * h) - h / (k * h) ** 2
    equal("h/(kh)² <= 1/((k-1)h) - 1/(kh) for k > 1", sp.factor(step).subs(k, k + 1), 1 / (h * k * (k + 1) ** 2))
    # Summed from the first node, at or beyond E, to the last, before E': at most 1/(E - h) - 1/E'.
    c, t = sp.symbols("c t", positive=True)
    positive("|s (s + 1)|² > t⁴", sp.expand((c**2 + t**2) * ((c + 1) ** 2 + t**2) - t**4))


def example() -> None:
    """(a) and (b) on a tilted mixture's loss (numeric)."""
    sigma, q, s = mp.mpf("0.8"), mp.mpf("0.2"), mp.mpf(2)

    def ratio(z: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp(z / sigma - 1 / (2 * sigma**2))

    with mp.workdps(20):
        pieces = mp.linspace(-9, 9, 19)

        def density(z: mp.mpf) -> mp.mpf:
            return mp.npdf(z) * ratio(z) ** (1 + s)

        def moment(f: object, low: int = 0) -> mp.mpc:
            return mp.quad(lambda z: density(z) * f(mp.log(ratio(z))), pieces[low:])

        mass = moment(lambda x: 1)
        mean = moment(lambda x: x) / mass
        variance = moment(lambda x: (x - mean) ** 2) / mass
        values = {t: moment(lambda x, t=t: mp.exp(1j * t * x)) / mass for t in (1, 1.5, 2, 10)}
        top = max(abs(values[1]) ** 2, abs(values[2]) ** 2) + variance / 4
        at_most("between", abs(values[1.5]) ** 2, top)
        above = moment(lambda x: 1, 8) / mass

        def g(z: mp.mpf) -> mp.mpf:
            slope = q * mp.exp(z / sigma - 1 / (2 * sigma**2)) / ratio(z) / sigma
            return density(z) / mass / slope

        grid = mp.linspace(pieces[8], pieces[-1], 400)
        heights = [g(z) for z in grid]
        variation = sum(abs(a - b) for a, b in itertools.pairwise(heights)) * mp.mpf("1.001")
        bound = 1 - above + min(above, (variation + heights[0] + heights[-1]) / 10)
        at_most("beyond", abs(values[10]), bound)


def prove() -> None:
    """Check every step."""
    between()
    parts()
    derivatives()
    hazard()
    nodes()
    example()


if __name__ == "__main__":
    prove()
    print("c4_nodes_left_out: proved")

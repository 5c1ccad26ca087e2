"""How little the nodes left out can add: bounds on a characteristic function between and beyond points.

Claims. Let φ(t) = M(c + it) / M(c), the characteristic function of the loss X under the tilt c.
(a) Between points t1 < t2, |φ|² <= max(|φ(t1)|², |φ(t2)|²) + (t2 - t1)²/4 · E(X - m)², for any m.
(b) Let f be the integrand of M(c) with the loss rising in z, P at most the share of M(c) above z1, and a <= πσ/2. With
    m(y) the largest modulus of the integrand of M(c) at height y over f's bound on the real line, growing in y, and
    θ = y/σ the angle, for all t >= T > 0
        |φ(t)| <= 1 - P + (J + ∫ f m(a) exp(-T phase(a)) dz above z1 + E) / M(c),
        J = f(z1) m(a) min(a, 1/(T r)),   r the least derivative of the phase by y at z1,   E = a f(high) m(a).
    With w the posterior probability of sampling (odds o = (1-w)/w, x = cos θ), the phase arg(o + exp(iθ)) has the
    derivative w (w + (1-w) x) / (1 - 2 w (1-w) (1-x)) by θ, monotone in x. It falls with o and rises with θ.
(c) The nodes kh in [E, E') add at most max|φ| (1/(E - h) - 1/E') / π, where 0 < h < E.

Assumptions. The density vanishes outside [low, high]. Where the loss falls (add), the mirror image of the path is
taken. Moduli and the fade at height y: C3.

Source. (a) interpolation error; (b) Cauchy's theorem, as in steepest descent.

Code. raptor_acct.accountants._truncation.truncate, raptor_acct.accountants._lifted.lifted,
raptor_acct.accountants._cells.Cells.variance_bound
"""

import mpmath as mp
import sympy as sp

from proofs._check import at_most, equal, not_negative, positive


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


def path() -> None:
    """(b) the lifted path (symbolic), with what each piece is at most.

    The integrand is analytic where |Im z| < πσ, so Cauchy's theorem allows the path. Up to z1 its modulus is that for
    t = 0, in all at most M(c) less what is above z1. At height y it is at most f m(y) exp(-t phase(y)), as the modulus
    of R^(it) is exp(-t arg R). The phase is at least 0, so the bound falls with t.
    """
    t, a, r, y = sp.symbols("t a r y", positive=True)
    log_modulus, phase = sp.symbols("log_modulus phase", real=True)
    power = sp.re(sp.expand(sp.I * t * (log_modulus + sp.I * phase)))
    equal("|R^(it)| = exp(-t arg R)", power, -t * phase)
    mirrored = sp.re(sp.expand(-sp.I * t * (log_modulus - sp.I * phase)))
    equal("R^(-it) below the axis", mirrored, -t * phase)
    # The way up: phase(y) >= r y, and m(y) <= m(a).
    equal("∫ exp(-t r y) dy", sp.integrate(sp.exp(-t * r * y), (y, 0, a)), (1 - sp.exp(-a * t * r)) / (t * r))
    x = sp.symbols("x", positive=True)
    not_negative("(1 - exp(-x)) <= 1", sp.exp(-x))
    equal("1 - exp(-x) <= x: 0 at 0", (x - 1 + sp.exp(-x)).subs(x, 0), 0)
    positive(
        "and then rises", sp.factor(sp.diff(x - 1 + sp.exp(-x), x).rewrite(sp.exp) * sp.exp(x)).subs(x, sp.log(1 + y))
    )
    # As coded: min(a, 1/(t r)) = a / max(1, t r a).
    equal("where t r a < 1", (a / sp.Max(1, t * r * a)).subs(t, 1 / (r * a * (1 + y))), a)
    equal("where it is more", (a / sp.Max(1, t * r * a)).subs(t, (1 + y) / (r * a)), a / (1 + y))


def phases() -> None:
    """(b) the phase's derivative, and what it is monotone in (symbolic)."""
    theta = sp.symbols("theta", real=True)
    o = sp.symbols("o", positive=True)
    phase = sp.atan(sp.sin(theta) / (o + sp.cos(theta)))
    x, w = sp.symbols("x w", positive=True)
    derivative = (1 + o * sp.cos(theta)) / (1 + o**2 + 2 * o * sp.cos(theta))
    equal("by the angle", sp.simplify(sp.diff(phase, theta) - derivative), 0)
    by_odds = -sp.sin(theta) / (1 + o**2 + 2 * o * sp.cos(theta))
    equal("by the odds: not positive", sp.simplify(sp.diff(phase, o) - by_odds), 0)
    rise = (1 + o * x) / (1 + o**2 + 2 * o * x)
    claimed = w * (w + (1 - w) * x) / (1 - 2 * w * (1 - w) * (1 - x))
    equal("in w", sp.factor(rise.subs(o, (1 - w) / w) - claimed), 0)
    positive("so the phase rises, for x > 0", rise)
    equal("monotone in x", sp.factor(sp.diff(rise, x) * (1 + o**2 + 2 * o * x) ** 2 - o * (o**2 - 1)), 0)
    equal("at x = 1", sp.factor(claimed.subs(x, 1) - w), 0)


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
        # Lifted at z = 1, to a height of 0.6; all integrals exact, the phase's derivative at its least.
        t, a, z1 = mp.mpf(10), mp.mpf("0.6"), mp.mpf(1)
        above = moment(lambda x: 1, 10) / mass

        def odds(z: mp.mpf) -> mp.mpf:
            return (1 - q) / q * mp.exp(1 / (2 * sigma**2) - z / sigma)

        angle, growth = a / sigma, mp.exp(a * a / 2)
        w = 1 / (1 + odds(z1))
        x = mp.cos(angle)
        rise = min(w, w * (w + (1 - w) * x) / (1 - 2 * w * (1 - w) * (1 - x))) / sigma
        left = mp.quad(lambda z: density(z) * mp.exp(-t * mp.arg(odds(z) + mp.expj(angle))), pieces[10:])
        jump = density(z1) * min(a, 1 / (t * rise))
        bound = 1 - above + growth * (left + jump + a * density(pieces[-1])) / mass
        at_most("beyond", abs(values[10]), bound)
        at_most("and not for nothing", bound, mp.mpf("0.7"))


def prove() -> None:
    """Check every step."""
    between()
    path()
    phases()
    nodes()
    example()


if __name__ == "__main__":
    prove()
    print("c4_nodes_left_out: proved")

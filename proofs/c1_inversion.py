"""Delta is a contour integral of the log-MGF.

Claim. Let L be the privacy loss under a measure P of mass at most 1, M(s) = E exp(sL), and c > 0 with M(c) finite.
    delta(eps) := E (1 - exp(eps - L))_+ = 1/(2πi) ∫ M(s) exp(-s eps) / (s (s + 1)) ds    on Re s = c.
Independent losses multiply their M, so K = log M adds over the steps of all streams.

Assumptions. M(c) is finite; nothing else, so faded and cut densities are covered.

Source. Lugannani and Rice 1980 invert a tail with the kernel 1/s; the kernel here belongs to (1 - exp(-u))_+.

Code. raptor_acct.accountants.contour.Contour.delta
"""

import mpmath as mp
import sympy as sp

from proofs._check import DIGITS, close, equal, positive


def kernel() -> None:
    """g(u) = exp(-cu) (1 - exp(-u))_+ has the transform 1/(s (s + 1)) at s = c + it (symbolic)."""
    u, t = sp.symbols("u t", real=True)
    c = sp.symbols("c", positive=True)
    s = sp.symbols("s")  # any complex number
    primitive = -sp.exp(-s * u) / s + sp.exp(-(s + 1) * u) / (s + 1)
    equal("primitive", sp.diff(primitive, u), (1 - sp.exp(-u)) * sp.exp(-s * u))
    equal("at u = 0; at infinity it vanishes as Re s > 0", -primitive.subs(u, 0), 1 / (s * (s + 1)))
    # g and its transform are continuous and integrable, so the transform can be inverted at every u:
    # |s| >= |c + it| and |s + 1| >= |c + it|, hence the integral of the modulus is at most π/c.
    equal("|s|²", sp.expand((c + sp.I * t) * (c - sp.I * t)), c**2 + t**2)
    positive("|s + 1|² - |s|²", sp.expand((c + 1) ** 2 + t**2 - (c**2 + t**2)))
    equal("the dominating integral", sp.integrate(1 / (c**2 + t**2), (t, -sp.oo, sp.oo)), sp.pi / c)


def inverse() -> None:
    """The same inversion by residues: 1 - exp(-u) from the poles at 0 and -1 (symbolic)."""
    s = sp.symbols("s")
    u = sp.symbols("u", positive=True)
    integrand = sp.exp(s * u) / (s * (s + 1))
    equal("u > 0, closed on the left", sp.residue(integrand, s, 0) + sp.residue(integrand, s, -1), 1 - sp.exp(-u))
    # u < 0: closed on the right, where there is no pole, the integral is 0.


def exchange() -> None:
    """E and ∫ may change places: E ∫ |exp(sL - s eps) / (s (s+1))| |ds| <= M(c) exp(-c eps) π/c (Fubini; symbolic)."""
    x, t, eps = sp.symbols("x t epsilon", real=True)
    c = sp.symbols("c", positive=True)
    equal("modulus", sp.simplify(sp.Abs(sp.exp((c + sp.I * t) * (x - eps)))), sp.exp(c * (x - eps)))
    left, right = sp.symbols("L_1 L_2", real=True)
    s = sp.symbols("s")
    equal("independent losses", sp.expand_log(sp.log(sp.exp(left) * sp.exp(right))), left + right)
    equal("a product's integrand", sp.exp(s * (left + right)), sp.exp(s * left) * sp.exp(s * right))


def gaussian() -> None:
    """A Gaussian loss gives back the closed form, at complex s (symbolic M, 40 digits of delta)."""
    x, s = sp.symbols("x s", real=True)
    mu = sp.symbols("mu", positive=True)
    density = sp.exp(-((x - mu**2 / 2) ** 2) / (2 * mu**2)) / sp.sqrt(2 * sp.pi * mu**2)
    mgf = sp.integrate(density * sp.exp(s * x), (x, -sp.oo, sp.oo))
    equal("K(s) = µ² s (s + 1) / 2", mgf, sp.exp(mu**2 * s * (s + 1) / 2))
    with mp.workdps(DIGITS + 10):
        for mu_, eps, c, count in [(1.0, 1.0, 1.5, 1), (0.25, 2.0, 7.0, 9), (2.0, 0.0, 0.5, 1)]:
            whole = mp.mpf(mu_) * mp.sqrt(count)  # count equal steps: K adds, and µ² with it
            integral = _integral(lambda s, w=whole: w**2 * s * (s + 1) / 2, mp.mpf(eps), mp.mpf(c), 14 / whole)
            close(f"delta at µ = {mu_}, eps = {eps}", integral, gaussian_delta(whole, mp.mpf(eps)))


def gaussian_delta(mu: mp.mpf, eps: mp.mpf) -> mp.mpf:
    """Return the closed form (Balle and Wang 2018)."""
    return mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)


def _integral(log_mgf: object, eps: mp.mpf, c: mp.mpf, end: mp.mpf) -> mp.mpf:
    def integrand(t: mp.mpf) -> mp.mpf:
        s = mp.mpc(c, t)
        return mp.re(mp.exp(log_mgf(s) - s * eps) / (s * (s + 1))) / mp.pi

    return mp.quad(integrand, mp.linspace(0, end, 9))


def prove() -> None:
    """Check every step."""
    kernel()
    inverse()
    exchange()
    gaussian()


if __name__ == "__main__":
    prove()
    print("c1_inversion: proved")

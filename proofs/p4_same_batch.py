"""P4: two releases from one batch are one mechanism, not two.

Claims. Both streams release from the same Poisson sample; a record adds u to the shared sum and v to its owner's, each
of norm at most 1 in units of the clip norm.
(a) Exactly one subsampled Gaussian with multiplier (σ_s^-2 + σ_e^-2)^(-1/2), for either adjacency.
(b) Its likelihood ratio R = 1 - q + q l_s l_e is not the product of (1 - q + q l_s) and (1 - q + q l_e): after the
    first release the record is in the sample with probability q l_s / (1 - q + q l_s), which the second one must use.
(c) E_Q R^k, hence the Rényi divergence of a record more, at every integer order, is at least that of two independent
    streams, at any q and any number of steps; for k = 2 it is q²(e^(a+b) - 1) + 1 against (1 + q²(e^a - 1)) times
    (1 + q²(e^b - 1)), a = 1/σ_s², b = 1/σ_e². In the central limit, q -> 0 with q²T fixed, both tend to Gaussians, with
        μ² = q²T (e^(a+b) - 1)  >=  q²T (e^a - 1) + q²T (e^b - 1).
(d) One step at q = 0.01, σ_s = σ_e = 1, δ = 1e-5: the two ε sum to 0.486633, the truth is 0.815963.

Found. theory.md says that independent samples are the cheaper schedule in the central limit. Beyond it that is so for
Rényi divergences of integer order (c), not for every ε. For few steps and ε near 0 one batch is the more private: a
single step at q = 0.01, σ = 1 has δ(0) = 0.00520 against 0.00594. In the limit of small q and equal σ that is
E|X + Y| >= E|X - Y| for X, Y independent of one law, here l - 1. With q near 1 it reaches far: q = 0.9, σ = 1, ten
steps, ε = 2. So accounting one batch as two streams can err either way, and neither bounds the other (p2_finite.py has
exact examples).

Assumptions. Those of P1. The central limit is cited; the second moments it needs are checked here.

Source. theory.md P4; (c) Chebyshev's sum inequality; the central limit: Bu, Dong, Long and Su 2020.

Code. raptor_acct.mechanisms.RolePlan, raptor_acct.calibration.privacy_spent
"""

import sympy as sp

from proofs._check import Unproved, equal, not_negative
from raptor_acct import Guarantee, RolePlan, SubsampledGaussian


def rotation() -> None:
    """(a) Whitened, u and v stack to one vector; a rotation lays the longest along one axis (symbolic)."""
    s, e = sp.symbols("sigma_s sigma_e", positive=True)
    length = sp.sqrt(s**-2 + e**-2)
    turn = sp.Matrix([[1 / s, 1 / e], [-1 / e, 1 / s]]) / length
    for name, product, expected in (
        ("a rotation keeps N(0, I)", turn * turn.T, sp.eye(2)),
        ("one axis", turn * sp.Matrix([1 / s, 1 / e]), sp.Matrix([length, 0])),
    ):
        for left, right in zip(product, expected, strict=True):
            equal(name, left, right)
    equal("as noise for a shift of 1", 1 / length, (s**-2 + e**-2) ** sp.Rational(-1, 2))
    u, v, short, shorter = sp.symbols("u v short shorter", nonnegative=True)  # |u| = 1 - short, |v| = 1 - shorter
    longest = (u + short) ** 2 / s**2 + (v + shorter) ** 2 / e**2
    not_negative("no vector is longer", sp.expand(longest - u**2 / s**2 - v**2 / e**2))


def posterior() -> None:
    """(b) The joint ratio, and what the second release must take for q (symbolic)."""
    q, shared, expert = sp.symbols("q l_s l_e", positive=True)
    joint = 1 - q + q * shared * expert
    product = (1 - q + q * shared) * (1 - q + q * expert)
    equal("what the product misses", sp.factor(joint - product), q * (1 - q) * (shared - 1) * (expert - 1))
    after = q * shared / (1 - q + q * shared)
    equal("chain rule", sp.simplify((1 - q + q * shared) * (1 - after + after * expert) - joint), 0)


def gaussian_moments() -> None:
    """(c) E l^j = e^(a j (j-1)/2), l = e^(√a z - a/2), from ∫ N(0, 1) e^(tz) = e^(t²/2) (symbolic in j)."""
    z, j = sp.symbols("z j", real=True)
    a = sp.symbols("a", positive=True)
    moment = sp.integrate(sp.exp(j * sp.sqrt(a) * z - z**2 / 2) / sp.sqrt(2 * sp.pi), (z, -sp.oo, sp.oo))
    equal("E l^j", sp.simplify(moment * sp.exp(-j * a / 2) / sp.exp(a * j * (j - 1) / 2)), 1)


def renyi() -> None:
    """(c) E R^k = Σ_j Bin(k, q)(j) E l_s^j E l_e^j, the mean of a product of two rising functions of j (symbolic)."""
    q, a, b = sp.symbols("q a b", positive=True)

    def moment(exponent: sp.Expr, k: int) -> sp.Expr:
        return sum(
            sp.binomial(k, j) * q**j * (1 - q) ** (k - j) * sp.exp(exponent * j * (j - 1) / 2) for j in range(k + 1)
        )

    equal("E R² - 1", sp.expand(moment(a + b, 2) - 1), sp.expand(q**2 * (sp.exp(a + b) - 1)))
    # Chebyshev: E fg - E f E g = Σ_i<j w_i w_j (f_i - f_j)(g_i - g_j), for any weights that sum to 1.
    w, f, g = (sp.symbols(f"{name}_0:4") for name in ("w", "f", "g"))
    covariance = sum(w) * sum(x * y * z for x, y, z in zip(w, f, g, strict=True)) - sum(
        x * y for x, y in zip(w, f, strict=True)
    ) * sum(x * z for x, z in zip(w, g, strict=True))
    paired = sum(w[i] * w[j] * (f[i] - f[j]) * (g[i] - g[j]) for j in range(4) for i in range(j))
    equal("Chebyshev's sum", sp.expand(covariance - paired), 0)
    j = sp.symbols("j", integer=True, nonnegative=True)
    rise = sp.expand((j + 1) * j / 2 - j * (j - 1) / 2)
    equal("e^(a j (j-1)/2) grows by the factor e^(aj) >= 1 from j to j + 1", rise, j)


def near_zero() -> None:
    """E|l_s l_e - 1| = E|l_e - l_s|: weighted by l_s, which moves z to z + √a, 1/l_s has the law of l_s (symbolic).

    For q -> 0, δ(0)/q tends to half of it with one batch, and to half of E|(l_s - 1) + (l_e - 1)| with two. For X and Y
    independent of one law E|X + Y| - E|X - Y| = 2 ∫_0^∞ (P(X > t) - P(X < -t))² dt >= 0: |x + y| - |x - y| is twice the
    least of |x| and |y|, signed as xy, and so twice the integral of (1{x > t} - 1{x < -t})(1{y > t} - 1{y < -t}).
    """
    z = sp.symbols("z", real=True)
    a = sp.symbols("a", positive=True)
    ratio = sp.exp(sp.sqrt(a) * z - a / 2)
    equal("the weighted law is that of z + √a", ratio * sp.exp(-(z**2) / 2), sp.exp(-((z - sp.sqrt(a)) ** 2) / 2))
    equal("1/l there", (1 / ratio).subs(z, z + sp.sqrt(a)), ratio.subs(z, -z))
    for x, y in ((2, 3), (2, -3), (-2, -3), (-2, 3)):
        steps = sum((1 if x > t else -(x < -t)) * (1 if y > t else -(y < -t)) for t in range(4))  # unit steps of t
        equal("|x + y| - |x - y|", abs(x + y) - abs(x - y), 2 * steps)
    q, x, y = sp.symbols("q x y", positive=True)  # l_s - 1 and l_e - 1
    equal("two batches", sp.limit(((1 + q * x) * (1 + q * y) - 1) / q, q, 0), x + y)


def central_limit() -> None:
    """(c) e^(a+b) - 1 >= (e^a - 1) + (e^b - 1) (symbolic, with x = e^a - 1 and y = e^b - 1)."""
    x, y = sp.symbols("x y", positive=True)
    equal("the difference is xy", sp.expand((1 + x) * (1 + y) - 1 - x - y), x * y)


def numbers() -> None:
    """(d) and the cases under Found (numeric, certified bounds)."""
    one = SubsampledGaussian(num_steps=1, sampling_probability=0.01, noise_multiplier=1.0)
    for found, claimed in ((2 * one.guarantee().epsilon(5e-6), 0.486633), (_same(one).epsilon(1e-5), 0.815963)):
        if abs(found - claimed) > 6e-7:
            raise Unproved(f"theory.md has {claimed}, found {found}")
    ten = SubsampledGaussian(num_steps=10, sampling_probability=0.9, noise_multiplier=1.0)
    for stream, eps in ((one, 0.0), (ten, 0.5), (ten, 2.0)):
        same, independent = _same(stream).delta(eps), RolePlan(shared=stream, expert=stream).guarantee().delta(eps)
        if not same.upper < independent.lower:
            raise Unproved(f"one batch spends {same} at {eps}, two {independent}")


def _same(stream: SubsampledGaussian) -> Guarantee:
    return RolePlan(shared=stream, expert=stream, sampling="same_batch").guarantee()


def prove() -> None:
    """Check every step."""
    rotation()
    posterior()
    gaussian_moments()
    renyi()
    near_zero()
    central_limit()
    numbers()


if __name__ == "__main__":
    prove()
    print("p4_same_batch: proved")

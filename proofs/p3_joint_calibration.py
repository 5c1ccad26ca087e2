"""Handing the slack back: the joint calibration exists, is unique, and has less noise than the basic split.

Notation. δ(ε; σ_s, σ_e) is the profile of both streams together, for remove, add, or replace-one; r_i = 1/σ_i;
α = e^ε >= 1; a_i = (1 - q_i)^T_i is the chance that stream i never samples the record; δ_i(·) its profile alone.

Claims.
(a) δ(ε; ·) is continuous, and falls strictly with each σ_i wherever it is above 0. It is Lipschitz in each r_i.
(b) Two streams that spend (ε_s, δ_s) and (ε_e, δ_e) spend less than δ_s + δ_e at ε_s + ε_e: at most
    δ_s + δ_e - δ_s δ_e. So the basic split always leaves slack.
(c) As σ_e → ∞, δ falls to δ_s(ε). As σ_e → 0, it rises to 1 - a_e + a_e δ_s(ε - log a_e) for remove, to
    δ_s(ε + log a_e) for add, to 1 - a_e + a_e δ_s(ε) for replace-one. As both go to 0, it rises to 1 - a_s a_e for
    remove and replace-one.
(d) For each keep there is exactly one noise with δ(ε) = δ if δ is below the limit at 0 of some direction, and none
    else. δ < 1 - a_e is enough for keep="shared", δ < 1 - a_s for "expert", δ < 1 - a_s a_e for "ratio". It is
    strictly below the basic split's: the factor of "ratio" is below 1.
(e) All pairs (σ_s, σ_e) that spend (ε, δ) are the graph of a continuous function that falls strictly. The three keeps
    are three of its points: none has less noise in both roles than another.
(f) With keep="ratio" more ε can mean more noise on a role, if its share of ε is small beside δ.

Proof. (a) For one step with threshold u, ∂δ/∂r = qφ(u + r) for remove, αqφ(u - r) for add, their sum for replace-one:
the threshold is best, so that it shifts does not count. Each term is at most 1/√(2π), being part of a density at the
threshold. Composed, δ(α) = E_P h(α/R), with R the likelihood ratio of all other steps and h one step's profile, and
dominated convergence gives (a); strictly where h has a threshold with positive chance. For remove it has one where
α/R > 1 - q, hence where R <= 1, and Q(R <= 1) > 0 as E_Q R <= 1. For add it has one where α/R < 1/(1 - q), which has
positive chance if α is below the product of all 1/(1 - q); if not, δ = 0. For replace-one it always has one. That δ
does not rise is also post-processing: more noise is noise added. (b) min(p, αq) has the mass 1 - δ in each stream.
(c) Without noise each step shows whether the record was in it; with little, rounding shows it with a chance near 1.
(d), (e) The intermediate value theorem and (a); for add/remove, the larger of two such functions. (f) An example of
plain Gaussians, where μ² = μ_s² + μ_e²: as ρ → 0 the shared stream's basic noise no longer depends on ε, so σ_s goes as
the factor; and that rises with the ratio σ_s/σ_e that it must keep.

Assumptions. Independent Poisson samples and noise for the streams (P2); all experts are one stream (P1).

Found. theory.md does not say when the noise exists. Where δ is above the chance that a stream ever sees the record,
any noise may do, and there is no least one. With δ = N^-1.1 and B >= 1, δ < q and it exists.
Not shown: that else a keep's noise falls as ε or δ grow, while the noise or the ratio that it keeps changes, too;
`tests/theory/test_p3.py` finds no other exception. All digits of theory.md's table are confirmed.

Source. theory.md P3.

Code. raptor_acct.calibrate_sigmas, raptor_acct.hand_back_slack
"""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial, reduce

import sympy as sp
from scipy.optimize import brentq

from proofs._check import Unproved, equal, not_negative, positive
from proofs._finite import Pair, both, breakpoints, hockey_stick, pair
from raptor_acct import Mechanism, RolePlan, SubsampledGaussian, calibrate_sigmas, default_delta
from raptor_acct.accountants._one_step import Direction, OneStep

TABLE = {  # ε: σ_s and σ_e basic; the joint ε of that pair; factor, σ_e and σ_s with keep = ratio, shared, expert
    1: ("2.57316138", "18.7071945", "0.87022002", "0.89153898", "4.39100230", "2.29071441"),
    4: ("0.99359096", "5.23995546", "3.48974820", "0.93634438", "1.42146506", "0.92990768"),
    8: ("0.74112565", "2.84254343", "6.97183712", "0.95068298", "0.93475863", "0.70436071"),
}
N, BATCH, STEPS, RHO = 67349, 1000, 1347, 0.9


def density(x: sp.Expr) -> sp.Expr:
    """The standard normal density."""
    return sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)


def below(x: sp.Expr) -> sp.Expr:
    """The standard normal distribution function."""
    return (1 + sp.erf(x / sp.sqrt(2))) / 2


def one_step() -> None:
    """(a) the derivative of one step's profile in r = 1/σ, at the best threshold (symbolic)."""
    u = sp.symbols("u", real=True)
    q, r, rest, alpha = sp.symbols("q r rest alpha", positive=True)  # rest = 1 - q

    def mixed(shift: sp.Expr) -> sp.Expr:
        return rest * below(u) + q * below(u + shift)

    pairs = {  # upper and lower law below the threshold; the derivative
        "remove": (mixed(r), below(u), q * density(u + r)),
        "add": (below(u), mixed(-r), alpha * q * density(u - r)),
        "replace": (mixed(r), mixed(-r), q * density(u + r) + alpha * q * density(u - r)),
    }
    for name, (upper, lower, slope) in pairs.items():
        profile = upper - alpha * lower
        best = sp.diff(upper, u) / sp.diff(lower, u)  # α at which u is the threshold
        equal(f"{name}: the threshold's shift does not count", sp.diff(profile, u).subs(alpha, best))
        equal(f"{name}: slope in r", sp.diff(profile, r), slope)
        positive(f"{name}: falls strictly with σ", slope)
        ratio = sp.diff(sp.log(sp.diff(upper, u)) - sp.log(sp.diff(lower, u)), u)
        positive(f"{name}: the ratio falls with u", -sp.factor(sp.simplify(ratio)))
    # qφ(u + r) is part of the upper law's density, αqφ(u - r) of α times the lower law's, and at the threshold these
    # are equal; each law is a mixture of normals, so its density is at most φ(0).
    equal("a part of it", sp.diff(mixed(r), u) - q * density(u + r), rest * density(u))
    not_negative("φ <= φ(0)", sp.log(density(sp.Integer(0))) - sp.expand_log(sp.log(density(u)), force=True))


def one_step_in_many() -> None:
    """(a) given the other steps, one step's profile at α/R; where it has a threshold (exact on instances, symbolic)."""
    draw = random.Random(1)
    for _ in range(10):
        others, step = random_pair(draw), random_pair(draw)
        for alpha in breakpoints(both(others, step)):
            average = sum(p * hockey_stick(step, alpha * q / p) for p, q in others)
            equal("δ(α) = E_P h(α/R)", average, hockey_stick(both(others, step), alpha))
    z = sp.symbols("z", real=True)
    q, rest, r = sp.symbols("q rest r", positive=True)
    ratio = rest + q * sp.exp(-r * z - r**2 / 2)
    equal("remove: the ratio falls to 1 - q", sp.limit(ratio, z, sp.oo), rest)
    equal("and has no largest value", sp.limit(1 / ratio, z, -sp.oo), 0)
    # add: its inverse, mirrored, from 0 to 1/(1 - q). replace: the quotient of the two takes every value above 0.


def random_pair(draw: random.Random, size: int = 4) -> Pair:
    """Return a random pair of laws that share their support."""
    laws = [[Fraction(draw.randint(1, 9)) for _ in range(size)] for _ in range(2)]
    return pair(*({i: weight / sum(law) for i, weight in enumerate(law)} for law in laws))


def post_processing() -> None:
    """(a) again: more noise is noise added; what a kernel with positive entries takes from δ (symbolic, exact)."""
    x, y = sp.symbols("x y", real=True)
    s, t = sp.symbols("s t", positive=True)
    form = y**2 / s**2 + (x - y) ** 2 / t**2
    total = s**2 + t**2
    equal("square completed", form, x**2 / total + total / (s * t) ** 2 * (y - x * s**2 / total) ** 2)
    equal("∫ over y", sp.integrate(sp.exp(-total / (s * t) ** 2 * y**2 / 2), (y, -sp.oo, sp.oo)) / (2 * sp.pi * s * t),
          1 / sp.sqrt(2 * sp.pi * total))  # fmt: skip
    draw = random.Random(2)
    for _ in range(15):
        before = random_pair(draw)
        rows = [[Fraction(draw.randint(1, 9)) for _ in range(4)] for _ in before]
        kernel = [[weight / sum(row) for weight in row] for row in rows]

        def moved(measure: Sequence[Fraction], kernel: list[list[Fraction]] = kernel) -> list[Fraction]:
            return [sum(m * row[i] for m, row in zip(measure, kernel, strict=True)) for i in range(4)]

        after = tuple(zip(*map(moved, zip(*before, strict=True)), strict=True))
        for alpha in [*breakpoints(before), Fraction(1)]:
            signed = [p - alpha * q for p, q in before]
            up, down = ([max(sign * m, Fraction(0)) for m in signed] for sign in (1, -1))
            lost = sum(map(min, moved(up), moved(down)))
            equal("δ lost = Σ min(Kμ₊, Kμ₋)", hockey_stick(before, alpha) - hockey_stick(after, alpha), lost)
            if (lost > 0) is not (max(signed) > 0 > min(signed)):
                raise Unproved("it is lost strictly if and only if the pair has both signs")


def slack() -> None:
    """(b) two streams together spend strictly less than the sum (symbolic; exact on instances)."""
    p, q, x, y, s, t = sp.symbols("p q x y s t", positive=True)
    for left, right in itertools.product(((p, p + s), (q + s, q)), ((x, x + t), (y + t, y))):
        product = min_of(*left) * min_of(*right)
        for other in (left[0] * right[0], left[1] * right[1]):
            not_negative("min·min <= min of the products", other - product)
    one, two = sp.symbols("delta_s delta_e", positive=True)
    equal("1 - (1 - δ_s)(1 - δ_e)", 1 - (1 - one) * (1 - two), one + two - one * two)
    draw = random.Random(3)
    for _ in range(60):
        first, second = random_pair(draw), random_pair(draw)
        a, b = (Fraction(draw.randint(4, 16), 4) for _ in range(2))
        d, e = hockey_stick(first, a), hockey_stick(second, b)
        if hockey_stick(both(first, second), a * b) > d + e - d * e:
            raise Unproved("joint δ <= δ_s + δ_e - δ_s δ_e")


def min_of(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    """Return the smaller of two expressions that differ by a positive symbol."""
    return a if (b - a).is_positive else b


def limits() -> None:
    """(c) much noise and little in one step (symbolic); no noise, beside a stream with noise (exact on instances)."""
    q, r, alpha = sp.symbols("q r alpha", positive=True)
    equal("δ <= q·TV → 0", sp.limit(q * (2 * below(r / 2) - 1), r, 0), 0)
    rounded = q * below(r / 2) - alpha * below(-r / 2)  # the test "nearer to the record than to nothing", at least
    equal("δ → q", sp.limit(rounded, r, sp.oo), q)
    draw = random.Random(4)
    for steps in (1, 2, 3):
        share = Fraction(draw.randint(1, 9), 10)
        with_record, without = {"seen": share, "not": 1 - share}, {"not": Fraction(1)}
        other = {"other": share, "not": 1 - share}
        never, shared = (1 - share) ** steps, random_pair(draw)
        for value in (Fraction(1), Fraction(3, 2), Fraction(7)):
            claims = (
                (pair(with_record, without), 1 - never + never * hockey_stick(shared, value / never)),
                (pair(without, with_record), hockey_stick(shared, value * never)),
                (pair(with_record, other), 1 - never + never * hockey_stick(shared, value)),
            )
            for bare, claimed in claims:
                experts = reduce(both, [bare] * steps)
                equal("without expert noise", hockey_stick(both(experts, shared), value), claimed)
    a_s, a_e = sp.symbols("a_s a_e", positive=True)
    equal("both without noise: δ_s = 1 - a_s", 1 - a_e + a_e * (1 - a_s), 1 - a_s * a_e)


def existence() -> None:
    """(d) the condition holds for the paper's δ, and an example that breaks it (symbolic; the example numeric)."""
    n = sp.symbols("n", positive=True)  # N = 1 + n records
    positive("N δ = N^-0.1 < 1 <= B = N q", sp.log(1 + n) / 10)
    # And q <= 1 - (1 - q)^T for T >= 1. Without it: one step, q = 9e-6, ε = 1, δ = 1e-5; σ_s = 1 kept.
    q, delta = 9e-6, 1e-5
    directions: tuple[Direction, ...] = ("remove", "add")
    kept = {name: OneStep(noise_multiplier=1.0, sampling_probability=q, direction=name) for name in directions}
    remove = q + (1 - q) * kept["remove"].delta(1 - math.log1p(-q))[1]
    add = kept["add"].delta(1 + math.log1p(-q))[1]
    if not max(remove, add) < delta:
        raise Unproved(f"σ_e → 0 spends less than δ: {remove} and {add}")


def more_budget() -> None:
    """(f) the example, and both ends of ε for ρ → 0 (numeric; the end at ε = 0 symbolic)."""
    few, many = (calibrate_sigmas(eps, 1e-3, 1e-4, 1.0, 1, composition="joint") for eps in (0.001, 0.1))
    if not (few.sigma_shared * 1.2 < many.sigma_shared and many.sigma_expert < few.sigma_expert):
        raise Unproved("σ_s rises with ε")
    # factor² = (μ_s² + μ_e²)/μ². At ε = 0 both μ_s and μ_e are that of δ/2, at most half of μ, for δ is concave in μ.
    mu = sp.symbols("mu", positive=True)
    delta = 2 * below(mu / 2) - 1
    equal("δ(0) of μ = 0", delta.subs(mu, 0))
    positive("concave", -sp.diff(delta, mu, 2))
    # So it is at most 1/2 there; as ε → ∞, μ² ~ 2ε whatever δ is, so μ_e/μ → 1 and it is at least 1 in the limit.


def table() -> None:
    """All printed digits of table P3, between certified ends of δ (numeric)."""
    delta = default_delta(N)

    def stream(noise: float) -> SubsampledGaussian:
        return SubsampledGaussian(num_steps=STEPS, sampling_probability=BATCH / N, noise_multiplier=noise)

    def plan(shared: float, expert: float) -> RolePlan:
        return RolePlan(shared=stream(shared), expert=stream(expert))

    for eps, (shared, expert, spent, factor, less_expert, less_shared) in TABLE.items():
        s = confirmed(shared, stream, RHO * eps, delta / 2)
        e = confirmed(expert, stream, (1 - RHO) * eps, delta / 2)
        confirmed(factor, lambda x, s=s, e=e: plan(x * s, x * e), eps, delta)
        confirmed(less_expert, partial(plan, s), eps, delta)
        confirmed(less_shared, lambda x, e=e: plan(x, e), eps, delta)
        joint = plan(s, e).guarantee().epsilon(delta)
        if not f"{joint.lower:.8f}" == f"{joint.upper:.8f}" == spent:
            raise Unproved(f"the joint ε {spent}: it is {joint}")


def confirmed(printed: str, family: Callable[[float], Mechanism], eps: float, delta: float) -> float:
    """Check that the noise x at which ``family(x)`` spends exactly (eps, delta) rounds to ``printed``; return it."""

    def excess(x: float) -> tuple[float, float]:
        spent = family(x).guarantee().delta(eps)
        return math.log(spent.lower / delta), math.log(spent.upper / delta)

    half = 0.51 * 10.0 ** -len(printed.split(".")[1])
    low, high = float(printed) - half, float(printed) + half
    if not excess(low)[0] > 0 > excess(high)[1]:
        raise Unproved(f"{printed} at eps={eps:g}")
    return float(brentq(lambda x: sum(excess(x)), low, high, xtol=1e-13))


def prove() -> None:
    """Check every step."""
    one_step()
    one_step_in_many()
    post_processing()
    slack()
    limits()
    existence()
    more_budget()
    table()


if __name__ == "__main__":
    prove()
    print("p3_joint_calibration: proved")

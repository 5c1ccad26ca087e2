"""P1: all experts of a layer release as one expert does.

Claim. Each record has one owner expert and adds to that expert's sum alone a vector of norm at most C_e; expert e adds
noise N(0, σ_e² C_e² I); a record is sampled with probability q, independently. The owner and the gradient may depend on
the record and on all earlier releases. For one record more or less, T releases of all E experts have at every α >= 0 a
hockey-stick divergence H(P‖Q) = Σ (P - αQ)_+ of at most that of T releases of the pair
    (1-q) N(0, 1) + q N(1/σ, 1)  against  N(0, 1)  (or the two exchanged),    σ = min_e σ_e,
and this is attained. E does not enter. For a replaced record, whose owner may change, the pair is that of c6.

Proof. Fix a step and what was released before. 1. Whiten the stacked sums by σ_e C_e: the record moves one block, by at
most 1/σ_e. 2. Which of the other records take part has the same law on both sides, so H is at most its mean over that
(joint convexity), and given it they shift both sides alike. 3. The blocks that the record is not in are independent of
the one that it is in, and have the same law R on both sides: H(P×R‖Q×R) = H(P‖Q). Equivalently, the likelihood ratio
depends on the block through <u, z> only, so one dimension is left, with a shift |u| = s/σ, 0 <= s <= 1. 4. The pair
with shift s/σ is a randomised function of the one with shift 1/σ, and such functions do not raise H. 5. So each step's
pair, given all earlier releases, is dominated by one and the same pair. Dominated step by step is dominated
together: p2_sequential.py, adaptive. A record that is always owned by the expert with noise σ, with a gradient that is
always of norm C_e, attains it.

Found. theory.md leaves open which noise counts where the σ_e differ and owners change. It is min_e σ_e, for every
rule of owners, by 4 and 5; fixed owners gain nothing, as the worst record may be owned by that expert throughout. A
record whose owner is always e is protected as with σ_e: that is a guarantee for the record, not for the data set, and
it rests on a route that is itself private. A replaced record that moves from e to e' changes the whitened stack by at
most √2/σ, less than the 2/σ of the same block; norms alone do not decide which pair is worse (p1_assumptions.py, other
noise), c6_replace_one_pair.py does so for Gaussian noise: its vectors may lie in any blocks.

Assumptions. Those that p1_assumptions.py drops one by one. Sums stand for integrals: every integrand is at least 0.

Source. theory.md P1; the paper's claim that per-expert mechanisms compose in parallel; McSherry 2009 for disjoint data.

Code. raptor_acct.composition.parallel_across_experts
"""

import sympy as sp

from proofs._check import equal, not_negative, positive


def block() -> None:
    """1. A clipped gradient over its clip norm has norm at most 1, and moves one block of E (symbolic in E)."""
    norm, clip, extra = sp.symbols("n C extra", positive=True)
    clipped = sp.Min(norm, clip) / clip
    equal("above the clip norm", clipped.subs(norm, clip + extra).doit(), 1)
    not_negative("below it", 1 - clipped.subs(clip, norm + extra))
    e, k = sp.symbols("e k", integer=True, positive=True)
    more = sp.symbols("more", integer=True, nonnegative=True)
    u = sp.symbols("u", positive=True)
    num_experts = e + more  # owner e is one of 1 ... E
    norms = sp.Sum(sp.KroneckerDelta(k, e) * u**2, (k, 1, num_experts)).doit()
    equal("the stacked change has the norm of one block", sp.simplify(norms), u**2)


def positive_part() -> None:
    """Lemmas on x_+ = max(x, 0): (cx)_+ = c x_+ for c >= 0, and (x + y)_+ <= x_+ + y_+ (symbolic, by cases of sign)."""
    c, x, y = sp.symbols("c x y", nonnegative=True)
    for value in (x, -x):
        equal("(cx)_+ = c x_+", sp.Max(c * value, 0), c * sp.Max(value, 0))
    for first, second in ((x, y), (x, -y), (-x, -y)):
        both = sp.Max(first, 0) + sp.Max(second, 0)
        not_negative("x_+ + y_+ >= x + y", both - (first + second))
        not_negative("x_+ + y_+ >= 0", both)


def mixture() -> None:
    """2. Σ_k w_k (P_k, Q_k) has at most the mean H (symbolic for two parts; any number by induction)."""
    w, p1, p2, q1, q2, alpha = sp.symbols("w P_1 P_2 Q_1 Q_2 alpha", nonnegative=True)
    whole = w * p1 + (1 - w) * p2 - alpha * (w * q1 + (1 - w) * q2)
    equal("a sum to which both lemmas apply", whole, w * (p1 - alpha * q1) + (1 - w) * (p2 - alpha * q2))
    z, others, shift = sp.symbols("z others shift", real=True)
    noise = sp.Function("f")
    ratio = noise(z - others - shift) / noise(z - others)
    equal("what the others add moves both laws alike", ratio.subs(z, z + others), noise(z - shift) / noise(z))


def product() -> None:
    """3. H(P×R‖Q×R) = H(P‖Q) Σ R: the first lemma with c = R (symbolic, for 3 × 2 outcomes of every sign)."""
    alpha = sp.symbols("alpha", nonnegative=True)
    lower, gain = sp.symbols("Q_1:4", nonnegative=True), sp.symbols("g_1:4", nonnegative=True)
    rest = sp.symbols("R_1:3", nonnegative=True)
    for signs in ((1, 1, -1), (1, -1, -1)):
        atoms = [(alpha * q + sign * g, q) for q, sign, g in zip(lower, signs, gain, strict=True)]
        alone = sum(sp.Max(sp.expand(p - alpha * q), 0) for p, q in atoms)
        together = sum(sp.Max(sp.expand(p * r - alpha * q * r), 0) for p, q in atoms for r in rest)
        equal("H(P×R‖Q×R)", sp.expand(together), sp.expand(alone * sum(rest)))


def one_dimension() -> None:
    """3. The likelihood ratio of a Gaussian block, beside another of other noise (symbolic)."""
    z1, z2, other, u1, u2 = sp.symbols("z_1 z_2 other u_1 u_2", real=True)
    sigma, noise = sp.symbols("sigma_e sigma_f", positive=True)

    def density(first: sp.Expr, second: sp.Expr) -> sp.Expr:
        return sp.exp(-((z1 - first) ** 2 + (z2 - second) ** 2) / (2 * sigma**2) - other**2 / (2 * noise**2))

    inner = (u1 * z1 + u2 * z2) / sigma**2  # linear in z, so normal, with mean 0 under the lower law and variance:
    variance = sp.diff(inner, z1) ** 2 * sigma**2 + sp.diff(inner, z2) ** 2 * sigma**2
    shift = sp.sqrt(u1**2 + u2**2) / sigma
    equal("variance of <u, z>/σ²", variance, shift**2)
    equal("ratio", sp.simplify(density(u1, u2) / density(0, 0)), sp.exp(inner - shift**2 / 2))


def less_noise() -> None:
    """4. sX + W, W ~ N(0, 1 - s²), turns N(m, 1) into N(sm, 1), mixtures too; no kernel K raises H (symbolic)."""
    t, m = sp.symbols("t m", real=True)
    s = sp.symbols("s", positive=True)

    def mgf(mean: sp.Expr, variance: sp.Expr, at: sp.Expr) -> sp.Expr:
        return sp.exp(mean * at + variance * at**2 / 2)

    equal("law of sX + W", mgf(m, 1, s * t) * mgf(0, 1 - s**2, t), mgf(s * m, 1, t))
    least, more = sp.symbols("sigma more", positive=True)
    not_negative("s = σ/σ_e <= 1, so that W exists", 1 - least / (least + more))
    # Σ_y (Σ_x K(x,y) (P - αQ)(x))_+ <= Σ_y Σ_x K(x,y) (P - αQ)_+(x) by the lemmas, and Σ_y K(x,y) = 1:
    to_one, to_other, gain = sp.symbols("K_1 K_2 gain", nonnegative=True)
    for difference in (gain, -gain):
        images = sp.Max(to_one * difference, 0) + sp.Max(to_other * difference, 0)
        equal("a kernel keeps the sum of x_+", images, sp.expand((to_one + to_other) * sp.Max(difference, 0)))


def replaced() -> None:
    """A record that changes its owner moves the whitened stack by at most √2/σ (symbolic)."""
    sigma = sp.symbols("sigma", positive=True)
    more = sp.symbols("more_1:3", nonnegative=True)  # σ_e = σ + more_1, σ_e' = σ + more_2
    for extra in more:
        not_negative("1/σ_e² <= 1/σ²", sp.factor(1 / sigma**2 - 1 / (sigma + extra) ** 2))
    positive("√2/σ < 2/σ", 2 / sigma - sp.sqrt(2) / sigma)


def prove() -> None:
    """Check every step."""
    block()
    positive_part()
    mixture()
    product()
    one_dimension()
    less_noise()
    replaced()


if __name__ == "__main__":
    prove()
    print("p1_parallel: proved")

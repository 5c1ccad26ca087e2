"""What the diagnostics measure: role mismatch and the experts' signal to noise.

Claims.
(a) M_role = ½ Σ |g_i - p_i| of two vectors of shares lies in [0, 1 - min p_i], and is 0 if and only if g = p. It is the
    largest difference that a set of roles makes, and merging roles never raises it. For two roles it is |g_1 - p_1|.
(b) SNR_e = ‖S‖²/(σ²C²d) is the squared signal over the expected squared norm of the noise. The denominator cancels.
(c) Measured on the release instead, ‖S + noise‖²/(σ²C²d) has the mean SNR + 1 and the variance (2 + 4 SNR)/d.

Proof. (a) p_i > 0, and Σ (g_i - p_i)_+ = Σ (p_i - g_i)_+ = M; the sum over a set is at most the former, and with g at
one role it is 1 - p_i. Merging: |x + y| <= |x| + |y|. (b), (c) the moments of a normal.

Assumptions. Every role has parameters. The noise is independent of the sum.

Found. theory.md does not say that both are private: SNR_e needs sums without noise, M_role their norms. By (c) the
releases themselves do not show SNR_e: with d = 983,040 parameters an expert the standard deviation is 1.4e-3, above
every SNR of Table 8 (up to 2.25e-4).
M_role = 0 does not mean that parameters of both roles have gradients of equal size: then the norms go as √d, and for
the paper's 9,438,722 and 7,864,320 parameters M_role = 0.023. Norms do not add up, either: two halves of a role with
equal gradients have √2 times its norm, so M_role depends on how roles are cut. Shares of squared norms have neither
fault. With these two roles M_role is at most 0.545; Table 8's 0.401 and 0.337 for RAPTOR are.

Source. theory.md §5; Table 8.

Code. raptor_acct.diagnostics.role_mismatch, raptor_acct.diagnostics.expert_snr
"""

import itertools
import math
import random
from fractions import Fraction

import sympy as sp

from proofs._check import Unproved, equal, positive
from raptor_acct.diagnostics import role_mismatch

SHARED, EXPERTS = 9_438_722, 7_864_320


def distance() -> None:
    """(a) for two roles (symbolic), and every set of roles on random shares (exact)."""
    g, p = sp.symbols("g p", real=True)
    equal("two roles", (sp.Abs(g - p) + sp.Abs((1 - g) - (1 - p))) / 2, sp.Abs(g - p))
    draw = random.Random(8)
    for size in (2, 3, 5, 5, 5):
        g_, p_ = random_shares(draw, size, low=0), random_shares(draw, size, low=1)
        mismatch = total_variation(g_, p_)
        sets = itertools.chain.from_iterable(itertools.combinations(range(size), k) for k in range(size + 1))
        largest = max(sum(g_[i] - p_[i] for i in chosen) for chosen in sets)
        corner = [Fraction(p == min(p_) and i == p_.index(p)) for i, p in enumerate(p_)]
        merged = total_variation([g_[0] + g_[1], *g_[2:]], [p_[0] + p_[1], *p_[2:]])
        if not merged <= mismatch == largest <= total_variation(corner, p_) == 1 - min(p_):
            raise Unproved(f"M_role of {g_} and {p_}")
        if (mismatch == 0) is not (g_ == p_):
            raise Unproved("0 if and only if the shares agree")


def random_shares(draw: random.Random, size: int, low: int) -> list[Fraction]:
    """Return random shares, none of them 0 if ``low`` is above 0."""
    weights = [draw.randint(low, 9) for _ in range(size - 1)] + [1]
    return [Fraction(weight, sum(weights)) for weight in weights]


def total_variation(first: list[Fraction], second: list[Fraction]) -> Fraction:
    """Return half of the sum of absolute differences."""
    return sum((abs(a - b) for a, b in zip(first, second, strict=True)), Fraction(0)) / 2


def noise() -> None:
    """(b), (c) the moments of one coordinate, of signal s and noise v·z; d of them add up (symbolic)."""
    z, s = sp.symbols("z s", real=True)
    v, d, signal, denominator = sp.symbols("v d S D", positive=True)  # v = σC, S = ‖S‖²

    def mean(expression: sp.Expr) -> sp.Expr:
        weight = sp.exp(-(z**2) / 2) / sp.sqrt(2 * sp.pi)
        return sp.integrate(sp.expand(expression) * weight, (z, -sp.oo, sp.oo))

    equal("E noise²", mean((v * z) ** 2), v**2)  # so E‖noise‖² = d v²
    square = (s + v * z) ** 2
    equal("E (signal + noise)²", mean(square), s**2 + v**2)
    equal("its variance", mean(square**2) - mean(square) ** 2, 2 * v**4 + 4 * v**2 * s**2)
    snr, scale = signal / (d * v**2), d * v**2
    equal("D cancels", (signal / denominator**2) / (d * (v / denominator) ** 2), snr)
    equal("mean of the release's", (signal + d * v**2) / scale, snr + 1)
    equal("its variance", (2 * d * v**4 + 4 * v**2 * signal) / scale**2, (2 + 4 * snr) / d)


def table_8() -> None:
    """The sizes in "Found" (numeric)."""
    spread = math.sqrt(2 / 983_040)
    sizes = {"shared": SHARED, "expert": EXPERTS}
    even = role_mismatch({role: math.sqrt(size) for role, size in sizes.items()}, sizes)
    largest = role_mismatch({"shared": 0, "expert": 1}, sizes)
    if (f"{spread:.1e}", f"{even:.3f}", f"{largest:.3f}") != ("1.4e-03", "0.023", "0.545"):
        raise Unproved(f"spread {spread}, equal gradients {even}, largest {largest}")
    if spread < 2.25e-4 or largest < 0.401:
        raise Unproved("Table 8's SNR are below the spread, and its mismatches below the largest")


def cutting() -> None:
    """Norms of halves, and squared norms of roles of equal gradients (symbolic)."""
    norm, a, b, each = sp.symbols("norm a b each", positive=True)
    equal("two halves", 2 * sp.sqrt(norm**2 / 2), sp.sqrt(2) * norm)
    equal("squared norms' shares are those of parameters", each**2 * a / (each**2 * a + each**2 * b), a / (a + b))
    share = sp.sqrt(a) / (sp.sqrt(a) + sp.sqrt(b))
    gap = sp.factor((a / (a + b) - share).subs({a: a**2, b: b**2}))
    equal("norms' shares are more even", gap, a * b * (a - b) / ((a + b) * (a**2 + b**2)))
    positive("where a > b", gap.subs(a, b + norm))


def prove() -> None:
    """Check every step."""
    distance()
    noise()
    table_8()
    cutting()


if __name__ == "__main__":
    prove()
    print("d1_diagnostics: proved")

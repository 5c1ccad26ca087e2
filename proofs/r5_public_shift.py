"""How far the private routing can be from the public one, when their total variation is known.

Claims. Let p be the public shares of E experts and q any others with TV(p, q) = ½Σ|q - p| <= τ.
(a) ‖q - p‖₂ <= τ√2, so |CV(q) - CV(p)| <= τ√(2E).
(b) Equality holds in both for p = u + c(e_i - e_j) and q = u + (c + τ)(e_i - e_j), 0 <= c <= c + τ <= 1/E, u uniform.
(c) Let `uneven` be p after τ went from the smallest shares, each down to 0, to the largest; let `even` be p after the
    largest were cut to one level and the smallest filled to another, by τ each, or u if the two would meet. For every k
    the sum of the k largest shares of q is at most that of `uneven` and at least that of `even`. These two attain the
    largest and the smallest CV, and the smallest and the largest entropy, of all such q.

Proof of (c). An event's probability moves by at most τ, so k shares of q sum to at most min(1, P_k + τ), P_k the sum of
the k largest of p: that is what `uneven` has. For `even` look at S(c) = Σ(q - c)₊, the largest sum of any shares of q,
each less c: S_q(c) >= S_p(c) - τ, and S_q(c) >= (1 - Ec)₊ by convexity. `even`, with floor f and ceiling g, has S = 0
for c >= g, S_p(c) - τ for f <= c <= g (nothing but the cut is lost above c), and 1 - Ec for c <= f: no q has less
anywhere. Ordered S is the same as ordered sums of the k largest, and it orders Σq² and H, by `layers`.

Assumptions. None on p and q. That τ is known is assumed, not shown: measured on private records it is itself private.

Source. theory.md R5; the order is majorisation, Hardy, Littlewood and Pólya 1929.

Found. (c) is the exact answer, and it bounds the entropy too; theory.md has (a) only.

Code. raptor_acct.shift.shift_bound
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import sympy as sp

from proofs._check import Unproved, equal, not_negative
from raptor_acct.shift import shift_bound

Shares = tuple[Fraction, ...]


def euclidean() -> None:
    """(a) the d = q - p above 0 sum to at most τ, so do those below, in size; for x >= 0, Σx² <= (Σx)² (symbolic)."""
    x, rest, squares, tau = sp.symbols("x rest squares tau", nonnegative=True)
    # One more number x, after some with sum `rest` and Σx² = rest² - squares, by induction.
    not_negative("Σx² <= (Σx)²", sp.expand((rest + x) ** 2 - (rest**2 - squares + x**2)))
    equal("both signs", sp.sqrt(tau**2 + tau**2), tau * sp.sqrt(2))
    # CV(q) = √E‖q - u‖₂ (R1), and norms differ by at most the norm of the difference.
    experts = sp.symbols("E", positive=True)
    equal("in the CV", sp.sqrt(experts) * tau * sp.sqrt(2), sp.expand_power_base(tau * sp.sqrt(2 * experts)))


def attained() -> None:
    """(b) (symbolic in E)."""
    experts, c, tau = sp.symbols("E c tau", positive=True)
    u = 1 / experts

    def cv(tilt: sp.Expr) -> sp.Expr:
        return sp.sqrt(sp.factor(experts * ((u + tilt) ** 2 + (u - tilt) ** 2 + (experts - 2) * u**2) - 1))

    equal("difference of the CVs", cv(c + tau) - cv(c), sp.sqrt(2 * experts) * tau)
    equal("total variation", (tau + tau) / 2, tau)


def layers() -> None:
    """(c) x² = 2∫₀^x (x-c) dc and x log x = x - 1 + ∫ₓ¹ (c-x)/c dc, so S orders both sums (symbolic).

    Σ(c - q)₊ = S(c) - 1 + Ec, as Σq = 1: it rises with S as well.
    """
    x, c, t = sp.symbols("x c t", positive=True)
    equal("square", 2 * sp.integrate(x - c, (c, 0, x)), x**2)
    equal("entropy", x - 1 + sp.integrate(1 - x / c, (c, x, 1)), x * sp.log(x))
    for gap in (t, 0, -t):  # x - c
        equal("(c - x)₊ = (x - c)₊ - (x - c)", sp.Max(-gap, 0), sp.Max(gap, 0) - gap)


def example() -> None:
    """(c) for every p and q on a grid of 3 and of 4 experts (exact), and the code's ends are these."""
    for parts, experts in ((12, 3), (8, 4)):
        grid = list(_grid(parts, experts))
        for p, moved in itertools.product(sorted({tuple(sorted(q, reverse=True)) for q in grid}), range(0, parts, 3)):
            tau = Fraction(moved, parts)
            top, bottom = uneven(p, tau), even(p, tau)
            near = [q for q in grid if sum(abs(a - b) for a, b in zip(p, q, strict=True)) <= 2 * tau]
            if not all(_below(bottom, q) and _below(q, top) for q in (*near, top, bottom)):
                raise Unproved(f"(c): some q is outside for {p}, {tau}")
            _compare(p, tau, bottom, top)


def uneven(p: Shares, tau: Fraction) -> Shares:
    """Return shares, largest first, after ``tau``, or all there is, went to the first from the last ones."""
    rest = []
    for share in reversed(p[1:]):
        taken = min(share, tau)
        rest.append(share - taken)
        tau -= taken
    return (1 - sum(rest), *reversed(rest))


def even(p: Shares, tau: Fraction) -> Shares:
    """Return shares, largest first, below the ceiling that cuts off ``tau`` and above the floor that takes it."""
    mean = Fraction(1, len(p))
    ceiling = max((sum(p[:k]) - tau) / k for k in range(1, len(p) + 1))
    floor = min((sum(p[-k:]) + tau) / k for k in range(1, len(p) + 1))
    ceiling, floor = max(ceiling, mean), min(floor, mean)
    return tuple(min(max(share, floor), ceiling) for share in p)


def _grid(parts: int, experts: int) -> Iterator[Shares]:
    for cuts in itertools.combinations_with_replacement(range(parts + 1), experts - 1):
        edges = (0, *cuts, parts)
        yield tuple(Fraction(b - a, parts) for a, b in itertools.pairwise(edges))


def _below(one: Shares, other: Shares) -> bool:
    """Whether the k largest shares of ``one`` sum to no more than those of ``other``, for every k."""
    sums = [list(itertools.accumulate(sorted(shares, reverse=True))) for shares in (one, other)]
    return all(a <= b for a, b in zip(*sums, strict=True))


def _compare(p: Shares, tau: Fraction, bottom: Shares, top: Shares) -> None:
    computed = shift_bound([float(share) for share in p], float(tau)).cv
    for exact, end in zip((bottom, top), computed, strict=True):
        cv = math.sqrt(len(p) * sum(share**2 for share in exact) - 1)
        if not math.isclose(cv, end, rel_tol=1e-9, abs_tol=1e-7):
            raise Unproved(f"the code's end {end} is not {cv} for {p}, {tau}")


def prove() -> None:
    """Check every step."""
    euclidean()
    attained()
    layers()
    example()


if __name__ == "__main__":
    prove()
    print("r5_public_shift: proved")

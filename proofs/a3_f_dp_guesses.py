"""How many of r guesses about the m canaries of one run can be right under f-DP: a recursion from the top.

Notation. That of a2. c(y) is the ceiling, the best TPR at FPR y in either direction: concave; φ(x), the least y with
c(y) >= x, rises. mass_k = Σ_{j>=k} w_j, right_k = Σ_{j>=k} j w_j/m, wrong_k = Σ_{j>=k} (r-j) w_j/m.

Claims.
(a) right_{k+1} <= c(wrong_k) for k = 0..r-1.
(b) Put a mass of τ at v, and then at k = v-1, ..., 0 as little as makes wrong_k >= φ(right_{k+1}). If all that sums to
    more than 1, then P[W >= v] < τ.

Proof. (a) As in a2 (a), with K = {k, k+1, ...}: for each canary i and coins s, P(A) <= c(P'(A)). As c is concave, the
means over i and s satisfy it, too: they are right_{k+1} and wrong_k. (b) Let w' be any law with mass'_v >= τ. By
induction from the top, right_k <= right'_k and mass_k <= mass'_k for all k <= v. At v, w' has its mass at v or above,
and w just τ at v. Where nothing is added at k, nothing changes on the left. Where something is,
wrong_k = φ(right_{k+1}) <= φ(right'_{k+1}) <= wrong'_k. From the identity
    (r-k) right_k - k wrong_k = (r/m) Σ_{i>k} mass_i,
right_k <= right'_k follows, as the sums are ordered by induction (above v, w has no mass); and then so are
mass_k = m (right_k + wrong_k)/r. So mass_0 is at most mass'_0 = 1.

Assumptions. Those of a2. For a guarantee, c is that of its privacy profile (P6), of which any points alone bound it.

Found. The recursion uses fewer sets K than there are. With all of a2 (a)'s, by linear programming, the largest
P[W >= v] of small cases at levels from 0.5 to 20 % is up to a quarter smaller, so the bound on μ is a little less than
it could be (tests). With all canaries guessed it finds only a part of a Gaussian leak, however many there are: 0.34 of
μ = 1, but 0.72 from the 5 % extremes.

Source. Mahloujifar, Melis and Chaudhuri 2024, whose recursion this is; the proof is this library's.

Code. raptor_acct.audit.one_run_mu, raptor_acct.audit.one_run_refutes, raptor_acct.audit.canary_lower_bound
"""

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import sympy as sp

from proofs._check import Unproved, equal
from proofs.a2_right_guesses import Mechanism, counts, delta_of, random_mechanism
from raptor_acct.audit.one_run import _refuted

Inverse = Callable[[Fraction], Fraction]
Line = tuple[Fraction, Fraction]  # α and δ: TPR <= α FPR + δ


def sums(w: Sequence[Fraction], m: int, k: int) -> tuple[Fraction, Fraction, Fraction]:
    """Return mass_k, right_k, wrong_k."""
    r = len(w) - 1
    return (
        sum(w[k:], Fraction(0)),
        sum((j * w[j] for j in range(k, r + 1)), Fraction(0)) / m,
        sum(((r - j) * w[j] for j in range(k, r + 1)), Fraction(0)) / m,
    )


def inverse_of(lines: Sequence[Line]) -> Inverse:
    """Return φ of the least of some lines, and of the lines with TPR and 1 - FPR exchanged (P6)."""

    def least(x: Fraction) -> Fraction:
        first = max((x - delta) / alpha for alpha, delta in lines)
        second = max(1 - delta - alpha * (1 - x) for alpha, delta in lines)
        return max(Fraction(0), first, second)

    return least


def lines_of(mechanism: Mechanism) -> list[Line]:
    """Return some points of the mechanism's privacy profile."""
    return [(alpha, delta_of(mechanism, alpha)) for alpha in map(Fraction, ("1", "6/5", "3/2", "2", "3"))]


def recursion(m: int, r: int, v: int, tau: Fraction, phi: Inverse) -> list[Fraction]:
    """Return the w of (b)."""
    w = [Fraction(0)] * (r + 1)
    w[v] = tau
    for k in range(v - 1, -1, -1):
        lacking = phi(sums(w, m, k + 1)[1]) - sums(w, m, k)[2]
        w[k] = max(Fraction(0), m * lacking / (r - k))
    return w


def every_threshold() -> None:
    """(a) random mechanisms (exact)."""
    draw = random.Random(3)
    for m, r in ((1, 1), (2, 1), (2, 2), (3, 2)):
        mechanism = random_mechanism(m, r, draw)
        phi, w = inverse_of(lines_of(mechanism)), counts(mechanism, r)
        for k in range(r):
            if sums(w, m, k)[2] < phi(sums(w, m, k + 1)[1]):
                raise Unproved(f"(a) m = {m}, r = {r}, k = {k}")


def identity() -> None:
    """(b) of one mass w_j: (r-k) j - k (r-j) = r (j-k), and Σ_{i>k} mass_i counts it j - k times (symbolic)."""
    r, k, j = sp.symbols("r k j", integer=True, positive=True)
    equal("identity", sp.expand((r - k) * j - k * (r - j)), sp.expand(r * (j - k)))


def least_mass() -> None:
    """(b) the recursion is below every law that keeps (a), at every k: laws of random mechanisms (exact)."""
    draw = random.Random(4)
    for m, r in itertools.chain.from_iterable(itertools.repeat(size, 5) for size in ((2, 2), (3, 2), (3, 3))):
        mechanism = random_mechanism(m, r, draw)
        phi, law = inverse_of(lines_of(mechanism)), counts(mechanism, r)
        for v in range(1, r + 1):
            w = recursion(m, r, v, sums(law, m, v)[0], phi)
            for k in range(v + 1):
                below, other = sums(w, m, k), sums(law, m, k)
                if below[0] > other[0] or below[1] > other[1]:
                    raise Unproved(f"(b) m = {m}, r = {r}, v = {v}, k = {k}")


def code() -> None:
    """The code refutes just where the recursion's mass is above 1 (exact against floats)."""
    lines = [(Fraction(1), Fraction(1, 5)), (Fraction(3, 2), Fraction(1, 20)), (Fraction(3), Fraction(0))]
    phi = inverse_of(lines)
    for m, r in ((10, 10), (30, 12)):
        for v, error in itertools.product(range(1, r + 1), (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))):
            mass = sum(recursion(m, r, v, error, phi))
            refuted = _refuted(m, r, v, float(error), lambda x: float(phi(Fraction(x))))
            if refuted != (mass > 1) and abs(mass - 1) > Fraction(1, 10**6):
                raise Unproved(f"code: m = {m}, r = {r}, v = {v}, error = {error}")


def prove() -> None:
    """Check every step."""
    every_threshold()
    identity()
    least_mass()
    code()


if __name__ == "__main__":
    prove()
    print("a3_f_dp_guesses: proved")

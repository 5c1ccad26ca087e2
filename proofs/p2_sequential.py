"""P2: streams with samples of their own compose by convolution, adaptively, and never worse than by basic composition.

Claims. H(P‖Q) at α is Σ (P - αQ)_+; a pair (A, B) dominates (P, Q) if its H is at least as large at every α >= 0.
(a) adaptive  If (A_1, B_1) dominates (P, Q), and (A, B) dominates (P_h, Q_h) for every outcome h of the first, then
              (A_1 × A, B_1 × B) dominates the whole, in which what follows may depend on h. By induction, any number
              of steps: their losses add as those of independent draws do, whatever steers what.
(b) basic     With δ_1 at ε_1 and δ_2 at ε_2, the whole has at ε_1 + ε_2 a δ of at most δ_1 + δ_2 - δ_1 δ_2. So the
              joint ε at δ is at most ε_1 + ε_2, for every split of δ into δ_1 + δ_2.
(c) numbers   theory.md's example at ε = 1 spends 0.87022002, between the certified bounds.

Proof of (a). As (cx)_+ = c x_+ for c >= 0 (p1_parallel.py), the whole has at α the divergence
        Σ_h P(h) H(P_h‖Q_h)  at αQ(h)/P(h)
    <=  Σ_h P(h) H(A‖B)      at αQ(h)/P(h)    = Σ_hy (P(h) A(y) - αQ(h) B(y))_+
     =  Σ_y A(y) H(P‖Q)      at αB(y)/A(y)
    <=  Σ_y A(y) H(A_1‖B_1)  at αB(y)/A(y),   which is that of the product.
Outcomes with P(h) = 0 or A(y) = 0 add nothing.

Assumptions. Given all earlier releases, the sample of the next step is a fresh Poisson sample: what was released says
nothing about who will be in it. Sums stand for integrals: every integrand is at least 0.

Found. (b) holds for each direction of add/remove by itself, and has the term -δ_1 δ_2 to spare. Nothing in (a) needs
the streams to be Gaussian, to alternate, or to have equal numbers of steps.

Source. theory.md P2; (a) Zhu, Dong and Wang 2022, theorem 10, here with a short proof; (b) Dwork et al. 2006.

Code. raptor_acct.composition.sequential_across_streams, raptor_acct.mechanisms.IndependentStreams
"""

import sympy as sp

from proofs._check import Unproved, equal, not_negative
from raptor_acct import SubsampledGaussian, default_delta, sequential_across_streams


def adaptive() -> None:
    """(a) p (A - (αq/p) B)_+ = (pA - αqB)_+ = A (p - (αB/A) q)_+ (symbolic, by the sign of the middle term)."""
    p, a, q, gain = sp.symbols("p A q gain", positive=True)
    for difference in (gain, -gain):
        scaled = p * a - difference  # α q B, from what is left of pA
        middle = sp.Max(difference, 0)
        equal("from the second step", sp.expand(p * sp.Max(sp.expand(a - scaled / p), 0)), middle)
        equal("from the first step", sp.expand(a * sp.Max(sp.expand(p - scaled / a), 0)), middle)
        equal("no outcome, no part", sp.Max(-q, 0), 0)


def convolution() -> None:
    """(a) The loss of a product is the sum of the losses (symbolic)."""
    p, q, x, y = sp.symbols("P_1 Q_1 P_2 Q_2", positive=True)
    equal("loss", sp.expand_log(sp.log(p * x / (q * y))), sp.expand_log(sp.log(p / q) + sp.log(x / y)))


def basic() -> None:
    """(b) With d = (P - αQ)_+ and P = d + m: (P P_h - αβ Q Q_h)_+ <= d P_h + m (P_h - βQ_h)_+ (symbolic, by cases).

    Summed over the second outcome that is at most d + m δ_2, and over the first δ_1 + (1 - δ_1) δ_2, as Σ m = 1 - δ_1.
    """
    beta, p_next, q_next, gain, scaled = sp.symbols("beta P_h Q_h gain alphaQ", nonnegative=True)
    for p, kept in ((scaled + gain, scaled), (scaled, scaled)):
        lost = p - kept
        rest = lost * p_next + kept * (p_next - beta * q_next) - (p * p_next - scaled * beta * q_next)
        equal("P >= αQ", sp.expand(rest), 0)
    p = sp.symbols("P", nonnegative=True)
    rest = p * (p_next - beta * q_next) - (p * p_next - (p + gain) * beta * q_next)
    not_negative("P < αQ", sp.expand(rest))
    first, second = sp.symbols("delta_1 delta_2", nonnegative=True)
    not_negative("below the sum", sp.expand(first + second - (first + (1 - first) * second)))


def example() -> None:
    """(c) and (b) on theory.md's example (numeric, certified bounds)."""
    delta, records, batch = default_delta(67349), 67349, 1000
    streams = [
        SubsampledGaussian(num_steps=1347, sampling_probability=batch / records, noise_multiplier=noise)
        for noise in (2.57316138, 18.7071945)
    ]
    joint = sequential_across_streams(streams).guarantee().epsilon(delta)
    if not (joint.lower - 1e-7 <= 0.87022002 <= joint.upper + 1e-7):
        raise Unproved(f"the example spends {joint}")
    for share in (0.1, 0.5, 0.9):
        parts = [
            stream.guarantee().epsilon(part * delta) for stream, part in zip(streams, (share, 1 - share), strict=True)
        ]
        if not joint.upper <= sum(part.lower for part in parts):
            raise Unproved(f"joint {joint} exceeds basic {parts}")


def prove() -> None:
    """Check every step."""
    adaptive()
    convolution()
    basic()
    example()


if __name__ == "__main__":
    prove()
    print("p2_sequential: proved")

"""P7: owners at several layers, released from one batch, are one mechanism; from batches of their own, further streams.

Claims. A record has one owner expert at each of L layers and adds to it a vector of norm at most 1 in units of the clip
norm, clipped for each layer by itself; layer l has noise σ_l in the same units, the least of its experts.
(a) One Poisson batch for all layers: one subsampled Gaussian with σ_eff^-2 = Σ_l σ_l^-2, for either adjacency, and
    this is attained; with the shared stream on that batch too, + σ_s^-2. In any order, and also if the owner at one
    layer depends on that at another. The numbers of experts cancel.
(b) A batch of its own for each layer: the layers compose as further streams (p2_sequential.py). In the central limit μ²
    is q²T Σ_l (e^(1/σ_l²) - 1) then, and q²T (e^(Σ_l 1/σ_l²) - 1) with one batch, which is at least as much.
(c) To spend what one layer with noise σ spends, L layers of equal noise on one batch need σ √L each.

Proof of (a). Whitened, the record moves one block in each layer, by at most 1/σ_l: one vector, of squared norm at most
Σ_l σ_l^-2. By induction on L, a rotation in the plane of what the first L layers move and of the block of layer L + 1
lays it along one axis. For a replaced record, neither vector is longer, and c6_replace_one_pair.py covers any two.

Found. Clipping the L owner blocks of a record together, to norm 1, needs no factor √L: then (a) has the noise of a
single layer. Whether that or (c) is better is a matter of bias, not of privacy. As in P4, the comparison of (b) is one
of the central limit: for few steps and small ε one batch can be the more private (p4_same_batch.py).

Assumptions. Those of P1 at every layer.

Source. theory.md P7.

Code. raptor_acct.same_batch, raptor_acct.composition.sequential_across_streams
"""

import mpmath as mp
import sympy as sp

from proofs._check import close, equal, not_negative
from raptor_acct import SubsampledGaussian, same_batch


def one_layer() -> None:
    """(a) Of E blocks of a layer one is moved, so a layer adds σ_l^-2 whatever its E (symbolic in E)."""
    owner, k = sp.symbols("owner k", integer=True, positive=True)
    more = sp.symbols("more", integer=True, nonnegative=True)
    sigma = sp.symbols("sigma_l", positive=True)
    norm = sp.Sum(sp.KroneckerDelta(k, owner) / sigma**2, (k, 1, owner + more)).doit()
    equal("squared norm in a layer", sp.simplify(norm), sigma**-2)


def induction() -> None:
    """(a) From L to L + 1 layers: a rotation by the plane of (what was moved, the new block) (symbolic)."""
    total, new = sp.symbols("S s", positive=True)  # Σ σ_l^-2 of L layers, and 1/σ_(L+1)
    before, length = sp.sqrt(total), sp.sqrt(total + new**2)
    turn = sp.Matrix([[before, new], [-new, before]]) / length
    for left, right in zip(turn * turn.T, sp.eye(2), strict=True):
        equal("keeps N(0, I)", left, right)
    for left, right in zip(turn * sp.Matrix([before, new]), (length, 0), strict=True):
        equal("one axis, of squared length S + s²", left, right)
    short, u = sp.symbols("short u", nonnegative=True)
    not_negative("a clipped block is no longer", sp.expand((u + short) ** 2 - u**2) * new**2)


def central_limit() -> None:
    """(b) Π (1 + x_l) - 1 >= Σ x_l, x_l = e^(1/σ_l²) - 1 > 0, by induction on L (symbolic)."""
    total, x, slack = sp.symbols("total x slack", nonnegative=True)  # for L layers Π = 1 + total + slack
    not_negative("for L + 1", sp.expand((1 + total + slack) * (1 + x) - 1 - (total + x)))


def equal_noise() -> None:
    """(c) (symbolic)."""
    sigma, count = sp.symbols("sigma L", positive=True)
    equal("L layers at σ√L", (count * (sigma * sp.sqrt(count)) ** -2) ** sp.Rational(-1, 2), sigma)


def example() -> None:
    """(a) In either order (numeric)."""
    noises = (1.5, 2.0, 3.0, 7.0)
    layers = [SubsampledGaussian(num_steps=100, sampling_probability=0.01, noise_multiplier=noise) for noise in noises]
    expected = mp.mpf(sum(mp.mpf(noise) ** -2 for noise in noises)) ** mp.mpf("-0.5")
    for order in (layers, layers[::-1]):
        close("σ_eff", same_batch(order).noise_multiplier, expected, digits=14)


def prove() -> None:
    """Check every step."""
    one_layer()
    induction()
    central_limit()
    equal_noise()
    example()


if __name__ == "__main__":
    prove()
    print("p7_several_layers: proved")

"""When the entropies of two layers decide which has the smaller coefficient of variation, and when they cannot.

Claims. Layer i has E_i experts and entropy h_i; R2's sharp interval of its CV is [low_i, high_i].
(a) If high_1 <= low_2 then CV_1 <= CV_2.
(b) If not, some layers with these entropies have CV_1 > CV_2, so (a) is the best certificate that entropies allow.
(c) With one E for both, h_1 > h_2 gives low_1 < low_2 and high_1 < high_2: entropies never prove the reverse of their
    order, and to certify the layer of the largest entropy the runner-up is enough. Equal entropies decide nothing,
    but where low = high: for E = 2, h = 0 or h = log E.
(d) With different E, H/log E may order layers against their CVs, provably.
(e) In closed form, K_1·KL_1 <= exp(KL_2) - 1 is enough for (a), K as in R1, and so is E_1·KL_1 <= KL_2.

Proof. (a) and, since all between the ends occurs, that no more can be said, are R2 (a) to (c): for (b) take the layers
that attain high_1 and low_2. (c) is that both ends fall strictly in h, and that (a) and (b) of R2 differ but for those
three cases.

Assumptions. None on π.

Source. theory.md R3; the paper's layer rule (Table 7).

Found. The certificate orders CVs, that is B1's bounds C²·CV² on the bias. The biases themselves depend on the clipped
gradients as well, so theory.md's "the CV (bias) order" is the order of guaranteed sizes only. And by (d) H/log E does
not compare layers with different numbers of experts; select_layer then reports that its choice is not certified.

Code. raptor_acct.selection.select_layer
"""

import mpmath as mp
import sympy as sp

from proofs._check import Unproved, at_most, equal, instances, positive
from proofs.r2_sharp_bounds import cv, entropy, extremes
from raptor_acct.selection import select_layer

NARROW, WIDE = [7, 3], [100, *511 * [1]]


def closed_form() -> None:
    """(e) by R1: CV_1² <= K_1·KL_1 <= exp(KL_2) - 1 <= CV_2²; and K_1 <= E_1, KL_2 <= exp(KL_2) - 1 (symbolic)."""
    x, z = sp.symbols("x z", positive=True)
    gap = sp.exp(x) - 1 - x
    equal("0 at 0", gap.subs(x, 0))
    positive("and rises, exp(x) = 1 + z", sp.diff(gap, x).subs(x, sp.log(1 + z)))


def certificate() -> None:
    """(b), (c) for random entropies of layers of 6 experts, by the distributions that R2 exhibits (numeric)."""
    instances("(b), (c)", _as_claimed, (0.01, 1.78), (0.01, 1.78), count=20)


def _as_claimed(one: mp.mpf, other: mp.mpf) -> bool:
    layers = [extremes(h, 6) for h in (max(one, other), min(one, other))]
    for layer, h in zip(layers, (max(one, other), min(one, other)), strict=True):
        at_most("the entropies are those given", max(abs(entropy(shares) - h) for shares in layer), mp.mpf(10) ** -40)
    (low_1, high_1), (low_2, high_2) = ([cv(shares) for shares in layer] for layer in layers)
    selection = select_layer({1: [float(p) for p in layers[0][1]], 2: [float(p) for p in layers[1][0]]})
    reversed_order = high_1 > low_2  # the layer of the larger entropy has the larger CV
    return low_1 < low_2 and high_1 < high_2 and selection.layer == 1 and selection.certified != reversed_order


def different_experts() -> None:
    """(d) 7 to 3 between two experts, and 100 to 1 each among 512 (numeric): the larger H/log E has the larger CV."""
    narrow, wide = ([mp.mpf(count) / sum(counts) for count in counts] for counts in (NARROW, WIDE))
    at_most("H/log E", entropy(narrow) / mp.log(2), entropy(wide) / mp.log(512))
    at_most("every CV at the entropies", 2 * cv(extremes(entropy(narrow), 2)[1]), cv(extremes(entropy(wide), 512)[0]))
    selection = select_layer({1: NARROW, 3: WIDE})
    if (selection.layer, selection.certified) != (3, False):
        raise Unproved(f"(d): layer {selection.layer} is selected, certified: {selection.certified}")


def prove() -> None:
    """Check every step."""
    closed_form()
    certificate()
    different_experts()


if __name__ == "__main__":
    prove()
    print("r3_selection: proved")

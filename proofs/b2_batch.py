"""Dividing every expert by the whole batch, D = B: an expert keeps the share π_e of its update, about 1/E.

Claims. With D_e = B, for every E and every π:
(a) E g_e = π_e c̄_e: every expert shrinks, by its own factor; bias_e = (π_e - 1) c̄_e.
(b) The mean over experts of π_e is 1/E; that of ‖bias_e‖² is at most C²·((1 - 1/E)² + CV²/E²).
(c) The noise variance is σ²C²d/B², the E²-th part of that with D = B/E.
(d) That bound is above B1's if and only if CV² < (E - 1)/(E + 1).
(e) The release is 1/E times that with D = B/E; ‖E g_e‖² over the noise variance does not depend on D at all.

Assumptions. Those of the decomposition (B0), and ‖c̄_e‖ ≤ C.

Found. "Dilution" is a change of unit: by (e) no signal-to-noise ratio changes, and a learning rate of SGD that is E
times as large undoes it. By (d) and (c), D = B has the smaller bias bound under badly balanced routing (CV above
about 1) and always the smaller noise; as mean squared errors go it beats B/E for every expert of which
D_e* > 2B/(E+1) (B5). So the mean squared error does not speak against D = B; a step too short for an unchanged
learning rate does.

Source. theory.md B2; the paper's ablation of the denominator (Table 5).

Code. raptor_acct.bias_bound and raptor_acct.mse.mse (denominator "batch")
"""

import sympy as sp

from proofs._check import equal, not_negative, positive
from proofs.b0_mse import over_experts, terms
from proofs.b1_expected_owner import CV2, MOMENTS, SHARE, B, E


def factor() -> None:
    """(a), (c), (e) the factor of c̄, and each term against that of D = B/E."""
    q, mean2, second, noise2 = sp.symbols("q c m v", nonnegative=True)
    bias2, sampling, noise = terms(B, q, SHARE, B, mean2, second, noise2)
    equal("bias²", bias2, (SHARE - 1) ** 2 * mean2)
    _, sampling_owner, noise_owner = terms(B, q, SHARE, B / E, mean2, second, noise2)
    equal("noise", noise, noise_owner / E**2)
    equal("sampling", sampling, sampling_owner / E**2)
    denominator = sp.symbols("D", positive=True)
    noise = terms(B, q, SHARE, denominator, mean2, second, noise2)[2]
    equal("‖E g‖² over the noise is free of D", sp.diff((B * SHARE / denominator) ** 2 * mean2 / noise, denominator))


def mean_over_experts() -> None:
    """(b) for any number of experts."""
    equal("mean of π", over_experts(SHARE + 0, SHARE, MOMENTS) / E, 1 / E)
    equal("mean of factor²", over_experts((SHARE - 1) ** 2, SHARE, MOMENTS) / E, (1 - 1 / E) ** 2 + CV2 / E**2)
    rest = sp.symbols("rest", nonnegative=True)  # 1 - π
    not_negative("it only shrinks: 0 <= 1 - π", -(SHARE - 1).subs(SHARE, 1 - rest))


def against_expected_owner() -> None:
    """(d) where the two bounds cross."""
    cv2, more = sp.symbols("V g", positive=True)
    experts = 1 + more
    excess = (1 - 1 / experts) ** 2 + cv2 / experts**2 - cv2  # B2's bound² less B1's
    equal("they cross", excess.subs(cv2, (experts - 1) / (experts + 1)), 0)
    positive("the excess falls with CV²", -sp.factor(sp.diff(excess, cv2)))


def prove() -> None:
    """Check every step."""
    factor()
    mean_over_experts()
    against_expected_owner()


if __name__ == "__main__":
    prove()
    print("b2_batch: proved")

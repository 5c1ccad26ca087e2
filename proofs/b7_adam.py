"""A constant denominator cancels in Adam, from the first step on; it does not in SGD.

Claims. Multiply every gradient of a parameter by a constant k > 0, for instance k = (B/E)/D.
(a) Adam: m̂ becomes k m̂ and v̂ becomes k² v̂ at every step, so the update is that of the unscaled gradients with
    Adam's ε replaced by ε/k. With ε = 0 it is the same update, the first one included, with or without bias
    correction.
(b) What ε leaves of k is |m̂| ε |1/k - 1| / ((√v̂ + ε)(√v̂ + ε/k)) of a learning rate, at most
    |m̂/√v̂| ε|1/k - 1|/√v̂.
(c) It also cancels in AMSGrad's maximum and beside decoupled weight decay (AdamW). It does not cancel beside an L2
    penalty added to the gradient, where the penalty is divided by k.
(d) It does not cancel in the first steps after D *changes*, or if Adam's state comes from other gradients: what is
    left in m is β₁ᵗ(1 - k) m₀, in v β₂ᵗ(1 - k²) v₀.
(e) SGD, with or without momentum: every displacement is multiplied by k; a learning rate divided by k undoes it.

Proof. m and v are linear in g and in g², from m₀ = v₀ = 0: by induction over the steps. Coordinates do not mix, so k
may differ by expert. The gradients are those of one step: if the updates agree, so do the parameters, and so the
next gradients.

Found. theory.md says that D cancels "but for Adam's epsilon and the first steps". The first steps cancel, too, by
(a), if D is fixed before training as §7 asks; (d) is the case in which they do not. So under Adam no constant D, the
best one of B5 included, changes what is learned but through ε; what counts there is an expert's signal-to-noise
ratio, which does not depend on D (B2). In floating point, too, scaling is exact where k is a power of two and ε = 0.

Source. theory.md B7; Kingma and Ba 2015 (Adam), Reddi, Kale and Kumar 2018 (AMSGrad), Loshchilov and Hutter 2019
(AdamW).

Code. raptor_acct.public_denominators
"""

import sympy as sp

from proofs._check import equal, positive

G, M, ETA = sp.symbols("g m eta", real=True)
V, K, EPS, BETA1, BETA2 = sp.symbols("v k epsilon beta1 beta2", positive=True)


def first_moment(m: sp.Expr, g: sp.Expr) -> sp.Expr:
    """Adam's running mean of the gradients."""
    return BETA1 * m + (1 - BETA1) * g


def second_moment(v: sp.Expr, g: sp.Expr) -> sp.Expr:
    """Adam's running mean of their squares."""
    return BETA2 * v + (1 - BETA2) * g**2


def update(m: sp.Expr, v: sp.Expr, eps: sp.Expr) -> sp.Expr:
    """The step, in learning rates, from the moments, corrected or not: a correction is a factor free of g."""
    return m / (sp.sqrt(v) + eps)


def every_step() -> None:
    """(a) the induction's step (it starts from m = v = 0), the update, and the first one."""
    equal("m", first_moment(K * M, K * G), K * first_moment(M, G))
    equal("v", second_moment(K**2 * V, K * G), K**2 * second_moment(V, G))
    equal("the update", update(K * M, K**2 * V, EPS), update(M, V, EPS / K))
    equal("ε = 0", update(K * M, K**2 * V, 0), update(M, V, 0))
    for corrections in ((1, 1), (1 - BETA1, 1 - BETA2)):  # without and with bias correction
        g = sp.symbols("g", positive=True)
        m, v = (moment(0, K * g) / c for moment, c in zip((first_moment, second_moment), corrections, strict=True))
        equal("the first update", sp.diff(update(m, v, 0), K))


def epsilon() -> None:
    """(b) the difference of the two updates, and its bound."""
    root = sp.symbols("root", positive=True)  # √v̂
    gap = update(M, root**2, EPS) - update(M, root**2, EPS / K)
    equal("gap", sp.factor(gap), sp.factor(M * EPS * (1 / K - 1) / ((root + EPS) * (root + EPS / K))))
    positive("the denominator is at least v̂", sp.expand((root + EPS) * (root + EPS / K) - root**2))


def variants() -> None:
    """(c) AMSGrad, decoupled decay, L2."""
    past = sp.symbols("w", positive=True)
    larger = (V + past + sp.Abs(V - past)) / 2  # max(v, w)
    equal("maximum", larger.subs({V: K**2 * V, past: K**2 * past}, simultaneous=True), K**2 * larger)
    theta, decay = sp.symbols("theta lambda", real=True)
    decoupled = ETA * (update(M, V, 0) + decay * theta)
    equal("AdamW", ETA * (update(K * M, K**2 * V, 0) + decay * theta), decoupled)
    equal("L2", K * G + decay * theta, K * (G + decay / K * theta))


def other_state() -> None:
    """(d) what is left of a state that was not scaled fades, by a factor a step."""
    left_m, left_v = sp.symbols("a b", real=True)  # at the start: m₀ - k m₀ and v₀ - k² v₀
    equal("m", first_moment(K * M + left_m, K * G) - K * first_moment(M, G), BETA1 * left_m)
    equal("v", second_moment(K**2 * V + left_v, K * G) - K**2 * second_moment(V, G), BETA2 * left_v)


def sgd() -> None:
    """(e) momentum's buffer is linear in the gradients, and the step in the buffer."""
    buffer, mu = sp.symbols("b mu", real=True)
    step = ETA * (mu * buffer + G)
    equal("scaled", ETA * (mu * (K * buffer) + K * G), K * step)
    equal("undone", (ETA / K) * (mu * (K * buffer) + K * G), step)


def prove() -> None:
    """Check every step."""
    every_step()
    epsilon()
    variants()
    other_state()
    sgd()


if __name__ == "__main__":
    prove()
    print("b7_adam: proved")

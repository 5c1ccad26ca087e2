"""How to split a privacy budget between the two streams when noise costs them unequally."""

import math

from raptor_acct._validate import choice, number

_ROOTS = {"basic": math.cbrt, "joint": math.sqrt}


def optimal_rho(lambda_shared: float, lambda_expert: float, *, composition: str = "basic") -> float:
    """Return the share of the budget that the shared stream should get.

    An extra noise variance of v on a role is taken to cost λ·v of loss, and one noise multiplier to mean the same
    variance on both roles. If σ ∝ 1/(share of ε), the loss λ_s/ρ² + λ_e/(1 - ρ)² is least at the shares of the cube
    roots of λ. If σ ∝ 1/μ with μ_s² + μ_e² = μ², the loss λ_s/ρ + λ_e/(1 - ρ) of the share ρ of μ² is least at the
    shares of the square roots. Both laws are approximations: the noise that `calibrate_sigmas` finds falls more slowly.

    The joint share of μ² asks for σ_expert/σ_shared = √(ρ/(1 - ρ)). It is no rho of `calibrate_sigmas`, whose joint
    composition with keep="ratio" keeps a ratio of about rho/(1 - rho): give it √ρ/(√ρ + √(1 - ρ)).

    Both ends are possible answers: 1 gives the experts no budget at all, 0 the shared stream. `calibrate_sigmas` needs
    a rho inside (0, 1), since every stream that is trained spends something: at an end either leave that stream out
    (freeze its parameters and calibrate the other alone), or give it a small share, as the paper does with rho = 0.9.

    Args:
        lambda_shared: λ_s >= 0, the loss per unit of noise variance on the shared role; see `sensitivity_lambda`. Where
            the roles differ in clip norm, parameters or denominator, first multiply each λ by C²d/D², which makes it
            the loss per unit of σ².
        lambda_expert: λ_e >= 0, likewise of the experts. Both must come from public data.
        composition: "basic" for the share of ε, which is the rho of `calibrate_sigmas`; "joint" for the share of μ².

    Returns:
        ρ* in [0, 1]; 1 if only λ_e is 0, 0 if only λ_s is.

    Raises:
        ValueError: If a λ is negative or not finite, or both are 0: then every split costs nothing.

    Source: theory.md P5. Table 10's λ, in the paper's rounding, put all of the budget on the shared role:

    >>> optimal_rho(2.305e-5, 0.0)
    1.0
    >>> round(optimal_rho(8.0, 1.0), 4), round(optimal_rho(4.0, 1.0, composition="joint"), 4)
    (0.6667, 0.6667)
    """
    root = _ROOTS[choice("composition", composition, _ROOTS)]
    shared = root(number("lambda_shared", lambda_shared, "[0, inf)"))
    expert = root(number("lambda_expert", lambda_expert, "[0, inf)"))
    if shared == expert == 0:
        raise ValueError("expected lambda_shared > 0 or lambda_expert > 0, got both 0, where every split is as good")
    return shared / (shared + expert)

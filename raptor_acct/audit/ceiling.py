"""The most that any attack can get against what a plan guarantees: what stands beside every measured attack."""

from raptor_acct.bound import Bound
from raptor_acct.guarantee import Guarantee


def tpr_ceiling(guarantee: Guarantee, fpr: float) -> Bound:
    """Return the highest true positive rate of any attack at a false positive rate of ``fpr``.

    It comes from the whole privacy profile, which is far lower than what one (ε, δ) says. Public.

    Raises:
        ValueError: If ``fpr`` is outside [0, 1].

    **Guarantee.** An upper bound, with both ends, wherever the guarantee itself holds: for an attack on one record, and
    for the mean rates over many.

    Source: theory.md P6.

    >>> from raptor_acct import SubsampledGaussian
    >>> stream = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0)
    >>> round(tpr_ceiling(stream.guarantee(), 0.001), 4)
    0.0041
    """
    fnr = guarantee.fnr(fpr)
    return Bound(1 - fnr.upper, 1 - fnr.lower, safe="upper", method=fnr.method)

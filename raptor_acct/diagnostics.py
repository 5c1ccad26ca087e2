"""What the paper measures to explain its results: role mismatch, signal to noise of the experts, noise sensitivity."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from raptor_acct._release import PerExpert, noise_variance, per_expert
from raptor_acct._validate import number
from raptor_acct.routing import FloatArray, Vector

_LARGEST_RATIO = 1e200


def sensitivity_lambda(delta_loss: float, num_parameters: float) -> float:
    """Return λ₊ = max(0, ΔL) per million parameters: what noise on a role costs; an argument of `optimal_rho`.

    Args:
        delta_loss: ΔL, the change of the validation loss when noise is added to the role. Private if the validation
            records are.
        num_parameters: The role's number of trainable parameters, at least 1.

    Raises:
        ValueError: If the loss is not finite, or the number of parameters below 1.

    Source: Table 10; theory.md P5. From the digits that the table prints, 2.175e-4 and 9,438,722:

    >>> f"{sensitivity_lambda(2.175e-4, 9_438_722):.4g}", sensitivity_lambda(-1.361e-6, 7_864_320)
    ('2.304e-05', 0.0)
    """
    loss = number("delta_loss", delta_loss, "(-inf, inf)")
    millions = number("num_parameters", num_parameters, "[1, 1e18]") / 1e6
    return max(0.0, loss) / millions


def role_mismatch(gradient_norms: Mapping[str, float], parameter_counts: Mapping[str, float]) -> float:
    """Return M_role, the total variation distance between the roles' shares of gradient norm and of parameters.

    Args:
        gradient_norms: Role to the norm of its gradient, >= 0 and not all 0; private unless made from public records.
        parameter_counts: The same roles to their numbers of parameters.

    Returns:
        In [0, 1]: 0 if every role's gradient is in proportion to its size, 1 if they share no role.

    Raises:
        ValueError: If the roles differ, there is none, or a number is negative, not finite, or all are 0.

    Source: Table 8; theory.md §5.

    >>> round(role_mismatch({"shared": 3.0, "expert": 1.0}, {"shared": 9_438_722, "expert": 7_864_320}), 4)
    0.2045
    """
    if not gradient_norms or gradient_norms.keys() != parameter_counts.keys():
        got = f"{sorted(map(str, gradient_norms))} and {sorted(map(str, parameter_counts))}"
        raise ValueError(f"expected gradient_norms and parameter_counts of the same roles, at least one, got {got}")
    norms, counts = _shares("gradient_norms", gradient_norms), _shares("parameter_counts", parameter_counts)
    return min(1.0, math.fsum(abs(norms[role] - counts[role]) for role in norms) / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpertSNR:
    """The signal to noise ratio of each expert's release; as private as the sums behind it.

    Attributes:
        per_expert: [experts], ‖Σ clipped gradients‖² / (σ_e² C_e² d_e).
        mean: The mean over experts.
        cv: The coefficient of variation over experts, standard deviation over mean; 0 if no expert has a signal.
    """

    per_expert: FloatArray
    mean: float
    cv: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return {"per_expert": self.per_expert.tolist(), "mean": self.mean, "cv": self.cv}


def expert_snr(
    summed_norms: Vector, *, noise_multiplier: PerExpert, clip_norm: PerExpert, num_parameters: PerExpert
) -> ExpertSNR:
    """Return the signal to noise ratio of every expert's sum before division; the denominator cancels.

    **Private.** The sums have no noise on them and are no output of the mechanism: computed on private records, the
    result must not leave the machine that may hold those, nor steer the training. It is for studies on public records.

    Args:
        summed_norms: [experts], ‖Σ clipped gradients‖ of each expert in one batch, >= 0; at least 2 experts.
        noise_multiplier: σ_e > 0; one number or one for each expert, as the two below.
        clip_norm: C_e > 0.
        num_parameters: d_e, the trainable parameters of an expert.

    Raises:
        ValueError: If an argument is outside its range, or a ratio above 1e200.

    Source: Table 8; theory.md §5.

    >>> snr = expert_snr([3.0, 4.0], noise_multiplier=2.0, clip_norm=0.5, num_parameters=100)
    >>> snr.per_expert, snr.mean, round(snr.cv, 2)
    (array([0.09, 0.16]), 0.125, 0.28)
    """
    shape = np.asarray(summed_norms, dtype=object).shape
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(f"expected summed_norms of shape (experts,), at least 2 experts, got shape {shape}")
    experts = shape[0]
    signal = per_expert("summed_norms", summed_norms, "[0, 1e100]", experts)
    noise = np.sqrt(noise_variance(noise_multiplier, clip_norm, num_parameters, experts))
    with np.errstate(all="ignore"):  # what is beyond floats is refused just below
        ratios = (signal / noise) ** 2
    if not (ratios <= _LARGEST_RATIO).all():
        i = int((ratios <= _LARGEST_RATIO).argmin())
        got = f"a signal of {signal[i]:g} in noise of {noise[i]:g} for expert {i}"
        raise ValueError(f"expected ratios of at most {_LARGEST_RATIO:g}, got {got}")
    relative = ratios / ratios.max() if ratios.any() else np.ones(experts)  # squares of tiny ratios would vanish
    return ExpertSNR(per_expert=ratios, mean=float(np.mean(ratios)), cv=float(np.std(relative) / np.mean(relative)))


def _shares(name: str, values: Mapping[str, float]) -> dict[str, float]:
    checked = {role: number(f"{name}[{role!r}]", value, "[0, 1e300]") for role, value in values.items()}
    total = math.fsum(checked.values())
    if total == 0:
        raise ValueError(f"expected {name} of which one is > 0, got all 0")
    return {role: value / total for role, value in checked.items()}

"""What the error of an expert's release depends on besides its routing and its denominator, each [experts]."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from raptor_acct._validate import number
from raptor_acct.routing import FloatArray, Vector

PerExpert = float | Vector

_NORMS = "[0, 1e30]"
_ROUNDING = 1e-9  # how far, relatively, moments computed elsewhere may overstep Jensen's inequality and the clip norm


def per_expert(name: str, value: PerExpert | None, interval: str, num_experts: int) -> FloatArray:
    """Return one number for all experts, or a vector with one for each, as an array [experts].

    Raises:
        ValueError: If a number is outside ``interval``, or the vector is not for ``num_experts`` experts.

    >>> per_expert("clip_norm", 0.5, "(0, inf)", 3), per_expert("clip_norm", [1, 2, 3], "(0, inf)", 3)
    (array([0.5, 0.5, 0.5]), array([1., 2., 3.]))
    """
    entries = np.asarray(value, dtype=object)
    if entries.ndim == 0:
        return np.full(num_experts, number(name, value, interval))
    if entries.shape != (num_experts,):
        rule = f"one number or a vector of {num_experts}, one for each expert"
        raise ValueError(f"expected {name} to be {rule}, got {name} of shape {entries.shape}")
    return np.array([number(f"{name}[{i}]", entry, interval) for i, entry in enumerate(entries)])


def noise_variance(
    noise_multiplier: PerExpert | None, clip_norm: PerExpert | None, num_parameters: PerExpert | None, num_experts: int
) -> FloatArray:
    """Return (σ_e C_e)² d_e, [experts]: the expected squared norm of the noise on an expert's sum.

    Raises:
        ValueError: If an argument is outside its range, or not for ``num_experts`` experts.

    >>> noise_variance(2.0, [0.5, 1.0], 10, 2)
    array([10., 40.])
    """
    sigma = per_expert("noise_multiplier", noise_multiplier, "(0, 1e30]", num_experts)
    clip = per_expert("clip_norm", clip_norm, "(0, 1e30]", num_experts)
    return (sigma * clip) ** 2 * per_expert("num_parameters", num_parameters, "[1, 1e18]", num_experts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """The moments of every expert's release: as private as the gradients, unless they are public guesses.

    Attributes:
        mean_norm: [experts], ‖c̄_e‖.
        record_variance: [experts], (1 - q) m_e: what an owned record adds, on average over the records and for each
            expected sampled one, to the variance of the sum.
        noise_variance: [experts], (σ_e C_e)² d_e.
    """

    mean_norm: FloatArray
    record_variance: FloatArray
    noise_variance: FloatArray

    @classmethod
    def of(
        cls,
        num_experts: int,
        *,
        sampling_probability: float | None,
        clip_norm: PerExpert | None,
        noise_multiplier: PerExpert | None,
        num_parameters: PerExpert | None,
        mean_norm: PerExpert | None,
        second_moment: PerExpert | None,
    ) -> Self:
        """Check the arguments of `raptor_acct.mse`; one number or one for each expert.

        Raises:
            ValueError: If one is missing or outside its range, or unless ‖c̄_e‖² ≤ m_e ≤ C_e².
        """
        q = number("sampling_probability", sampling_probability, "(0, 1]")
        noise = noise_variance(noise_multiplier, clip_norm, num_parameters, num_experts)
        clip = per_expert("clip_norm", clip_norm, "(0, 1e30]", num_experts)
        mean = per_expert("mean_norm", mean_norm, _NORMS, num_experts)
        second = per_expert("second_moment", second_moment, "[0, 1e60]", num_experts)
        _check_order("mean_norm**2 <= second_moment (Jensen)", mean**2, second)
        _check_order("second_moment <= clip_norm**2, since it is of clipped gradients", second, clip**2)
        return cls(mean_norm=mean, record_variance=(1 - q) * second, noise_variance=noise)


def _check_order(rule: str, smaller: FloatArray, larger: FloatArray) -> None:
    above = smaller > larger * (1 + _ROUNDING)
    if above.any():
        i = int(above.argmax())
        raise ValueError(f"expected {rule}, got {smaller[i]:g} > {larger[i]:g} for expert {i}")

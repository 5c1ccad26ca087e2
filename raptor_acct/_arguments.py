"""Checks of what a calibration is given, and the plan of two streams from numbers or pairs."""

import warnings
from typing import Any

from raptor_acct._validate import number, whole
from raptor_acct.mechanisms import MOST_STEPS, SAMPLING_RANGE, RolePlan, Sampling, SubsampledGaussian


def check_delta(delta: float) -> float:
    """Return ``delta`` if it lies in (0, 1); warn where it is too large to mean privacy.

    Raises:
        ValueError: If it does not.
    """
    hint = "did you swap eps and delta?" if isinstance(delta, int | float) and delta >= 1 else ""
    delta = number("delta", delta, "(0, 1)", hint=hint)
    if delta >= 1e-2:
        warnings.warn(
            f"delta={delta:g} lets each record leak outright with about that probability; use at most 1/num_records",
            stacklevel=4,
        )
    return delta


def check_target(eps: float, delta: float) -> tuple[float, float]:
    """Return (eps, delta) if both can be a target.

    Raises:
        ValueError: If one cannot.
    """
    return number("eps", eps, "(0, inf)"), check_delta(delta)


def plan_of(
    sigma_shared: float,
    sigma_expert: float,
    q: float | tuple[float, float],
    steps: int | tuple[int, int],
    sampling: Sampling,
) -> RolePlan:
    """Return the plan of two streams; ``q`` and ``steps`` are one number for both or a pair (shared, expert).

    Raises:
        ValueError: If one is outside its range; the message names it as the user did.
    """
    q_shared, q_expert = (check_q(name, value) for name, value in pair("q", q))
    steps_shared, steps_expert = (whole(name, value, high=MOST_STEPS) for name, value in pair("steps", steps))
    return RolePlan(
        shared=SubsampledGaussian(num_steps=steps_shared, sampling_probability=q_shared, noise_multiplier=sigma_shared),
        expert=SubsampledGaussian(num_steps=steps_expert, sampling_probability=q_expert, noise_multiplier=sigma_expert),
        sampling=sampling,
    )


def check_q(name: str, value: Any) -> float:
    """Return ``value`` if it can be a sampling probability.

    Raises:
        ValueError: If it is not in (0, 1], or below what can be certified.
    """
    number(name, value, "(0, 1]", hint="q is the expected batch size divided by the number of records")
    return number(name, value, SAMPLING_RANGE, hint="a smaller one is outside what can be certified")


def pair(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return what to call, and the value for, the shared and the expert stream."""
    if not isinstance(value, tuple | list):
        return [(name, value), (name, value)]
    if len(value) != 2:
        raise ValueError(f"expected {name} to be one number or a pair (shared, expert), got {name}={value!r}")
    return [(f"{name}[0]", value[0]), (f"{name}[1]", value[1])]

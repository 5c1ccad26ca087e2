"""Streams, plans, and the two composition theorems, with dp-accounting as the referee."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct import (
    Mechanism,
    RolePlan,
    SubsampledGaussian,
    parallel_across_experts,
    sequential_across_streams,
)


def stream(sigma: float = 1.0, q: float = 0.01, steps: int = 100) -> SubsampledGaussian:
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)


def referee(mechanism: Mechanism, delta: float, relation: str = "ADD_OR_REMOVE_ONE") -> float:
    accountant = PLDAccountant(NeighboringRelation[relation], value_discretization_interval=5e-4)
    return float(accountant.compose(mechanism.to_dp_event()).get_epsilon(delta))


@pytest.mark.parametrize(
    "mechanism",
    [
        stream(),
        stream(0.6, 0.2, 7),
        RolePlan(shared=stream(0.9, 0.02), expert=stream(2.0, 0.05, 50)),
        RolePlan(shared=stream(0.9), expert=stream(2.0), sampling="same_batch"),
        sequential_across_streams([stream(2.0, 1.0, 3), stream(1.0, 0.05, 20), stream(3.0, 0.3, 9)]),
    ],
)
@pytest.mark.parametrize(
    ("adjacency", "relation"), [("add_remove", "ADD_OR_REMOVE_ONE"), ("replace_one", "REPLACE_ONE")]
)
def test_dp_accounting_agrees(mechanism: Mechanism, adjacency: Any, relation: str) -> None:
    assert mechanism.guarantee(adjacency).epsilon(1e-6) == pytest.approx(referee(mechanism, 1e-6, relation), rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *[({"num_steps": bad}, "expected num_steps") for bad in (0, -5, 2.5, True, "1000", float("nan"))],
        *[({"sampling_probability": bad}, "expected sampling_probability") for bad in (0, 1.3, -0.1, float("nan"))],
        *[({"noise_multiplier": bad}, "expected noise_multiplier") for bad in (0, -1, float("inf"), float("nan"))],
    ],
)
def test_streams_are_validated_when_built(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"num_steps": 10, "sampling_probability": 0.1, "noise_multiplier": 1.0}
    with pytest.raises(ValueError, match=message):
        SubsampledGaussian(**{**good, **change})


def test_numpy_numbers_become_python_numbers() -> None:
    assert stream(steps=np.int64(100)) == stream()  # type: ignore[arg-type]
    assert type(stream(steps=np.int64(100)).num_steps) is int  # type: ignore[arg-type]


def test_mechanisms_are_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        stream().num_steps = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        SubsampledGaussian(100, 0.01, 1.0)  # type: ignore[misc]


def test_two_streams_of_one_batch_are_not_two_streams() -> None:
    """Theory P4: one step at q = 0.01, both sigmas 1; the sum of the epsilons is 0.486633, the truth 0.815963."""
    one = stream(steps=1)
    same = RolePlan(shared=one, expert=one, sampling="same_batch").guarantee().epsilon(1e-5)
    assert 0.815963 - 1e-6 <= same <= 0.815963 * 1.0005
    assert 2 * one.guarantee().epsilon(5e-6) == pytest.approx(0.486633, rel=5e-4)


def test_one_batch_over_many_steps() -> None:
    plan = RolePlan(shared=stream(steps=1000), expert=stream(steps=1000), sampling="same_batch")
    assert plan.guarantee().epsilon(1e-5) == pytest.approx(4.481, abs=2e-3)
    assert RolePlan(shared=plan.shared, expert=plan.expert).guarantee().epsilon(1e-5) == pytest.approx(2.584, abs=2e-3)


@pytest.mark.parametrize("other", [stream(q=0.02), stream(steps=101)])
def test_one_batch_needs_one_schedule(other: SubsampledGaussian) -> None:
    with pytest.raises(ValueError, match="share a batch"):
        RolePlan(shared=stream(), expert=other, sampling="same_batch")
    with pytest.raises(ValueError, match="share a batch"):
        parallel_across_experts([stream(), other])
    with pytest.raises(ValueError, match="expected sampling to be one of"):
        RolePlan(shared=stream(), expert=other, sampling="shuffled")  # type: ignore[arg-type]


@given(sigmas=st.lists(st.floats(0.3, 30), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_parallel_experts_are_as_the_least_noisy_one(sigmas: list[float]) -> None:
    assert parallel_across_experts([stream(s) for s in sigmas]) == stream(min(sigmas))


def test_parallel_over_any_number_of_equal_experts_is_one() -> None:
    for num_experts in (1, 8, 128):
        assert parallel_across_experts([stream()] * num_experts) == stream()


def test_a_layer_is_as_private_as_its_least_private_expert() -> None:
    sigmas, q = (2.0, 1.5, 3.0), 0.3
    one = parallel_across_experts([stream(s, q, 1) for s in sigmas])
    worst = max(stream(s, q, 1).guarantee().delta(0.4) for s in sigmas)
    assert one.guarantee().delta(0.4) == worst


def test_empty_compositions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        parallel_across_experts([])
    with pytest.raises(ValueError, match="at least one"):
        sequential_across_streams([])


def test_sequential_flattens_plans_and_equals_the_role_plan() -> None:
    plan = RolePlan(shared=stream(1.0), expert=stream(3.0))
    assert sequential_across_streams([plan]).streams == plan.streams
    assert sequential_across_streams([stream(1.0), stream(3.0)]).guarantee() == plan.guarantee()


@given(
    sigma=st.floats(0.6, 8),
    q=st.floats(0.01, 0.9),
    steps=st.integers(2, 60),
    delta=st.floats(1e-8, 1e-3),
)
@settings(max_examples=8, deadline=None)
def test_epsilon_is_monotone_in_every_argument(sigma: float, q: float, steps: int, delta: float) -> None:
    slack = 1 + 1e-3  # grids differ
    eps = stream(sigma, q, steps).guarantee().epsilon(delta)
    assert stream(sigma * 1.3, q, steps).guarantee().epsilon(delta) <= eps * slack
    assert stream(sigma, q * 0.7, steps).guarantee().epsilon(delta) <= eps * slack
    assert stream(sigma, q, steps // 2).guarantee().epsilon(delta) <= eps * slack
    assert stream(sigma, q, steps).guarantee().epsilon(delta * 3) <= eps
    assert stream(sigma, q, steps).guarantee("replace_one").epsilon(delta) * slack >= eps


@given(first=st.floats(0.8, 5), second=st.floats(0.8, 5), q=st.floats(0.01, 0.5))
@settings(max_examples=6, deadline=None)
def test_joint_is_between_the_largest_part_and_basic_composition(first: float, second: float, q: float) -> None:
    parts = [stream(first, q, 20), stream(second, q, 30)]
    joint = sequential_across_streams(parts).guarantee().epsilon(1e-6)
    assert joint <= sum(part.guarantee().epsilon(5e-7) for part in parts)
    assert joint * (1 + 1e-3) >= max(part.guarantee().epsilon(1e-6) for part in parts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_steps", 10**18),
        pytest.param("num_steps", 10**5000, id="num_steps-huge"),
        ("sampling_probability", 1e-300),
        ("noise_multiplier", 1e-200),
        ("noise_multiplier", 1e200),
        ("noise_multiplier", 10**400),
    ],
)
def test_numbers_beyond_what_can_be_certified_are_refused_by_name(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"num_steps": 10, "sampling_probability": 0.1, "noise_multiplier": 1.0, name: value}
    with pytest.raises(ValueError, match=f"expected {name}"):
        SubsampledGaussian(**arguments)


def test_what_is_no_mechanism_is_refused() -> None:
    stream = SubsampledGaussian(num_steps=1, sampling_probability=0.1, noise_multiplier=1.0)
    for wrong in (stream, [1], None, [stream, "x"]):
        with pytest.raises(ValueError, match="expected a sequence of at least one"):
            sequential_across_streams(wrong)
        with pytest.raises(ValueError, match="expected a sequence of at least one"):
            parallel_across_experts(wrong)
    with pytest.raises(ValueError, match="expected shared to be a SubsampledGaussian"):
        RolePlan(shared=1, expert=stream)

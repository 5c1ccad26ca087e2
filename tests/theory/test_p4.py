"""P4: both streams from one batch are one mechanism with the noise (σ_s⁻² + σ_e⁻²)^(-1/2)."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

from raptor_acct import Mechanism, RolePlan, SubsampledGaussian, privacy_spent

SIGMAS = st.one_of(st.just(1e8), st.floats(-1.5, 8).map(lambda x: 10**x))
ORDERS = [2, 3, 4, 8, 16, 32]


def plan(sigma_shared: float, sigma_expert: float, q: float, steps: int, *, same_batch: bool) -> RolePlan:
    shared, expert = (
        SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)
        for sigma in (sigma_shared, sigma_expert)
    )
    return RolePlan(shared=shared, expert=expert, sampling="same_batch" if same_batch else "independent")


def log_moments(mechanism: Mechanism) -> np.ndarray:
    """Return log E R^k at each k of ORDERS, R the likelihood ratio of one record more: a sum over its k samplings."""

    def log_moment(stream: SubsampledGaussian, order: int) -> float:
        times = np.arange(order + 1)
        chances = binom.logpmf(times, order, stream.sampling_probability)
        return stream.num_steps * float(logsumexp(chances + times * (times - 1) / 2 / stream.noise_multiplier**2))

    return np.array([sum(log_moment(stream, order) for stream in mechanism.streams) for order in ORDERS])


@given(sigmas=st.tuples(SIGMAS, SIGMAS), q=st.floats(1e-9, 1), steps=st.integers(1, 10**9))
@example(sigmas=(0.02, 1e8), q=1.0, steps=1)
@example(sigmas=(1e8, 1e8), q=1e-9, steps=1)
@settings(max_examples=100, deadline=None)
def test_one_stream_with_the_noise_of_the_formula(sigmas: tuple[float, float], q: float, steps: int) -> None:
    (one,) = plan(*sigmas, q, steps, same_batch=True).streams
    with mp.workdps(50):
        exact = (mpf(sigmas[0]) ** -2 + mpf(sigmas[1]) ** -2) ** mpf("-0.5")
        assert abs(one.noise_multiplier / exact - 1) < 1e-15
    assert (one.sampling_probability, one.num_steps) == (q, steps)
    assert plan(*sigmas[::-1], q, steps, same_batch=True).streams == (one,)
    least = min(sigmas)
    assert least / math.sqrt(2) * (1 - 1e-15) <= one.noise_multiplier <= least


@given(
    sigmas=st.tuples(st.floats(0.7, 4), st.floats(0.7, 4)),
    q=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    eps=st.floats(0, 1.5),
)
@settings(max_examples=30, deadline=None)
def test_both_blocks_by_quadrature(sigmas: tuple[float, float], q: float, eps: float) -> None:
    """One step in two dimensions, the record in both blocks or in none."""
    nodes = np.linspace(-9.0, 10.0, 381)
    normal, *moved = (np.exp(-((nodes - shift) ** 2) / 2) for shift in (0.0, 1 / sigmas[0], 1 / sigmas[1]))
    cell = (nodes[1] - nodes[0]) ** 2 / math.tau
    without = np.outer(normal, normal) * cell
    with_it = (1 - q) * without + q * np.outer(*moved) * cell
    pairs = ((with_it, without), (without, with_it))
    delta = max(float(np.sum(np.maximum(0.0, upper - math.exp(eps) * lower))) for upper, lower in pairs)
    found = plan(*sigmas, q, 1, same_batch=True).guarantee().delta(eps)
    assert found == pytest.approx(delta, rel=2e-3, abs=1e-4 * q)


@given(
    sigmas=st.tuples(st.floats(0.5, 50), st.floats(0.5, 50)),
    q=st.one_of(st.just(1.0), st.floats(1e-4, 1)),
    steps=st.integers(1, 10**4),
)
@settings(max_examples=40, deadline=None)
def test_one_batch_has_the_larger_renyi_divergence(sigmas: tuple[float, float], q: float, steps: int) -> None:
    same, independent = (log_moments(plan(*sigmas, q, steps, same_batch=kind)) for kind in (True, False))
    assert np.all(same >= independent * (1 - 1e-9) - 1e-9)
    assert same[0] == pytest.approx(steps * math.log1p(q**2 * math.expm1(sigmas[0] ** -2 + sigmas[1] ** -2)), rel=1e-6)


@pytest.mark.parametrize(("sigma", "q", "steps", "eps"), [(1.0, 0.01, 1, 0.0), (1.0, 0.9, 10, 0.5), (0.5, 0.1, 1, 0.2)])
def test_neither_bounds_the_other(sigma: float, q: float, steps: int, eps: float) -> None:
    """At small ε one batch can be the more private; at small δ it is not."""
    same, independent = (plan(sigma, sigma, q, steps, same_batch=kind).guarantee() for kind in (True, False))
    assert same.delta(eps).upper < independent.delta(eps).lower
    assert same.epsilon(1e-6).lower > independent.epsilon(1e-6).upper


@pytest.mark.parametrize("sigmas", [(1.0, 1.0), (1.5, 2.0), (1.0, 5.0)])
@pytest.mark.parametrize("same_batch", [True, False])
def test_the_central_limit(sigmas: tuple[float, float], same_batch: bool) -> None:
    """With q → 0 at q²T = 1/4 both plans tend to Gaussians, one batch to the larger."""
    a, b = (sigma**-2 for sigma in sigmas)
    mu = 0.5 * math.sqrt(math.expm1(a + b) if same_batch else math.expm1(a) + math.expm1(b))
    limit = 2 * float(ndtr(mu / 2)) - 1
    far, near = (
        float(plan(*sigmas, q, round(0.25 / q**2), same_batch=same_batch).guarantee().advantage())
        for q in (0.05, 0.001)
    )
    assert abs(near - limit) < min(abs(far - limit) / 8, 6e-3)


def test_always_sampled_one_batch_and_two_are_the_same() -> None:
    same, independent = (plan(1.5, 4.0, 1.0, 10, same_batch=kind).guarantee() for kind in (True, False))
    assert same.epsilon(1e-6) == pytest.approx(independent.epsilon(1e-6), rel=1e-9)


def test_the_numbers_of_the_theory() -> None:
    spent = privacy_spent(1.0, 1.0, 0.01, 1, delta=1e-5, sampling="same_batch")
    assert spent.epsilon == pytest.approx(0.815963, abs=6e-7)
    assert spent.epsilon_shared + spent.epsilon_expert == pytest.approx(0.486633, abs=6e-7)

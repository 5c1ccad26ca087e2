"""The closed form without sampling, against 50 digits."""

import math

import mpmath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from raptor_acct import SubsampledGaussian
from raptor_acct.accountants import GaussianProfile, gaussian_profile


def stream(sigma: float, q: float, steps: int) -> SubsampledGaussian:
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)


def exact_delta(mu: float, eps: float) -> mpf:
    with mp.workdps(60 + int(mu * mu / 4)):
        # Balle and Wang 2018, Theorem 8.
        first, second = mpf(mu) / 2 - mpf(eps) / mpf(mu), -mpf(mu) / 2 - mpf(eps) / mpf(mu)
        return mpmath.ncdf(first) - mpmath.exp(eps) * mpmath.ncdf(second)


@given(log_mu=st.floats(-9, 2.5), depth=st.floats(0, 12))
@example(log_mu=-2.302585092994046, depth=0.0)
@example(log_mu=0.0, depth=11.5)  # delta = 5e-32
@settings(max_examples=150, deadline=None, derandomize=True)
def test_brackets_hold_the_textbook_formula(log_mu: float, depth: float) -> None:
    mu = math.exp(log_mu)
    eps = mu * (mu / 2 + depth)
    exact, bound = exact_delta(mu, eps), GaussianProfile(mu=mu).delta(eps)
    assert bound.lower <= exact <= bound.upper
    assert bound.width <= 1e-8 * exact


def test_delta_of_1e_minus_32() -> None:
    # mpmath, 40 digits: delta of mu = 1 at eps = 12.
    assert GaussianProfile(mu=1.0).delta(12.0) == pytest.approx(5.2084420689504656739e-32, rel=1e-10)


@pytest.mark.parametrize("delta", [1e-30, 1e-20, 1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4])
def test_epsilon_and_delta_are_inverse(mu: float, delta: float) -> None:
    profile = GaussianProfile(mu=mu)
    eps = profile.epsilon(delta)
    assert profile.delta(eps).upper <= delta
    assert profile.excess(eps, delta) <= 0
    assert 0 <= eps.lower <= eps.upper < math.inf
    if profile.delta(0.0).upper <= delta:
        assert eps == 0
    elif mu > 1e-4:  # below, cancellation is worth more than a millionth of eps
        assert profile.delta(eps * (1 - 1e-6)).lower > delta
        assert eps.width <= 1e-8 * eps
    if eps.lower > 0 and mu <= 10:
        assert exact_delta(mu, eps.lower) >= delta


@pytest.mark.parametrize(
    ("mu", "eps"), [(1e-12, 1e12), (1e-12, 0.0), (1e6, 0.0), (1e6, 1e12), (1.0, 1e12), (1e-3, 700)]
)
def test_corners_are_sound(mu: float, eps: float) -> None:
    bound = GaussianProfile(mu=mu).delta(eps)
    assert 0 <= bound.lower <= bound.upper <= 1
    assert bound.upper > 0


def test_composition_adds_squares() -> None:
    streams = [stream(10.0, 1, 100), stream(3.0, 1, 2)]
    assert gaussian_profile(streams, "add_remove").mu == pytest.approx(math.sqrt(1 + 2 / 9), rel=1e-15)
    assert gaussian_profile(streams, "replace_one").mu == pytest.approx(2 * math.sqrt(1 + 2 / 9), rel=1e-15)
    assert gaussian_profile([stream(10, 1, 100)], "add_remove").epsilon(1e-6) == pytest.approx(4.8865541175, rel=1e-10)


def test_sampling_is_refused() -> None:
    with pytest.raises(ValueError, match="sampling_probability=1"):
        gaussian_profile([stream(1, 0.5, 1)], "add_remove")

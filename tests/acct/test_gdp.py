"""The best Gaussian bound: above the whole profile, no larger than needed, and its regret holds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from raptor_acct import Guarantee, RolePlan, SubsampledGaussian
from raptor_acct.accountants import GaussianProfile

GAUSSIAN = SubsampledGaussian(num_steps=4, sampling_probability=1, noise_multiplier=2.0)  # mu = 1
SAMPLED = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0)
OTHER = SubsampledGaussian(num_steps=300, sampling_probability=0.05, noise_multiplier=6.0)
GUARANTEES = {
    "sampled": SAMPLED.guarantee(),
    "replace": SAMPLED.guarantee("replace_one"),
    "roles": RolePlan(shared=SAMPLED, expert=OTHER).guarantee(),
    "few": SubsampledGaussian(num_steps=10, sampling_probability=0.3, noise_multiplier=2.0).guarantee(),
}


@pytest.mark.parametrize("slack", [1e-30, 1e-9, 1e-3])
def test_without_sampling_mu_is_exact_and_nothing_is_lost(slack: float) -> None:
    mu = GAUSSIAN.guarantee().gdp_mu(slack)
    assert mu.lower <= 1 * (1 + 1e-12)
    assert 1 <= mu.upper <= 1.02  # chords against tangents, on a grid of eps
    assert 0 <= mu.regret < 0.05  # no more than the profile falls between two points of the search
    assert GAUSSIAN.guarantee("replace_one").gdp_mu(slack) == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("guarantee", GUARANTEES.values(), ids=GUARANTEES)
@pytest.mark.parametrize("slack", [1e-9, 1e-4])
def test_the_profile_is_below_that_of_mu(guarantee: Guarantee, slack: float) -> None:
    mu = guarantee.gdp_mu(slack)
    assert 0 < mu.lower <= mu.upper < mu.lower * 1.01
    reach = float(guarantee.epsilon(slack))
    above, touched = GaussianProfile(mu=mu.upper), math.inf
    for eps in np.random.default_rng(0).uniform(0, reach, 25):
        delta = guarantee.delta(float(eps))
        assert delta.lower <= above.delta(float(eps)).upper + slack
        touched = min(touched, above.delta(float(eps)).upper / delta.upper)
    assert touched < 10
    # A smaller mu fails at some point: the lower end is a lower bound on every valid mu.
    least = GaussianProfile(mu=mu.lower * 0.99)
    grid = np.linspace(0, reach, 150)
    assert any(least.delta(float(eps)).upper < guarantee.delta(float(eps)).lower for eps in grid)


def test_regret_holds_on_a_grid_of_attacks() -> None:
    guarantee = GUARANTEES["sampled"]
    mu = guarantee.gdp_mu(1e-9)

    def tradeoff(fpr: float) -> float:
        return float(ndtr(ndtri(1 - fpr) - mu.upper))

    assert 0 < mu.regret < 1
    for fpr in (1e-3, 0.1, 0.5):
        assert guarantee.fnr(fpr).upper >= tradeoff(fpr) - 1e-9 - 1e-12
        shifted = fpr + mu.regret
        if shifted < 1:
            assert tradeoff(fpr) >= guarantee.fnr(shifted).lower - mu.regret


@given(q=st.floats(-2, 0).map(lambda x: 10.0**x), sigma=st.floats(1, 20), steps=st.integers(100, 2000))
@settings(max_examples=2, deadline=None, derandomize=True)
def test_mu_falls_with_the_slack(q: float, sigma: float, steps: int) -> None:
    guarantee = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma).guarantee()
    strict, loose = guarantee.gdp_mu(1e-12), guarantee.gdp_mu(1e-3)
    assert 0 < loose.lower <= strict.upper
    assert loose.lower <= loose.upper
    assert strict.lower <= strict.upper


@pytest.mark.parametrize("bad", [0.0, 0.2, -1.0, math.nan, 1e-31])
def test_slack_is_checked_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="expected slack in"):
        SAMPLED.guarantee().gdp_mu(bad)

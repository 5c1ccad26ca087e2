"""Guarantee: the attacker's view of a privacy profile, against closed forms."""

import json
import math

import pytest
from scipy.special import ndtr, ndtri

from raptor_acct import Guarantee, SubsampledGaussian, calibrate_sigma
from raptor_acct.adjacency import Adjacency

GAUSSIAN = SubsampledGaussian(num_steps=4, sampling_probability=1, noise_multiplier=2.0)  # mu = 1
SAMPLED = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0)


@pytest.mark.parametrize("fpr", [0.0, 1e-12, 1e-6, 0.001, 0.05, 0.3, 0.7, 0.999, 1.0])
def test_fnr_holds_the_gaussian_tradeoff(fpr: float) -> None:
    exact = float(ndtr(ndtri(1 - fpr) - 1.0))
    fnr = GAUSSIAN.guarantee().fnr(fpr)
    assert fnr == fnr.lower
    assert exact - 1e-6 <= fnr.lower <= exact + 1e-12
    assert exact - 1e-12 <= fnr.upper <= 1


@pytest.mark.parametrize("fpr", [1e-4, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_fnr_and_delta_tell_the_same_story(fpr: float, adjacency: Adjacency) -> None:
    guarantee = SAMPLED.guarantee(adjacency)
    fnr = guarantee.fnr(fpr)
    assert 0 <= fnr.lower <= fnr.upper <= fnr.lower + 2e-6
    grid = [guarantee.delta(0.05 * i) for i in range(160)]
    points = [
        max(1 - end - math.exp(0.05 * i) * fpr, math.exp(-0.05 * i) * (1 - end - fpr))
        for i, delta in enumerate(grid)
        for end in (delta.upper,)
    ]
    assert max(points) <= fnr.lower + 1e-12  # no point of the profile says more
    # The upper end is attained: delta would be larger than it is if fnr were larger.
    assert fnr.upper <= max(points) + 1e-3


def test_fnr_doubles_mu_for_replace_one() -> None:
    assert GAUSSIAN.guarantee("replace_one").fnr(0.01) == pytest.approx(float(ndtr(ndtri(0.99) - 2.0)), abs=1e-6)


def test_fnr_uses_the_whole_profile() -> None:
    guarantee = SAMPLED.guarantee()
    for eps in (0.1, 0.5, 1.0, 2.0, 4.0):
        delta = guarantee.delta(eps)
        one_point = max(1 - delta - math.exp(eps) * 0.001, math.exp(-eps) * (1 - delta - 0.001))
        assert guarantee.fnr(0.001) >= one_point


def test_tpr_ceiling_at_eps_1_is_below_the_one_point_bound() -> None:
    # q = 0.01, 1000 steps, eps = 1 at delta = 1e-5: one point gives 0.002728; 0.0023591 is the least of
    # exp(eps)·0.001 + delta(eps), with delta by contour integral.
    guarantee = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.4153).guarantee()
    assert guarantee.epsilon(1e-5) == pytest.approx(1, abs=1e-3)
    assert 1 - guarantee.fnr(0.001) == pytest.approx(0.0023591, abs=5e-7)


def test_fnr_falls_with_fpr_and_never_leaves_the_unit_interval() -> None:
    guarantee = SAMPLED.guarantee()
    fnrs = [guarantee.fnr(fpr) for fpr in (0.0, 1e-4, 0.01, 0.5, 1.0)]
    assert fnrs == sorted(fnrs, reverse=True)
    assert fnrs[-1] == 0
    assert 0.99 < fnrs[0] <= 1


def test_advantage_is_the_total_variation_distance() -> None:
    assert GAUSSIAN.guarantee().advantage() == pytest.approx(2 * float(ndtr(0.5)) - 1, rel=1e-9)
    assert SAMPLED.guarantee().advantage() == SAMPLED.guarantee().delta(0.0)


@pytest.mark.parametrize("stream", [GAUSSIAN, SAMPLED])
@pytest.mark.parametrize("delta", [1e-10, 1e-7, 1e-3, 0.1])
def test_epsilon_and_delta_are_inverse(stream: SubsampledGaussian, delta: float) -> None:
    guarantee = stream.guarantee()
    eps = guarantee.epsilon(delta)
    assert guarantee.delta(eps) <= delta < guarantee.delta(eps * 0.9999)


def test_epsilon_is_zero_where_delta_covers_everything() -> None:
    assert GAUSSIAN.guarantee().epsilon(0.5) == 0
    assert SAMPLED.guarantee().epsilon(0.5) == 0


@pytest.mark.parametrize("stream", [GAUSSIAN, SAMPLED])
def test_bad_arguments_are_named(stream: SubsampledGaussian) -> None:
    guarantee = stream.guarantee()
    for bad in (-1.0, math.nan, math.inf, True, "1"):
        with pytest.raises(ValueError, match="expected eps in"):
            guarantee.delta(bad)  # type: ignore[arg-type]
    for bad in (0.0, 1.0, math.nan, -1e-5, 1e-31):
        with pytest.raises(ValueError, match="expected delta in"):
            guarantee.epsilon(bad)
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="expected fpr in"):
            guarantee.fnr(bad)


def test_guarantee_validates_itself() -> None:
    with pytest.raises(ValueError, match="expected adjacency to be one of"):
        SAMPLED.guarantee("zero_out")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one stream"):
        Guarantee(streams=(), adjacency="add_remove")


def test_to_dict_is_json_and_names_the_adjacency() -> None:
    described = json.loads(json.dumps(SAMPLED.guarantee("replace_one").to_dict(), allow_nan=False))
    assert described["adjacency"] == "replace_one"
    assert described["streams"] == [{"num_steps": 1000, "sampling_probability": 0.01, "noise_multiplier": 1.0}]


@pytest.mark.parametrize("delta", [1e-30, 1.1e-18, 1.13e-18, 1e-10])
def test_tiny_deltas_answer_and_never_jump(delta: float) -> None:
    guarantee = SubsampledGaussian(num_steps=10_000, sampling_probability=3.3e-4, noise_multiplier=4.0).guarantee()
    eps = guarantee.epsilon(delta)
    assert 0 < guarantee.epsilon(1.03 * delta) < eps < 0.2
    assert guarantee.delta(eps).upper <= delta
    assert guarantee.excess(eps, delta) <= 0 < guarantee.excess(0.99 * eps, delta)


@pytest.mark.parametrize("stream", [GAUSSIAN, SAMPLED])
def test_every_number_is_certified_from_both_sides(stream: SubsampledGaussian) -> None:
    guarantee = stream.guarantee()
    for bound, tight in (
        (guarantee.epsilon(1e-5), 1e-8),
        (guarantee.delta(1.0), 1e-8),
        (guarantee.advantage(), 1e-8),
        (guarantee.fnr(0.01), 1e-6),
        (guarantee.gdp_mu(), 0.02),
    ):
        assert 0 < bound.lower <= bound <= bound.upper
        assert bound.width <= tight * bound
        assert bound.method


def test_the_answer_does_not_depend_on_what_was_asked_before() -> None:
    asked = SAMPLED.guarantee()
    before = [asked.delta(eps) for eps in (3.0, 0.0, 0.5)] + [asked.epsilon(1e-3), asked.epsilon(1e-12)]
    assert all(bound.lower <= bound.upper for bound in before)
    fresh = SAMPLED.guarantee().epsilon(1e-5)
    again = asked.epsilon(1e-5)
    assert again == pytest.approx(fresh, rel=1e-9)
    assert max(again.lower, fresh.lower) <= min(again.upper, fresh.upper)


@pytest.mark.parametrize(("sigma", "q", "steps"), [(1.0, 0.01, 1000), (5000.0, 0.01, 100), (1e5, 1.0, 3)])
def test_fnr_next_to_one_and_for_hardly_any_leak(sigma: float, q: float, steps: int) -> None:
    guarantee = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma).guarantee()
    for fpr in (1e-6, 0.3, 1 - 1e-9, 0.9999999999999994):
        fnr = guarantee.fnr(fpr)
        assert 1 - fpr - guarantee.advantage().upper - 1e-15 <= fnr.lower <= fnr.upper <= 1.00001 * (1 - fpr) + 1e-5


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("eps", [0.1, 1.0, 8.0, 32.0])
def test_error_rates_are_certified_from_both_sides_however_large_the_leak(eps: float, adjacency: Adjacency) -> None:
    sigma = calibrate_sigma(eps, 1e-5, 0.01, 1000)
    stream = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=sigma)
    guarantee = stream.guarantee(adjacency)
    for bound in (guarantee.fnr(1e-4), guarantee.fnr(0.3), guarantee.advantage()):
        assert 0 < bound.lower <= bound.upper <= (1 + 1e-7) * bound.lower

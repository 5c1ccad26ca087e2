"""P5: the best split of the budget, in both compositions."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raptor_acct import calibrate_sigmas, default_delta, hand_back_slack
from raptor_acct.budget import optimal_rho
from raptor_acct.diagnostics import sensitivity_lambda

POWERS = {"basic": 2, "joint": 1}  # the loss is λ_s/ρ^p + λ_e/(1 - ρ)^p
COMPOSITIONS = st.sampled_from(sorted(POWERS))
COSTS = st.floats(-12, 12).map(lambda x: 10**x)


def log_loss(costs: tuple[float, float], log_odds: float, power: int) -> float:
    """Return the logarithm of the loss at shares with these odds."""
    terms = (math.log(costs[0]) + power * softplus(-log_odds), math.log(costs[1]) + power * softplus(log_odds))
    return max(terms) + math.log1p(math.exp(-abs(terms[0] - terms[1])))


def softplus(x: float) -> float:
    """Return log(1 + e^x), which is minus the logarithm of a share."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@given(costs=st.tuples(COSTS, COSTS), composition=COMPOSITIONS, other=st.floats(-60, 60))
@example(costs=(1e12, 1e-12), composition="joint", other=27.0)
@example(costs=(1.0, 1.0), composition="basic", other=1e-3)
@settings(max_examples=300, deadline=None)
def test_no_other_share_costs_less(costs: tuple[float, float], composition: str, other: float) -> None:
    power = POWERS[composition]
    rho = optimal_rho(*costs, composition=composition)
    rest = optimal_rho(*costs[::-1], composition=composition)
    assert rho + rest == pytest.approx(1, abs=1e-15)
    odds = math.log(rho / rest)
    assert log_loss(costs, odds, power) <= log_loss(costs, other, power) + 1e-12
    # and the minimum has the value of the closed form
    root = 1 / (1 + power)
    assert log_loss(costs, odds, power) == pytest.approx((1 + power) * math.log(sum(x**root for x in costs)), abs=1e-11)


@given(costs=st.tuples(COSTS, COSTS), composition=COMPOSITIONS, factor=COSTS, more=st.floats(1.001, 1e6))
def test_only_the_ratio_counts_and_more_cost_gets_more(
    costs: tuple[float, float], composition: str, factor: float, more: float
) -> None:
    rho = optimal_rho(*costs, composition=composition)
    scaled = optimal_rho(costs[0] * factor, costs[1] * factor, composition=composition)
    assert scaled == pytest.approx(rho, rel=1e-12)
    assert optimal_rho(costs[0] * more, costs[1], composition=composition) >= rho
    # joint shares are the less even ones: square roots
    even, uneven = (abs(optimal_rho(*costs, composition=name) - 0.5) for name in ("basic", "joint"))
    assert even <= uneven + 1e-15


@pytest.mark.parametrize("composition", POWERS)
def test_the_ends(composition: str) -> None:
    assert optimal_rho(1e-300, 0.0, composition=composition) == 1.0
    assert optimal_rho(0.0, 1e300, composition=composition) == 0.0
    with pytest.raises(ValueError, match="both 0"):
        optimal_rho(0.0, 0.0, composition=composition)
    assert optimal_rho(1e300, 1e-300, composition=composition) == pytest.approx(1)


@given(loss=st.floats(-1e6, 1e6), parameters=st.integers(1, 10**12))
def test_sensitivity_is_loss_per_million_parameters(loss: float, parameters: int) -> None:
    sensitivity = sensitivity_lambda(loss, parameters)
    assert sensitivity >= 0
    assert sensitivity * parameters / 1e6 == pytest.approx(max(loss, 0.0), rel=1e-12)


def test_table_10() -> None:
    """The printed 2.305e-5 is not what the printed numbers beside it give."""
    assert f"{sensitivity_lambda(2.175e-4, 9_438_722):.3e}" == "2.304e-05"
    shared, expert = sensitivity_lambda(2.1752e-4, 9_438_722), sensitivity_lambda(-1.361e-6, 7_864_320)
    assert f"{shared:.3e}" == "2.305e-05"
    assert expert == 0
    assert optimal_rho(shared, expert) == 1


@pytest.mark.parametrize("eps", [1.0, 8.0])
@pytest.mark.parametrize("ratio", [0.1, 10.0, 100.0])
def test_the_rules_are_near_the_best_of_the_accountants_noise(eps: float, ratio: float) -> None:
    delta, q, steps = default_delta(67349), 1000 / 67349, 1347

    def losses(log_odds: float) -> tuple[float, float]:
        basic = calibrate_sigmas(eps, delta, 1 / (1 + math.exp(-log_odds)), q, steps)
        first, second = (ratio * shared**2 + expert**2 for shared, expert in (basic, hand_back_slack(basic, "ratio")))
        return first, second

    least_basic, least_joint = map(min, zip(*(losses(math.log(ratio) * x / 24) for x in range(5, 11)), strict=True))
    rho, share = (optimal_rho(ratio, 1.0, composition=name) for name in ("basic", "joint"))
    assert losses(math.log(rho / (1 - rho)))[0] <= 1.01 * least_basic
    # the share of μ² asks for σ_expert/σ_shared = √(share/(1 - share)), which keep="ratio" takes from rho/(1 - rho)
    assert losses(math.log(share / (1 - share)) / 2)[1] <= 1.002 * least_joint

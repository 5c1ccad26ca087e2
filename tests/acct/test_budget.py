"""The best split of the budget: against a numeric minimiser, its symmetries and its ends."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from raptor_acct.budget import optimal_rho
from raptor_acct.diagnostics import sensitivity_lambda

POWERS = {"basic": 2, "joint": 1}  # a stream with the share x of the budget has noise variance ∝ x**-power
compositions = st.sampled_from(sorted(POWERS))
positive = st.floats(1e-300, 1e300)


def loss(share, lambda_shared, lambda_expert, power):
    return lambda_shared / share**power + lambda_expert / (1 - share) ** power


@settings(max_examples=200, deadline=None)
@given(st.floats(-5, 5), compositions)
def test_numeric_minimiser_finds_the_same_share(log_ratio, composition):
    lambdas = (10**log_ratio, 1.0)
    found = minimize_scalar(
        loss, bounds=(0, 1), args=(*lambdas, POWERS[composition]), method="bounded", options={"xatol": 1e-10}
    )
    rho = optimal_rho(*lambdas, composition=composition)
    assert rho == pytest.approx(found.x, abs=1e-6)
    assert loss(rho, *lambdas, POWERS[composition]) <= found.fun * (1 + 1e-12)


@settings(max_examples=300, deadline=None)
@given(positive, positive, st.floats(1, 1e6), compositions)
def test_in_range_monotone_symmetric_and_without_a_unit(shared, expert, factor, composition):
    def rho(a, b):
        return optimal_rho(a, b, composition=composition)

    assert 0 <= rho(shared, expert) <= 1
    assert rho(shared * factor, expert) >= rho(shared, expert) * (1 - 1e-15)
    assert rho(shared, expert * factor) <= rho(shared, expert) * (1 + 1e-15)
    assert rho(expert, shared) == pytest.approx(1 - rho(shared, expert), abs=1e-15)
    assert rho(shared, shared) == 0.5
    scaled = (shared / factor, expert / factor)
    if min(scaled) > 1e-300:
        assert rho(*scaled) == pytest.approx(rho(shared, expert), rel=1e-12)


@pytest.mark.parametrize("composition", POWERS)
@pytest.mark.parametrize("value", [5e-324, 1e-300, 2.305e-5, 1.0, 1.7e308])
def test_ends(composition, value):
    assert optimal_rho(value, 0.0, composition=composition) == 1
    assert optimal_rho(0.0, value, composition=composition) == 0
    assert optimal_rho(value, value, composition=composition) == 0.5
    assert optimal_rho(1.7e308, 5e-324, composition=composition) == 1


def test_table_10_gives_the_shared_role_everything():
    """The experts' loss fell with noise, so their λ is 0."""
    shared, expert = sensitivity_lambda(2.175e-4, 9_438_722), sensitivity_lambda(-1.361e-6, 7_864_320)
    assert optimal_rho(shared, expert) == optimal_rho(shared, expert, composition="joint") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0), "got both 0, where every split is as good"),
        ((-1e-9, 1), r"expected lambda_shared in \[0, inf\), got lambda_shared=-1e-09"),
        ((1, math.nan), r"expected lambda_expert in \[0, inf\), got lambda_expert=nan"),
        ((math.inf, 1), "got lambda_shared=inf"),
        (("1", 1), "got lambda_shared='1'"),
        ((1, None), "got lambda_expert=None"),
    ],
)
def test_bad_lambdas(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimal_rho(*arguments)


@pytest.mark.parametrize("composition", ["", "quadrature", None, 1])
def test_bad_composition(composition):
    with pytest.raises(ValueError, match="expected composition to be one of 'basic', 'joint', got composition="):
        optimal_rho(1, 1, composition=composition)

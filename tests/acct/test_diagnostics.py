"""Role mismatch, the experts' signal to noise, and λ₊: the paper's numbers, the definitions, and what is refused."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.diagnostics import expert_snr, role_mismatch, sensitivity_lambda

NOISE = {"noise_multiplier": 2.0, "clip_norm": 0.5, "num_parameters": 100}
positive = st.floats(1e-100, 1e100)
roles = st.dictionaries(st.text(max_size=3), st.tuples(positive, positive), min_size=1, max_size=12)


def test_lambda_of_table_10_agrees_within_the_rounding_of_its_loss():
    low, high = (sensitivity_lambda(loss, 9_438_722) for loss in (2.1745e-4, 2.1755e-4))
    assert low <= 2.3055e-5
    assert high >= 2.3045e-5
    assert sensitivity_lambda(-1.361e-6, 7_864_320) == 0


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e10, 1e10), st.integers(1, 10**12))
def test_lambda_is_loss_per_million_parameters_and_never_negative(loss, parameters):
    value = sensitivity_lambda(loss, parameters)
    assert value == pytest.approx(loss * 1e6 / parameters if loss > 0 else 0.0, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(roles)
def test_mismatch_is_the_largest_difference_of_any_set_of_roles(drawn):
    """Total variation: the sum over the roles with more than their share, and between 0 and 1."""
    norms = {role: values[0] for role, values in drawn.items()}
    counts = {role: values[1] for role, values in drawn.items()}
    mismatch = role_mismatch(norms, counts)
    p, q = (np.array(list(x.values())) / math.fsum(x.values()) for x in (norms, counts))
    assert mismatch == pytest.approx(np.maximum(p - q, 0).sum(), abs=1e-12)
    assert 0 <= mismatch <= 1
    assert role_mismatch(counts, norms) == mismatch
    assert role_mismatch(dict(reversed(norms.items())), counts) == pytest.approx(mismatch, abs=1e-15)
    assert role_mismatch(norms, norms) == 0
    assert role_mismatch({role: 2 * value for role, value in norms.items()}, counts) == pytest.approx(mismatch)


def test_mismatch_is_one_if_the_signal_is_where_no_parameters_are():
    assert role_mismatch({"shared": 1.0, "expert": 0.0}, {"shared": 0, "expert": 7}) == 1


@pytest.mark.parametrize(
    ("norms", "counts", "message"),
    [
        ({}, {}, "of the same roles, at least one, got [] and []"),
        ({"shared": 1}, {"expert": 1}, "of the same roles, at least one, got ['shared'] and ['expert']"),
        ({"a": 0, "b": 0}, {"a": 1, "b": 1}, "expected gradient_norms of which one is > 0, got all 0"),
        ({"a": 1}, {"a": 0}, "expected parameter_counts of which one is > 0"),
        ({"a": -1}, {"a": 1}, "expected gradient_norms['a'] in [0, 1e300], got gradient_norms['a']=-1"),
        ({"a": 1}, {"a": math.nan}, "got parameter_counts['a']=nan"),
    ],
)
def test_bad_roles(norms, counts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        role_mismatch(norms, counts)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.just(0.0) | st.floats(1e-90, 1e20), min_size=2, max_size=512),
    st.floats(1e-8, 1e8),
    st.floats(1e-3, 1e3),
    st.integers(1, 10**9),
)
def test_snr_is_the_signal_over_the_expected_squared_noise(norms, sigma, clip_norm, parameters):
    snr = expert_snr(norms, noise_multiplier=sigma, clip_norm=clip_norm, num_parameters=parameters)
    expected = np.array([(norm / (sigma * clip_norm)) ** 2 / parameters for norm in norms])
    assert snr.per_expert == pytest.approx(expected, rel=1e-9)
    assert snr.mean == pytest.approx(expected.mean(), rel=1e-9)
    assert 0 <= snr.cv <= math.sqrt(len(norms)) + 1e-9
    reversed_ = expert_snr(norms[::-1], noise_multiplier=sigma, clip_norm=clip_norm, num_parameters=parameters)
    assert reversed_.cv == pytest.approx(snr.cv, rel=1e-9, abs=1e-12)
    louder = expert_snr(norms, noise_multiplier=2 * sigma, clip_norm=clip_norm, num_parameters=parameters)
    assert louder.per_expert == pytest.approx(snr.per_expert / 4, rel=1e-9)
    assert louder.cv == pytest.approx(snr.cv, rel=1e-9, abs=1e-12)


def test_noise_alone_has_snr_one_on_average():
    """The norm is measured on noise itself, 6 standard errors."""
    noise = 2.0 * 0.5 * np.random.default_rng(3).standard_normal((2000, 100))
    snr = expert_snr(np.linalg.norm(noise, axis=1), **NOISE)
    assert abs(snr.mean - 1) <= 6 * math.sqrt(2 / 100 / 2000)


@pytest.mark.parametrize(
    ("norms", "cv"), [([3.0, 3.0], 0), ([0.0, 0.0], 0), ([1e-100, 0.0], 1), ([0, 0, 0, 5], 3**0.5)]
)
def test_snr_cv(norms, cv):
    assert expert_snr(norms, **NOISE).cv == pytest.approx(cv)


def test_experts_may_differ_and_the_result_is_json():
    snr = expert_snr([3.0, 4.0], noise_multiplier=[1.0, 2.0], clip_norm=[1.0, 0.5], num_parameters=[9, 16])
    assert snr.per_expert.tolist() == [1.0, 1.0]
    assert json.loads(json.dumps(snr.to_dict(), allow_nan=False)) == {"per_expert": [1.0, 1.0], "mean": 1.0, "cv": 0.0}


@pytest.mark.parametrize(
    ("norms", "arguments", "message"),
    [
        ([1.0], {}, "expected summed_norms of shape (experts,), at least 2 experts, got shape (1,)"),
        (3.0, {}, "got shape ()"),
        ([[1.0, 2.0]], {}, "got shape (1, 2)"),
        ([1.0, -1.0], {}, "expected summed_norms[1] in [0, 1e100], got summed_norms[1]=-1.0"),
        ([1.0, math.nan], {}, "got summed_norms[1]=nan"),
        ([1.0, 1.0], {"noise_multiplier": 0}, "expected noise_multiplier in (0, 1e30]"),
        ([1.0, 1.0], {"clip_norm": [1, 2, 3]}, "expected clip_norm to be one number or a vector of 2"),
        ([1.0, 1.0], {"num_parameters": 0.5}, "expected num_parameters in [1, 1e18]"),
        ([1.0, 1e99], {"noise_multiplier": 1e-30}, "expected ratios of at most 1e+200, got a signal of 1e+99"),
        ([0.0, 0.0], {"noise_multiplier": 1e-200}, "expected ratios of at most 1e+200, got a signal of 0"),
    ],
)
def test_bad_snr(norms, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        expert_snr(norms, **NOISE | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((math.nan, 1), r"expected delta_loss in (-inf, inf), got delta_loss=nan"),
        ((math.inf, 1), "got delta_loss=inf"),
        ((1e-3, 0), "expected num_parameters in [1, 1e18], got num_parameters=0"),
    ],
)
def test_bad_sensitivity(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sensitivity_lambda(*arguments)

"""The ROC: ties, exact areas and intervals, ceilings beside what was measured."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import binom, binomtest, mannwhitneyu

from raptor_acct import SubsampledGaussian
from raptor_acct.audit import clopper_pearson, roc, tpr_ceiling
from raptor_acct.audit.binomial import at_least, at_most

few_values = st.lists(st.integers(0, 5), min_size=1, max_size=30)
PLAN = SubsampledGaussian(num_steps=1, sampling_probability=1.0, noise_multiplier=1.0).guarantee()  # mu = 1


def curve_of(inside, outside):
    return roc([*inside, *outside], [1] * len(inside) + [0] * len(outside))


@settings(max_examples=100, deadline=None)
@given(few_values, few_values)
def test_area_is_mann_whitney_with_mid_ranks(inside, outside):
    curve = curve_of(inside, outside)
    wins = sum((a > b) + (a == b) / 2 for a in inside for b in outside)
    assert curve.auc == wins / (len(inside) * len(outside))
    assert curve.auc * len(inside) * len(outside) == pytest.approx(mannwhitneyu(inside, outside).statistic, abs=1e-9)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(curve.auc, abs=1e-12)


def test_all_tied_scores():
    curve = roc(np.zeros(1000), np.arange(1000) % 2)
    point = curve.tpr_at_fpr(0.001)
    assert (curve.auc, point.tpr, point.fpr, curve.tpr_at_fpr(1.0).tpr) == (0.5, 0.0, 0.0, 1.0)
    assert curve.auc_standard_error == 0


@settings(max_examples=60, deadline=None)
@given(few_values, few_values, st.floats(0, 1))
def test_operating_points_count_what_is_above_the_threshold(inside, outside, fpr):
    point = curve_of(inside, outside).tpr_at_fpr(fpr)
    assert point.true_positives == sum(score > point.threshold for score in inside)
    assert point.false_positives == sum(score > point.threshold for score in outside)
    assert point.fpr <= fpr + 1e-9
    lower = [t for t in [*outside, -math.inf] if t < point.threshold]
    if lower:  # the next threshold down has too many false positives
        assert sum(score > max(lower) for score in outside) > fpr * len(outside)


def test_one_false_positive_of_1000_is_allowed_at_one_in_a_thousand():
    curve = curve_of(np.arange(1000) + 0.5, np.arange(1000))
    point = curve.tpr_at_fpr(0.001)
    assert (point.false_positives, point.true_positives) == (1, 2)
    assert curve.tpr_at_fpr(0.0009).false_positives == 0
    assert point.fpr_interval[1] > 0.005  # what rests on one record is not known well


def test_the_order_of_records_makes_no_difference():
    rng = np.random.default_rng(0)
    scores, members = rng.integers(0, 50, 400), rng.random(400) < 0.3
    shuffled = rng.permutation(400)
    one, two = roc(scores, members), roc(scores[shuffled], members[shuffled])
    assert one.auc == two.auc
    assert (one.tpr == two.tpr).all()
    assert one.table() == two.table()


@pytest.mark.parametrize(("trials", "error"), [(1, 0.05), (7, 0.025), (40, 0.1), (1000, 1e-6)])
def test_binomial_bounds_cover(trials, error):
    """Every probability of a grid, by the binomial's own masses."""
    successes = np.arange(trials + 1)
    lower = np.array([at_least(int(k), trials, error) for k in successes])
    upper = np.array([at_most(int(k), trials, error) for k in successes])
    for p in [1e-4, 0.01, 0.2, 0.5, 0.77, 0.99, *lower[1::97], *upper[:-1:97]]:
        mass = binom.pmf(successes, trials, p)
        assert mass[lower > p].sum() <= error
        assert mass[upper < p].sum() <= error


def test_intervals_are_scipys():
    for k, n in ((0, 5), (5, 5), (3, 1000), (999, 1000)):
        expected = binomtest(k, n).proportion_ci(0.9, method="exact")
        assert clopper_pearson(k, n, 0.9) == pytest.approx((expected.low, expected.high), rel=1e-8)


def test_intervals_hold_the_population_s_rates():
    """An attack with known rates, its threshold chosen by the non-members at hand: error at most 5 % an interval."""
    rng = np.random.default_rng(5)
    number, missed = 1000, {"fpr": 0, "tpr": 0, "auc": 0}
    for _ in range(number):
        curve = curve_of(rng.normal(1, 1, 200), rng.normal(0, 1, 200))
        point = curve.tpr_at_fpr(0.05)
        for name, truth in (("fpr", ndtr(-point.threshold)), ("tpr", ndtr(1 - point.threshold))):
            low, high = getattr(point, f"{name}_interval")
            missed[name] += not low <= truth <= high
        low, high = curve.auc_interval()
        missed["auc"] += not low <= ndtr(1 / math.sqrt(2)) <= high
    assert max(missed.values()) <= 73  # the 99.9 % point of Bin(1000, 0.05)
    assert min(missed["fpr"], missed["tpr"]) >= 5  # and they are not idle


def test_the_standard_error_is_that_of_the_area():
    rng = np.random.default_rng(2)
    curves = [curve_of(rng.normal(1, 1, 100), rng.normal(0, 1, 150)) for _ in range(600)]
    measured = np.std([curve.auc for curve in curves])
    assert np.mean([curve.auc_standard_error for curve in curves]) == pytest.approx(measured, rel=0.1)
    assert curve_of([1], [0, 2]).auc_standard_error is None


@pytest.mark.parametrize("fpr", [1e-3, 0.05, 0.5])
def test_ceiling_of_a_gaussian_mechanism(fpr):
    ceiling = tpr_ceiling(PLAN, fpr)
    assert ceiling.lower - 1e-12 <= ndtr(ndtri(fpr) + 1) <= ceiling.upper + 1e-12
    assert ceiling == ceiling.upper == pytest.approx(ndtr(ndtri(fpr) + 1), abs=3e-6)


def test_the_alarm_is_silent_on_the_best_attack_and_rings_on_a_better_one():
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(200):
        best = curve_of(rng.normal(1, 1, 200), rng.normal(0, 1, 200))
        alarms += best.tpr_at_fpr(0.1).exceeds(PLAN)
    assert alarms <= 10  # of 200 at an error of at most 5 % each; it is far less
    assert curve_of(rng.normal(3, 1, 200), rng.normal(0, 1, 200)).tpr_at_fpr(0.1).exceeds(PLAN)


def test_points_are_json():
    point = roc([1.0, 0.0], [1, 0]).tpr_at_fpr(1.0)
    assert json.loads(json.dumps(point.to_dict(), allow_nan=False))["threshold"] is None


@pytest.mark.parametrize(
    ("scores", "members", "message"),
    [
        ([1.0, 2.0], [1, 1], "expected members and non-members, got 2 members among 2 records"),
        ([1.0, math.nan], [1, 0], "expected scores to be finite, got nan or inf"),
        ([1.0, 2.0], [1], "expected members of shape (2,)"),
        ([], [], "expected scores to be real numbers in 1 dimensions, at least one"),
        (["a", "b"], [1, 0], "expected scores to be real numbers"),
        ([1.0, 2.0], [1, 2], "expected members to hold only 1 (member) and 0 (non-member)"),
    ],
)
def test_refusals(scores, members, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        roc(scores, members)


def test_rates_and_confidences_are_checked():
    curve = roc([1.0, 0.0], [1, 0])
    with pytest.raises(ValueError, match=re.escape("expected fpr in [0, 1], got fpr=1.1")):
        curve.tpr_at_fpr(1.1)
    with pytest.raises(ValueError, match=re.escape("expected confidence in (0, 1), got confidence=95")):
        curve.tpr_at_fpr(0.1, 95)

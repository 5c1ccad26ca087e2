"""The scores of attacks: stable where probabilities saturate, and LiRA's choices of centre and variance."""

import math
import re

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from raptor_acct.audit import confidence_logits, lira, loss_attack

logit_rows = st.lists(st.floats(-900, 900), min_size=2, max_size=6)


@settings(max_examples=100, deadline=None)
@given(logit_rows, st.data())
def test_scores_are_those_of_900_digits(row, data):
    label = data.draw(st.integers(0, len(row) - 1))
    with mp.workdps(900):
        weights = [mp.exp(mp.mpf(z)) for z in row]
        rest = mp.fsum(weights[:label] + weights[label + 1 :])
        phi, loss = mp.log(weights[label] / rest), mp.log1p(rest / weights[label])
    assert confidence_logits([row], [label])[0] == pytest.approx(float(phi), rel=1e-13, abs=1e-12)
    assert -loss_attack([row], [label])[0] == pytest.approx(float(loss), rel=1e-12, abs=1e-300)


def test_saturated_confidences_keep_their_order():
    """In float64 all these confidences are 1, so what is computed from 1 - p is no order at all."""
    logits = np.stack([np.linspace(40, 60, 21), np.zeros(21)], axis=1)
    confidences = 1 / (1 + np.exp(-logits[:, 0]))
    assert len(set(confidences)) == 1
    assert confidence_logits(logits, np.zeros(21, int)) == pytest.approx(logits[:, 0], rel=1e-15)
    assert (np.diff(loss_attack(logits, np.zeros(21, int))) > 0).all()


def test_float32_logits_are_worked_on_in_float64():
    logits = np.array([[3.0, -2.0, 1.0]], np.float32)
    assert confidence_logits(logits, [0]).dtype == np.float64
    assert confidence_logits(logits, [0])[0] == pytest.approx(3 - math.log(math.exp(-2) + math.exp(1)), rel=1e-15)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[1.0]], [0], "expected logits of at least 2 classes, got shape (1, 1)"),
        ([1.0, 2.0], [0], "expected logits to be real numbers in 2 dimensions"),
        ([[1.0, math.nan]], [0], "expected logits to be finite"),
        ([[1.0, 2.0]], [2], "expected labels to be 1 integers in 0..1, got shape (1,) of type int64 in 2..2"),
        ([[1.0, 2.0]], [-1], "in -1..-1"),
        ([[1.0, 2.0]], [0.0], "of type float64"),
        ([[1.0, 2.0]], [0, 1], "got shape (2,)"),
    ],
)
def test_refused_logits(logits, labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        confidence_logits(logits, labels)


def shadows(models, records, queries, seed=0):
    """A balanced design, so that the reference's cut to equal numbers of models changes nothing."""
    rng = np.random.default_rng(seed)
    members = np.argsort(rng.random((models, records)), axis=0) < models // 2
    means, shift = rng.normal(size=(records, 1)), rng.uniform(0, 3, size=(records, 1))
    spread = rng.uniform(0.5, 2, size=(records, queries))
    scores = means + members[:, :, None] * shift + spread * rng.normal(size=(models, records, queries))
    return scores, members


def reference(scores, shadow, members, *, fixed):
    """The published program's online attack, record by record: minus its prediction."""
    inside = np.array([shadow[members[:, j], j] for j in range(shadow.shape[1])])  # [records, models, queries]
    outside = np.array([shadow[~members[:, j], j] for j in range(shadow.shape[1])])
    if fixed:
        std_in = std_out = np.std(inside)
    else:
        std_in, std_out = np.std(inside, axis=1), np.std(outside, axis=1)
    log_in = norm.logpdf(scores, np.median(inside, axis=1), std_in + 1e-30)
    log_out = norm.logpdf(scores, np.median(outside, axis=1), std_out + 1e-30)
    return (log_in - log_out).mean(axis=1)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("variance", ["per_example", "global"])
def test_online_is_the_reference(variance, queries):
    shadow, members = shadows(17, 40, queries)
    target, shadow, members = shadow[-1], shadow[:-1], members[:-1]
    members[:] = np.argsort(np.random.default_rng(1).random(members.shape), axis=0) < 8
    found = lira(target, shadow, members, variance=variance)
    assert found == pytest.approx(reference(target, shadow, members, fixed=variance == "global"), rel=1e-12)
    if queries == 1:
        assert (lira(target[:, 0], shadow[:, :, 0], members, variance=variance) == found).all()


def test_offline_is_one_sided_in_deviations_of_the_models_without_the_record():
    shadow, members = shadows(16, 30, 1)
    shadow, outside = shadow[:, :, 0], [shadow[~members[:, j], j, 0] for j in range(30)]
    found = lira(np.full(30, 9.0), shadow, members, mode="offline")
    assert found == pytest.approx([(9 - np.median(x)) / np.std(x) for x in outside], rel=1e-12)
    fixed = lira(np.full(30, 9.0), shadow, members, mode="offline", variance="global")
    assert fixed == pytest.approx([(9 - np.median(x)) / np.std(np.concatenate(outside)) for x in outside], rel=1e-12)
    assert (lira(np.full(30, -9.0), shadow, members, mode="offline") < 0).all()  # far below is no sign of membership
    changed = np.where(members, shadow + 100, shadow)
    assert (lira(np.full(30, 9.0), changed, members, mode="offline") == found).all()


def test_unequal_numbers_of_models_are_all_used():
    rng = np.random.default_rng(0)
    shadow, members = rng.normal(size=(20, 1)), (np.arange(20) < 5)[:, None]
    inside, outside = shadow[:5, 0], shadow[5:, 0]
    expected = norm.logpdf(0.3, np.median(inside), np.std(inside)) - norm.logpdf(
        0.3, np.median(outside), np.std(outside)
    )
    assert lira([0.3], shadow, members)[0] == pytest.approx(expected, rel=1e-12)


def test_shadow_models_that_agree_exactly_give_finite_scores():
    shadow, members = np.zeros((4, 2)), [[1, 1], [1, 1], [0, 0], [0, 0]]
    assert np.isfinite(lira([1.0, 0.0], shadow, members)).all()


def test_a_planted_leak_is_ordered_best_by_lira():
    """Records differ in difficulty far more than by membership: one threshold for all is nearly blind, LiRA is not."""
    from raptor_acct.audit import roc

    rng = np.random.default_rng(3)
    members = rng.random((65, 800)) < 0.5
    scores = 5 * rng.normal(size=800) + 1.5 * members + rng.normal(size=(65, 800))
    areas = {
        "threshold": roc(scores[0], members[0]).auc,
        **{
            f"{mode} {variance}": roc(
                lira(scores[0], scores[1:], members[1:], mode=mode, variance=variance), members[0]
            ).auc
            for mode in ("online", "offline")
            for variance in ("per_example", "global")
        },
    }
    assert areas["threshold"] < 0.62
    assert min(value for name, value in areas.items() if name != "threshold") > 0.8  # of at most Φ(1.5/√2) = 0.856


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "both"}, "expected mode to be one of 'online', 'offline'"),
        ({"variance": "fixed"}, "expected variance to be one of 'per_example', 'global'"),
        ({"scores": [1.0]}, "expected scores of shape (2,), as shadow_scores[0], got (1,)"),
        ({"shadow_members": [[1, 1]] * 4}, "expected at least 2 shadow models without each record, got 0 for record 0"),
        ({"shadow_members": [[0, 0]] * 4}, "expected at least 2 shadow models with each record"),
        ({"shadow_members": [[0.5, 0]] * 4}, "expected shadow_members to hold only 1 (member) and 0"),
        ({"shadow_members": [[0, 0]] * 3}, "expected shadow_members of shape (4, 2)"),
        ({"shadow_scores": [[math.inf, 0.0]] * 4}, "expected shadow_scores to be finite"),
    ],
)
def test_refusals(change, message):
    good = {"scores": [1.0, 2.0], "shadow_scores": np.zeros((4, 2)), "shadow_members": [[1, 1], [1, 1], [0, 0], [0, 0]]}
    with pytest.raises(ValueError, match=re.escape(message)):
        lira(**good | change)

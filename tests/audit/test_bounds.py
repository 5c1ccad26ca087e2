"""Lower bounds on epsilon and mu: silent on noise, below the truth, and near it where a leak is planted."""

import json
import math
import re

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr
from scipy.stats import binom

from raptor_acct import SubsampledGaussian
from raptor_acct.audit import (
    canary_lower_bound,
    one_run_epsilon,
    one_run_mu,
    one_run_p_value,
    one_run_refutes,
    trials_lower_bound,
)
from raptor_acct.audit.one_run import _refuted

MOST = 73  # of 1000 at an error of 5 %: the 99.9 % point of the binomial
DELTA = 1e-5


def gaussian(mu):
    return SubsampledGaussian(num_steps=1, sampling_probability=1.0, noise_multiplier=1 / mu).guarantee()


def coins(rng, size):
    return rng.random(size) < 0.5


@pytest.mark.parametrize("size", [50, 1000])
@pytest.mark.parametrize("audit", [trials_lower_bound, canary_lower_bound])
def test_noise_leaks_nothing(audit, size):
    """1000 sets of scores without a signal, also with ties, as strong privacy makes them."""
    rng = np.random.default_rng(size)
    found = [audit(rng.normal(size=size).round(i % 3), coins(rng, size), delta=DELTA, seed=i) for i in range(1000)]
    assert sum(one.epsilon > 0 for one in found) <= MOST
    assert sum(one.mu > 0 for one in found) <= MOST


@pytest.mark.parametrize("size", [50, 400])
@pytest.mark.parametrize("audit", [trials_lower_bound, canary_lower_bound])
def test_a_planted_leak_is_found_and_never_overstated_beyond_the_confidence(audit, size):
    """Confidence 0.6, so that the bounds do err now and then if they can."""
    rng = np.random.default_rng(size)
    truth, number = gaussian(1.0), 400
    found = []
    for i in range(number):
        members = coins(rng, size)
        found.append(audit(rng.normal(members), members, delta=DELTA, confidence=0.6, seed=i))
    for wrong in (sum(one.epsilon > truth.epsilon(DELTA) for one in found), sum(one.mu > 1 for one in found)):
        assert wrong <= binom.ppf(0.999, number, 0.4)
    assert np.median([one.mu for one in found]) > (0.05 if size == 50 else 0.6)


def test_bounds_are_near_the_truth_with_many_trials():
    rng = np.random.default_rng(0)
    for mu in (1.0, 3.0):
        members = np.arange(20_000) % 2
        found = trials_lower_bound(rng.normal(mu * members), members, delta=DELTA, confidence=0.95)
        assert gaussian(mu).epsilon(DELTA) * 0.3 < found.epsilon < gaussian(mu).epsilon(DELTA)
        assert 0.9 * mu < found.mu < mu
        assert not found.exceeds(gaussian(mu))
        assert found.exceeds(gaussian(mu / 4))


def test_one_run_finds_more_than_half_of_a_leak():
    rng = np.random.default_rng(1)
    included = coins(rng, 5000)
    found = canary_lower_bound(rng.normal(1.0 * included), included, delta=DELTA, guesses=[250, 1000])
    truth = gaussian(1.0).epsilon(DELTA)
    assert 0.35 * truth < found.epsilon < truth
    assert 0.6 < found.mu < 1
    assert gaussian(found.mu).epsilon(DELTA) > truth / 2


def test_published_example():
    """m = 1000, r = 100, v = 75, δ = 1e-4: the bound that Steinke, Nasr and Jagielski's formula gives, and ours."""
    published = bisect(lambda eps: steinke(1000, 100, 75, eps, 1e-4) <= 0.05)
    ours = one_run_epsilon(1000, 100, 75, delta=1e-4, error=0.05)
    assert published < ours < published + 0.05


def bisect(holds, low=0.0, high=20.0):
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def steinke(m, r, v, eps, delta):
    """Theorem 5.2 as its appendix computes it."""
    q = 1 / (1 + math.exp(-eps))
    below = np.cumsum(binom.pmf(v - np.arange(1, v + 1), r, q)) / np.arange(1, v + 1)
    return min(1.0, binom.sf(v - 1, r, q) + 2 * m * delta * max(below))


@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3])
def test_p_value_is_the_binomial_tail_and_never_above_the_published_where_that_is_below_half(eps, delta):
    compared = 0
    accuracy = 1 / (1 + math.exp(-eps))
    for m, r in ((1, 1), (30, 30), (200, 40), (1000, 1000)):
        for v in {1, r // 2 + 1, r, *binom.isf([0.9, 0.4, 0.2, 0.1, 0.05, 0.01, 1e-4, 1e-9], r, accuracy).astype(int)}:
            tail = binom.sf(v - 1, r, accuracy)
            value = one_run_p_value(m, r, v, eps=eps, delta=delta)
            assert value >= tail * (1 - 1e-9)
            if delta == 0:
                assert value == pytest.approx(tail, rel=1e-8)
            if 1e-200 < tail < 0.5:
                assert value <= steinke(m, r, v, eps, delta) * (1 + 1e-8)
                compared += 1
    assert compared >= 6


def largest_tail(m, r, v, allowed):
    """max P[W >= v] over all laws of W that privacy allows, by linear programming; ``allowed``: pairs (ε, δ)."""
    n, width = r + 1, 2 * r
    size = n + width * len(allowed)
    rows, limits = [], []
    for j, (eps, delta) in enumerate(allowed):
        own = n + width * j  # what exceeds: one variable for each k and direction
        for k in range(r):
            for way, (high, low) in enumerate((((k + 1, k + 1), (k, r - k)), ((k, r - k), (k + 1, k + 1)))):
                row = np.zeros(size)
                row[high[0]], row[low[0]], row[own + 2 * k + way] = high[1], -math.exp(eps) * low[1], -1
                rows.append(row)
                limits.append(0.0)
        row = np.zeros(size)
        row[own : own + width] = 1
        rows.append(row)
        limits.append(m * delta)
    goal, total = np.zeros(size), np.zeros((1, size))
    goal[v:n], total[0, :n] = -1, 1
    return -linprog(goal, A_ub=np.array(rows), b_ub=limits, A_eq=total, b_eq=[1]).fun


@pytest.mark.parametrize(("m", "r", "v"), [(2, 1, 1), (6, 6, 4), (30, 12, 10), (25, 25, 17), (40, 10, 5)])
@pytest.mark.parametrize(("eps", "delta"), [(0.0, 0.01), (0.5, 0.002), (1.2, 0.1), (0.3, 0.0)])
def test_p_value_is_the_largest_of_all_mechanisms(m, r, v, eps, delta):
    assert one_run_p_value(m, r, v, eps=eps, delta=delta) == pytest.approx(
        largest_tail(m, r, v, [(eps, delta)]), abs=1e-7
    )


def test_the_f_dp_recursion_is_above_all_mechanisms_and_not_far():
    """Random sizes, against the largest of all laws of W that the same points of a Gaussian's profile allow."""
    rng = np.random.default_rng(11)
    compared = 0
    for _ in range(150):
        m = int(rng.integers(2, 26))
        r = int(rng.integers(1, m + 1))
        v, mu = int(rng.integers((r + 1) // 2, r + 1)), float(rng.uniform(0.05, 2))
        eps = np.linspace(0, 4 * mu + 0.5, 15)
        delta = np.array([gaussian(mu).delta(x).upper for x in eps])
        worst = largest_tail(m, r, v, list(zip(eps, delta, strict=True)))

        def least_fpr(tpr, eps=eps, delta=delta):
            return max(0.0, np.max((tpr - delta) * np.exp(-eps)), np.max(1 - delta - np.exp(eps) * (1 - tpr)))

        assert not _refuted(m, r, v, worst * (1 - 1e-6) - 1e-9, least_fpr)
        if 0.005 < worst < 0.2:
            assert _refuted(m, r, v, worst * 1.35, least_fpr)
            compared += 1
    assert compared >= 5


def test_extreme_counts():
    for m, r in ((1, 1), (50, 50), (10_000, 100)):
        assert one_run_p_value(m, r, 0, eps=0.0, delta=0.1) == 1
        assert one_run_epsilon(m, r, 0, delta=DELTA, error=0.05) == one_run_mu(m, r, 0, error=0.05) == 0
        assert one_run_epsilon(m, r, r // 2, delta=DELTA, error=0.05) == 0
    assert 0 < one_run_p_value(1000, 1000, 1000, eps=0.0, delta=1e-9) < 1e-8  # the tail alone is below all floats
    assert one_run_p_value(1000, 1000, 1, eps=30.0, delta=1e-9) == 1
    everything = one_run_epsilon(1000, 1000, 1000, delta=0.0, error=0.05)
    assert everything == pytest.approx(-math.log(math.expm1(-math.log(0.05) / 1000)), rel=1e-6)  # p^1000 = 0.05


def test_more_right_guesses_never_lower_a_bound():
    for bound in (
        lambda v: one_run_epsilon(200, 40, v, delta=DELTA, error=0.05),
        lambda v: one_run_mu(200, 40, v, error=0.05),
    ):
        values = [bound(v) for v in range(0, 41, 4)]
        assert values == sorted(values)
        assert values[-1] > 1


def test_a_guarantee_is_refuted_by_its_profile_as_by_its_mu():
    for v in (160, 166, 172, 180):
        found = one_run_mu(1000, 200, v, error=0.05)
        assert one_run_refutes(1000, 200, v, gaussian(found * 0.97))
        assert not one_run_refutes(1000, 200, v, gaussian(found * 1.0001))


def test_a_mechanism_that_keeps_its_guarantee_is_rarely_refuted():
    rng = np.random.default_rng(4)
    refuted = 0
    for _ in range(200):
        included = coins(rng, 100)
        order = np.argsort(rng.normal(0.5 * included))
        correct = int(included[order[-20:]].sum() + (~included[order[:20]]).sum())
        refuted += one_run_refutes(100, 40, correct, gaussian(0.5), confidence=0.6)
    assert refuted <= binom.ppf(0.999, 200, 0.4)


def test_reports_state_everything():
    rng = np.random.default_rng(0)
    included = coins(rng, 300)
    one = canary_lower_bound(
        rng.normal(2 * included), included, delta=DELTA, guesses=61, confidence=0.9, adjacency="replace_one"
    )
    told = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert (told["game"], told["adjacency"], told["confidence"], told["delta"]) == (
        "one_run",
        "replace_one",
        0.9,
        DELTA,
    )
    assert (told["num_canaries"], told["num_guesses"], told["num_abstentions"]) == (300, 61, 239)
    assert told["true_positives"] + told["false_positives"] == 31  # the odd one is guessed "included"
    with pytest.raises(ValueError, match=re.escape("expected guarantee of the audit's adjacency, got 'add_remove'")):
        one.exceeds(gaussian(1.0))
    many = trials_lower_bound(rng.normal(2 * included), included, delta=DELTA)
    half = math.ceil(included.sum() / 2) + math.ceil((~included).sum() / 2)
    assert (many.game, many.num_canaries, many.num_abstentions) == ("trials", half, 0)


def test_guesses_are_the_extremes():
    included = np.tile([True, False], 50)
    scores = np.where(included, 5.0, -5.0) * np.where(np.arange(100) < 10, 1.0, 0.0)
    found = canary_lower_bound(scores, included, delta=0.0, guesses=10)
    assert (found.num_correct, found.true_positives, found.false_positives) == (10, 5, 0)


def test_equal_scores_are_guessed_at_random_whatever_their_order():
    """A file sorted by membership would otherwise give its coins away."""
    included = np.arange(1000) < 500
    for seed in range(20):
        assert canary_lower_bound(np.zeros(1000), included, delta=0.0, guesses=1000, seed=seed).num_correct < 580


def test_several_numbers_of_guesses_share_the_error():
    rng = np.random.default_rng(3)
    included = coins(rng, 500)
    scores = rng.normal(2.0 * included)
    alone = canary_lower_bound(scores, included, delta=DELTA, guesses=100, confidence=0.975)
    both = canary_lower_bound(scores, included, delta=DELTA, guesses=[500, 100], confidence=0.95)
    assert (both.epsilon, both.num_guesses) == (alone.epsilon, 100)


def test_tiny_trials():
    found = trials_lower_bound([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], delta=0.0)
    assert (found.epsilon, found.mu, found.num_canaries) == (0.0, 0.0, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trials_lower_bound([1.0, 2.0, 3.0], [0, 1, 1], delta=0.1), "got 2 with and 1 without"),
        (lambda: trials_lower_bound([1.0, 2.0], [0, 1], delta=1), "expected delta in [0, 1), got delta=1"),
        (
            lambda: canary_lower_bound(np.zeros(100), np.ones(100), delta=0.1),
            "got 100 of 100 included; draw them before",
        ),
        (
            lambda: canary_lower_bound([0.0, 1.0], [0, 1], delta=0.1, guesses=3),
            "expected guesses to be a whole number <= 2",
        ),
        (
            lambda: canary_lower_bound([0.0, 1.0], [0, 1], delta=0.1, guesses=[]),
            "expected guesses, got an empty sequence",
        ),
        (lambda: canary_lower_bound([0.0, 1.0], [0, 1], delta=0.1, confidence=1), "expected confidence in (0, 1)"),
        (lambda: canary_lower_bound([0.0, 1.0], [0, 1], delta=0.1, adjacency="x"), "expected adjacency to be one of"),
        (lambda: one_run_p_value(5, 6, 1, eps=0, delta=0), "expected num_guesses to be a whole number <= 5"),
        (lambda: one_run_p_value(5, 5, 6, eps=0, delta=0), "expected num_correct to be a whole number <= 5"),
        (lambda: one_run_p_value(5, 5, 1, eps=-1, delta=0), "expected eps in [0, 700], got eps=-1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_gaussian_accuracy_bounds_mu_from_above():
    """With all canaries guessed, W is at most Bin(m, Φ(μ/2)) on average; the bound stays below what that says."""
    for mu in (0.5, 1.0, 2.0):
        v = int(400 * ndtr(mu / 2))
        assert one_run_mu(400, 400, v, error=0.05) < mu

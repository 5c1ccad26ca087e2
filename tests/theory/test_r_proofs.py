"""R1 to R5: what the statements say about routing statistics, as properties of the library."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raptor_acct.confidence import cv_interval, deficit_interval
from raptor_acct.entropy import cv_bounds, deficit_bounds
from raptor_acct.routing import RoutingStats
from raptor_acct.selection import select_layer
from raptor_acct.shift import shift_bound

LOOSE = 1 + 1e-10
experts = st.one_of(st.integers(2, 12), st.sampled_from([64, 512]))
unit = st.floats(0, 1)
portion = st.one_of(st.just(0.0), st.floats(1e-30, 1e-3), st.floats(1e-3, 1))  # of log E
counts = experts.flatmap(
    lambda e: st.lists(st.sampled_from([0, 0, 1, 2, 7, 60, 10**6]), min_size=e, max_size=e)
).filter(any)


def best_constant(number):
    """K of R1: the largest CV² over KL."""
    return 2.0 if number == 2 else number * (number - 2) / ((number - 1) * math.log(number - 1))


@settings(max_examples=100, deadline=None)
@given(experts, portion)
def test_r2_nests_within_r1_with_the_best_constant(number, fraction):
    deficit = fraction * math.log(number)
    low, high = cv_bounds(deficit, number)
    assert math.expm1(deficit) <= low**2 * LOOSE + 1e-300
    assert low <= high
    assert high**2 <= best_constant(number) * deficit * LOOSE
    assert best_constant(number) <= number


@pytest.mark.parametrize("number", [3, 8, 64, 512])
def test_r1_is_attained(number):
    rest = 1 / (number * (number - 1))
    top = RoutingStats.from_probabilities([1 - 1 / number] + [rest] * (number - 1))
    assert top.chi2 == pytest.approx(best_constant(number) * top.entropy_deficit, rel=1e-12)
    for owned in {1, 2, number // 2, number - 1}:
        some = RoutingStats.from_counts([5] * owned + [0] * (number - owned))
        assert some.chi2 == pytest.approx(math.expm1(some.entropy_deficit), rel=1e-12)


def test_r1_for_two_experts_is_tight_only_near_uniform():
    near, far = (RoutingStats.from_probabilities([(1 + tilt) / 2, (1 - tilt) / 2]) for tilt in (1e-3, 0.5))
    assert near.chi2 == pytest.approx(2 * near.entropy_deficit, rel=1e-6, abs=0)
    assert far.chi2 < 1.96 * far.entropy_deficit


@settings(max_examples=100, deadline=None)
@given(experts, portion, portion)
def test_r2_both_ends_rise_with_the_deficit(number, one, other):
    deficits = sorted(fraction * math.log(number) for fraction in (one, other))
    (low, high), (later_low, later_high) = (cv_bounds(deficit, number) for deficit in deficits)
    assert low <= later_low * LOOSE
    assert high <= later_high * LOOSE


@settings(max_examples=100, deadline=None)
@given(experts, st.floats(1e-3, 0.999))
def test_r2_read_the_other_way_is_its_inverse(number, fraction):
    cv = fraction * math.sqrt(number - 1)
    smallest, largest = deficit_bounds(cv, number)
    assert cv_bounds(smallest, number)[1] == pytest.approx(cv, rel=1e-9)
    assert cv_bounds(min(largest, math.log(number)), number)[0] == pytest.approx(cv, rel=1e-9)


@settings(max_examples=150, deadline=None)
@given(counts)
def test_r2_holds_both_ways_for_any_distribution(owned):
    stats = RoutingStats.from_counts(owned)
    low, high = cv_bounds(stats.entropy_deficit, stats.num_experts)
    smallest, largest = deficit_bounds(stats.cv, stats.num_experts)
    assert low <= stats.cv <= high
    assert smallest <= stats.entropy_deficit <= largest


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 12), st.floats(0.02, 0.98), unit)
def test_r2_every_cv_between_the_ends_occurs(number, fraction, place):
    """Walk from the even to the uneven end at one entropy, as the proof does: no CV is passed over."""
    deficit = fraction * math.log(number)
    low, high = cv_bounds(deficit, number)
    first, last = even_end(deficit, number), uneven_end(deficit, number)
    assert [first.cv, last.cv] == pytest.approx([low, high], rel=1e-6)
    wanted = low + place * (high - low)
    inner, outer = 0.0, 1.0
    for _ in range(25):
        middle = (inner + outer) / 2
        walked = towards_one(middle * last.probabilities + (1 - middle) * first.probabilities, deficit)
        inner, outer = (middle, outer) if walked.cv < wanted else (inner, middle)
    assert walked.entropy_deficit == pytest.approx(deficit, rel=1e-8)
    assert walked.cv == pytest.approx(wanted, rel=1e-5)


def bisect(shares_at, deficit):
    """The statistics at which the deficit, rising from place 0 to 1, has this value."""
    inner, outer = 0.0, 1.0
    for _ in range(45):
        middle = (inner + outer) / 2
        stats = RoutingStats.from_probabilities(shares_at(middle))
        inner, outer = (middle, outer) if stats.entropy_deficit < deficit else (inner, middle)
    return stats


def uneven_end(deficit, number):
    def shares(place):
        top = 1 / number + place * (1 - 1 / number)
        return [top] + [(1 - top) / (number - 1)] * (number - 1)

    return bisect(shares, deficit)


def even_end(deficit, number):
    support = max(math.ceil(number * math.exp(-deficit)), 2)

    def shares(place):
        last = (1 - place) / support
        return [(1 - last) / (support - 1)] * (support - 1) + [last] + [0] * (number - support)

    return bisect(shares, deficit)


def towards_one(shares, deficit):
    return bisect(lambda place: (1 - place) * shares + place * np.eye(len(shares))[0], deficit)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 64), st.floats(0.01, 0.98), st.floats(0.01, 0.98))
def test_r3_without_a_certificate_either_order_occurs(number, one, other):
    assume(abs(one - other) > 1e-6)
    smaller, larger = sorted(fraction * math.log(number) for fraction in (one, other))
    usual = select_layer({1: even_end(smaller, number), 2: uneven_end(larger, number)})
    reverse = select_layer({1: uneven_end(smaller, number), 2: even_end(larger, number)})
    assert usual.layer == usual.smallest_cv_layer == 1  # one number of experts: never provably the wrong order
    assert usual.certified == reverse.certified
    assert reverse.layer == 1
    assert reverse.certified == (reverse.row(1).cv <= reverse.row(2).cv)


@settings(max_examples=100, deadline=None)
@given(st.lists(counts, min_size=2, max_size=4))
def test_r3_a_certified_order_is_the_order_of_the_cvs(layers):
    selection = select_layer(dict(enumerate(layers)))
    ranked = sorted(selection.table, key=lambda stats: -stats.normalized_entropy)
    undecided = set(selection.undecided_pairs)
    assert selection.order_certified == (not undecided)
    for i, first in enumerate(ranked):
        for second in ranked[i + 1 :]:
            if tuple(sorted((first.layer, second.layer))) not in undecided:
                assert first.cv <= second.cv


def test_r3_different_numbers_of_experts_can_be_ordered_against_their_cv():
    selection = select_layer({1: [7, 3], 3: [100] + [1] * 511})
    assert (selection.layer, selection.certified, selection.smallest_cv_layer) == (3, False, 1)
    assert selection.row(1).cv_bounds_from_entropy()[1] < selection.row(3).cv_bounds_from_entropy()[0]


@pytest.mark.parametrize("population", [[0.5, 0.5], [0.9, 0.1], [0.7, 0.3, 0.0], [0.98, 0.01, 0.01]])
@pytest.mark.parametrize("n", [1, 2, 6, 12])
@pytest.mark.parametrize("error", [0.05, 0.5])
def test_r4_intervals_hold_over_all_outcomes(population, n, error):
    """Every outcome of n records with its probability: those whose intervals miss have at most ``error`` in all."""
    truth = RoutingStats.from_probabilities(population)
    missed = 0.0
    for owned, chance in outcomes(population, n):
        stats = RoutingStats.from_counts(owned)
        arguments = (stats.entropy_deficit, stats.cv, n, len(owned))
        low, high = deficit_interval(*arguments, error=error)
        low_cv, high_cv = cv_interval(*arguments, error=error)
        if not (low <= truth.entropy_deficit <= high and low_cv <= truth.cv <= high_cv):
            missed += chance
    assert missed <= error


def outcomes(population, n):
    """Each vector of counts of n records, and its probability."""
    chances = {(0,) * len(population): 1.0}
    for _ in range(n):
        after = Counter()
        for owned, chance in chances.items():
            for owner, share in enumerate(population):
                more = (*owned[:owner], owned[owner] + 1, *owned[owner + 1 :])
                after[more] += chance * share
        chances = after
    return [(owned, chance) for owned, chance in chances.items() if chance > 0]


@pytest.mark.parametrize("population", [[0.5, 0.5], [0.9, 0.1], [0.7, 0.3, 0.0], [0.98, 0.01, 0.01]])
@pytest.mark.parametrize("n", [1, 2, 6, 12])
def test_r4_bias_of_the_measured_statistics(population, n):
    truth = RoutingStats.from_probabilities(population)
    found = [(RoutingStats.from_counts(owned), chance) for owned, chance in outcomes(population, n)]
    bias = truth.entropy - sum(chance * stats.entropy for stats, chance in found)
    seen = sum(share > 0 for share in population)
    assert -1e-12 <= bias <= math.log1p((seen - 1) / n) + 1e-12
    chi2 = sum(chance * stats.chi2 for stats, chance in found)
    assert chi2 == pytest.approx(truth.chi2 * (1 - 1 / n) + (len(population) - 1) / n, rel=1e-12)
    assert sum(chance * stats.cv for stats, chance in found) >= truth.cv * (1 - 1e-12)


@settings(max_examples=100, deadline=None)
@given(counts, st.randoms(use_true_random=False))
def test_r4_one_record_moves_the_statistics_by_little(owned, random):
    """The bounded differences that McDiarmid's inequality takes."""
    n = sum(owned)
    moved = owned.copy()
    moved[random.choice([e for e, count in enumerate(owned) if count])] -= 1
    moved[random.randrange(len(owned))] += 1
    before, after = RoutingStats.from_counts(owned), RoutingStats.from_counts(moved)
    assert abs(before.cv - after.cv) <= math.sqrt(2 * len(owned)) / n * (1 + 1e-6)
    most = RoutingStats.from_counts([1, n - 1]).entropy if n > 1 else 0.0
    assert abs(before.entropy - after.entropy) <= most + 1e-12


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 500), min_size=2, max_size=9).filter(any), st.floats(0.5, 0.999))
def test_r4_confidence_holds_the_measured_values_and_widens_with_the_level(owned, level):
    stats = RoutingStats.from_counts(owned)
    narrow, wide = (stats.confidence(chosen, resamples=1) for chosen in (level, (1 + level) / 2))
    assert narrow.entropy_rigorous[1] >= stats.entropy * (1 - 1e-12)
    assert narrow.cv_rigorous[0] <= stats.cv * LOOSE
    for name in ("entropy_rigorous", "cv_rigorous"):
        inner, outer = getattr(narrow, name), getattr(wide, name)
        assert outer[0] <= inner[0] <= inner[1] <= outer[1]


def moved_shares(p, q, tau):
    """The distribution on the way from p to q whose total variation from p is at most tau."""
    distance = np.abs(p - q).sum() / 2
    return p + (q - p) * min(1.0, tau / distance) if distance > 0 else p


@settings(max_examples=100, deadline=None)
@given(st.data(), unit)
def test_r5_holds_every_distribution_within_tau(data, tau):
    owned = data.draw(counts)
    other = data.draw(st.lists(st.integers(0, 9), min_size=len(owned), max_size=len(owned)).filter(any))
    stats = RoutingStats.from_counts(owned)
    aim = RoutingStats.from_counts(other).probabilities
    shifted = RoutingStats.from_probabilities(moved_shares(stats.probabilities, aim, tau))
    bound = shift_bound(stats, tau)
    assert bound.cv[0] - 1e-7 <= shifted.cv <= bound.cv[1] + 1e-7
    assert bound.entropy[0] - 1e-9 <= shifted.entropy <= bound.entropy[1] + 1e-9
    reach = tau * math.sqrt(2 * len(owned))
    assert stats.cv - reach - 1e-6 <= bound.cv[0]
    assert bound.cv[1] <= stats.cv + reach + 1e-6


@settings(max_examples=100, deadline=None)
@given(experts, unit, unit)
def test_r5_is_attained(number, start, end):
    """Two experts apart from the others: the CV moves by the whole τ√(2E)."""
    c, moved = sorted((start / number, end / number))
    tau = moved - c
    tilted = np.full(number, 1 / number)
    tilted[:2] += c, -c
    stats = RoutingStats.from_probabilities(tilted)
    assert shift_bound(stats, tau).cv[1] == pytest.approx(stats.cv + tau * math.sqrt(2 * number), abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(counts, unit, unit)
def test_r5_widens_with_tau(owned, one, other):
    small, large = (shift_bound(owned, tau) for tau in sorted((one, other)))
    for name in ("cv", "entropy"):
        inner, outer = getattr(small, name), getattr(large, name)
        assert outer[0] <= inner[0] + 1e-7
        assert inner[1] <= outer[1] + 1e-7

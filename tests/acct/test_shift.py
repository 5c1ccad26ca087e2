"""The exact interval of CV and entropy within a total variation: attained, never left, and inside τ√(2E)."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.routing import RoutingStats
from raptor_acct.shift import shift_bound

some_counts = st.integers(2, 512).flatmap(
    lambda e: st.lists(st.one_of(st.just(0), st.integers(0, 50)), min_size=e, max_size=e).filter(any)
)


def distance(one, other):
    return np.abs(one.probabilities - other.probabilities).sum() / 2


def neighbours(shares, total_variation, rng, number):
    """Random distributions within the total variation: moves between two experts, towards random others, and both."""
    experts = len(shares)
    for _ in range(number):
        other = rng.dirichlet(np.full(experts, 10 ** rng.uniform(-2, 1)))
        reach = np.abs(other - shares).sum() / 2
        moved = shares + (other - shares) * min(1, rng.uniform(0.5, 1) * total_variation / max(reach, 1e-9))
        giver, taker = rng.choice(experts, 2, replace=False)
        left = max(0.0, total_variation - np.abs(moved - shares).sum() / 2)
        amount = min(moved[giver], left)
        moved[giver] -= amount
        moved[taker] += amount
        yield RoutingStats.from_probabilities(moved / moved.sum())


@settings(max_examples=60, deadline=None)
@given(some_counts, st.floats(0, 1))
def test_both_ends_are_attained_within_the_total_variation(counts, total_variation):
    stats = RoutingStats.from_counts(counts)
    bound = shift_bound(stats, total_variation)
    low, high = bound.most_even, bound.most_uneven
    assert (bound.cv, bound.entropy) == (pytest.approx((low.cv, high.cv)), pytest.approx((high.entropy, low.entropy)))
    assert max(distance(stats, low), distance(stats, high)) <= total_variation + 1e-12
    assert bound.cv[0] <= stats.cv * (1 + 1e-11) + 1e-15
    assert stats.cv * (1 - 1e-11) - 1e-15 <= bound.cv[1]
    assert bound.entropy[0] - 1e-12 <= stats.entropy <= bound.entropy[1] + 1e-12


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=8).filter(any), st.floats(0.001, 1), st.integers(0, 2**32 - 1))
def test_no_distribution_within_the_total_variation_is_outside(counts, total_variation, seed):
    stats = RoutingStats.from_counts(counts)
    bound = shift_bound(stats, total_variation)
    for near in neighbours(stats.probabilities, total_variation, np.random.default_rng(seed), 40):
        assert distance(stats, near) <= total_variation + 1e-9
        assert bound.cv[0] - 1e-9 <= near.cv <= bound.cv[1] + 1e-9
        assert bound.entropy[0] - 1e-8 <= near.entropy <= bound.entropy[1] + 1e-8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=4).filter(any), st.integers(0, 12))
def test_slow_twin_on_a_grid(counts, moved):
    """All distributions on a grid: none is outside, and where the most uneven one is on the grid it is the end."""
    stats, total = RoutingStats.from_counts(counts), sum(counts)
    steps = 60 if len(counts) < 4 else 24
    bound = shift_bound(stats, moved / 12)
    grid = np.stack(np.meshgrid(*[np.arange(steps + 1)] * (len(counts) - 1), indexing="ij"), axis=-1)
    grid = grid.reshape(-1, len(counts) - 1)
    shares = np.column_stack([grid, steps - grid.sum(axis=1)])[grid.sum(axis=1) <= steps] / steps
    near = shares[np.abs(shares - np.array(counts) / total).sum(axis=1) / 2 <= moved / 12 + 1e-12]
    cvs = np.sqrt(np.maximum(len(counts) * (near**2).sum(axis=1) - 1, 0))
    if len(near):
        assert bound.cv[0] - 1e-7 <= cvs.min()
        assert cvs.max() <= bound.cv[1] + 1e-7
        on_grid = (np.abs(bound.most_uneven.probabilities * steps % 1 - 0.5) > 0.5 - 1e-9).all()
        assert not on_grid or cvs.max() == pytest.approx(bound.cv[1], abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(some_counts, st.floats(0, 1), st.floats(0, 1))
def test_inside_the_triangle_inequality_and_monotone(counts, one, other):
    stats = RoutingStats.from_counts(counts)
    near, far = (shift_bound(stats, total_variation) for total_variation in sorted((one, other)))
    reach = max(one, other) * math.sqrt(2 * stats.num_experts)
    assert far.cv[1] - stats.cv <= reach * (1 + 1e-9) + 1e-9
    assert stats.cv - far.cv[0] <= reach * (1 + 1e-9) + 1e-9
    assert far.cv[0] <= near.cv[0] + 1e-9
    assert near.cv[1] <= far.cv[1] + 1e-9
    assert far.entropy[0] <= near.entropy[0] + 1e-9
    assert near.entropy[1] <= far.entropy[1] + 1e-9


@pytest.mark.parametrize("experts", [2, 8, 512])
def test_the_triangle_inequality_is_attained(experts):
    """From uniform, until an expert is empty; and with two experts from anywhere."""
    moved = 0.5 / experts
    assert shift_bound([1] * experts, moved).cv[1] == pytest.approx(moved * math.sqrt(2 * experts), rel=1e-9)
    assert shift_bound([7, 3], 0.1).cv == pytest.approx((0.4 - 0.2, 0.4 + 0.2), rel=1e-9)


@pytest.mark.parametrize("experts", [2, 3, 512])
def test_everything_is_possible_at_total_variation_1(experts):
    bound = shift_bound([1] * (experts - 1) + [5], 1)
    assert bound.cv == pytest.approx((0, math.sqrt(experts - 1)), rel=1e-11)
    assert bound.entropy == pytest.approx((0, math.log(experts)), rel=1e-11)
    assert bound.entropy[1] <= math.log(experts)


def test_no_shift_leaves_a_point():
    stats = RoutingStats.from_counts([6, 1, 1, 0], layer=3)
    bound = shift_bound(stats, 0)
    assert bound.cv == pytest.approx((stats.cv, stats.cv), rel=1e-11)
    assert bound.cv[0] <= stats.cv <= bound.cv[1]
    assert (bound.most_even.layer, bound.most_uneven.layer) == (3, 3)


def test_to_dict_is_json():
    bound = shift_bound([6, 1, 1, 0], 0.1)
    data = json.loads(json.dumps(bound.to_dict(), allow_nan=False))
    assert tuple(data["cv"]) == bound.cv
    assert RoutingStats.from_dict(data["most_even"]) == bound.most_even


@pytest.mark.parametrize("total_variation", [-0.1, 1.1, math.nan, True])
def test_refusals(total_variation):
    with pytest.raises(
        ValueError, match=re.escape(f"expected total_variation in [0, 1], got total_variation={total_variation}")
    ):
        shift_bound([1, 2], total_variation)

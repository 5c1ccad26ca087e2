"""RoutingStats and the owner rule: values, corners, properties, refusals."""

import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.entropy import cv_bounds, deficit_bounds
from raptor_acct.routing import RoutingStats, as_stats, by_layer, owners_from_gates, stats_by_layer

SHARED = Path(os.environ.get("RAPTOR_SHARED_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
RECORDS = SHARED / "routing" / "esft_intent_layer13_records.txt.gz"

# The paper's Table 7 as printed: encoder block, H/log E, log E - H, chi2 (E = 8)
TABLE_7_MNLI = [
    (1, 0.307, 1.442, 4.946),
    (3, 0.674, 0.677, 1.580),
    (5, 0.641, 0.746, 1.617),
    (7, 0.682, 0.660, 1.262),
    (9, 0.643, 0.743, 1.356),
    (11, 0.646, 0.736, 1.381),
]
# The paper's Table 9 as printed: CV, H/log E (E = 8)
TABLE_9 = [(0.344, 0.972), (2.185, 0.304), (1.123, 0.682), (2.224, 0.307), (0.627, 0.902), (1.121, 0.761)]

wide_counts = st.integers(2, 512).flatmap(
    lambda e: st.lists(st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 10**6)), min_size=e, max_size=e)
)
counts_lists = st.one_of(
    st.lists(st.integers(0, 10**5), min_size=2, max_size=40), st.lists(st.integers(0, 3), min_size=2, max_size=9)
).filter(any)


def shares(*levels):
    """A distribution from (number of experts, weight) pairs."""
    weights = np.concatenate([np.full(number, weight, dtype=float) for number, weight in levels])
    return RoutingStats.from_probabilities(weights / weights.sum())


def test_values_by_hand():
    stats = RoutingStats.from_counts([6, 1, 1, 0], layer=3)
    assert (stats.num_experts, stats.num_records, stats.layer, stats.counts) == (4, 8, 3, (6, 1, 1, 0))
    assert stats.probabilities.tolist() == [0.75, 0.125, 0.125, 0]
    entropy = -0.75 * math.log(0.75) + 0.25 * math.log(8)
    assert stats.entropy == pytest.approx(entropy, rel=1e-15)
    assert stats.normalized_entropy == pytest.approx(entropy / math.log(4), rel=1e-15)
    assert stats.entropy_deficit == pytest.approx(math.log(4) - entropy, rel=1e-14)
    assert stats.chi2 == pytest.approx(4 * (0.75**2 + 2 * 0.125**2) - 1, rel=1e-15)
    assert stats.cv == pytest.approx(np.std(stats.probabilities) / np.mean(stats.probabilities), rel=1e-14)
    assert stats.effective_experts == pytest.approx(math.exp(entropy), rel=1e-14)


@pytest.mark.parametrize("experts", [2, 3, 8, 49, 512])
def test_one_expert_owns_all(experts):
    stats = RoutingStats.from_owners([experts - 1] * 5, experts)
    assert (stats.entropy, stats.normalized_entropy, stats.effective_experts) == (0, 0, 1)
    assert stats.entropy_deficit == pytest.approx(math.log(experts), rel=1e-14)
    assert stats.cv == pytest.approx(math.sqrt(experts - 1), rel=1e-14)
    assert stats.cv_bounds_from_entropy() == pytest.approx((stats.cv, stats.cv), rel=1e-11)


@pytest.mark.parametrize("experts", [2, 3, 8, 49, 512])
@pytest.mark.parametrize("make", [RoutingStats.from_counts, RoutingStats.from_probabilities])
def test_uniform(experts, make):
    stats = make([7] * experts if make == RoutingStats.from_counts else [1 / experts] * experts)
    assert (stats.cv, stats.chi2, stats.entropy_deficit, stats.normalized_entropy) == (0, 0, 0, 1)
    assert stats.entropy == pytest.approx(math.log(experts), rel=1e-14)
    assert stats.cv_bounds_from_entropy() == (0, 0)


def test_near_uniform_has_no_cancellation():
    tilt = 1e-7  # log 8 - H computed as a difference would keep 2 digits of the 1.4e-15
    stats = RoutingStats.from_probabilities([(1 + tilt) / 8, (1 - tilt) / 8] + [1 / 8] * 6)
    assert stats.cv == pytest.approx(tilt / 2, rel=1e-7, abs=0)
    assert stats.entropy_deficit == pytest.approx(tilt**2 / 8, rel=1e-6, abs=0)
    low, high = stats.cv_bounds_from_entropy()
    assert low <= stats.cv <= high < low * 1.001


@pytest.mark.parametrize("scale", [1, 2**53 + 1, 2**64, 10**30])
def test_huge_counts_stay_exact(scale):
    stats = RoutingStats.from_counts([3 * scale, scale, 0, scale])
    assert stats.counts == (3 * scale, scale, 0, scale)
    assert stats.num_records == 5 * scale
    assert (stats.cv, stats.entropy) == (RoutingStats.from_counts([3, 1, 0, 1]).cv, pytest.approx(0.9502705, abs=1e-7))


def test_a_tiny_imbalance_of_counts_is_exact():
    assert RoutingStats.from_counts([10**12 + 1, 10**12 - 1]).cv == pytest.approx(1e-12, rel=1e-14, abs=0)


def test_uint64_counts_do_not_wrap():
    stats = RoutingStats.from_counts(np.array([2**64 - 1, 2**64 - 1], dtype=np.uint64))
    assert stats.num_records == 2**65 - 2
    assert stats.cv == 0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.float32, np.float64])
def test_any_whole_number_type(dtype):
    assert RoutingStats.from_counts(np.array([100, 27, 0], dtype=dtype)) == RoutingStats.from_counts([100, 27, 0])


def test_float32_probabilities_are_normalised():
    given_shares = np.random.default_rng(1).dirichlet(np.ones(512)).astype(np.float32)
    stats = RoutingStats.from_probabilities(given_shares)
    assert math.fsum(stats.probabilities) == pytest.approx(1, abs=4e-16)
    assert stats.probabilities == pytest.approx(given_shares, rel=1e-6)


def test_frozen():
    stats = RoutingStats.from_counts([1, 2])
    with pytest.raises(AttributeError):
        stats.layer = 3
    with pytest.raises(ValueError, match="read-only"):
        stats.probabilities[0] = 1


def with_entropy(normalized):
    """One expert of 8 above the others, so that H/log 8 is ``normalized``."""
    low, high = 1 / 8, 1.0
    for _ in range(60):
        top = (low + high) / 2
        stats = RoutingStats.from_probabilities([top] + [(1 - top) / 7] * 7)
        low, high = (top, high) if stats.normalized_entropy > normalized else (low, top)
    return stats


def mismatches(rows):
    """The blocks whose printed deficit or chi2 cannot go with the printed H/log E, given 3 printed digits."""
    blocks = []
    for block, normalized, deficit, chi2 in rows:
        stats = with_entropy(normalized)
        low, high = stats.cv_bounds_from_entropy()
        same_deficit = abs(stats.entropy_deficit - deficit) <= 0.0005 * (1 + math.log(8))
        if not (same_deficit and low < math.sqrt(chi2) < high):
            blocks.append(block)
    return blocks


def test_table_7_identities():
    assert mismatches(TABLE_7_MNLI) == []


def test_a_misprint_in_table_7_is_reported():
    misread = [(block, h, 0.736 if block == 5 else deficit, chi2) for block, h, deficit, chi2 in TABLE_7_MNLI]
    assert mismatches(misread) == [5]


@pytest.mark.parametrize(("cv", "normalized"), TABLE_9)
def test_table_9_lies_inside_the_sharp_bounds(cv, normalized):
    low, high = cv_bounds((1 - normalized) * math.log(8), 8)
    assert low < cv < high
    assert high - low < 0.55  # and the bounds say something: without them it is 0..2.65


@pytest.mark.parametrize("experts", [2, 3, 8, 64, 512])
@pytest.mark.parametrize("weight", [1, 1 + 1e-9, 1.001, 2, 30, 1e6])
def test_upper_bound_is_attained(experts, weight):
    stats = shares((1, weight), (experts - 1, 1))
    _, high = stats.cv_bounds_from_entropy()
    assert stats.cv <= high <= stats.cv * (1 + 1e-8)


@pytest.mark.parametrize(("experts", "level"), [(2, 1), (3, 2), (8, 1), (8, 5), (8, 7), (64, 20), (512, 1), (512, 511)])
@pytest.mark.parametrize("rest", [0, 1e-9, 0.01, 0.5, 1 - 1e-9, 1])
def test_lower_bound_is_attained(experts, level, rest):
    stats = shares((level, 1), (1, rest), (experts - level - 1, 0))
    low, _ = stats.cv_bounds_from_entropy()
    assert stats.cv * (1 - 1e-8) <= low <= stats.cv


@pytest.mark.parametrize("experts", [2, 3, 8, 512])
@pytest.mark.parametrize("deficit", [5e-324, 1e-310, 1e-280, 1e-100, 9e-41, 1.1e-40, 1e-20, 1e-8])
def test_near_uniform_both_bounds_are_the_root_of_twice_the_deficit(experts, deficit):
    """Down to the smallest float: CV² = 2·KL to first order, whatever the distribution."""
    assert cv_bounds(deficit, experts) == pytest.approx((math.sqrt(2 * deficit),) * 2, rel=0.02, abs=0)
    if deficit >= 1e-300:  # below, its own rounding is larger
        assert deficit_bounds(math.sqrt(2 * deficit), experts) == pytest.approx((deficit,) * 2, rel=0.02, abs=0)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 12), st.floats(0.001, 0.999), st.integers(0, 2**32 - 1))
def test_sharp_bounds_hold_at_fixed_entropy(experts, quantile, seed):
    """Slow twin: mix random distributions towards uniform until they have one given entropy; all CVs are inside."""
    target = quantile * math.log(experts)
    low, high = cv_bounds(math.log(experts) - target, experts)
    for start in np.random.default_rng(seed).dirichlet(np.full(experts, 0.3), size=4):
        if RoutingStats.from_probabilities(start).entropy >= target:
            continue
        inner, outer = 0.0, 1.0
        for _ in range(45):
            middle = (inner + outer) / 2
            mixed = (1 - middle) * start + middle / experts
            entropy = -sum(p * math.log(p) for p in mixed if p > 0)
            inner, outer = (middle, outer) if entropy < target else (inner, middle)
        cv = math.sqrt(experts * sum(mixed**2) - 1)
        assert low - 1e-6 <= cv <= high + 1e-6


@settings(max_examples=150, deadline=None)
@given(wide_counts.filter(any))
def test_r1_contains_r2_contains_cv(counts):
    stats = RoutingStats.from_counts(counts)
    low, high = stats.cv_bounds_from_entropy()
    assert low <= stats.cv <= high
    assert math.expm1(stats.entropy_deficit) <= low**2 * (1 + 1e-11) + 1e-15
    assert high**2 <= stats.num_experts * stats.entropy_deficit * (1 + 1e-11) + 1e-15
    assert 0 <= stats.normalized_entropy <= 1
    assert stats.entropy + stats.entropy_deficit == pytest.approx(math.log(stats.num_experts), rel=1e-13)


@settings(max_examples=150, deadline=None)
@given(counts_lists, st.randoms(use_true_random=False))
def test_permuting_experts_changes_no_bit(counts, random):
    shuffled = counts.copy()
    random.shuffle(shuffled)
    for make in (RoutingStats.from_counts, lambda c: RoutingStats.from_probabilities([x / sum(c) for x in c])):
        one, other = make(counts), make(shuffled)
        assert (one.entropy, one.cv, one.entropy_deficit) == (other.entropy, other.cv, other.entropy_deficit)


@settings(max_examples=150, deadline=None)
@given(counts_lists.filter(lambda c: len(c) > 2))
def test_merging_two_experts_never_raises_entropy(counts):
    merged = [counts[0] + counts[1], *counts[2:]]
    assert RoutingStats.from_counts(merged).entropy <= RoutingStats.from_counts(counts).entropy + 1e-14


@settings(max_examples=150, deadline=None)
@given(counts_lists, st.one_of(st.none(), st.integers(0, 99)), st.booleans())
def test_round_trip_through_json(counts, layer, as_shares):
    stats = RoutingStats.from_counts(counts, layer=layer)
    if as_shares:
        stats = RoutingStats.from_probabilities(np.array(counts, dtype=np.float32) / np.float32(sum(counts)))
    restored = RoutingStats.from_dict(json.loads(json.dumps(stats.to_dict(), allow_nan=False)))
    assert restored == stats
    assert hash(restored) == hash(stats)
    assert restored.to_dict() == stats.to_dict()


def test_equality_sees_every_field():
    stats = RoutingStats.from_counts([1, 3], layer=1)
    assert stats != RoutingStats.from_counts([1, 3], layer=2)
    assert stats != RoutingStats.from_counts([2, 6], layer=1)
    assert stats != RoutingStats.from_probabilities([0.25, 0.75], layer=1)
    assert stats != "stats"


def test_owners_give_counts():
    stats = RoutingStats.from_owners(np.array([0, 2, 2, 1, 2], dtype=np.uint8), np.int64(4), layer="5")
    assert (stats.counts, stats.layer) == ((1, 1, 3, 0), 5)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([3, -1], "expected counts[1] to be a whole number >= 0, got counts[1]=-1"),
        ([0, 0, 0], "expected counts of at least one record, got all 3 counts = 0"),
        ([1.0, math.nan], "got counts[1]=nan"),
        ([math.inf, 1.0], "got counts[0]=inf"),
        ([2.5, 1], "got counts[0]=2.5"),
        ([1e20, 1], "got counts[0]=1e+20"),
        ([True, False], "got counts[0]=True"),
        (np.array([True, False]), "got counts[0]=True"),
        (["3", "1"], "got counts[0]='3'"),
        ([None, 1], "got counts[0]=None"),
        ([1 + 0j, 1], "got counts[0]=(1+0j)"),
        ([[1], [2, 3]], "got counts[0]=[1]"),
        ("31", "got counts of shape ()"),
        (7, "got counts of shape ()"),
        ({0: 3, 1: 1}, "got counts of shape ()"),
        ([], "got counts of shape (0,)"),
        ([5], "at least 2 experts, got counts of shape (1,)"),
        ([[3, 0], [0, 3]], "one layer at a time, at least 2 experts, got counts of shape (2, 2)"),
    ],
)
def test_bad_counts(counts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RoutingStats.from_counts(counts)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.5, 0.4], "expected probabilities that sum to 1 within 1e-06, got sum 0.9"),
        ([0.5, 0.50001], "sum to 1"),
        ([1.2, -0.2], "got probabilities[1]=-0.2"),
        ([math.nan, 1.0], "got probabilities[0]=nan"),
        ([math.inf, 0.0], "got probabilities[0]=inf"),
        ([True, 0.0], "got probabilities[0]=True"),
        (["0.5", "0.5"], "got probabilities[0]='0.5'"),
        ([1.0], "at least 2 experts"),
        ([], "got probabilities of shape (0,)"),
        (np.full((2, 2), 0.25), "got probabilities of shape (2, 2)"),
        (0.5, "got probabilities of shape ()"),
    ],
)
def test_bad_probabilities(probabilities, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RoutingStats.from_probabilities(probabilities)


@pytest.mark.parametrize("num_experts", [0, -4, 2.5, 1, True, "8", None, math.nan])
def test_b11_bad_number_of_experts(num_experts):
    with pytest.raises(ValueError, match=r"expected num_experts to be a whole number >= 2, got num_experts="):
        RoutingStats.from_owners([0, 1], num_experts)


@pytest.mark.parametrize(
    "owners", [[0, 8], [-1, 2], [0.0, 1.0], [1.5], ["1"], [True], [], 3, [[0, 1], [1, 0]], [math.nan], None, [2**70]]
)
def test_bad_owners(owners):
    with pytest.raises(ValueError, match=r"^expected owners"):
        RoutingStats.from_owners(owners, 8)


@pytest.mark.parametrize("layer", [-1, 1.0, True, "one", "-1", "1.0", "", "²"])
def test_bad_layer(layer):
    with pytest.raises(ValueError, match=r"expected layer to be a whole number >= 0, got layer="):
        RoutingStats.from_counts([1, 2], layer=layer)


@pytest.mark.parametrize(("deficit", "experts"), [(-0.1, 8), (2.1, 8), (math.nan, 8), (0.5, 1), (0.5, 2.5)])
def test_bad_bounds(deficit, experts):
    with pytest.raises(ValueError, match=r"^expected (entropy_deficit|num_experts)"):
        cv_bounds(deficit, experts)


@pytest.mark.parametrize("data", [{}, {"counts": None}, {"layer": 3, "cv": 0.1}])
def test_dict_without_a_distribution(data):
    with pytest.raises(ValueError, match="expected 'counts' or 'probabilities'"):
        RoutingStats.from_dict(data)


def test_owner_rule():
    """The largest gate weight summed over real tokens owns; ties go to the lowest index; padding is ignored."""
    gates = np.zeros((5, 4, 3))
    gates[0, :, 1] = 0.4  # summed 1.6 against one token's 0.9: the sum decides, not the largest single weight
    gates[0, 0, 2] = 0.9
    gates[1, 0, 1], gates[1, 1, 2] = 0.5, 0.5  # a tie of experts 1 and 2
    gates[2, 0, 2], gates[2, 3, 0] = 0.3, 99.0  # the large one is on a padding token
    gates[3, 0] = [0.2, 0.2, 0.6]
    mask = np.ones((5, 4), dtype=int)
    mask[2, 3] = 0
    owners = owners_from_gates(gates, mask)  # record 4 activates no expert: ties everywhere
    assert owners.tolist() == [1, 1, 2, 2, 0]
    assert owners.dtype == np.int64
    assert RoutingStats.from_gates(gates, mask, layer=1).counts == (1, 2, 2)


def test_owner_rule_against_a_loop():
    rng = np.random.default_rng(5)
    gates, mask = rng.random((40, 9, 6)) * (rng.random((40, 9, 6)) < 0.4), rng.random((40, 9)) < 0.7
    mask[:, 0] = True
    expected = []
    for record in range(40):
        totals = [sum(gates[record, t, e] for t in range(9) if mask[record, t]) for e in range(6)]
        expected.append(totals.index(max(totals)))
    assert owners_from_gates(gates, mask).tolist() == expected


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_b33_padding_changes_nothing(records, tokens, experts, seed):
    rng = np.random.default_rng(seed)
    gates = rng.random((records, tokens, experts))
    mask = np.ones((records, tokens))
    padding = np.full((records, 100, experts), np.nan)
    padded = np.concatenate([gates, padding], axis=1)
    padded_mask = np.concatenate([mask, np.zeros((records, 100))], axis=1)
    for order in ("C", "F"):
        stats = RoutingStats.from_gates(np.array(padded, order=order), padded_mask)
        assert stats == RoutingStats.from_gates(gates, mask)


def test_b33_unmasked_padding_would_show():
    gates = np.array([[[0.9, 0.1], [0.0, 1.0], [0.0, 1.0]]])
    assert owners_from_gates(gates, [[1, 0, 0]]).tolist() == [0]
    assert owners_from_gates(gates, [[1, 1, 1]]).tolist() == [1]


@pytest.mark.parametrize(
    ("gates_shape", "mask_shape"),
    [((2, 5, 8), (2, 1, 5, 5)), ((2, 5, 8), (2, 4)), ((2, 5, 8), (5, 2)), ((3, 2, 5, 8), (2, 5)), ((5, 8), (5,))],
)
def test_b37_shapes_are_printed(gates_shape, mask_shape):
    message = f"mask of shape (records, tokens), got gates of shape {gates_shape} and mask of shape {mask_shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        RoutingStats.from_gates(np.ones(gates_shape), np.ones(mask_shape))


def with_value(value, *, experts=3):
    gates = np.ones((2, 2, experts))
    gates[1, 1, 0] = value
    return gates


@pytest.mark.parametrize(
    ("gates", "mask", "message"),
    [
        (with_value(math.nan), np.ones((2, 2)), "finite and >= 0"),
        (with_value(math.inf), np.ones((2, 2)), "finite and >= 0"),
        (with_value(-0.1), np.ones((2, 2)), "finite and >= 0"),
        (with_value(1).astype(str), np.ones((2, 2)), "expected gates to be real numbers"),
        (with_value(1) > 0, np.ones((2, 2)), "expected gates to be real numbers, got gates of type bool"),
        (with_value(1), np.full((2, 2), 0.5), "expected mask to hold only 1"),
        (with_value(1), np.full((2, 2), -1e4), "expected mask to hold only 1"),
        (with_value(1), np.full((2, 2), "1"), "expected mask to hold only 1"),
        (with_value(1), [[1, 1], [0, 0]], "expected a real token in every record, got none in record 1"),
        (
            with_value(1, experts=1),
            np.ones((2, 2)),
            "expected num_experts to be a whole number >= 2, got num_experts=1",
        ),
        (np.ones((0, 2, 3)), np.ones((0, 2)), "got gates of shape (0, 2, 3)"),
    ],
)
def test_bad_gates(gates, mask, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RoutingStats.from_gates(gates, mask)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 30), st.integers(2, 512), st.integers(0, 2**32 - 1))
def test_many_layers_at_once_are_each_layer_alone(layers, records, experts, seed):
    rng = np.random.default_rng(seed)
    numbers = rng.permutation(100)[:layers].tolist()
    rows = dict(zip(numbers, rng.integers(experts, size=(layers, records)), strict=True))
    alone = {n: RoutingStats.from_owners(rows[n], experts, layer=n) for n in sorted(rows)}
    for stats in (
        stats_by_layer(np.stack(list(rows.values())), experts, layers=numbers),
        stats_by_layer({str(n): row.tolist() for n, row in rows.items()}, experts),
    ):
        assert list(stats.items()) == list(alone.items())


@pytest.mark.parametrize(
    ("owners", "layers", "message"),
    [
        ([[0, 1]], None, "expected layers, the number of each row, with an array of owners and not with a mapping"),
        ({1: [0, 1]}, [1], "expected layers, the number of each row, with an array of owners and not with a mapping"),
        ([[0, 1], [1, 1]], [1], "expected every layer of the 2 in owners once, got layers [1]"),
        ([[0, 1], [1, 1]], [1, "1"], "expected every layer of the 2 in owners once, got layers [1, '1']"),
        ({None: [0, 1]}, None, "expected every layer of the 1 in owners once, got layers [None]"),
        ({}, None, "expected every layer of the 0 in owners once"),
        ([[0, 1], [1, 3]], [1, 5], "expected owners[5] in 0..2, got owners[5] from 1 to 3"),
        ([[0, 1], [1, 0.5]], [1, 5], "expected owners[5] of shape (records,) and whole numbers"),
        ({1: [0, 1], 3: [0]}, None, "expected the same records in every layer of owners, got numbers of records {1: 2"),
    ],
)
def test_bad_owners_of_many_layers(owners, layers, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        stats_by_layer(owners, 3, layers=layers)


@pytest.mark.parametrize("experts", [1, 0, 2.0])
def test_many_layers_need_two_experts(experts):
    with pytest.raises(ValueError, match="expected num_experts to be a whole number >= 2"):
        stats_by_layer([[0, 0]], experts, layers=[1])


def test_floats_that_sum_to_one_are_probabilities_else_whole_numbers_are_counts():
    assert as_stats("s", [0.25, 0.75]).num_records is None
    assert as_stats("s", [1.0, 0.0]).num_records is None
    assert as_stats("s", [0.5, 0.5, 0]).num_records is None
    assert as_stats("s", np.array([0.25, 0.75], dtype=np.float32)).num_records is None
    assert as_stats("s", [1, 0]).num_records == 1
    assert as_stats("s", [3.0, 1.0]).num_records == 4
    assert as_stats("s", np.array([3, 1], dtype=np.uint64)).counts == (3, 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0.5, 0.4], "expected s to be whole numbers >= 0 (counts), or floats that sum to 1 (probabilities)"),
        ([math.nan, 1.0], "expected s to be whole numbers"),
        ([1.5, -0.5], "expected s to be whole numbers"),
        ([-1.0, 2.0], "got counts[0]=-1"),
        (["a", 0.5], "expected s to be whole numbers"),
        ([True, 0], "got counts[0]=True"),
        (None, "expected s, got None; a dense layer has no router"),
        ([[1, 2]], "expected s of shape (experts,)"),
    ],
)
def test_neither_counts_nor_probabilities(value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        as_stats("s", value)


def test_b42_layers_are_never_pooled():
    """Two layers, each collapsed onto a different expert of 2: entropy 0 and 0, never a pooled ln 2."""
    layers = by_layer("stats", {1: [10, 0], 3: [0, 10]})
    assert [layers[1].entropy, layers[3].entropy] == [0, 0]
    with pytest.raises(ValueError, match="one layer at a time"):
        RoutingStats.from_counts([[10, 0], [0, 10]])
    with pytest.raises(ValueError, match="one layer"):
        RoutingStats.from_owners([[0, 0], [1, 1]], 2)


def test_layers_are_keyed_by_their_real_number():
    layers = by_layer("stats", {"3": [1, 2], np.int64(1): RoutingStats.from_counts([2, 2])})
    assert list(layers) == [1, 3]
    assert [stats.layer for stats in layers.values()] == [1, 3]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "expected stats to have at least one layer, got none"),
        ({1: [1, 2], "1": [1, 2]}, "expected every layer once in stats, got layer '1' twice"),
        ({"1": [1, 2], "01": [1, 2]}, "got layer '01' twice"),
        ({None: [1, 2]}, "got layer None twice or without a number"),
        ({True: [1, 2]}, "expected layer to be a whole number >= 0, got layer=True"),
        ({"block.1": [1, 2]}, "got layer='block.1'"),
        ({0: None, 1: [1, 2]}, "stats[0]: expected statistics, got None; a dense layer has no router"),
        (
            {1: RoutingStats.from_counts([1, 2], layer=3)},
            "stats[1]: expected statistics to be of layer 1, got statistics of layer 3",
        ),
        ([[1, 2], [3, 4]], "expected stats to be a mapping layer -> statistics, got list"),
        ({1: [1, 2], 3: [1, -2]}, "stats[3]: expected counts[1] to be a whole number >= 0, got counts[1]=-2"),
        ({1: {1: [1, 2]}}, "stats[1]: expected statistics of shape (experts,)"),
    ],
)
def test_bad_mappings(mapping, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        by_layer("stats", mapping)


@pytest.mark.skipif(not RECORDS.exists(), reason="the routing traces are not here; set RAPTOR_SHARED_DATA")
def test_real_records_of_one_layer():
    import gzip

    lines = gzip.decompress(RECORDS.read_bytes()).decode().splitlines()
    parsed = [[np.array(half.split("\t")) for half in line.split("\t\t")] for line in lines]
    tokens = max(len(experts) for experts, _ in parsed) // 6
    gates, mask = np.zeros((len(parsed), tokens, 64)), np.zeros((len(parsed), tokens), dtype=int)
    loop = []
    for record, (experts, weights) in enumerate(parsed):
        ids, values = experts.astype(int).reshape(-1, 6), weights.astype(float).reshape(-1, 6)
        mask[record, : len(ids)] = 1
        totals = dict.fromkeys(range(64), 0.0)
        for token, (chosen, weight) in enumerate(zip(ids, values, strict=True)):
            gates[record, token, chosen] = weight
            for expert, value in zip(chosen, weight, strict=True):
                totals[expert] += value
        loop.append(max(totals, key=lambda e: totals[e]))
    assert (len(parsed), mask.sum()) == (127, 8222)
    stats = RoutingStats.from_gates(gates, mask, layer=13)
    assert owners_from_gates(gates, mask).tolist() == loop
    assert stats.num_records == 127
    low, high = stats.cv_bounds_from_entropy()
    assert 0 < low <= stats.cv <= high

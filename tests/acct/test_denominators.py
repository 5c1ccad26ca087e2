"""The public denominators and the bias bound: what their numbers are, and what is refused."""

import csv
import gzip
import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.bias import bias_bound
from raptor_acct.denominators import RULES, bias_factors, public_denominators
from raptor_acct.routing import RoutingStats
from raptor_acct.routing_file import read_routing
from raptor_acct.selection import select_layer

SHARED = Path(os.environ.get("RAPTOR_SHARED_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
COUNTS = SHARED / "routing" / "olmoe_mixtral_expert_counts.csv.gz"

counts_lists = st.lists(st.integers(0, 10**5), min_size=2, max_size=64).filter(any)
SHRINKAGE = {
    "sampling_probability": 0.1,
    "noise_multiplier": 2.0,
    "num_parameters": 50,
    "mean_norm": 0.5,
    "second_moment": 0.8,
}
clip_norms = st.floats(1e-6, 1e6)


@settings(max_examples=150, deadline=None)
@given(counts_lists, clip_norms)
def test_rms_is_c_times_cv_and_the_root_of_the_mean_square(counts, clip_norm):
    stats = RoutingStats.from_counts(counts)
    bound = bias_bound(stats, clip_norm=clip_norm)
    assert bound.rms == clip_norm * stats.cv
    factors = np.abs(len(counts) * stats.probabilities - 1)
    assert bound.per_expert == pytest.approx(factors * clip_norm, abs=clip_norm * 1e-12)
    assert bound.rms == pytest.approx(math.sqrt(sum(b * b for b in bound.per_expert) / len(counts)), rel=1e-12)
    assert bound.squared_sum == pytest.approx(sum(b * b for b in bound.per_expert), rel=1e-12)
    assert bound.worst == max(bound.per_expert)
    assert bound.entropy_bounds[0] <= bound.rms <= bound.entropy_bounds[1]
    assert (bound.cv, bound.chi2) == (stats.cv, stats.chi2)


@settings(max_examples=150, deadline=None)
@given(counts_lists, clip_norms)
def test_dividing_by_b_shrinks_every_expert(counts, clip_norm):
    bound = bias_bound(counts, clip_norm=clip_norm, denominator="batch")
    shares = np.array(counts) / sum(counts)
    assert bound.per_expert == pytest.approx(clip_norm * (1 - shares), rel=1e-9, abs=clip_norm * 1e-12)
    experts = len(counts)
    assert bound.rms == pytest.approx(clip_norm * math.hypot(1 - 1 / experts, bound.cv / experts), rel=1e-12)
    assert bound.entropy_bounds[0] <= bound.rms <= bound.entropy_bounds[1]


@pytest.mark.parametrize(("denominator", "value"), [("expected_owner", 250.0), ("batch", 1000.0)])
def test_bound_is_the_bias_of_the_expected_release(denominator, value):
    """Exact expectation over Poisson sampling with gradients that all have norm C: the bound is met with equality."""
    counts, clip_norm, batch, records = [6, 1, 1, 0], 0.5, 1000.0, 8
    bound = bias_bound(counts, clip_norm=clip_norm, denominator=denominator, batch_size=batch)
    assert bound.denominator_value == value
    for owned, limit in zip(counts, bound.per_expert, strict=True):
        expected_release = (batch / records) * owned * clip_norm / value
        assert abs(expected_release - clip_norm) == pytest.approx(limit, abs=1e-12)


def test_uniform_routing_has_no_bias_and_collapse_the_most():
    assert bias_bound([5] * 8).rms == 0
    assert bias_bound([5] * 8).entropy_bounds == (0, 0)
    collapsed = bias_bound([0] * 7 + [3])
    assert (collapsed.worst, collapsed.rms) == (7, pytest.approx(math.sqrt(7)))


def test_mapping_gives_a_bound_a_layer_and_never_pools():
    bounds = bias_bound({"3": [0, 10], 1: RoutingStats.from_counts([10, 0])})
    assert list(bounds) == [1, 3]
    assert [bounds[layer].layer for layer in bounds] == [1, 3]
    assert [bounds[layer].rms for layer in bounds] == [1, 1]  # pooled it would be 0


def test_counts_and_probabilities_agree():
    assert bias_bound([3, 1]) == bias_bound([0.75, 0.25]) == bias_bound(np.array([3.0, 1.0]))


def test_to_dict_is_json():
    bound = bias_bound(RoutingStats.from_counts([3, 1], layer=7), batch_size=20)
    data = json.loads(json.dumps(bound.to_dict(), allow_nan=False))
    assert data["per_expert"] == [0.5, 0.5]
    assert (data["layer"], data["denominator"], data["denominator_value"], data["clip_norm"]) == (
        7,
        "expected_owner",
        10,
        1,
    )
    assert data.keys() >= {"rms", "worst", "squared_sum", "cv", "chi2", "entropy_bounds"}


@pytest.mark.parametrize("denominator", ["realized", "realised"])
def test_realized_denominator_is_refused_with_the_reason(denominator):
    with pytest.raises(ValueError, match=r"private.*whatever the noise multiplier.*'expected_owner'"):
        bias_bound([3, 1], denominator=denominator)


@pytest.mark.parametrize("denominator", ["", "mean", None, 4, ["batch"], [1.0, 2.0, 3.0], {}, [[1.0, 2.0]]])
def test_other_denominators_list_the_supported(denominator):
    message = r"expected denominator to be one of 'expected_owner', 'batch', 'public_share', 'shrinkage', or a vector"
    with pytest.raises(ValueError, match=message if not isinstance(denominator, str) else message.split(", or")[0]):
        bias_bound([3, 1], denominator=denominator, batch_size=10)


@pytest.mark.parametrize("rule", ["public_share", "shrinkage"])
def test_rules_that_need_public_routing_say_so(rule):
    message = f"one of 'expected_owner', 'batch', got denominator='{rule}'; for this one give public="
    with pytest.raises(ValueError, match=message):
        bias_bound([3, 1], denominator=rule, batch_size=10, **SHRINKAGE)


def test_a_share_of_zero_is_refused_with_the_expert_and_the_fix():
    message = r"public shares > 0, got 0 for expert 2; smooth the public counts.*denominator='shrinkage'"
    with pytest.raises(ValueError, match=message):
        bias_bound([3, 1, 1, 1], denominator="public_share", public=[3, 1, 0, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"denominator": [1.0, 0.0], "batch_size": 1}, "expected denominator[1] in (0, inf], got denominator[1]=0.0"),
        ({"denominator": [1.0, math.nan], "batch_size": 1}, "got denominator[1]=nan"),
        ({"denominator": [1.0, 1.0]}, "expected batch_size with denominator=[1.0, 1.0], got none"),
        (
            {"denominator": "shrinkage", "public": [1, 1], **SHRINKAGE},
            "expected batch_size with denominator='shrinkage'",
        ),
        ({"denominator": "shrinkage", "public": [1, 1], "batch_size": 9}, "got sampling_probability=None"),
        ({"denominator": "public_share", "public": [1, 1, 1]}, "expected public to be of 2 experts, got public of 3"),
        ({"denominator": [1e-200, 1.0], "batch_size": 1}, "expected denominators D of at least B·π/1e+100, got D[0]"),
        ({"denominator": [5e-324, 1.0], "batch_size": 1}, "got D[0]=4.94066e-324"),
    ],
)
def test_bad_denominators(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        bias_bound([3, 1], **arguments)


def test_an_unknown_argument_is_no_shrinkage_argument():
    with pytest.raises(TypeError, match="clip_nrm"):
        bias_bound([3, 1], clip_nrm=1.0)


def test_public_statistics_of_another_layer_are_refused():
    stats, public = RoutingStats.from_counts([3, 1], layer=1), RoutingStats.from_counts([3, 1], layer=3)
    with pytest.raises(ValueError, match="expected public to be of layer 1, got statistics of layer 3"):
        bias_bound(stats, denominator="public_share", public=public)
    with pytest.raises(ValueError, match=r"expected public of layers \[1\], got public of layers \[3\]"):
        bias_bound({1: [3, 1]}, denominator="public_share", public={3: [3, 1]})
    with pytest.raises(ValueError, match="expected public to be a mapping"):
        bias_bound({1: [3, 1]}, denominator="public_share", public=[3, 1])


def test_the_rules_are_their_formulas():
    public, batch, c, q, m = np.array([6, 1, 3, 2]) / 12, 1000.0, np.array([0.1, 0.5, 0.9, 1.0]), 0.25, 1.0
    made = {
        rule: public_denominators(
            rule,
            num_experts=4,
            batch_size=batch,
            public=[6, 1, 3, 2],
            sampling_probability=q,
            clip_norm=1.0,
            noise_multiplier=[1.0, 2.0, 3.0, 4.0],
            num_parameters=[100, 200, 300, 400],
            mean_norm=c,
            second_moment=m,
        )
        for rule in RULES
    }
    v = batch * public * (1 - q) * m + np.arange(1, 5) ** 2 * np.arange(100, 500, 100)
    expected = {
        "expected_owner": [250.0] * 4,
        "batch": [1000.0] * 4,
        "public_share": batch * public,
        "shrinkage": batch * public + v / (public * batch * c**2),
    }
    assert made.keys() == expected.keys()
    for rule, denominators in expected.items():
        assert made[rule] == pytest.approx(np.array(denominators), rel=1e-12), rule


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 64), st.data())
def test_public_share_is_unbiased_where_the_estimate_is_true_and_else_off_by_the_ratio(experts, data):
    counts = data.draw(st.lists(st.integers(0, 10**5), min_size=experts, max_size=experts).filter(any))
    public = data.draw(st.lists(st.integers(1, 10**5), min_size=experts, max_size=experts))
    bound = bias_bound(counts, denominator="public_share", public=public)
    ratios = np.array(counts) / sum(counts) / (np.array(public) / sum(public))
    assert bound.per_expert == pytest.approx(np.abs(ratios - 1), rel=1e-9, abs=1e-12)
    assert bound.rms == pytest.approx(math.sqrt(np.mean(np.square(bound.per_expert))), rel=1e-12)
    assert bias_bound(public, denominator="public_share", public=public).rms <= 1e-15 * experts
    assert bound.denominators is bound.denominator_value is None
    with_size = bias_bound(counts, denominator="public_share", public=public, batch_size=7.0)
    assert with_size.denominators == pytest.approx(7.0 * np.array(public) / sum(public))
    assert with_size.per_expert == pytest.approx(bound.per_expert, rel=1e-12, abs=1e-15)


@settings(max_examples=150, deadline=None)
@given(counts_lists, st.floats(1e-3, 1e6), st.floats(1e-3, 1e3))
def test_one_constant_for_all_has_entropy_bounds_that_hold(counts, batch, divisor):
    bound = bias_bound(counts, denominator=[divisor] * len(counts), batch_size=batch)
    assert (bound.denominator, bound.denominator_value) == ("constants", divisor)
    assert bound.entropy_bounds[0] <= bound.rms * (1 + 1e-12)
    assert bound.rms <= bound.entropy_bounds[1] * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(counts_lists, st.floats(-2, 2))
def test_the_best_single_constant(counts, log_scale):
    """(B/E)(1 + CV²) is the least squares fit of one D to all experts; B beats B/E where CV² > (E - 1)/(E + 1)."""
    experts, chi2 = len(counts), RoutingStats.from_counts(counts).chi2
    best = 100 / experts * (1 + chi2)
    rms = bias_bound(counts, denominator=[best] * experts, batch_size=100).rms
    assert rms == pytest.approx(math.sqrt(chi2 / (1 + chi2)), rel=1e-9, abs=1e-12)
    assert rms <= bias_bound(counts, denominator=[best * 10**log_scale] * experts, batch_size=100).rms + 1e-12
    gap = chi2 - (experts - 1) / (experts + 1)
    plain, batch = bias_bound(counts).rms, bias_bound(counts, denominator="batch").rms
    assert abs(gap) < 1e-9 or (plain > batch) == (gap > 0)


def test_unequal_constants_have_no_entropy_bounds():
    bound = bias_bound([3, 1], denominator=[2.0, math.inf], batch_size=8)
    assert (bound.entropy_bounds, bound.denominator_value, bound.denominators) == (None, None, (2.0, math.inf))
    assert bound.per_expert == (2.0, 1.0)
    assert json.loads(json.dumps(bound.to_dict(), allow_nan=False))["denominators"] == [2.0, None]


@settings(max_examples=100, deadline=None)
@given(counts_lists, st.floats(1e-3, 1e9))
def test_the_vector_of_a_rule_gives_the_bound_of_the_rule(counts, batch):
    public = [count + 1 for count in counts]
    for rule in RULES:
        setting = {"num_experts": len(counts), "batch_size": batch, "public": public, "clip_norm": 1.0, **SHRINKAGE}
        vector = public_denominators(rule, **setting)
        named = bias_bound(counts, denominator=rule, batch_size=batch, public=public, **SHRINKAGE)
        given_ = bias_bound(counts, denominator=vector, batch_size=batch)
        assert (named.per_expert, named.rms, named.entropy_bounds) == (
            given_.per_expert,
            given_.rms,
            given_.entropy_bounds,
        )


@pytest.mark.parametrize("sigma", [1e-200, 1.0, 1e30])
@pytest.mark.parametrize(("public", "mean_norm"), [([5, 0], 0.5), ([1, 1], 0.0), ([0, 1], 0.0), ([1, 1], 1e-200)])
def test_shrinkage_is_infinite_where_nothing_is_expected(public, mean_norm, sigma):
    arguments = SHRINKAGE | {"mean_norm": mean_norm, "noise_multiplier": sigma}
    made = public_denominators("shrinkage", num_experts=2, batch_size=1e-3, public=public, clip_norm=1.0, **arguments)
    nothing = np.array(public) * mean_norm**2 == 0
    assert np.array_equal(np.isinf(made), nothing)
    assert np.all(bias_factors(RoutingStats.from_counts([1, 1]), made, 1e-3)[nothing] == -1)


def test_the_table_of_the_layers_takes_the_public_layer_of_the_same_number():
    layers, public = {1: [3, 1], 3: [1, 3]}, {"3": [1, 1], "1": [3, 1]}
    bounds = bias_bound(layers, denominator="public_share", public=public)
    assert [bounds[layer].per_expert for layer in (1, 3)] == [(0.0, 0.0), (0.5, 0.5)]


@pytest.mark.parametrize("clip_norm", [0, -1, math.nan, math.inf, "1", True, None])
def test_bad_clip_norm(clip_norm):
    with pytest.raises(ValueError, match=r"expected clip_norm in \(0, 1e30\], got clip_norm="):
        bias_bound([3, 1], clip_norm=clip_norm)


@pytest.mark.parametrize("batch_size", [0, -1, math.nan, math.inf, "1000", True])
def test_b11_bad_expected_batch(batch_size):
    with pytest.raises(ValueError, match=r"expected batch_size in \(0, inf\), got batch_size="):
        bias_bound([3, 1], batch_size=batch_size)


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        ([0.5, 0.4], "expected routing_stats to be whole numbers >= 0 (counts), or floats that sum to 1"),
        ([3, -1], "got counts[1]=-1"),
        ([0, 0], "expected counts of at least one record"),
        ([3], "at least 2 experts"),
        ([[3, 1], [1, 3]], "one layer at a time"),
        ("31", "expected routing_stats of shape (experts,)"),
        (None, "got None"),
        ({}, "expected routing_stats to have at least one layer"),
        ({1: [1, 2], "1": [1, 2]}, "got layer '1' twice"),
    ],
)
def test_bad_statistics(stats, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        bias_bound(stats)


@pytest.mark.skipif(not COUNTS.exists(), reason="the expert counts are not here; set RAPTOR_SHARED_DATA")
def test_every_model_domain_and_layer_of_the_real_counts():
    with gzip.open(COUNTS, "rt", newline="") as stream:
        rows = list(csv.DictReader(stream))
    parts = sorted({(row["model"], row["domain"], row["selection"]) for row in rows})
    assert len(parts) == 23
    layers = 0
    for part in parts:
        where = dict(zip(("model", "domain", "selection"), part, strict=True))
        content = read_routing(COUNTS, where=where)
        selection = select_layer(content.layers)
        assert selection.layer in (0, 7, 15)
        for layer, bound in bias_bound(content.layers, clip_norm=0.5).items():
            mine = [
                int(row["count"])
                for row in rows
                if all(row[k] == v for k, v in where.items() | {("layer", str(layer))})
            ]
            mean = sum(mine) / len(mine)
            assert bound.rms == pytest.approx(0.5 * np.std(mine) / mean, rel=1e-9)
            assert bound.entropy_bounds[0] <= bound.rms <= bound.entropy_bounds[1]
            layers += 1
    assert layers == 69

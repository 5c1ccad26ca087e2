"""The bias bound: what its numbers are, against a simulation, and what is refused."""

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

from raptor_acct.denominators import bias_bound
from raptor_acct.routing import RoutingStats
from raptor_acct.routing_file import read_routing
from raptor_acct.selection import select_layer

SHARED = Path(os.environ.get("RAPTOR_SHARED_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
COUNTS = SHARED / "routing" / "olmoe_mixtral_expert_counts.csv.gz"

counts_lists = st.lists(st.integers(0, 10**5), min_size=2, max_size=64).filter(any)
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
    with pytest.raises(ValueError, match=r"private.*no finite sensitivity bound.*gradient is zero.*'expected_owner'"):
        bias_bound([3, 1], denominator=denominator)


@pytest.mark.parametrize("denominator", ["public_share", "shrinkage", "", None, 4, ["batch"]])
def test_other_denominators_list_the_supported(denominator):
    message = r"expected denominator to be one of 'expected_owner', 'batch', got denominator="
    with pytest.raises(ValueError, match=message):
        bias_bound([3, 1], denominator=denominator)


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

"""Intervals for the population's entropy and CV: coverage, what they rest on, corners, refusals, the command."""

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.cli.routing import routing
from raptor_acct.confidence import cv_interval, deficit_interval
from raptor_acct.entropy import cv_bounds, deficit_bounds
from raptor_acct.routing import RoutingStats

some_counts = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 10**6)), min_size=2, max_size=40).filter(any)


def population(experts, kind):
    """Shares of several shapes: even, one large, some zero, geometric."""
    weights = {
        "uniform": np.ones(experts),
        "one large": np.array([experts] + [1.0] * (experts - 1)),
        "half zero": np.array([1.0] * (experts // 2) + [0.0] * (experts - experts // 2)),
        "geometric": 0.7 ** np.arange(experts),
    }[kind]
    return RoutingStats.from_probabilities(weights / weights.sum())


def inside(interval, value):
    return interval[0] <= value <= interval[1]


def samples(truth, records, number, seed=0):
    draws = np.random.default_rng(seed).multinomial(records, truth.probabilities, size=number)
    return [RoutingStats.from_counts(draw) for draw in draws]


@pytest.mark.parametrize("kind", ["uniform", "one large", "half zero", "geometric"])
@pytest.mark.parametrize(("experts", "records"), [(2, 1), (2, 30), (8, 5), (8, 200), (64, 50), (512, 3000)])
def test_rigorous_intervals_cover_at_their_level(experts, records, kind):
    truth = population(experts, kind)
    level, number = 0.8, 200
    hits = 0
    for stats in samples(truth, records, number):
        known = (stats.entropy_deficit, stats.cv, records, experts)
        by_cv, by_deficit = (f(*known, error=1 - level) for f in (cv_interval, deficit_interval))
        hits += inside(by_cv, truth.cv) and inside(by_deficit, truth.entropy_deficit)
    assert hits >= level * number


@pytest.mark.parametrize(("kind", "records"), [("one large", 2000), ("geometric", 500), ("half zero", 500)])
def test_bootstrap_intervals_cover_near_their_level(kind, records):
    truth = population(8, kind)
    found = [stats.confidence(0.9, resamples=400, seed=i) for i, stats in enumerate(samples(truth, records, 200))]
    for hits in (
        sum(inside(one.entropy_bootstrap, truth.entropy) for one in found),
        sum(inside(one.cv_bootstrap, truth.cv) for one in found),
    ):
        assert hits >= 200 * 0.8  # six standard deviations of a binomial below 0.9 would be 0.77
    assert sum(one.cv_bootstrap[0] > 0 for one in found) > 190  # and they say something


def test_bootstrap_of_a_uniform_population_reaches_zero():
    found = [stats.confidence(0.9, resamples=400) for stats in samples(population(8, "uniform"), 1000, 100)]
    assert sum(one.cv_bootstrap[0] == 0 for one in found) >= 80
    assert max(one.cv_bootstrap[1] for one in found) < 0.3


def test_miller_madow_takes_most_of_the_bias():
    truth = population(8, "geometric")
    found = [stats.confidence(resamples=1) for stats in samples(truth, 200, 1000)]
    plug_in = np.mean([one.entropy for one in found]) - truth.entropy
    corrected = np.mean([one.entropy_miller_madow for one in found]) - truth.entropy
    assert plug_in == pytest.approx(-7 / 400, rel=0.25)
    assert abs(corrected) < abs(plug_in) / 4


def test_miller_madow_by_hand():
    found = RoutingStats.from_counts([6, 1, 1, 0]).confidence(resamples=10)
    assert found.entropy_miller_madow == pytest.approx(found.entropy + 2 / 16, rel=1e-15)
    assert RoutingStats.from_counts([1, 1]).confidence(resamples=10).entropy_miller_madow == math.log(2)


@pytest.mark.parametrize("records", [1, 2, 3, 10, 57])
def test_one_record_moves_the_entropy_by_no_more_than_the_bound(records):
    """All pairs of counts of two experts, which are all that one record can touch."""
    moved = [
        abs(sum(x / records * math.log(x / records) for x in before if x) - sum(
            x / records * math.log(x / records) for x in after if x
        ))
        for total in range(1, records + 1)
        for a in range(total)
        for before, after in [((a, total - a), (a + 1, total - a - 1))]
    ]  # fmt: skip
    change = math.log(records) / records - (records - 1) / records * math.log1p(-1 / records) if records > 1 else 0.0
    assert max(moved) == pytest.approx(change, abs=1e-14)
    # where nothing is measured the entropy's interval is bias and reach alone: read the bound from it
    low, high = deficit_interval(5.0, 13.0, records, 512, error=4 / math.e**2)
    assert high - 5.0 <= change * math.sqrt(records) + 1e-9
    assert 5.0 - low <= change * math.sqrt(records) + math.log1p(511 / records) + 1e-9


@pytest.mark.parametrize(("experts", "records"), [(2, 40), (8, 1000), (128, 100_000)])
@pytest.mark.parametrize("cv", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("error", [0.5, 0.05, 1e-9])
def test_narrower_than_the_triangle_inequality(experts, records, cv, error):
    """Theory.md's |CV - ĈV| ≤ √E(1 + √log(1/β))/√n, at the same number of events."""
    low, high = cv_interval(deficit_bounds(cv, experts)[0], cv, records, experts, error=error)
    reach = math.sqrt(experts / records) * (1 + math.sqrt(math.log(4 / error)))
    assert high < cv + reach
    assert low >= max(0.0, cv - reach)


@pytest.mark.parametrize(("experts", "records"), [(2, 5), (8, 30), (64, 200)])
@pytest.mark.parametrize("kind", ["uniform", "one large", "geometric"])
def test_mean_of_the_squared_cv_is_exact(experts, records, kind):
    truth = population(experts, kind)
    squares = [stats.chi2 for stats in samples(truth, records, 4000)]
    expected = truth.chi2 * (1 - 1 / records) + (experts - 1) / records
    assert np.mean(squares) == pytest.approx(expected, abs=5 * np.std(squares) / math.sqrt(4000) + 1e-12)


@settings(max_examples=150, deadline=None)
@given(some_counts, st.floats(1e-12, 1), st.floats(1e-12, 1))
def test_intervals_hold_what_was_measured_and_nest(counts, one, other):
    stats = RoutingStats.from_counts(counts)
    known = (stats.entropy_deficit, stats.cv, stats.num_records, stats.num_experts)
    wide, narrow = min(one, other), max(one, other)
    for interval, value in ((cv_interval, stats.cv), (deficit_interval, stats.entropy_deficit)):
        outer, inner = interval(*known, error=wide), interval(*known, error=narrow)
        assert outer[0] <= inner[0] <= value * (1 + 1e-12) + 1e-15
        assert value * (1 - 1e-12) - 1e-15 <= inner[1] <= outer[1]
    assert outer[1] <= math.log(stats.num_experts) * (1 + 1e-11)


@settings(max_examples=150, deadline=None)
@given(some_counts)
def test_more_records_of_the_same_shares_say_more(counts):
    few, many = (RoutingStats.from_counts([k * count for count in counts]) for k in (1, 100))
    for interval in (cv_interval, deficit_interval):
        a, b = (
            interval(s.entropy_deficit, s.cv, s.num_records, s.num_experts, error=0.05) for s in (few, many)
        )  # fmt: skip
        assert a[0] <= b[0] * (1 + 1e-9) + 1e-12
        assert b[1] <= a[1] * (1 + 1e-9) + 1e-12


def test_astronomical_counts_shrink_to_a_point():
    stats = RoutingStats.from_counts([6 * 10**400, 10**400, 10**400, 0])
    low, high = cv_interval(stats.entropy_deficit, stats.cv, stats.num_records, 4, error=1e-9)
    assert high - low < 1e-10


@settings(max_examples=40, deadline=None)
@given(some_counts, st.floats(0.01, 0.99), st.randoms(use_true_random=False))
def test_every_interval_is_inside_what_is_possible(counts, level, random):
    stats = RoutingStats.from_counts(counts)
    found = stats.confidence(level, resamples=50)
    largest, largest_cv = math.log(stats.num_experts), math.sqrt(stats.num_experts - 1) * (1 + 1e-11)
    for low, high in (found.entropy_rigorous, found.entropy_bootstrap):
        assert 0 <= low <= high <= largest
    for low, high in (found.cv_rigorous, found.cv_bootstrap):
        assert 0 <= low <= high <= largest_cv
    assert inside(found.cv_rigorous, found.cv)
    random.shuffle(counts)
    shuffled = RoutingStats.from_counts(counts).confidence(level, resamples=50)
    assert (shuffled.cv_rigorous, shuffled.entropy_rigorous) == (found.cv_rigorous, found.entropy_rigorous)


def test_one_seed_one_answer():
    stats = RoutingStats.from_counts([30, 20, 10])
    assert stats.confidence(seed=3) == stats.confidence(seed=3)
    assert stats.confidence(seed=3).cv_bootstrap != stats.confidence(seed=4).cv_bootstrap
    assert stats.confidence(seed=3).cv_rigorous == stats.confidence(seed=4).cv_rigorous


def test_many_experts_are_resampled_in_blocks():
    """60 samples of 20,000 experts do not fit one block; the blocks draw the same stream of samples."""
    counts = np.random.default_rng(1).integers(0, 300, 20_000)
    found = RoutingStats.from_counts(counts).confidence(resamples=60)
    draws = np.random.default_rng(0).multinomial(counts.sum(), counts / counts.sum(), size=60)
    chi2 = draws.var(axis=1) / counts.mean() ** 2
    assert found.cv_bootstrap[0] > 0
    assert found.cv_bootstrap[0] ** 2 == pytest.approx(2 * found.cv**2 - np.quantile(chi2, 0.975), abs=1e-9)


def test_to_dict_is_json():
    found = RoutingStats.from_counts([6, 1, 1, 0]).confidence(0.5, resamples=10)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (data["level"], data["num_records"], data["num_experts"]) == (0.5, 8, 4)
    assert tuple(data["cv_rigorous"]) == found.cv_rigorous


@pytest.mark.parametrize(
    ("stats", "arguments", "message"),
    [
        (RoutingStats.from_probabilities([0.5, 0.5]), {}, "expected statistics from counts, got only probabilities"),
        (RoutingStats.from_counts([1, 1]), {"level": 1}, "expected level in (0, 1), got level=1"),
        (RoutingStats.from_counts([1, 1]), {"level": math.nan}, "expected level in (0, 1), got level=nan"),
        (RoutingStats.from_counts([1, 1]), {"resamples": 0}, "expected resamples to be a whole number >= 1"),
        (RoutingStats.from_counts([1, 1]), {"seed": -1}, "expected seed to be a whole number >= 0, got seed=-1"),
        (RoutingStats.from_counts([2**60, 1]), {}, "expected num_records to be a whole number <= 9007199254740992"),
    ],
)
def test_refusals(stats, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        stats.confidence(**arguments)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 512), st.floats(0, 1))
def test_deficit_bounds_invert_cv_bounds(experts, fraction):
    cv = fraction * math.sqrt(experts - 1)
    low, high = deficit_bounds(cv, experts)
    assert 0 <= low <= high <= math.log(experts) * (1 + 1e-11)
    assert cv_bounds(low, experts)[1] == pytest.approx(cv, rel=1e-6, abs=1e-8)
    assert cv_bounds(min(high, math.log(experts)), experts)[0] == pytest.approx(cv, rel=1e-6, abs=1e-8)


@settings(max_examples=150, deadline=None)
@given(some_counts)
def test_deficit_bounds_hold_the_deficit(counts):
    stats = RoutingStats.from_counts(counts)
    low, high = deficit_bounds(stats.cv, stats.num_experts)
    assert low * (1 - 1e-11) - 1e-15 <= stats.entropy_deficit <= high * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize(("cv", "experts", "message"), [(2.7, 8, "expected cv in [0, 2.64"), (0.1, 1, "num_experts=1")])
def test_deficit_bounds_refuse(cv, experts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        deficit_bounds(cv, experts)


def test_the_command_adds_a_table_and_keeps_its_json():
    text = json.dumps({"layers": {"1": {"counts": [97, 1, 1, 1]}, "3": {"counts": [26, 25, 25, 24]}}})
    plain, added = (CliRunner().invoke(routing, ["-", *args], input=text) for args in ([], ["--level", "0.9"]))
    assert added.output.startswith(plain.output)
    lines = added.output.splitlines()
    rows = lines[lines.index(next(line for line in lines if "rigorous" in line)) :][:4]
    assert len({len(row) for row in rows}) == 1  # aligned
    found = RoutingStats.from_counts([97, 1, 1, 1]).confidence(0.9)
    assert f"{found.cv_rigorous[0]:.4g}..{found.cv_rigorous[1]:.4g}" in rows[2]
    assert f"{found.entropy_rigorous[0]:.4f}..{found.entropy_rigorous[1]:.4f}" in rows[2]
    old = json.loads(CliRunner().invoke(routing, ["-", "--json"], input=text).stdout)
    new = json.loads(CliRunner().invoke(routing, ["-", "--json", "--level", "0.9"], input=text).stdout)
    assert new["layers"]["1"].pop("confidence") == found.to_dict()
    new["layers"]["3"].pop("confidence")
    assert new == old


@pytest.mark.parametrize(("level", "message"), [("1.5", "got level=1.5"), ("nan", "got level=nan")])
def test_the_command_refuses_in_one_line(level, message):
    result = CliRunner().invoke(routing, ["-", "--level", level], input='{"layers": {"1": {"counts": [3, 1]}}}')
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr

"""The mean squared error: against the release itself, its parts in every argument, and the best denominator."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct.bias import bias_bound
from raptor_acct.denominators import RULES, public_denominators
from raptor_acct.mse import mse
from raptor_acct.routing import RoutingStats

SETTING = {
    "batch_size": 1000.0,
    "sampling_probability": 0.01,
    "clip_norm": 1.0,
    "noise_multiplier": 2.0,
    "num_parameters": 500,
    "mean_norm": 0.4,
    "second_moment": 0.9,
}
PARTS = ("bias2", "sampling", "noise", "total")


@st.composite
def cases(draw):
    """Counts with zeros, E from 2 to 512, moments that obey Jensen, σ from 1e-8 to 1e8, q up to 1."""
    experts = draw(st.sampled_from([2, 3, 8, 512]) | st.integers(2, 40))
    shape = draw(st.sampled_from(["drawn", "uniform", "collapsed", "halved"]))
    made = {
        "drawn": np.random.default_rng(draw(st.integers(0, 2**32))).geometric(0.01, experts) - 1,
        "uniform": np.full(experts, 7),
        "collapsed": np.eye(experts, dtype=int)[0],
        "halved": np.arange(experts) % 2,
    }
    counts = made[shape] if made[shape].any() else made["uniform"]
    clip = 10.0 ** draw(st.floats(-3, 3))
    second = clip**2 * draw(st.just(1.0) | st.floats(1e-6, 1))
    setting = {
        "batch_size": 10.0 ** draw(st.floats(-1, 6)),
        "sampling_probability": draw(st.just(1.0) | st.floats(1e-6, 1)),
        "clip_norm": clip,
        "noise_multiplier": 10.0 ** draw(st.floats(-8, 8)),
        "num_parameters": draw(st.integers(1, 10**9)),
        "mean_norm": math.sqrt(second) * draw(st.just(0.0) | st.just(1.0) | st.floats(1e-6, 1)),
        "second_moment": second,
    }
    return counts.tolist(), setting


def simulated(owners, gradients, targets, denominators, *, q, sigma, clip_norm, releases, seed):
    """Return the squared errors of real releases, [releases, experts]: Poisson sample, sum, noise, divide."""
    rng = np.random.default_rng(seed)
    owned = np.eye(len(denominators))[owners]  # [records, experts]
    blocks = (owned[:, :, None] * gradients[:, None, :]).reshape(len(owners), -1)
    sampled = (rng.random((releases, len(owners))) < q).astype(float)
    sums = (sampled @ blocks).reshape(releases, len(denominators), -1)
    noisy = sums + sigma * clip_norm * rng.standard_normal(sums.shape)
    return np.sum((noisy / denominators[:, None] - targets) ** 2, axis=2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("q", "sigma"), [(0.3, 0.5), (1.0, 1.0), (0.05, 0.02)])
def test_mse_is_that_of_the_release(rule, q, sigma):
    """Within 6 standard errors of a simulation, with an expert that owns nothing."""
    records, experts, dimension, clip_norm = 60, 5, 4, 0.7
    rng = np.random.default_rng(5)
    owners = rng.choice(experts - 1, records, p=[0.6, 0.25, 0.1, 0.05])
    gradients = rng.standard_normal((records, dimension)) + 1.0
    gradients *= np.minimum(1.0, clip_norm / np.linalg.norm(gradients, axis=1))[:, None]
    stats = RoutingStats.from_owners(owners, experts)
    batch, public = q * records, [20, 20, 10, 5, 5]
    squares = np.sum(gradients**2, axis=1)
    means = [gradients[owners == e].mean(axis=0) if e < experts - 1 else np.zeros(dimension) for e in range(experts)]
    exact = mse(
        stats,
        rule,
        public=public,
        batch_size=batch,
        sampling_probability=q,
        clip_norm=clip_norm,
        noise_multiplier=sigma,
        num_parameters=dimension,
        mean_norm=np.linalg.norm(means, axis=1),
        second_moment=[squares[owners == e].mean() if e < experts - 1 else 0.0 for e in range(experts)],
    )
    errors = simulated(
        owners, gradients, means, exact.denominators, q=q, sigma=sigma, clip_norm=clip_norm, releases=20_000, seed=11
    )
    standard_error = np.std(errors, axis=0) / math.sqrt(len(errors))
    assert np.all(np.abs(errors.mean(axis=0) - exact.total) <= 6 * standard_error + 1e-12)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_parts_are_the_formula(case):
    counts, setting = case
    stats, batch = RoutingStats.from_counts(counts), setting["batch_size"]
    for rule in RULES:
        if rule == "public_share" and 0 in counts:
            continue
        made = mse(stats, rule, public=stats, **setting)
        d, pi = made.denominators, stats.probabilities
        c = np.where(pi > 0, setting["mean_norm"], 0.0)
        spread = setting["noise_multiplier"] * setting["clip_norm"]
        factor = batch * pi / d - 1
        assert made.bias2 == pytest.approx((factor * c) ** 2, rel=1e-6, abs=1e-12 * setting["clip_norm"] ** 2)
        drawn = (1 - setting["sampling_probability"]) * setting["second_moment"]
        assert made.sampling == pytest.approx(batch * pi / d**2 * drawn, rel=1e-9)
        assert made.noise == pytest.approx((spread / d) ** 2 * setting["num_parameters"], rel=1e-9)
        assert np.array_equal(made.total, made.bias2 + made.sampling + made.noise)
        assert made.mean == {part: float(np.mean(getattr(made, part))) for part in PARTS}
        assert np.isfinite(made.total).all()


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_permuting_the_experts_permutes_the_errors(case, random):
    counts, setting = case
    order = list(range(len(counts)))
    random.shuffle(order)
    moments = {"mean_norm": setting["mean_norm"] * np.linspace(0, 1, len(counts))}
    public = [count + 1 for count in counts]
    for rule in RULES:
        one = mse(counts, rule, public=public, **setting | moments)
        shuffled = {"mean_norm": moments["mean_norm"][order]}
        other = mse([counts[i] for i in order], rule, public=[public[i] for i in order], **setting | shuffled)
        for part in PARTS:
            assert getattr(other, part) == pytest.approx(getattr(one, part)[order], rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(cases(), st.floats(1, 100))
def test_monotone_in_every_argument(case, factor):
    """For given denominators: each argument moves its own parts one way, and leaves the others alone."""
    counts, setting = case
    denominators = [setting["batch_size"] / (i + 1) for i in range(len(counts))]
    before = mse(counts, denominators, **setting)

    def changed(**arguments):
        return mse(counts, denominators, **setting | arguments)

    for argument in ("noise_multiplier", "num_parameters", "clip_norm"):
        after = changed(**{argument: setting[argument] * factor})
        assert np.all(after.noise >= before.noise * (1 - 1e-12))
        assert np.array_equal(after.bias2, before.bias2)
        assert np.array_equal(after.sampling, before.sampling)
    after = changed(sampling_probability=min(1.0, setting["sampling_probability"] * factor))
    assert np.all(after.sampling <= before.sampling)
    assert np.array_equal(after.noise, before.noise)
    after = changed(mean_norm=setting["mean_norm"] / factor)
    assert np.all(after.bias2 <= before.bias2)
    assert np.array_equal(after.sampling, before.sampling)
    after = changed(mean_norm=0.0, second_moment=setting["second_moment"] / factor)
    assert np.all(after.sampling <= before.sampling)
    after = mse(counts, np.multiply(denominators, factor), **setting)
    assert np.all(after.noise <= before.noise)
    assert np.all(after.sampling <= before.sampling)


def test_sampling_all_records_has_no_sampling_variance():
    assert not mse([3, 1, 0], "batch", **SETTING | {"sampling_probability": 1.0}).sampling.any()


@settings(max_examples=200, deadline=None)
@given(cases(), st.floats(-3, 3))
def test_shrinkage_from_the_true_routing_is_the_best_for_every_expert(case, log_scale):
    counts, setting = case
    best = mse(counts, "shrinkage", public=counts, **setting)
    others = [
        mse(counts, "expected_owner", **setting),
        mse(counts, "batch", **setting),
        mse(counts, "public_share", public=[count + 1 for count in counts], **setting),
        mse(counts, np.minimum(best.denominators, 1e300) * 10**log_scale, **setting),
    ]
    for other in others:
        assert np.all(best.total <= other.total * (1 + 1e-9))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_the_least_error_in_closed_form(case):
    """At D*: ‖c̄‖² V / ((Bπ‖c̄‖)² + V), which is below ‖c̄‖², the error of releasing nothing."""
    counts, setting = case
    best = mse(counts, "shrinkage", public=counts, **setting)
    expected = setting["batch_size"] * np.array(counts) / sum(counts)
    c2 = setting["mean_norm"] ** 2
    spread = setting["noise_multiplier"] * setting["clip_norm"]
    v = (
        expected * (1 - setting["sampling_probability"]) * setting["second_moment"]
        + spread**2 * setting["num_parameters"]
    )
    least = np.where(expected > 0, c2 * v / (expected**2 * c2 + v), 0.0)
    assert best.total == pytest.approx(least, rel=1e-7, abs=1e-14 * setting["clip_norm"] ** 2)
    assert np.all(best.total <= c2 * (1 + 1e-9))


@settings(max_examples=200, deadline=None)
@given(cases(), st.integers(0, 2**32))
def test_shrinkage_beats_the_plain_one_between_two_ends(case, seed):
    """1/D errs no more than E/B exactly between E/B and 2/D* - E/B, however far off the public routing is."""
    counts, setting = case
    public = np.random.default_rng(seed).geometric(0.05, len(counts))
    plain = mse(counts, "expected_owner", **setting)
    made = mse(counts, "shrinkage", public=public, **setting)
    best = 1 / public_denominators("shrinkage", num_experts=len(counts), public=counts, **setting)
    ends = np.sort([1 / plain.denominators, 2 * best - 1 / plain.denominators], axis=0)
    inverse, margin = 1 / made.denominators, 1e-6 * np.abs(ends).max(axis=0)
    inside = (inverse >= ends[0] + margin) & (inverse <= ends[1] - margin)
    outside = (inverse <= ends[0] - margin) | (inverse >= ends[1] + margin)
    assert np.all((made.total <= plain.total * (1 + 1e-9))[inside])
    assert np.all((made.total >= plain.total * (1 - 1e-9))[outside])


@settings(max_examples=150, deadline=None)
@given(cases())
def test_b1_bias_is_at_most_c_times_cv(case):
    counts, setting = case
    stats = RoutingStats.from_counts(counts)
    made = mse(stats, "expected_owner", **setting)
    bound = bias_bound(stats, clip_norm=setting["clip_norm"])
    assert math.sqrt(made.mean["bias2"]) <= bound.rms * (1 + 1e-9)
    assert np.all(np.sqrt(made.bias2) <= np.array(bound.per_expert) * (1 + 1e-9))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 10**5), min_size=2, max_size=512), st.floats(1e-3, 1e3))
def test_b1_is_met_when_all_gradients_of_an_expert_are_one_vector_of_norm_c(counts, clip_norm):
    moments = {"clip_norm": clip_norm, "mean_norm": clip_norm, "second_moment": clip_norm**2}
    made = mse(counts, "expected_owner", **SETTING | moments)
    assert math.sqrt(made.mean["bias2"]) == pytest.approx(bias_bound(counts, clip_norm=clip_norm).rms, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_b1_noise_does_not_depend_on_routing(case):
    counts, setting = case
    experts = len(counts)
    noise = mse(counts, "expected_owner", **setting).noise
    spread = setting["noise_multiplier"] * setting["clip_norm"] * experts / setting["batch_size"]
    assert np.all(noise == noise[0])
    assert np.array_equal(noise, mse([1] * experts, "expected_owner", **setting).noise)
    assert noise[0] == pytest.approx(spread**2 * setting["num_parameters"], rel=1e-12)


def test_b2_the_batch_shrinks_and_b3_the_oracle_is_unbiased_but_loud():
    counts = [500, 490, 10]
    batch, oracle = mse(counts, "batch", **SETTING), mse(counts, "public_share", public=counts, **SETTING)
    assert batch.bias2 == pytest.approx((np.array([0.5, 0.51, 0.99]) * 0.4) ** 2)
    assert not oracle.bias2.any()
    assert oracle.noise[2] / oracle.noise[0] == pytest.approx(50**2)


def test_an_expert_that_owns_nothing_has_only_noise():
    made = mse([3, 1, 0], "expected_owner", **SETTING)
    assert (made.bias2[2], made.sampling[2], made.total[2]) == (0, 0, made.noise[2])
    assert mse([3, 1, 0], "shrinkage", public=[3, 1, 0], **SETTING).total[2] == 0


def test_an_expert_the_public_records_miss_releases_nothing():
    made = mse([3, 1, 4], "shrinkage", public=[3, 1, 0], **SETTING)
    assert (made.denominators[2], made.noise[2], made.sampling[2]) == (math.inf, 0, 0)
    assert made.bias2[2] == SETTING["mean_norm"] ** 2


def test_arguments_by_expert():
    by_expert = {
        "clip_norm": [1.0, 2.0],
        "noise_multiplier": [2.0, 3.0],
        "num_parameters": [500, 50],
        "mean_norm": [0.4, 1.0],
        "second_moment": [0.9, 3.0],
    }
    made = mse([3, 1], "expected_owner", **SETTING | by_expert)
    for i in range(2):
        alone = mse([3, 1], "expected_owner", **SETTING | {name: v[i] for name, v in by_expert.items()})
        assert [getattr(made, part)[i] for part in PARTS] == [getattr(alone, part)[i] for part in PARTS]


def test_to_dict_is_json():
    made = mse([3, 1, 0], "shrinkage", public=[3, 1, 0], **SETTING)
    data = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert data["denominator"] == "shrinkage"
    assert data["denominators"][2] is None
    assert data["mean"] == made.mean
    assert data["total"] == made.total.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "expected batch_size in (0, inf), got batch_size=0"),
        ({"batch_size": None}, "expected batch_size in (0, inf), got batch_size=None"),
        ({"sampling_probability": 0}, "expected sampling_probability in (0, 1], got sampling_probability=0"),
        ({"sampling_probability": 1.3}, "got sampling_probability=1.3"),
        ({"clip_norm": 0}, "expected clip_norm in (0, 1e30]"),
        ({"clip_norm": [1, 1]}, "expected clip_norm to be one number or a vector of 3, one for each expert"),
        ({"noise_multiplier": 0}, "expected noise_multiplier in (0, 1e30]"),
        ({"noise_multiplier": [1, 1, math.nan]}, "got noise_multiplier[2]=nan"),
        ({"num_parameters": 0}, "expected num_parameters in [1, 1e18]"),
        ({"num_parameters": "many"}, "got num_parameters='many'"),
        ({"mean_norm": -1}, "expected mean_norm in [0, 1e30]"),
        ({"mean_norm": [[1], [1], [1, 2]]}, "expected mean_norm[0] in [0, 1e30], got mean_norm[0]=[1]"),
        ({"mean_norm": 0.96}, "expected mean_norm**2 <= second_moment (Jensen), got 0.9216 > 0.9 for expert 0"),
        ({"second_moment": [0.9, 1.1, 0.9]}, "expected second_moment <= clip_norm**2, since it is of clipped"),
        ({"public": [1, 1]}, "expected public to be of 3 experts, got public of 2"),
        ({"batch_size": 1e-160}, "expected denominators with an error that a float can hold, got D[0]="),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        mse([3, 1, 0], "public_share", **SETTING | {"public": [1, 1, 1]} | arguments)


@pytest.mark.parametrize("denominator", ["realized", "realised"])
def test_the_realized_count_is_refused(denominator):
    with pytest.raises(ValueError, match=r"private.*whatever the noise multiplier"):
        mse([3, 1], denominator, **SETTING)


def test_one_layer_at_a_time():
    with pytest.raises(ValueError, match="one layer at a time"):
        mse({1: [3, 1]}, "batch", **SETTING)


def test_moments_within_rounding_of_their_limits():
    rounded = {"mean_norm": 1 + 1e-12, "second_moment": 1 + 1e-12}
    assert mse([3, 1], "batch", **SETTING | rounded).total.shape == (2,)

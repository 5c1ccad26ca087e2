"""The statements B1-B7 through the library: exact against rational arithmetic, simulation and a real optimizer."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proofs.b0_mse import terms
from raptor_acct import RoutingStats, bias_bound, mse, public_denominators
from raptor_acct.entropy import cv_bounds

BATCH = 1000.0
CORNERS = [[1, 0], [3, 5], [0] * 511 + [7], list(range(512)), [4] * 8]

counts = st.one_of(st.lists(st.integers(0, 10**5), min_size=2, max_size=40), st.sampled_from(CORNERS)).filter(any)
positive_counts = st.lists(st.integers(1, 10**4), min_size=2, max_size=40)
unit = st.floats(0, 1)


@st.composite
def releases(draw, *, with_signal=False):
    """What `mse` needs besides the routing and the denominator; q = 1, tiny and huge σ, and no signal included."""
    clip = 10 ** draw(st.floats(-3, 3))
    signal = st.floats(0.01, 1)
    norm = clip * draw(signal if with_signal else st.one_of(st.just(0.0), signal))
    return {
        "sampling_probability": draw(st.one_of(st.just(1.0), st.floats(1e-5, 1))),
        "clip_norm": clip,
        "noise_multiplier": 10 ** draw(st.floats(-6, 6)),
        "num_parameters": draw(st.integers(1, 10**8)),
        "mean_norm": norm,
        "second_moment": norm**2 + (clip**2 - norm**2) * draw(unit),
    }


def bias_only(clip_norm, mean_norm):
    return {
        "sampling_probability": 1.0,
        "clip_norm": clip_norm,
        "noise_multiplier": 1e-9,
        "num_parameters": 1,
        "mean_norm": mean_norm,
        "second_moment": np.square(mean_norm),
    }


def spread(stats, release):
    """V_e = Bπ_e(1 - q)m + σ²C²d."""
    noise = (release["noise_multiplier"] * release["clip_norm"]) ** 2 * release["num_parameters"]
    return BATCH * stats.probabilities * (1 - release["sampling_probability"]) * release["second_moment"] + noise


def best_denominators(stats, release):
    return public_denominators("shrinkage", num_experts=stats.num_experts, batch_size=BATCH, public=stats, **release)


# the decomposition


@settings(max_examples=50, deadline=None)
@given(counts, releases(), st.floats(-6, 6))
def test_mse_is_the_decomposition_in_rational_arithmetic(owned, release, log_denominator):
    divisors = [10.0**log_denominator] * len(owned)
    got = mse(owned, divisors, batch_size=BATCH, **release)
    exact = {name: Fraction(value) for name, value in release.items()}
    noise2 = (exact["noise_multiplier"] * exact["clip_norm"]) ** 2 * exact["num_parameters"]
    for e, count in enumerate(owned):
        mean2 = exact["mean_norm"] ** 2 if count else Fraction(0)  # an expert without records has the target 0
        q, share, denominator = exact["sampling_probability"], Fraction(count, sum(owned)), Fraction(divisors[e])
        three = terms(Fraction(BATCH), q, share, denominator, mean2, exact["second_moment"], noise2)
        rounding = float(mean2) * (1 + BATCH * count / sum(owned) / divisors[e]) ** 2 * 1e-14
        assert got.bias2[e] == pytest.approx(float(three[0]), rel=1e-9, abs=rounding)
        assert got.sampling[e] == pytest.approx(float(three[1]), rel=1e-9)
        assert got.noise[e] == pytest.approx(float(three[2]), rel=1e-9)
        assert got.total[e] == pytest.approx(float(sum(three)), rel=1e-9, abs=rounding)


@pytest.mark.parametrize("denominator", ["expected_owner", "batch", "public_share", "shrinkage", "constants"])
@pytest.mark.parametrize("q", [0.2, 1.0])
def test_mse_is_the_mean_error_of_simulated_releases(denominator, q):
    rng = np.random.default_rng(0)
    owned, dimension, clip, sigma, trials = [30, 10, 5, 3], 3, 0.7, 1.5, 4000
    vectors = [rng.normal(0.3, 0.4, (n, dimension)) for n in owned]
    vectors = [x * np.minimum(1, clip / np.linalg.norm(x, axis=1, keepdims=True)) for x in vectors]
    means = [x.mean(axis=0) for x in vectors]
    release = {
        "sampling_probability": q,
        "clip_norm": clip,
        "noise_multiplier": sigma,
        "num_parameters": dimension,
        "mean_norm": [float(np.linalg.norm(c)) for c in means],
        "second_moment": [float(np.mean(np.sum(x**2, axis=1))) for x in vectors],
    }
    rule = [7.0, 3.0, 2.0, 1.0] if denominator == "constants" else denominator
    public = [5, 3, 1, 1] if denominator in ("public_share", "shrinkage") else None
    got = mse(owned, rule, batch_size=q * sum(owned), public=public, **release)
    for e, x in enumerate(vectors):
        coins = rng.random((trials, len(x))) < q
        sums = coins @ x + sigma * clip * rng.normal(size=(trials, dimension))
        errors = np.sum((sums / got.denominators[e] - means[e]) ** 2, axis=1)
        assert abs(errors.mean() - got.total[e]) < 5 * errors.std() / math.sqrt(trials)


@settings(max_examples=50, deadline=None)
@given(counts, releases(), st.randoms(use_true_random=False))
def test_errors_move_with_their_experts(owned, release, random):
    order = list(range(len(owned)))
    random.shuffle(order)
    straight = mse(owned, "batch", batch_size=BATCH, **release)
    permuted = mse([owned[i] for i in order], "batch", batch_size=BATCH, **release)
    assert permuted.total.tolist() == straight.total[order].tolist()


# B1


@settings(max_examples=100, deadline=None)
@given(counts, st.floats(1e-3, 1e3), st.integers(0, 10**6))
def test_mean_bias_is_at_most_c_times_cv(owned, clip, seed):
    norms = clip * np.random.default_rng(seed).random(len(owned))
    stats = RoutingStats.from_counts(owned)
    bias2 = mse(stats, "expected_owner", batch_size=BATCH, **bias_only(clip, norms)).bias2
    bound = bias_bound(stats, clip_norm=clip)
    assert np.mean(bias2) <= bound.rms**2 * (1 + 1e-12)
    assert np.all(np.sqrt(bias2) <= np.array(bound.per_expert) * (1 + 1e-12))


@settings(max_examples=100, deadline=None)
@given(positive_counts, st.floats(1e-3, 1e3), st.integers(0, 39))
def test_bias_bound_is_met_just_where_every_mean_has_norm_c(owned, clip, which):
    stats = RoutingStats.from_counts(owned)
    norms = np.full(len(owned), clip)
    limit = bias_bound(stats, clip_norm=clip).rms ** 2
    full = mse(stats, "expected_owner", batch_size=BATCH, **bias_only(clip, norms)).bias2
    assert np.mean(full) == pytest.approx(limit, rel=1e-12)
    e = which % len(owned)
    norms[e] = clip / 2
    less = np.mean(mse(stats, "expected_owner", batch_size=BATCH, **bias_only(clip, norms)).bias2)
    missing = 0.75 * full[e] / len(owned)
    assert less == pytest.approx(limit - missing, rel=1e-12)
    assert (missing == 0) == (stats.deviations[e] == 0)


@settings(max_examples=50, deadline=None)
@given(counts, releases())
def test_noise_of_expected_owner_does_not_depend_on_routing(owned, release):
    noise = mse(owned, "expected_owner", batch_size=BATCH, **release).noise
    experts, sd = len(owned), release["noise_multiplier"] * release["clip_norm"]
    assert noise == pytest.approx((experts * sd / BATCH) ** 2 * release["num_parameters"], rel=1e-12)


@pytest.mark.parametrize("experts", [2, 8, 512])
@pytest.mark.parametrize("fraction", [0.0, 1e-6, 0.01, 0.3, 0.9, 1.0])
def test_bound_from_entropy_alone_is_attained_by_one_heavy_expert(experts, fraction):
    t = fraction * (experts - 1)
    shares = [(1 + t) / experts] + [(1 - fraction) / experts] * (experts - 1)
    bound = bias_bound(shares, clip_norm=2.0)
    assert bound.rms == pytest.approx(bound.entropy_bounds[1], rel=1e-9)
    assert bound.rms == pytest.approx(2 * t / math.sqrt(experts - 1), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(counts)
def test_entropy_alone_bounds_the_bias(owned):
    bound = bias_bound(owned, clip_norm=3.0)
    assert bound.entropy_bounds[0] <= bound.rms <= bound.entropy_bounds[1]


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 512), st.floats(1e-12, 1), st.floats(1e-12, 1))
def test_bound_from_entropy_alone_falls_as_entropy_rises(experts, one, other):
    deficits = [fraction * math.log(experts) for fraction in sorted((one, other))]
    low, high = (cv_bounds(deficit, experts)[1] for deficit in deficits)
    assert low <= high <= math.sqrt(experts - 1) * (1 + 1e-11)


@pytest.mark.parametrize("experts", [2, 8, 512])
def test_near_uniform_routing_twice_the_deficit_is_the_squared_cv(experts):
    assert cv_bounds(1e-10, experts)[1] ** 2 == pytest.approx(2e-10, rel=1e-3)


# B2


@settings(max_examples=100, deadline=None)
@given(counts, releases())
def test_batch_is_the_same_release_in_another_unit(owned, release):
    experts, stats = len(owned), RoutingStats.from_counts(owned)
    whole, owner = (mse(stats, name, batch_size=BATCH, **release) for name in ("batch", "expected_owner"))
    assert whole.noise == pytest.approx(owner.noise / experts**2, rel=1e-12)
    assert whole.sampling == pytest.approx(owner.sampling / experts**2, rel=1e-12)
    shrunk = np.where(stats.probabilities > 0, (1 - stats.probabilities) * release["mean_norm"], 0.0)
    assert np.sqrt(whole.bias2) == pytest.approx(shrunk, rel=1e-12, abs=1e-15 * release["mean_norm"])


@settings(max_examples=100, deadline=None)
@given(counts)
@example([40, 1, 1, 1])
@example([5, 4, 3, 2])
def test_batch_has_the_larger_bias_bound_up_to_a_cv(owned):
    experts, stats = len(owned), RoutingStats.from_counts(owned)
    whole, owner = (bias_bound(stats, denominator=name).rms for name in ("batch", "expected_owner"))
    crossing = (experts - 1) / (experts + 1)
    if abs(stats.chi2 - crossing) > 1e-9:
        assert (whole > owner) == (stats.chi2 < crossing)


# B3


@settings(max_examples=100, deadline=None)
@given(positive_counts, releases())
def test_oracle_has_no_bias_and_at_least_the_noise_of_expected_owner(owned, release):
    stats = RoutingStats.from_counts(owned)
    oracle = mse(stats, BATCH * stats.probabilities, batch_size=BATCH, **release)
    assert np.all(np.sqrt(oracle.bias2) <= 1e-15 * release["mean_norm"])
    owner = mse(stats, "expected_owner", batch_size=BATCH, **release)
    assert np.mean(oracle.noise) >= np.mean(owner.noise) * (1 - 1e-12)
    assert oracle.noise * stats.probabilities**2 == pytest.approx(owner.noise / len(owned) ** 2, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(positive_counts, releases())
def test_expected_owner_beats_the_oracle_just_where_b3_says(owned, release):
    stats = RoutingStats.from_counts(owned)
    oracle = mse(stats, BATCH * stats.probabilities, batch_size=BATCH, **release)
    owner = mse(stats, "expected_owner", batch_size=BATCH, **release)
    x = len(owned) * stats.probabilities
    left, right = (
        (1 - x) * release["mean_norm"] ** 2,
        (1 + x) * spread(stats, release) / (BATCH * stats.probabilities) ** 2,
    )
    clear = (np.abs(left - right) > 1e-6 * np.maximum(np.abs(left), right)) & (np.abs(x - 1) > 1e-6)
    assert np.all(((owner.total < oracle.total) == ((x < 1) & (left < right)))[clear])
    if release["noise_multiplier"] * math.sqrt(release["num_parameters"]) >= BATCH / len(owned):
        assert np.all((owner.total < oracle.total)[x < 1 - 1e-6])


def test_oracle_of_an_expert_without_records_is_refused():
    release = bias_only(1.0, 0.5)
    with pytest.raises(ValueError, match=r"expected denominator\[1\] in \(0, inf\]"):
        mse([1, 0], [BATCH, 0.0], batch_size=BATCH, **release)


# B4


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(1, 10**4)), min_size=2, max_size=40), st.floats(1e-3, 1e3))
def test_public_share_is_biased_by_the_relative_error_of_the_estimate(pairs, clip):
    owned, public = zip(*pairs, strict=True)
    if not any(owned):
        return
    pi, estimate = (RoutingStats.from_counts(c).probabilities for c in (owned, public))
    bound = bias_bound(owned, clip_norm=clip, denominator="public_share", public=public)
    assert bound.per_expert == pytest.approx(clip * np.abs(pi / estimate - 1), rel=1e-9, abs=1e-14 * clip)
    got = mse(owned, "public_share", public=public, batch_size=BATCH, **bias_only(clip, clip))
    limits = np.where(pi > 0, np.square(bound.per_expert), 0.0)
    assert got.bias2 == pytest.approx(limits, rel=1e-9, abs=1e-28 * clip**2)
    tau = np.abs(pi - estimate).sum() / 2
    experts = len(pairs)
    assert bound.rms <= clip * tau * math.sqrt(2 / experts) / estimate.min() * (1 + 1e-9) + 1e-14 * clip
    ratio = max(float(np.max(pi / estimate)), float(np.max(estimate / pi)) if all(owned) else math.inf)
    assert bound.worst <= clip * (ratio - 1) + 1e-14 * clip


def test_public_share_of_uniform_routing_is_expected_owner():
    owned = [5, 1, 0, 2]
    public, owner = (
        bias_bound(owned, denominator=name, public=p, batch_size=BATCH)
        for name, p in (("public_share", [3, 3, 3, 3]), ("expected_owner", None))
    )
    assert (public.per_expert, public.denominators) == (owner.per_expert, owner.denominators)


def test_public_share_has_no_bound_without_a_floor():
    worst = [bias_bound([1, 1], denominator="public_share", public=[1, 10**k]).worst for k in (1, 3, 6)]
    assert worst == pytest.approx([4.5, 499.5, 499999.5])
    with pytest.raises(ValueError, match="smooth the public counts"):
        bias_bound([1, 1], denominator="public_share", public=[0, 1])


# B5


@settings(max_examples=100, deadline=None)
@given(positive_counts, releases(with_signal=True), st.floats(-4, 4))
def test_shrinkage_with_the_truth_is_the_least_error(owned, release, log_factor):
    stats = RoutingStats.from_counts(owned)
    best = mse(stats, "shrinkage", public=stats, batch_size=BATCH, **release)
    other = mse(stats, best.denominators * 10**log_factor, batch_size=BATCH, **release)
    assert np.all(best.total <= other.total * (1 + 1e-9))
    oracle_error = spread(stats, release) / (BATCH * stats.probabilities) ** 2
    least = 1 / (1 / release["mean_norm"] ** 2 + 1 / oracle_error)
    assert best.total == pytest.approx(least, rel=1e-6)
    for name in ("expected_owner", "batch"):
        assert np.all(best.total <= mse(stats, name, batch_size=BATCH, **release).total * (1 + 1e-9))


@settings(max_examples=100, deadline=None)
@given(positive_counts, releases(with_signal=True), st.floats(-4, 4))
def test_a_denominator_beats_expected_owner_just_inside_the_reflection(owned, release, log_factor):
    stats = RoutingStats.from_counts(owned)
    best = best_denominators(stats, release)
    divisors = BATCH / len(owned) * np.full(len(owned), 10**log_factor)
    other = mse(stats, divisors, batch_size=BATCH, **release).total
    owner = mse(stats, "expected_owner", batch_size=BATCH, **release).total
    one, two = np.abs(1 / divisors - 1 / best), np.abs(len(owned) / BATCH - 1 / best)
    clear = np.abs(one - two) > 1e-6 * np.maximum(one, two)
    clear &= np.abs(other - owner) > 1e-9 * np.maximum(other, owner)
    assert np.all(((other < owner) == (one < two))[clear])
    whole = mse(stats, "batch", batch_size=BATCH, **release).total
    clear = np.abs(whole - owner) > 1e-9 * owner
    assert np.all(((whole < owner) == (best > 2 * BATCH / (len(owned) + 1)))[clear])


@settings(max_examples=100, deadline=None)
@given(positive_counts, releases(with_signal=True))
def test_best_denominator_is_at_least_twice_the_noise_norm(owned, release):
    stats = RoutingStats.from_counts(owned)
    best = best_denominators(stats, release)
    noise_norm = release["noise_multiplier"] * math.sqrt(release["num_parameters"])
    assert np.all(best >= 2 * noise_norm * (1 - 1e-9))
    assert np.all(best >= BATCH * stats.probabilities * (1 - 1e-12))
    if noise_norm >= BATCH / len(owned):  # then all that is above B/E is better than it
        whole, owner = (mse(stats, name, batch_size=BATCH, **release).total for name in ("batch", "expected_owner"))
        assert np.all(whole <= owner)


@settings(max_examples=100, deadline=None)
@given(positive_counts, releases(with_signal=True), st.floats(0.5, 2))
def test_guesses_within_a_factor_of_two_beat_the_oracle_and_no_step(owned, release, ratio):
    stats, signal = RoutingStats.from_counts(owned), release["mean_norm"]
    release["mean_norm"], release["second_moment"] = signal / 2, release["clip_norm"] ** 2  # room for every guess
    release["sampling_probability"] = 1.0  # V is then the noise alone, and the guess of V/s is off by the ratio
    guessed = best_denominators(stats, release | {"mean_norm": signal / 2 / math.sqrt(ratio)})
    error = mse(stats, guessed, batch_size=BATCH, **release).total
    oracle = mse(stats, BATCH * stats.probabilities, batch_size=BATCH, **release).total
    assert np.all(error <= oracle * (1 + 1e-9))
    assert np.all(error <= release["mean_norm"] ** 2 * (1 + 1e-9))


def test_shrinkage_by_a_wrong_estimate_can_be_worse_than_expected_owner():
    release = bias_only(1.0, 1.0) | {"noise_multiplier": 0.1}
    wrong = mse([1, 1], "shrinkage", public=[1, 9], batch_size=10, **release)
    owner = mse([1, 1], "expected_owner", batch_size=10, **release)
    assert wrong.total[0] > owner.total[0]


# B6


@pytest.mark.parametrize("name", ["realized", "realised"])
def test_the_realised_count_is_refused_with_the_reason(name):
    for refused in (
        lambda: mse([1, 1], name, batch_size=BATCH, **bias_only(1.0, 0.5)),
        lambda: bias_bound([1, 1], denominator=name),
        lambda: public_denominators(name, num_experts=2, batch_size=BATCH),
    ):
        with pytest.raises(ValueError, match="batch is private"):
            refused()


# B7


def trained(make_optimizer, scale, steps=30):
    """The path [steps + 1, experts, 5] on a noisy quadratic, its gradients times ``scale``, ([steps,] experts)."""
    rng = np.random.default_rng(3)
    theta = torch.nn.Parameter(torch.from_numpy(rng.normal(size=(4, 5))))
    optimizer, path = make_optimizer([theta]), [theta.detach().clone()]
    for factors in np.broadcast_to(scale, (steps, 4)):
        noisy = theta.detach() + torch.from_numpy(rng.normal(size=(4, 5)))
        theta.grad = noisy * torch.tensor(factors)[:, None]
        optimizer.step()
        path.append(theta.detach().clone())
    return torch.stack(path)


def adam(**options):
    return lambda parameters: torch.optim.Adam(parameters, lr=0.1, **options)


def scales(name, public=None):
    """1/D_e of four experts; B = 1024, so that every one of them is a power of two."""
    return 1 / public_denominators(name, num_experts=4, batch_size=1024, public=public)


@pytest.mark.parametrize("optimizer", [adam(eps=0.0), adam(eps=0.0, amsgrad=True), adam(eps=0.0, betas=(0.5, 0.6))])
def test_adam_without_epsilon_takes_the_same_steps_for_every_constant_denominator(optimizer):
    owner = trained(optimizer, scales("expected_owner"))
    assert torch.equal(trained(optimizer, scales("batch")), owner)  # the first steps included
    assert torch.equal(trained(optimizer, scales("public_share", [4, 2, 1, 1])), owner)


def test_adamw_cancels_denominators_and_an_l2_penalty_does_not():
    def decoupled(parameters):
        return torch.optim.AdamW(parameters, lr=0.1, eps=0.0, weight_decay=0.1)

    owner, whole = (trained(decoupled, scales(name)) for name in ("expected_owner", "batch"))
    assert torch.equal(owner, whole)
    owner, whole = (trained(adam(eps=0.0, weight_decay=0.1), scales(name)) for name in ("expected_owner", "batch"))
    assert (owner - whole).abs().max() > 0.01


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 3), st.floats(-12, 0))
def test_scaled_gradients_are_a_scaled_epsilon(log_scale, log_epsilon):
    k, eps = 10**log_scale, 10**log_epsilon
    scaled = trained(adam(eps=eps), [k] * 4, steps=5)
    other = trained(adam(eps=eps / k), [1.0] * 4, steps=5)
    assert torch.allclose(scaled, other, rtol=1e-7, atol=1e-9)
    first, plain = scaled[1] - scaled[0], trained(adam(eps=eps), [1.0] * 4, steps=1).diff(dim=0)[0]
    gradient = trained(lambda p: torch.optim.SGD(p, lr=1.0), [1.0] * 4, steps=1).diff(dim=0)[0].abs()
    assert torch.all((first - plain).abs() <= 0.1 * eps * abs(1 / k - 1) / gradient + 1e-12)


def test_a_denominator_that_changes_does_not_cancel():
    changing = np.array([scales("batch")] * 10 + [scales("expected_owner")] * 20)
    steady, changed = (trained(adam(eps=0.0), scale) for scale in (scales("batch"), changing))
    assert torch.equal(steady[:11], changed[:11])
    assert (steady[11] - changed[11]).abs().max() > 0.01


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_keeps_denominators_and_a_learning_rate_undoes_them(momentum):
    def sgd(rate):
        return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=momentum)

    owner, whole = (trained(sgd(0.5), scales(name), steps=1).diff(dim=0) for name in ("expected_owner", "batch"))
    assert torch.allclose(owner, 4 * whole, rtol=1e-12)
    assert torch.equal(trained(sgd(2.0), scales("batch")), trained(sgd(0.5), scales("expected_owner")))

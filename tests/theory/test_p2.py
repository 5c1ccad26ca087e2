"""P2: independent streams compose, never worse than by basic composition, and more private with less of anything."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from raptor_acct import RolePlan, SubsampledGaussian, sequential_across_streams
from raptor_acct.adjacency import ADJACENCIES, Adjacency

CLOSE = 1 + 1e-3  # by how much the ends of certified intervals may differ
STREAMS = st.builds(
    SubsampledGaussian,
    num_steps=st.integers(1, 200),
    sampling_probability=st.one_of(st.just(1.0), st.floats(-4, -0.5).map(lambda x: 10**x)),
    noise_multiplier=st.one_of(st.sampled_from([1e4, 1e8]), st.floats(0.8, 30)),
)
DELTAS = st.floats(-10, -2).map(lambda x: 10**x)


def changed(stream: SubsampledGaussian, *, sigma: float = 1, q: float = 1, steps: float = 1) -> SubsampledGaussian:
    return SubsampledGaussian(
        num_steps=math.ceil(stream.num_steps * steps),
        sampling_probability=stream.sampling_probability * q,
        noise_multiplier=min(1e8, stream.noise_multiplier * sigma),
    )


@given(one=STREAMS, two=STREAMS, delta=DELTAS, share=st.floats(0.01, 0.99), adjacency=st.sampled_from(ADJACENCIES))
@settings(max_examples=20, deadline=None)
def test_joint_is_at_most_basic(
    one: SubsampledGaussian, two: SubsampledGaussian, delta: float, share: float, adjacency: Adjacency
) -> None:
    joint = sequential_across_streams([one, two]).guarantee(adjacency).epsilon(delta)
    parts = [one.guarantee(adjacency).epsilon(share * delta), two.guarantee(adjacency).epsilon((1 - share) * delta)]
    assert joint <= sum(parts) * CLOSE
    assert joint * CLOSE >= max(part.guarantee(adjacency).epsilon(delta) for part in (one, two))


@given(one=STREAMS, two=STREAMS, first=st.floats(0, 2), second=st.floats(0, 2), adjacency=st.sampled_from(ADJACENCIES))
@settings(max_examples=20, deadline=None)
def test_deltas_add_to_less_than_their_sum(
    one: SubsampledGaussian, two: SubsampledGaussian, first: float, second: float, adjacency: Adjacency
) -> None:
    a, b = one.guarantee(adjacency).delta(first), two.guarantee(adjacency).delta(second)
    joint = sequential_across_streams([one, two]).guarantee(adjacency).delta(first + second)
    assert joint.lower <= a + b - a * b + 1e-15


@given(one=STREAMS, two=STREAMS, delta=DELTAS, factor=st.floats(1.01, 3), adjacency=st.sampled_from(ADJACENCIES))
@settings(max_examples=8, deadline=None)
def test_monotone_in_every_argument(
    one: SubsampledGaussian, two: SubsampledGaussian, delta: float, factor: float, adjacency: Adjacency
) -> None:
    guarantee = RolePlan(shared=one, expert=two).guarantee(adjacency)
    spent = guarantee.epsilon(delta)
    for less in (changed(one, sigma=factor), changed(one, q=1 / factor), changed(one, steps=1 / factor)):
        assert RolePlan(shared=less, expert=two).guarantee(adjacency).epsilon(delta) <= spent * CLOSE
    assert guarantee.epsilon(min(0.5, delta * factor)) <= spent


@given(
    sigmas=st.lists(st.floats(-1, 8).map(lambda x: 10**x), min_size=1, max_size=6),
    steps=st.lists(st.integers(1, 10**4), min_size=6, max_size=6),
    eps=st.floats(0, 5),
)
@example(sigmas=[0.01, 1e8], steps=[1] * 6, eps=1.0)
@settings(max_examples=100, deadline=None)
def test_always_sampled_is_one_gaussian(sigmas: list[float], steps: list[int], eps: float) -> None:
    """At q = 1 the squares of 1/σ add over all steps of all streams (Balle and Wang 2018 for δ)."""
    streams = [
        SubsampledGaussian(num_steps=count, sampling_probability=1.0, noise_multiplier=sigma)
        for sigma, count in zip(sigmas, steps, strict=False)
    ]
    mu = math.sqrt(math.fsum(stream.num_steps / stream.noise_multiplier**2 for stream in streams))
    delta = float(ndtr(mu / 2 - eps / mu) - math.exp(eps) * ndtr(-mu / 2 - eps / mu))
    assert sequential_across_streams(streams).guarantee().delta(eps) == pytest.approx(delta, rel=1e-9, abs=1e-12)


@given(streams=st.lists(STREAMS, min_size=2, max_size=3), eps=st.floats(0.1, 1))
@settings(max_examples=10, deadline=None)
def test_order_and_nesting_do_not_matter(streams: list[SubsampledGaussian], eps: float) -> None:
    whole = sequential_across_streams(streams).guarantee().delta(eps)
    for other in (
        sequential_across_streams(streams[::-1]),
        sequential_across_streams([sequential_across_streams(streams[:1]), sequential_across_streams(streams[1:])]),
    ):
        found = other.guarantee().delta(eps)
        assert found.lower <= whole.upper
        assert whole.lower <= found.upper


def test_a_stream_cut_in_two_is_the_same_stream() -> None:
    def stream(steps: int) -> SubsampledGaussian:
        return SubsampledGaussian(num_steps=steps, sampling_probability=0.01, noise_multiplier=1.0)

    cut = sequential_across_streams([stream(300), stream(700)]).guarantee()
    assert cut.epsilon(1e-5) == pytest.approx(stream(1000).guarantee().epsilon(1e-5), rel=1e-6)

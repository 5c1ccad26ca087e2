"""P7: layers released from one batch are one mechanism; from batches of their own, further streams."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct import SubsampledGaussian, parallel_across_experts, same_batch, sequential_across_streams

SIGMAS = st.one_of(st.just(1e8), st.floats(-1.3, 8).map(lambda x: 10**x))


def stream(sigma: float, q: float = 0.02, steps: int = 50) -> SubsampledGaussian:
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)


@given(sigmas=st.lists(SIGMAS, min_size=1, max_size=16), q=st.floats(1e-9, 1), data=st.data())
@settings(max_examples=100, deadline=None)
def test_inverse_squares_add_in_any_order(sigmas: list[float], q: float, data: st.DataObject) -> None:
    expected = math.fsum(sigma**-2 for sigma in sigmas) ** -0.5
    for order in (sigmas, data.draw(st.permutations(sigmas))):
        assert same_batch([stream(sigma, q) for sigma in order]).noise_multiplier == pytest.approx(expected, rel=1e-14)


@given(
    layers=st.lists(st.tuples(st.integers(2, 512), st.floats(0.1, 100)), min_size=1, max_size=8), more=st.floats(1, 10)
)
@settings(max_examples=50, deadline=None)
def test_the_numbers_of_experts_cancel(layers: list[tuple[int, float]], more: float) -> None:
    """A layer counts with its least noisy expert, however many others it has."""
    experts = [[stream(sigma)] + [stream(sigma * more)] * (count - 1) for count, sigma in layers]
    whole = same_batch([parallel_across_experts(layer) for layer in experts])
    assert whole == same_batch([stream(sigma) for _, sigma in layers])


@given(sigma=st.floats(0.8, 20), count=st.integers(1, 64))
@settings(max_examples=50, deadline=None)
def test_equal_layers_need_the_root_of_their_number(sigma: float, count: int) -> None:
    assert same_batch([stream(sigma * math.sqrt(count))] * count).noise_multiplier == pytest.approx(sigma, rel=1e-14)


@given(sigmas=st.lists(st.floats(0.8, 10), min_size=1, max_size=3), sigma_shared=st.floats(0.8, 10))
@settings(max_examples=10, deadline=None)
def test_more_layers_spend_more(sigmas: list[float], sigma_shared: float) -> None:
    """Each further layer on the batch costs, and so does the shared role."""
    layers = [stream(sigma) for sigma in sigmas]
    spent = [same_batch(layers[: i + 1]).guarantee().epsilon(1e-6) for i in range(len(layers))]
    spent.append(same_batch([*layers, stream(sigma_shared)]).guarantee().epsilon(1e-6))
    assert spent == sorted(spent)


@given(sigmas=st.lists(SIGMAS, min_size=1, max_size=16), q=st.floats(1e-9, 1))
@settings(max_examples=50, deadline=None)
def test_layers_on_batches_of_their_own_are_further_streams(sigmas: list[float], q: float) -> None:
    layers = [stream(sigma, q) for sigma in sigmas]
    assert sequential_across_streams(layers).streams == tuple(layers)


def test_one_batch_for_three_layers_spends_more_than_three() -> None:
    layers = [stream(sigma, q=0.01, steps=1000) for sigma in (1.0, 1.5, 2.0)]
    apart = sequential_across_streams(layers).guarantee().epsilon(1e-5)
    assert same_batch(layers).guarantee().epsilon(1e-5).lower > apart.upper

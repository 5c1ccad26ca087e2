"""P1: the experts of a layer release as the least noisy one does, whatever their number and the owners."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from raptor_acct import SubsampledGaussian, parallel_across_experts, sequential_across_streams
from raptor_acct.adjacency import ADJACENCIES, Adjacency

SIGMAS = st.floats(-2, 8).map(lambda x: min(1e8, max(0.01, 10**x)))
SAMPLING = st.one_of(st.just(1.0), st.floats(-9, 0).map(lambda x: max(1e-9, 10**x)))


def stream(sigma: float, q: float = 0.01, steps: int = 100) -> SubsampledGaussian:
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)


@given(sigmas=st.lists(SIGMAS, min_size=2, max_size=512), q=SAMPLING, steps=st.integers(1, 10**9), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_layer_is_its_least_noisy_expert(sigmas: list[float], q: float, steps: int, data: st.DataObject) -> None:
    layer = parallel_across_experts([stream(sigma, q, steps) for sigma in sigmas])
    assert layer == stream(min(sigmas), q, steps)
    order = data.draw(st.permutations(sigmas))
    assert parallel_across_experts([stream(sigma, q, steps) for sigma in order]) == layer


@pytest.mark.parametrize("num_experts", [2, 8, 128, 512])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_number_of_experts_cancels(num_experts: int, adjacency: Adjacency) -> None:
    one = stream(1.0, 0.02, 300)
    layer = parallel_across_experts([one] * num_experts)
    assert layer.guarantee(adjacency).epsilon(1e-6) == one.guarantee(adjacency).epsilon(1e-6)


@given(
    sigmas=st.lists(st.floats(0.7, 20), min_size=2, max_size=3),
    q=st.one_of(st.just(1.0), st.floats(0.001, 0.5)),
    visits=st.lists(st.integers(1, 20), min_size=3, max_size=3),
    adjacency=st.sampled_from(ADJACENCIES),
)
@settings(max_examples=12, deadline=None)
def test_no_path_of_owners_spends_more(sigmas: list[float], q: float, visits: list[int], adjacency: Adjacency) -> None:
    """A record that is owned by expert e for so many steps loses what those steps at σ_e lose."""
    path = [stream(sigma, q, steps) for sigma, steps in zip(sigmas, visits, strict=False)]
    steps = sum(part.num_steps for part in path)
    layer = parallel_across_experts([stream(sigma, q, steps) for sigma in sigmas])
    lost = sequential_across_streams(path).guarantee(adjacency).epsilon(1e-6)
    assert lost <= layer.guarantee(adjacency).epsilon(1e-6) * (1 + 1e-3)


@given(
    sigmas=st.tuples(st.floats(0.7, 4), st.floats(0.7, 4)),
    q=st.one_of(st.just(1.0), st.floats(0.01, 1)),
    norms=st.tuples(*[st.one_of(st.just(1.0), st.floats(-1, 1))] * 3),
    owners=st.tuples(*[st.integers(0, 1)] * 3),
    eps=st.floats(0, 2),
)
@settings(max_examples=40, deadline=None)
def test_two_experts_by_quadrature(
    sigmas: tuple[float, float], q: float, norms: tuple[float, ...], owners: tuple[int, ...], eps: float
) -> None:
    """A record, its replacement and another one, each with an owner and a contribution: δ of the two blocks' laws."""
    nodes = np.linspace(-9.0, 9.0, 361)
    blocks = np.stack(np.meshgrid(nodes, nodes, indexing="ij"))  # whitened

    def density(taken: tuple[int, ...]) -> np.ndarray:
        shift = np.zeros(2)
        for record in taken:
            shift[owners[record]] += norms[record] / sigmas[owners[record]]
        return np.exp(-((blocks - shift[:, None, None]) ** 2).sum(axis=0) / 2) * (nodes[1] - nodes[0]) ** 2 / math.tau

    def law(*records: int) -> np.ndarray:
        """Return the law with record 2 and ``records`` in the data."""
        present, other = [(), *[(record,) for record in records]], [(), (2,)]
        chances = [1 - q, q] if records else [1.0]
        return sum(
            chance * share * density(some + one)
            for chance, some in zip(chances, present, strict=True)
            for share, one in zip((1 - q, q), other, strict=True)
        )  # type: ignore[return-value]

    layer = parallel_across_experts([stream(sigma, q, 1) for sigma in sigmas])
    with_it, replaced, without = law(0), law(1), law()
    for adjacency, upper, lower in (
        ("add_remove", with_it, without),
        ("add_remove", without, with_it),
        ("replace_one", with_it, replaced),
    ):
        delta = float(np.sum(np.maximum(0.0, upper - math.exp(eps) * lower)))
        assert delta <= layer.guarantee(adjacency).delta(eps) + 1e-3 * q * math.exp(eps)  # type: ignore[arg-type]


@given(sigma=st.floats(0.7, 4), q=st.floats(0.05, 1), eps=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_the_bound_is_attained(sigma: float, q: float, eps: float) -> None:
    """The record whose gradient is always of the clip norm, at the least noisy expert, loses all of it."""
    nodes = np.linspace(-12.0, 12.0, 4801)
    normal, moved = (np.exp(-((nodes - m) ** 2) / 2) / math.sqrt(math.tau) for m in (0.0, 1 / sigma))
    mixed = (1 - q) * normal + q * moved
    gains = [np.maximum(0.0, mixed - math.exp(eps) * normal), np.maximum(0.0, normal - math.exp(eps) * mixed)]
    attained = max(float(np.sum(gain)) for gain in gains) * (nodes[1] - nodes[0])
    layer = parallel_across_experts([stream(sigma, q, 1), stream(9.0, q, 1)])
    assert layer.guarantee().delta(eps) == pytest.approx(attained, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "moved", [(1, 1), (2, -1), (0, 3)], ids=["several owners", "shared capacity", "load balancing"]
)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 10.0])
def test_records_that_are_coupled_break_the_bound(moved: tuple[int, int], sigma: float) -> None:
    """By what one more record moves the blocks of two experts in proofs/p1_assumptions.py, all being sampled."""
    mu, eps = math.hypot(*moved) / sigma, 0.5
    delta = float(ndtr(mu / 2 - eps / mu) - math.exp(eps) * ndtr(-mu / 2 - eps / mu))
    assert delta > 1.2 * parallel_across_experts([stream(sigma, 1.0, 1)] * 2).guarantee().delta(eps)

"""Coins and noise: their law, and how much of the entropy reaches them."""

import numpy as np
import pytest
import torch
from scipy import stats

from raptor_train.noise import GaussianNoise
from raptor_train.sampling import PoissonSampler, entropy_for, generator_from


def first(seed: int | None, purpose: int = 0) -> float:
    return float(generator_from(entropy_for(seed, purpose)).random())


def test_every_bit_of_a_seed_counts() -> None:
    seeds = [0, 1, 2**32, 2**33, 2**64, 2**100, 2**127]
    assert len({first(seed) for seed in seeds}) == len(seeds)
    assert len({first(seed, purpose) for seed in seeds for purpose in (0, 1)}) == 2 * len(seeds)
    assert first(5) == first(5)
    assert first(None) != first(None)


def test_a_records_coins_do_not_depend_on_how_many_records_follow() -> None:
    few, many = PoissonSampler(50, entropy_for(0, 0)), PoissonSampler(80, entropy_for(0, 0))
    for _ in range(20):
        a, b = few.sample(0.3), many.sample(0.3)
        assert torch.equal(a, b[b < 50])


def test_coins_have_the_stated_probability() -> None:
    sampler = PoissonSampler(1000, entropy_for(1, 0))
    drawn = sum(len(sampler.sample(0.02)) for _ in range(500))
    assert stats.binomtest(drawn, 500_000, 0.02).pvalue > 1e-6
    assert len(sampler.sample(1.0)) == 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_gaussian_of_the_asked_size_and_type(dtype: torch.dtype) -> None:
    noise = GaussianNoise(generator_from(entropy_for(2, 1)))
    drawn = torch.stack([noise(torch.zeros(100, 50, dtype=dtype), 0.3) for _ in range(10)])
    assert drawn.dtype == dtype
    sample = drawn.double().numpy().ravel() / 0.3
    assert stats.kstest(sample, "norm").pvalue > 1e-6
    assert len(np.unique(sample)) > 0.99 * sample.size  # nothing is drawn twice


@pytest.mark.parametrize("seed", [-1, 2.5, "1", True])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(ValueError, match="seed"):
        entropy_for(seed, 0)  # type: ignore[arg-type]

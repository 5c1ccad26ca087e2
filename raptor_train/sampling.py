"""Poisson sampling: every record flips its own coin, in every step and for every stream anew."""

from __future__ import annotations

import secrets

import numpy as np
import torch
from torch import Tensor

from raptor_acct._validate import whole


def entropy_for(seed: int | None, purpose: int, releases: int = 0) -> np.random.SeedSequence:
    """Entropy for one purpose (coins or noise), independent of that for others; 128 bits of it reach the generator.

    (torch's own CPU generator keeps 32 bits of a seed: few enough to try them all against a first release.)

    Args:
        seed: None for the operating system's entropy. A run whose seed is known can be replayed, noise included:
            give a seed in tests and demonstrations only.
        purpose: Tells apart the uses within one run.
        releases: How many releases were charged before: a run that goes on with a known seed then draws nothing again
            that it has used.

    Raises:
        ValueError: If ``seed`` is neither None nor a whole number >= 0.
    """
    entropy = secrets.randbits(128) if seed is None else whole("seed", seed, low=0)
    return np.random.SeedSequence(entropy, spawn_key=(purpose, releases) if releases else (purpose,))


def generator_from(entropy: np.random.SeedSequence) -> np.random.Generator:
    """A counter-based generator (Philox, 128-bit key)."""
    return np.random.Generator(np.random.Philox(entropy))


class PoissonSampler:
    """Draws each of ``num_records`` records independently with the stream's sampling probability.

    Args:
        num_records: Records in the data set.
        entropy: Where the coins come from; secret.

    **Guarantee.** The coins of different records, steps and streams are independent (theory.md §7, condition 1).
    Nothing fixes the size of a batch: it varies, and may be zero. A record's coins do not depend on how many records
    follow it. A coin has 53 random bits, so the realised probability is q rounded up to a multiple of 2^-53.
    """

    def __init__(self, num_records: int, entropy: np.random.SeedSequence):
        self.num_records = num_records
        self._entropy = entropy

    def sample(self, sampling_probability: float) -> Tensor:
        """Indices of the sampled records, ascending, [batch], possibly none. Private."""
        (fresh,) = self._entropy.spawn(1)
        coins = generator_from(fresh).random(self.num_records)
        return torch.from_numpy(np.flatnonzero(coins < sampling_probability))

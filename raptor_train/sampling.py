"""Poisson sampling: every record flips its own coin, in every step and for every stream anew."""

from __future__ import annotations

import secrets

import numpy as np
import torch
from torch import Tensor


def generator_from(seed: int | None, purpose: int) -> torch.Generator:
    """A generator for one purpose (coins or noise), independent of those for others.

    Args:
        seed: None for the operating system's entropy. A run whose seed is known can be replayed, noise included:
            give a seed in tests and demonstrations only.
        purpose: Tells apart the generators of one run.
    """
    entropy = secrets.randbits(128) if seed is None else seed
    state = np.random.SeedSequence([entropy, purpose]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


class PoissonSampler:
    """Draws each of ``num_records`` records independently with the stream's sampling probability.

    Args:
        num_records: N.
        generator: Source of the coins; its state is secret.

    **Guarantee.** The coins of different records, steps and streams are independent (theory.md §7, condition 1).
    Nothing fixes the size of a batch: it varies, and may be zero. A coin has 53 random bits, so the realised
    probability is q rounded up to a multiple of 2^-53.
    """

    def __init__(self, num_records: int, generator: torch.Generator):
        self.num_records = num_records
        self._generator = generator

    def sample(self, sampling_probability: float) -> Tensor:
        """Indices of the sampled records, ascending, [batch], possibly none. Private."""
        coins = torch.rand(self.num_records, dtype=torch.float64, generator=self._generator)
        return (coins < sampling_probability).nonzero().squeeze(-1)

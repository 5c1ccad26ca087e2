"""The one source of the noise that makes a release private, and the randomness of a run as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from raptor_train.distributed import Group
from raptor_train.sampling import PoissonSampler, entropy_for, generator_from


class NoiseSource(Protocol):
    """Anything called with (tensor, standard deviation) that returns fresh Gaussian noise; tests pass their own."""

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        """Return noise of the shape, dtype and device of ``like``."""
        ...


class GaussianNoise:
    """Independent N(0, standard_deviation²) noise, drawn in float64 and rounded to the tensor's type.

    Floating-point noise does not have the exact Gaussian law; see SECURITY.md for what that means.
    """

    def __init__(self, generator: np.random.Generator):
        self._generator = generator

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        """Return fresh noise of the shape, dtype and device of ``like``."""
        noise = self._generator.standard_normal(tuple(like.shape)) * standard_deviation
        return torch.as_tensor(noise, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Randomness:
    """Where the coins and the noise of one run come from: independent entropy, fresh at every start.

    Attributes:
        num_records: Records that flip a coin.
        seed: None for the operating system's entropy; a known seed for tests.
        noise: Replaces the Gaussian source in tests.
    """

    num_records: int
    seed: int | None
    noise: NoiseSource | None

    @classmethod
    def of(cls, num_records: int, seed: int | None, noise: NoiseSource | None = None) -> Randomness:
        """Check the seed now, before anything is spent.

        Raises:
            ValueError: If ``seed`` is neither None nor a whole number >= 0.
        """
        entropy_for(seed, purpose=0)
        return cls(num_records, seed, noise)

    def begin(self, group: Group, releases: int) -> tuple[PoissonSampler, NoiseSource]:
        """Make the generators of a run that begins, or goes on after ``releases`` charges.

        No generator is ever restored: what was drawn before is not drawn again, also if the seed is known.

        Returns:
            Coins from rank 0's entropy, the same on every rank; noise, of which only rank 0's is used.
        """
        coins, noise = (entropy_for(self.seed, purpose, releases) for purpose in (0, 1))
        shared = np.random.SeedSequence(group.from_first(coins.entropy), spawn_key=coins.spawn_key)
        return PoissonSampler(self.num_records, shared), self.noise or GaussianNoise(generator_from(noise))

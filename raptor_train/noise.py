"""The one source of the noise that makes a release private."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class NoiseSource(Protocol):
    """Anything called with (shape, standard deviation) that returns fresh Gaussian noise; tests pass their own."""

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        """Return noise of the shape, dtype and device of ``like``."""
        ...


class GaussianNoise:
    """Independent N(0, standard_deviation²) noise in floating point.

    Floating-point noise does not have the exact Gaussian law; see SECURITY.md for what that means.
    """

    def __init__(self, generator: torch.Generator):
        self._generator = generator

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        """Return fresh noise of the shape, dtype and device of ``like``."""
        noise = torch.randn(like.shape, dtype=like.dtype, generator=self._generator)
        return noise.mul_(standard_deviation).to(like.device)

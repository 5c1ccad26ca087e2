"""The one source of the noise that makes a release private."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor


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

"""Bugs of the noise: its size, how often it is drawn, where it is missing, and its generator."""

from __future__ import annotations

from typing import cast

from raptor_train import noise, sampling, step

from . import checks_noise
from .mutant import Mutant

_NOISED = "total + noise(total, std) for total, std in zip(sums, stream.noise_stds, strict=True)"
_BY_LAYER = "zip(sums, stream.noise_stds, [*stream.role.layers, None][: len(sums)], strict=True)"
_DRAW = "sums = [total + noise(total, std) for total, std in zip(sums, stream.noise_stds, strict=True)]"

NOISE = (
    Mutant(
        name="noise divided by B",
        function=step.release,
        edits={"noise(total, std)": "noise(total, std / max(stream.denominators))"},
        caught_by=checks_noise.noise_has_the_stated_scale_and_law,
    ),
    Mutant(
        name="noise halved",
        function=noise.GaussianNoise.__call__,
        edits={"* standard_deviation": "* standard_deviation / 2"},
        caught_by=checks_noise.noise_has_the_stated_scale_and_law,
    ),
    Mutant(
        name="noise 10 % too small",
        function=noise.GaussianNoise.__call__,
        edits={"* standard_deviation": "* standard_deviation * 0.9"},
        caught_by=checks_noise.empty_batches_get_the_same_noise,
    ),
    Mutant(
        name="noise once per micro-batch",
        function=step.release,
        edits={
            "noise(total, std) for": "sum(noise(total, std) for _ in range(0, len(batch) or 1, micro_batch_size)) for"
        },
        caught_by=checks_noise.noise_is_asked_for_once,
    ),
    Mutant(
        name="noise shared across experts",
        function=step.release,
        edits={
            _DRAW: "kept = {}\n            "
            + _DRAW.replace(
                "noise(total, std)",
                "(kept.setdefault(total.shape, noise(total, std)) if stream.role.owned else noise(total, std))",
            )
        },
        caught_by=checks_noise.noise_is_independent,
    ),
    Mutant(
        name="one expert never noised",
        function=step.release,
        edits={
            _NOISED: "total + noise(total, std) * (not stream.role.owned or layer.expert != 1)"
            f" for total, std, layer in {_BY_LAYER}"
        },
        caught_by=checks_noise.experts_without_records_get_the_same_noise,
    ),
    Mutant(
        name="no noise on an empty batch",
        function=step.release,
        edits={"and stream.noise_multiplier > 0": "and stream.noise_multiplier > 0 and len(batch)"},
        caught_by=checks_noise.empty_batches_get_the_same_noise,
    ),
    Mutant(
        name="no noise in an expert without records",
        function=step.release,
        edits={"noise(total, std)": "noise(total, std) * bool(total.any())"},
        caught_by=checks_noise.experts_without_records_get_the_same_noise,
    ),
    Mutant(
        name="sigma squared for sigma",
        function=cast("property", step.Stream.noise_std).fget,  # type: ignore[arg-type]
        edits={"self.noise_multiplier *": "self.noise_multiplier**2 *"},
        caught_by=checks_noise.noise_is_asked_for_once,
    ),
    Mutant(
        name="deviation taken for a variance",
        function=noise.GaussianNoise.__call__,
        edits={"* standard_deviation": "* standard_deviation**0.5"},
        caught_by=checks_noise.noise_has_the_stated_scale_and_law,
    ),
    Mutant(
        name="Laplace noise of the same variance",
        function=noise.GaussianNoise.__call__,
        edits={"standard_normal(tuple(like.shape))": "laplace(scale=0.5**0.5, size=tuple(like.shape))"},
        caught_by=checks_noise.noise_has_the_stated_scale_and_law,
    ),
    Mutant(
        name="generator copied at every draw",
        function=noise.GaussianNoise.__call__,
        edits={"self._generator.": "__import__('copy').deepcopy(self._generator)."},
        caught_by=checks_noise.noise_is_independent,
    ),
    Mutant(
        name="a fixed seed instead of entropy",
        function=sampling.entropy_for,
        edits={"secrets.randbits(128) if seed is None": "0 if seed is None"},
        caught_by=checks_noise.noise_is_independent,
    ),
    Mutant(
        name="resume with the old generator",
        function=noise.Randomness.begin,
        edits={"(self.seed, purpose, releases)": "(self.seed, purpose)"},
        caught_by=checks_noise.one_seed_draws_no_noise_twice,
    ),
)

"""Bugs of the samples."""

from __future__ import annotations

from raptor_train import sampling, step
from raptor_train.records import Records

from . import checks_sampling
from .mutant import Mutant

_SPAWN = "(fresh,) = self._entropy.spawn(1)"
_COINS = "coins = generator_from(fresh).random(self.num_records)"
_SAMPLE = "return torch.from_numpy(np.flatnonzero(coins < sampling_probability))"

SAMPLING = (
    Mutant(
        name="same batch in both streams",
        function=sampling.PoissonSampler.sample,
        edits={
            _SPAWN: "self.calls = getattr(self, 'calls', 0) + 1"
            "\n    fresh = self._entropy.spawn(1)[0] if self.calls % 2 else self.last\n    self.last = fresh"
        },
        caught_by=checks_sampling.samples_are_independent,
    ),
    Mutant(
        name="shuffled batches",
        function=sampling.PoissonSampler.sample,
        edits={
            _COINS: "calls = self.calls = getattr(self, 'calls', 0) + 1\n"
            "    size = round(sampling_probability * self.num_records)\n"
            "    order = np.random.default_rng(self._entropy.entropy).permutation(self.num_records)\n"
            "    coins = np.where(np.isin(np.roll(order, calls * size), np.arange(size)), 0.0, 1.0)"
        },
        caught_by=checks_sampling.samples_are_poisson,
    ),
    Mutant(
        name="batches of fixed size",
        function=sampling.PoissonSampler.sample,
        edits={_COINS: _COINS + ".argsort().argsort() / self.num_records"},
        caught_by=checks_sampling.samples_are_poisson,
    ),
    Mutant(
        name="sampling with replacement",
        function=sampling.PoissonSampler.sample,
        edits={
            _SAMPLE: "size = (coins < sampling_probability).sum()"
            "\n    return torch.from_numpy(np.sort(generator_from(fresh).integers(self.num_records, size=size)))"
        },
        caught_by=checks_sampling.samples_are_poisson,
    ),
    Mutant(
        name="q from the wrong length",
        function=step.release,
        edits={
            "sampler.sample(stream.sampling_probability)": (
                "sampler.sample(min(1.0, max(stream.denominators) / len(records)))"
            )
        },
        caught_by=checks_sampling.samples_are_poisson,
    ),
    Mutant(
        name="last micro-batch dropped",
        function=Records.micro_batches,
        edits={"range(0, len(self), size)": "range(0, len(self), size)[: -1 if len(self) > 1 else None]"},
        caught_by=checks_sampling.samples_are_poisson,
    ),
)

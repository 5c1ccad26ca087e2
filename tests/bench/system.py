"""The system under test: the trainer on one model family, in one process or in two, and its recorded runs."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from raptor_train.distributed import ALONE

from .recording import Recording, Release
from .reference import Reference, reference_of
from .scenarios import SCENARIOS
from .setting import SIGMAS, STREAMS


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A release before it was divided by its public denominator; private if there was no noise."""

    stream: str
    seen: list[int]
    tensors: dict[str, Tensor]


class System:
    """Recorded runs by the name of their scenario, made when they are asked for.

    Args:
        family: Model family.
        record: Makes the recordings of a scenario, one for each rank; by default in this process alone.
    """

    def __init__(self, family: str = "switch", record: Callable[[str], Sequence[Recording]] | None = None):
        self.family = family
        self.reference: Reference = reference_of(family)
        self._record = record or self._record_alone
        self._kept: dict[str, Sequence[Recording]] = {}

    def ranks(self, scenario: str) -> Sequence[Recording]:
        """The recordings of all ranks."""
        if scenario not in self._kept:
            self._kept[scenario] = self._record(scenario)
        return self._kept[scenario]

    def recording(self, scenario: str) -> Recording:
        """The recording of rank 0, with what all ranks saw and drew."""
        first, *others = self.ranks(scenario)
        releases = []
        for release, *rest in zip(first.releases, *(other.releases for other in others), strict=True):
            seen = list(itertools.chain(release.seen, *(r.seen for r in rest)))
            noise = list(itertools.chain(release.noise, *(r.noise for r in rest)))
            releases.append(Release(gradient=release.gradient, seen=seen, noise=noise, charged=release.charged))
        return Recording(first.q, releases, first.ledger, first.spent, first.changed)

    def sums(self, scenario: str) -> list[Sum]:
        """The releases times their public denominators."""
        recording = self.recording(scenario)
        sums = []
        for k, release in enumerate(recording.releases):
            stream = STREAMS[k % 2]
            assert set(release.gradient) == self.reference.names(stream), f"release {k} is not of the {stream} stream"
            denominator = self.reference.denominator(stream, recording.q[k % 2])
            tensors = {name: tensor * denominator for name, tensor in release.gradient.items()}
            sums.append(Sum(stream=stream, seen=release.seen, tensors=tensors))
        return sums

    def noise_std(self, stream: str) -> float:
        """What the noise on a sum must have as its standard deviation."""
        return SIGMAS[stream] * self.reference.clip_norms[stream]

    def _record_alone(self, scenario: str) -> Sequence[Recording]:
        with tempfile.TemporaryDirectory() as folder:
            return [SCENARIOS[scenario](self.family, Path(folder) / "run", ALONE)]


def flat(tensors: dict[str, Tensor]) -> np.ndarray:
    """All entries in the order of the tensors' names."""
    return np.concatenate([tensors[name].double().numpy().ravel() for name in sorted(tensors)])

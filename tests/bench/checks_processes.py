"""Checks of several processes: the same bits on all, and the releases of one process."""

from __future__ import annotations

import torch

from .checks_release import TOLERANCE
from .system import System


def ranks_release_the_same_bits(system: System) -> None:
    """Every rank gets the same releases, noise included."""
    for scenario in ("busy", "empty"):
        first, *others = system.ranks(scenario)
        for other in others:
            for k, (a, b) in enumerate(zip(first.releases, other.releases, strict=True)):
                same = all(torch.equal(a.gradient[name], b.gradient[name]) for name in a.gradient)
                assert same, f"{scenario}, release {k}: another rank got other bits"


def processes_release_what_one_does(system: System) -> None:
    """With the same seed and without noise, samples and sums are those of one process."""
    alone = System(system.family)
    for k, (found, expected) in enumerate(zip(system.sums("busy"), alone.sums("busy"), strict=True)):
        assert sorted(found.seen) == sorted(expected.seen), f"release {k}: another sample than in one process"
        for name, tensor in expected.tensors.items():
            error = float((tensor - found.tensors[name]).abs().max()) / system.reference.clip_norms[found.stream]
            assert error <= TOLERANCE, f"release {k}: {name} differs by {error:.1e} clip norms from one process"

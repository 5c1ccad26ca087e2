"""Checks of the samples, by which records go through the model: Poisson, and independent across streams and steps."""

from __future__ import annotations

import numpy as np

from .scenarios import BUSY, STEPS, few
from .setting import NUM_RECORDS, STREAMS
from .statistics import count_p_value, dispersion_p_value, require
from .system import System


def coins(system: System) -> dict[str, np.ndarray]:
    """Whether a record was sampled, for each stream [steps, records]."""
    releases = system.recording("busy").releases
    found = {}
    for k, stream in enumerate(STREAMS):
        seen = [release.seen for release in releases[k::2]]
        assert all(len(set(s)) == len(s) for s in seen), f"{stream}: a record is more than once in one sample"
        found[stream] = np.stack([np.isin(np.arange(NUM_RECORDS), s) for s in seen]).astype(int)
    return found


def samples_are_poisson(system: System) -> None:
    """Coins come up with the plan's q; sizes of samples, and how often a record is sampled, vary as coins do."""
    p_values: dict[str, float] = {}
    for (stream, drawn), q in zip(coins(system).items(), BUSY, strict=True):
        p_values |= {
            f"{stream}: q": count_p_value(int(drawn.sum()), drawn.size, q),
            f"{stream}: sizes": dispersion_p_value(drawn.sum(1).tolist(), NUM_RECORDS, q),
            f"{stream}: times of a record": dispersion_p_value(drawn.sum(0).tolist(), STEPS, q),
        }
    require(p_values)
    for release in system.recording("few").releases:
        assert sorted(release.seen) == sorted(few(system.family)), f"q = 1, but the sample is {release.seen}"


def samples_are_independent(system: System) -> None:
    """A record is in both streams' samples, or in two successive ones, as often as independent coins say."""
    drawn = coins(system)
    shared, expert = drawn["shared"], drawn["expert"]
    p_values = {"streams": count_p_value(int((shared * expert).sum()), shared.size, BUSY[0] * BUSY[1])}
    for (stream, own), q in zip(drawn.items(), BUSY, strict=True):
        pairs = own[0::2] * own[1::2]
        p_values[f"steps of {stream}"] = count_p_value(int(pairs.sum()), pairs.size, q**2)
    require(p_values)

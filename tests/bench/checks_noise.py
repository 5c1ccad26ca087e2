"""Checks of the noise: how often it is drawn, how large, of which law, and independent of everything."""

from __future__ import annotations

import itertools

import numpy as np

from .setting import STREAMS
from .statistics import correlation_p_value, law_p_value, require, scale_p_value
from .system import System, flat


def drawn_noise(system: System, scenario: str) -> list[dict[str, np.ndarray]]:
    """The noise on the sums of a run, in standard deviations, one dict of tensors for each release.

    It is what differs from the same run without noise; a run whose samples are all empty releases nothing else.
    """
    noisy = system.sums(scenario)
    silent = [] if scenario.startswith("empty") else system.sums(scenario.removesuffix(" with noise"))
    drawn = []
    for with_noise, without in itertools.zip_longest(noisy, silent):
        std = system.noise_std(with_noise.stream)
        drawn.append(
            {
                name: (tensor.numpy() - (0 if without is None else without.tensors[name].numpy())) / std
                for name, tensor in with_noise.tensors.items()
            }
        )
    return drawn


def together(parts: list[dict[str, np.ndarray]]) -> np.ndarray:
    """All entries, in the order of releases and names."""
    return np.concatenate([part[name].ravel() for part in parts for name in sorted(part)])


def noise_is_asked_for_once(system: System) -> None:
    """Each release asks once for noise on each of its tensors, with deviation sigma C, however it was summed."""
    for scenario in ("busy", "few", "few together"):
        for k, release in enumerate(system.recording(scenario).releases):
            std = system.noise_std(STREAMS[k % 2])
            expected = [(tuple(tensor.shape), std) for tensor in release.gradient.values()]
            assert sorted(release.noise) == sorted(expected), f"{scenario}, release {k}: asked for {release.noise}"


def noise_has_the_stated_scale_and_law(system: System) -> None:
    """The noise on sums of sampled records is N(0, (sigma C)^2) in each stream."""
    _assert_gaussian(system, "busy with noise")


def empty_batches_get_the_same_noise(system: System) -> None:
    """So it is if no record is sampled; no entry stays without noise."""
    _assert_gaussian(system, "empty")


def _assert_gaussian(system: System, scenario: str) -> None:
    drawn = drawn_noise(system, scenario)
    p_values: dict[str, float] = {}
    for k, stream in enumerate(STREAMS):
        values = together(drawn[k::2])
        assert values.all(), f"{stream}: {int((values == 0).sum())} entries without noise"
        p_values |= {f"{stream} scale": scale_p_value(values), f"{stream} law": law_p_value(values)}
    require(p_values)


def experts_without_records_get_the_same_noise(system: System) -> None:
    """An expert that owns none of the sampled records gets noise of the same scale."""
    values = noise_of_experts_without_records(system)
    assert values.all(), f"{int((values == 0).sum())} of {values.size} entries of experts without records have no noise"
    require({"scale": scale_p_value(values)})


def noise_of_experts_without_records(system: System) -> np.ndarray:
    """The noise, in standard deviations, of all experts that owned no record of a release."""
    reference, found = system.reference, []
    releases = system.recording("busy with noise").releases
    for release, drawn in zip(releases[1::2], drawn_noise(system, "busy with noise")[1::2], strict=True):
        busy = {reference.owners[i] for i in release.seen}
        found += [drawn[name].ravel() for name in drawn if reference.expert_of[name] not in busy]
    return np.concatenate(found)


def noise_is_independent(system: System) -> None:
    """Across experts, streams, steps and runs, noise is uncorrelated, and no value comes twice."""
    drawn, again = drawn_noise(system, "empty"), drawn_noise(system, "empty again")
    everything = np.round(together([*drawn, *again]), 12)
    assert len(np.unique(everything)) == everything.size, "the same noise was used twice"
    shared, expert = (together(drawn[k::2]) for k in range(2))
    p_values = {
        "streams": correlation_p_value(*(v[: min(shared.size, expert.size)] for v in (shared, expert))),
        "runs": correlation_p_value(together(drawn[:2]), together(again)),
    }
    for k, stream in enumerate(STREAMS):
        p_values[f"steps of {stream}"] = correlation_p_value(together(drawn[k::4]), together(drawn[k + 2 :: 4]))
    by_expert = [_of_expert(system, drawn, e) for e in range(system.reference.num_experts)]
    for a, b in itertools.combinations(range(len(by_expert)), 2):
        p_values[f"experts {a} and {b}"] = correlation_p_value(by_expert[a], by_expert[b])
    require(p_values)


def _of_expert(system: System, drawn: list[dict[str, np.ndarray]], expert: int) -> np.ndarray:
    names = [name for name, e in system.reference.expert_of.items() if e == expert]
    return together([{name: part[name] for name in names} for part in drawn[1::2]])


def one_seed_draws_no_noise_twice(system: System) -> None:
    """A run that goes on draws neither noise nor coins again that it has used, also if its seed is known."""
    values = np.concatenate([flat(s.tensors) / system.noise_std(s.stream) for s in system.sums("resumed, empty")])
    values = np.round(values, 12)
    assert len(np.unique(values)) == values.size, "a run that went on used noise again"
    samples = [tuple(sorted(release.seen)) for release in system.recording("resumed").releases]
    assert len(set(samples)) == len(samples), "a run that went on drew a sample again"

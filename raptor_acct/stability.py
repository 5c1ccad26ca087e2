"""How many public records it takes: the entropy against their number, and when the selected layer no longer changes.

A fresh sample of n records is drawn, with replacement, from the ones at hand, which stand for the population: so what
is said of an n says what another sample of that size would show, also where n is all of them or more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number, whole
from raptor_acct.confidence import blocks, entropies
from raptor_acct.owners import Owners, owners_by_layer
from raptor_acct.routing import FloatArray, RoutingStats, Vector, as_stats, by_layer, stats_by_layer
from raptor_acct.selection import select_layer

_GRID = 25  # sizes, where none are given
_SMALLEST = 10
_DIGITS = 12  # to which normalised entropies are compared, so that rounding decides no tie


@dataclass(frozen=True, kw_only=True)
class EntropyCurve:
    """The measured entropy of one layer against the number of records; as private as they are.

    Attributes:
        sizes: Numbers of records n, rising.
        mean: The mean entropy of fresh samples of n records, in nats, one a size.
        low: Where the band that holds the fraction ``level`` of them begins, one a size.
        high: Where it ends, one a size.
        entropy: Of all records, in nats.
        num_records: All of them.
        num_experts: E.
        level: The fraction.
        resamples: Samples drawn of each size.
    """

    sizes: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    entropy: float
    num_records: int
    num_experts: int
    level: float
    resamples: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return _plain(self)


@dataclass(frozen=True, kw_only=True)
class SelectionStability:
    """How often fresh samples of n records select the layer that all records do; as private as they are.

    Attributes:
        layer: The layer that all records select.
        smallest: The smallest of ``sizes`` from which on every one of them selects ``layer`` with a frequency of at
            least ``level``; None if even the largest does not: more public records are needed.
        sizes: Numbers of records n, rising.
        agreement: The frequency, one a size.
        num_records: All records; of the layer with the fewest, where layers differ.
        level: The frequency asked for.
        resamples: Samples drawn; a frequency is known to about √(f(1 - f)/resamples).
    """

    layer: int
    smallest: int | None
    sizes: tuple[int, ...]
    agreement: tuple[float, ...]
    num_records: int
    level: float
    resamples: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return _plain(self)


def entropy_curve(
    routing_stats: RoutingStats | Vector,
    sizes: Sequence[int] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> EntropyCurve:
    """Return the entropy that n records show, its mean and a band, against n.

    Args:
        routing_stats: A `RoutingStats` of one layer, or its [experts] counts.
        sizes: Rising numbers of records; None: 25 of them up to all, evenly on a logarithmic scale.
        level: The fraction of samples inside the band, in (0, 1).
        resamples: Samples drawn of each size.
        seed: Of the draws.

    Raises:
        ValueError: If only shares are known, or an argument is outside its range.

    Source: the paper's Figure 5; theory.md R4.

    >>> curve = entropy_curve([50, 30, 15, 5], [10, 100, 1000])
    >>> [round(mean, 2) for mean in curve.mean], round(curve.entropy, 2)
    ([0.97, 1.13, 1.14], 1.14)
    """
    stats = as_stats("routing_stats", routing_stats)
    records = _records({0: stats})
    grid, band = _grid(sizes, records), number("level", level, "(0, 1)")
    drawn, rng = _draws(resamples, seed)
    parts = (
        entropies(rng.multinomial(grid, stats.probabilities, size=(block, len(grid))))
        for block in blocks(drawn, len(grid) * stats.num_experts)
    )
    samples = np.concatenate(list(parts))
    low, high = np.quantile(samples, ((1 - band) / 2, (1 + band) / 2), axis=0)
    return EntropyCurve(
        sizes=tuple(grid.tolist()),
        mean=tuple(samples.mean(axis=0).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        entropy=stats.entropy,
        num_records=records,
        num_experts=stats.num_experts,
        level=band,
        resamples=drawn,
    )


def smallest_stable_sample(
    owners: Owners,
    num_experts: int,
    *,
    layers: Sequence[int | str] | None = None,
    level: float = 0.95,
    sizes: Sequence[int] | None = None,
    resamples: int = 500,
    seed: int = 0,
) -> SelectionStability:
    """Return how many records it takes to select the same layer, from the owner of every record in every layer.

    A record is drawn with its owners in all layers, so that whatever ties the layers together is kept.

    Args:
        owners: [layers, records], integers in 0..num_experts-1, or a mapping from layer number to [records]; public.
        num_experts: E of every layer.
        layers: The model's real layer number of each row; None with a mapping.
        level: The frequency of the same selection that is asked for, in (0, 1).
        sizes: Rising numbers of records; None: 25 of them up to all, evenly on a logarithmic scale.
        resamples: Samples drawn.
        seed: Of the draws.

    Raises:
        ValueError: If an argument is outside its range, or owners and layers do not fit each other.

    Source: theory.md R4.

    >>> even, uneven = [0, 1, 2, 3, 3] * 60, [0, 0, 0, 1, 2, 3] * 50
    >>> stability = smallest_stable_sample({1: uneven, 3: even}, 4, sizes=[5, 20, 80, 320])
    >>> stability.layer, stability.smallest, [round(share, 2) for share in stability.agreement]
    (3, 320, [0.45, 0.71, 0.91, 0.99])
    """
    table = owners_by_layer(owners, num_experts, layers)
    stats = stats_by_layer(table, num_experts)
    grid = _grid(sizes, _records(stats))
    drawn, rng = _draws(resamples, seed)
    bins = np.stack([row + num_experts * i for i, row in enumerate(table.values())])  # [layers, records]
    entropy = (entropies(sample) for sample in _joint_samples(bins, len(table) * num_experts, grid, drawn, rng))
    return _stability(stats, grid, np.stack(list(entropy)), level)


def smallest_stable_sample_of_counts(
    stats_by_layer: Mapping[Any, RoutingStats | Vector],
    *,
    level: float = 0.95,
    sizes: Sequence[int] | None = None,
    resamples: int = 500,
    seed: int = 0,
) -> SelectionStability:
    """Return how many records it takes to select the same layer, from each layer's counts alone.

    Counts do not tell which owners belong to one record, so every layer's owners are drawn independently of the others;
    where the owners are known, `smallest_stable_sample` needs no such assumption.

    Args:
        stats_by_layer: Layer number to `RoutingStats` or counts; public.
        level: As in `smallest_stable_sample`, like all below.
        sizes: Rising numbers of records.
        resamples: Samples drawn.
        seed: Of the draws.

    Raises:
        ValueError: If a layer has only shares, or an argument is not valid.

    Source: theory.md R4.

    >>> smallest_stable_sample_of_counts({1: [100, 50, 50], 3: [66, 67, 67]}, sizes=[5, 50, 500]).smallest
    500
    """
    stats = by_layer("stats_by_layer", stats_by_layer)
    grid = _grid(sizes, _records(stats))
    drawn, rng = _draws(resamples, seed)
    layers = (_entropies_of_layer(layer, grid, drawn, rng) for layer in stats.values())
    return _stability(stats, grid, np.stack(list(layers), axis=-1), level)


def _joint_samples(
    bins: npt.NDArray[np.int64], num_bins: int, grid: npt.NDArray[np.int64], resamples: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the counts, [sizes, layers, experts], of each sample: the first n of its row of drawn records."""

    def counted(added: int) -> npt.NDArray[np.int64]:
        drawn = (rng.integers(bins.shape[1], size=block) for block in blocks(added, len(bins)))
        parts = (np.bincount(bins[:, some].ravel(), minlength=num_bins) for some in drawn)
        return sum(parts, start=np.zeros(num_bins, dtype=np.int64))

    for _ in range(resamples):
        steps = [counted(added) for added in np.diff(grid, prepend=0).tolist()]
        yield np.cumsum(steps, axis=0).reshape(len(grid), len(bins), -1)


def _entropies_of_layer(
    stats: RoutingStats, grid: npt.NDArray[np.int64], resamples: int, rng: np.random.Generator
) -> FloatArray:
    """Return the entropies of one layer, [resamples, sizes]; larger samples extend the smaller ones."""
    added = np.diff(grid, prepend=0)
    width = len(grid) * stats.num_experts
    samples = (rng.multinomial(added, stats.probabilities, size=(b, len(grid))) for b in blocks(resamples, width))
    return np.concatenate([entropies(sample.cumsum(axis=1)) for sample in samples])


def _stability(
    stats: Mapping[int, RoutingStats], grid: npt.NDArray[np.int64], entropy: FloatArray, level: float
) -> SelectionStability:
    """Compare the selections of samples, by their entropies [resamples, sizes, layers], to that of all records."""
    wanted = number("level", level, "(0, 1)")
    layer = select_layer(stats).layer
    normalized = entropy / np.log([one.num_experts for one in stats.values()])
    selected = normalized.round(_DIGITS).argmax(axis=-1)  # the first, so the lowest layer, of equals
    agreement = (selected == list(stats).index(layer)).mean(axis=0)
    stable = np.logical_and.accumulate(agreement[::-1] >= wanted)[::-1]
    return SelectionStability(
        layer=layer,
        smallest=int(grid[stable.argmax()]) if stable.any() else None,
        sizes=tuple(grid.tolist()),
        agreement=tuple(agreement.tolist()),
        num_records=_records(stats),
        level=wanted,
        resamples=len(entropy),
    )


def _records(stats: Mapping[int, RoutingStats]) -> int:
    """Return the number of records, of the layer with the fewest."""
    known = [one.num_records for one in stats.values() if one.num_records is not None]
    if len(known) < len(stats):
        raise ValueError("expected statistics from counts, got only probabilities: how many records is not known")
    return whole("num_records", min(known), high=2**53)


def _grid(sizes: Sequence[int] | None, records: int) -> npt.NDArray[np.int64]:
    if sizes is None:
        return np.unique(np.geomspace(min(_SMALLEST, records), records, _GRID).round().astype(np.int64))
    grid = [whole(f"sizes[{i}]", size, high=10**9) for i, size in enumerate(sizes)]
    if not grid or grid != sorted(set(grid)):
        raise ValueError(f"expected sizes that rise, at least one, got sizes={grid[:8]}")
    return np.array(grid)


def _draws(resamples: int, seed: int) -> tuple[int, np.random.Generator]:
    return whole("resamples", resamples, high=10**6), np.random.default_rng(whole("seed", seed, low=0))


def _plain(result: EntropyCurve | SelectionStability) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(result).items()}

"""The layer to train privately: the one whose records spread most evenly over its experts, chosen on public data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from raptor_acct._search import safe_root
from raptor_acct.confidence import deficit_interval
from raptor_acct.routing import RoutingStats, Vector, by_layer

_LEAST_ERROR = 1e-15  # of a confidence: one minus less is 1 in floating point


@dataclass(frozen=True, kw_only=True)
class LayerSelection:
    """The selected layer, and what it was selected from. Public, if the statistics are.

    Attributes:
        layer: The model's real number of the layer with the largest H/log E; ties go to the lower layer.
        table: The statistics of every layer, lowest layer first.
        certified: True if entropies alone prove that no other layer has a smaller CV (bias): the sharp interval of the
            selected layer ends at or below the start of every other.
        overlapping: The layers whose intervals start before the selected layer's ends; empty if certified.
        smallest_cv_layer: The layer whose measured CV is smallest, ties to the lower layer. Where it is not `layer`,
            entropy and bias disagree and the choice is the entropy rule's.
        order_certified: True if entropies alone prove that the order of all layers by H/log E is their order by CV.
        undecided_pairs: The pairs of layers, the lower number first, whose intervals prevent that.
        confidence: At which level the choice holds for the population that the records are independent draws from:
            the largest at which the rigorous interval of the selected layer's H/log E lies above that of every other,
            all of them together (Bonferroni). 0 if at none; None if a layer has only shares, not counts.
    """

    layer: int
    table: tuple[RoutingStats, ...]
    certified: bool
    overlapping: tuple[int, ...]
    smallest_cv_layer: int
    order_certified: bool
    undecided_pairs: tuple[tuple[int, int], ...]
    confidence: float | None

    def row(self, layer: int) -> RoutingStats:
        """Return the statistics of one layer.

        Raises:
            ValueError: If the layer has none, as a dense layer has no router.
        """
        for stats in self.table:
            if stats.layer == layer:
                return stats
        known = ", ".join(str(stats.layer) for stats in self.table)
        raise ValueError(f"expected layer to be one of {known}, got layer={layer!r}; a dense layer has no router")

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return {
            "layer": self.layer,
            "certified": self.certified,
            "overlapping": list(self.overlapping),
            "smallest_cv_layer": self.smallest_cv_layer,
            "order_certified": self.order_certified,
            "undecided_pairs": [list(pair) for pair in self.undecided_pairs],
            "confidence": self.confidence,
            "table": [stats.to_dict() for stats in self.table],
        }


def select_layer(stats_by_layer: Mapping[Any, RoutingStats | Vector]) -> LayerSelection:
    """Select the layer with the largest normalised routing entropy H/log E, and say how sure that is.

    Layers may differ in their number of experts; H/log E can then order them against their CVs, even provably: the
    choice is still the entropy rule's, but it is not ``certified``.

    Args:
        stats_by_layer: The model's real layer number (an int, or a string of digits) to `RoutingStats`, counts or
            probabilities. Use public data: a selection made on private records costs privacy that no one accounts.

    Raises:
        ValueError: If there is no layer, a layer is named twice (as 1 and "1"), or its statistics are not valid.

    Source: the paper's layer rule (Table 7); theory.md R3.

    >>> selection = select_layer({1: [70, 10, 10, 10], 3: [30, 28, 22, 20]})
    >>> selection.layer, selection.certified, round(selection.row(3).normalized_entropy, 3)
    (3, True, 0.99)
    >>> round(select_layer({1: [140, 20, 20, 20], 3: [60, 56, 44, 40]}).confidence, 4)
    0.9838
    """
    layers = by_layer("stats_by_layer", stats_by_layer)
    chosen = max(layers, key=lambda layer: layers[layer].normalized_entropy)  # the first, so the lowest, of equals
    intervals = {layer: stats.cv_bounds_from_entropy() for layer, stats in layers.items()}
    limit = intervals[chosen][1]
    overlapping = tuple(layer for layer, (low, _) in intervals.items() if layer != chosen and low < limit)
    ranked = sorted(layers, key=lambda layer: -layers[layer].normalized_entropy)
    undecided = [pair for pair in combinations(ranked, 2) if intervals[pair[0]][1] > intervals[pair[1]][0]]
    return LayerSelection(
        layer=chosen,
        table=tuple(layers.values()),
        certified=not overlapping,
        overlapping=overlapping,
        smallest_cv_layer=min(layers, key=lambda layer: layers[layer].cv),
        order_certified=not undecided,
        undecided_pairs=tuple(sorted((min(pair), max(pair)) for pair in undecided)),
        confidence=_confidence(layers, chosen),
    )


def _confidence(layers: Mapping[int, RoutingStats], chosen: int) -> float | None:
    """Return the largest level at which the choice holds for the population, from below."""
    measured = {
        layer: (stats.entropy_deficit, stats.cv, stats.num_records, stats.num_experts)
        for layer, stats in layers.items()
        if stats.num_records is not None
    }
    if len(measured) < len(layers):
        return None

    def overlap(log_error: float) -> float:
        error = math.exp(log_error) / len(layers)
        ends = {layer: deficit_interval(*values, error=error) for layer, values in measured.items()}
        scaled = {layer: (low / scale[layer], high / scale[layer]) for layer, (low, high) in ends.items()}
        return scaled[chosen][1] - min((low for layer, (low, _) in scaled.items() if layer != chosen), default=math.inf)

    scale = {layer: math.log(stats.num_experts) for layer, stats in layers.items()}
    if overlap(0.0) > 0:
        return 0.0
    least = math.log(_LEAST_ERROR)
    found = safe_root(overlap, least, low=least, high=0.0, width=1e-3, below=None, above="overlap at any level")
    return -math.expm1(found)

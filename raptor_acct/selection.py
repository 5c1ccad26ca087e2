"""The layer to train privately: the one whose records spread most evenly over its experts, chosen on public data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raptor_acct.routing import RoutingStats, Vector, by_layer


@dataclass(frozen=True, kw_only=True)
class LayerSelection:
    """The selected layer, and what it was selected from. Public, if the statistics are.

    Attributes:
        layer: The model's real number of the layer with the largest H/log E; ties go to the lower layer.
        table: The statistics of every layer, lowest layer first.
        certified: True if entropies alone prove that no other layer has a smaller CV (bias): the sharp interval of the
            selected layer ends at or below the start of every other.
        overlapping: The layers whose intervals prevent that; empty if certified.
        smallest_cv_layer: The layer whose measured CV is smallest, ties to the lower layer. Where it is not `layer`,
            entropy and bias disagree and the choice is the entropy rule's.
    """

    layer: int
    table: tuple[RoutingStats, ...]
    certified: bool
    overlapping: tuple[int, ...]
    smallest_cv_layer: int

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
            "table": [stats.to_dict() for stats in self.table],
        }


def select_layer(stats_by_layer: Mapping[Any, RoutingStats | Vector]) -> LayerSelection:
    """Select the layer with the largest normalised routing entropy H/log E.

    Layers may differ in their number of experts: H/log E and the CV both stay comparable.

    Args:
        stats_by_layer: The model's real layer number (an int, or a string of digits) to `RoutingStats`, counts or
            probabilities. Use public data: a selection made on private records costs privacy that no one accounts.

    Raises:
        ValueError: If there is no layer, a layer is named twice (as 1 and "1"), or its statistics are not valid.

    Source: the paper's layer rule (Table 7); theory.md R3.

    >>> selection = select_layer({1: [70, 10, 10, 10], 3: [30, 28, 22, 20]})
    >>> selection.layer, selection.certified, round(selection.row(3).normalized_entropy, 3)
    (3, True, 0.99)
    """
    layers = by_layer("stats_by_layer", stats_by_layer)
    chosen = max(layers, key=lambda layer: layers[layer].normalized_entropy)  # the first, so the lowest, of equals
    intervals = {layer: stats.cv_bounds_from_entropy() for layer, stats in layers.items()}
    limit = intervals[chosen][1]
    overlapping = tuple(layer for layer, (low, _) in intervals.items() if layer != chosen and low < limit)
    return LayerSelection(
        layer=chosen,
        table=tuple(layers.values()),
        certified=not overlapping,
        overlapping=overlapping,
        smallest_cv_layer=min(layers, key=lambda layer: layers[layer].cv),
    )

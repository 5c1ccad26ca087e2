"""Entropy against CV: the region that sharp bounds allow, and where layers lie in it."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raptor_acct.entropy import cv_bounds
from raptor_acct.plots._canvas import COLOURS, Plot, legend_below, panels
from raptor_acct.routing import FloatArray, RoutingStats

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_MARKERS = "osD^vPX"


class RoutingPoint(NamedTuple):
    """A layer in the picture; ``name`` is written beside it unless empty."""

    num_experts: int
    normalized_entropy: float
    cv: float
    name: str = ""


def points_of(layers: Mapping[int, RoutingStats], *, named: bool = True) -> list[RoutingPoint]:
    """Return the layers as points, under their numbers."""
    return [
        RoutingPoint(stats.num_experts, stats.normalized_entropy, stats.cv, str(layer) if named else "")
        for layer, stats in layers.items()
    ]


def entropy_cv(groups: Mapping[str, Sequence[RoutingPoint]]) -> Plot:
    """Draw CV against H/log E, a panel a number of experts; as private as the routing behind the points.

    Args:
        groups: What the points are, for the legend, to the points.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: If there is no point.

    Source: theory.md R2; Table 7 and 9.
    """
    sizes = sorted({point.num_experts for points in groups.values() for point in points})
    if not sizes:
        raise ValueError("expected at least one point, got none")
    figure, all_axes = panels(len(sizes), width=max(6.0, 4 * len(sizes)), height=4.8)
    handles: dict[str, Artist] = {}
    regions = {}
    for axes, experts in zip(all_axes, sizes, strict=True):
        regions[str(experts)] = region = _region(experts)
        area = axes.fill_between(region["normalized_entropy"], region["low"], region["high"], color="0.85", linewidth=0)
        handles["allowed by the entropy (sharp)"] = area
        here = {label: [p for p in points if p.num_experts == experts] for label, points in groups.items()}
        handles |= {label: _draw(axes, points, i % 7) for i, (label, points) in enumerate(here.items()) if points}
        _zoom(axes, min(point.normalized_entropy for points in here.values() for point in points), experts)
        axes.set(title=f"{experts} experts", xlabel="H / log E, normalised routing entropy")
    all_axes[0].set_ylabel("CV of the experts' shares")
    for label, handle in handles.items():
        handle.set_label(textwrap.fill(label, 60))
    legend_below(figure, list(handles.values()), columns=min(2, len(groups)))
    figure.suptitle("Entropy bounds the CV of routing, and with it the bias")
    points_drawn = {label: [point._asdict() for point in points] for label, points in groups.items()}
    return Plot(figure=figure, numbers={"points": points_drawn, "regions": regions})


def _zoom(axes: "Axes", lowest: float, experts: int) -> None:
    """Show the entropies from a little below ``lowest`` to 1, and the CVs that they allow."""
    left = max(0.0, min(lowest - 0.3 * (1 - lowest), 0.99))
    axes.set(xlim=(left, 1 + 0.02 * (1 - left)), ylim=(0, 1.05 * _bounds(left, experts)[1]))


def _region(experts: int) -> dict[str, list[float]]:
    entropies = _grid(experts).tolist()
    lows, highs = zip(*(_bounds(entropy, experts) for entropy in entropies), strict=True)
    return {"normalized_entropy": entropies, "low": list(lows), "high": list(highs)}


def _bounds(normalized_entropy: float, experts: int) -> tuple[float, float]:
    return cv_bounds((1 - normalized_entropy) * math.log(experts), experts)


def _grid(experts: int) -> FloatArray:
    """Return H/log E from 0 to 1: finer near 1, where CV falls like a root, and with the lower bound's corners."""
    corners = np.log(np.arange(1, experts + 1)) / np.log(experts)
    return np.union1d(1 - np.linspace(0, 1, 121) ** 2, corners)


def _draw(axes: "Axes", points: Sequence[RoutingPoint], i: int) -> "Artist":
    x, y = [point.normalized_entropy for point in points], [point.cv for point in points]
    for point in points:
        place = (point.normalized_entropy, point.cv)
        axes.annotate(point.name, place, fontsize=9, xytext=(5, 4), textcoords="offset points")
    return axes.plot(x, y, linestyle="", color=COLOURS[i], marker=_MARKERS[i], markersize=5, alpha=0.85)[0]

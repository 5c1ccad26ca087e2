"""How the measured entropy of routing settles as more public records are looked at."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from raptor_acct.plots._canvas import COLOURS, GREY, Plot, legend_below, panels
from raptor_acct.stability import EntropyCurve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_MARKERS = "osD^vPX"


def entropy_growth(groups: Mapping[str, Mapping[str, EntropyCurve]]) -> Plot:
    """Draw H/log E against the number of records, a panel a group; the dotted line is that of all records.

    The band about a curve holds most samples of that size.

    Args:
        groups: Title of a panel -> name of a curve -> the curve; at most seven in all, each name once.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.

    Source: the paper's Figure 5; theory.md R4.
    """
    figure, all_axes = panels(len(groups), width=max(6.0, 4.3 * len(groups)), height=4.6)
    level = next(curve.level for group in groups.values() for curve in group.values())
    handles: dict[str, Artist] = {}
    for axes, (title, group) in zip(all_axes, groups.items(), strict=True):
        for name, curve in group.items():
            handles[name] = _draw(axes, curve, len(handles) % 7)
            handles[name].set_label(name)
        axes.set(xscale="log", title=title, xlabel="records looked at", ylim=(0, 1.02))
    all_axes[0].set_ylabel("H / log E, normalised routing entropy")
    legend_below(figure, list(handles.values()), columns=3)
    figure.suptitle(f"Few records show too little entropy (bands: {100 * level:g} % of samples)")
    numbers = {title: {name: curve.to_dict() for name, curve in group.items()} for title, group in groups.items()}
    return Plot(figure=figure, numbers=numbers)


def _draw(axes: "Axes", curve: EntropyCurve, i: int) -> "Artist":
    scale = math.log(curve.num_experts)
    low, mean, high = ([x / scale for x in ends] for ends in (curve.low, curve.mean, curve.high))
    axes.fill_between(curve.sizes, low, high, color=COLOURS[i], alpha=0.2, linewidth=0)
    axes.axhline(curve.entropy / scale, color=GREY, linewidth=0.8, linestyle=":")
    return axes.plot(curve.sizes, mean, color=COLOURS[i], marker=_MARKERS[i], markersize=4)[0]

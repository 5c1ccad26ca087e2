"""Measured attacks as ROC curves, both axes logarithmic, with exact intervals and the ceiling of every attack."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from raptor_acct.audit import Roc, tpr_ceiling
from raptor_acct.guarantee import Guarantee
from raptor_acct.plots._canvas import COLOURS, GREY, Plot, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_STEPS, _CEILING_POINTS = 300, 61


def attack_roc(
    curves: Mapping[str, Roc], *, ceilings: Mapping[str, Guarantee] | None = None, confidence: float = 0.95
) -> Plot:
    """Draw TPR against FPR: steps as measured, Clopper and Pearson's interval of the TPR shaded, ceilings dashed.

    Nothing is drawn below half a record. At the left edge a curve has what its threshold at the highest non-member
    gives.

    Args:
        curves: Name to ROC curve. As private as the records.
        ceilings: Name to what the mechanism guarantees; one of the same name as a curve has its colour.
        confidence: Of the interval at each FPR alone, not of the whole band.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: Unless there are 1 to 7 curves, or if ``confidence`` is outside (0, 1).

    Source: Carlini et al. 2022 for the axes; theory.md P6; Table 3.
    """
    ceilings = ceilings or {}
    names = list(dict.fromkeys([*curves, *ceilings]))
    if not curves or len(names) > len(COLOURS):
        raise ValueError(f"expected 1 to {len(COLOURS)} curves and ceilings, got {names}")
    colours = dict(zip(names, COLOURS, strict=False))
    lowest_fpr = min(0.5 / curve.num_nonmembers for curve in curves.values())
    lowest_tpr = min(0.5 / curve.num_members for curve in curves.values())
    figure, (axes,) = panels(1, width=6.4, height=5.4)
    handles: list[Artist] = []
    numbers: dict[str, Any] = {"confidence": confidence, "curves": {}, "ceilings": {}}
    for name, curve in curves.items():
        points = curve.table(_steps(curve.num_nonmembers), confidence)
        fprs = [max(point.fpr_target, lowest_fpr) for point in points]
        tprs = [max(point.tpr, lowest_tpr / 10) for point in points]
        low = [max(point.tpr_interval[0], lowest_tpr / 10) for point in points]
        high = [point.tpr_interval[1] for point in points]
        axes.fill_between(fprs, low, high, step="post", color=colours[name], alpha=0.18, linewidth=0)
        handles += axes.step(fprs, tprs, where="post", color=colours[name], label=f"{name}, AUC {curve.auc:.3f}")
        numbers["curves"][name] = {"auc": curve.auc, "points": [point.to_dict() for point in points]}
    fprs = np.geomspace(lowest_fpr, 1, _CEILING_POINTS).tolist()
    for name, guarantee in ceilings.items():
        highest = [float(tpr_ceiling(guarantee, fpr)) for fpr in fprs]
        label = f"{name}, ceiling" if name in curves else name
        handles += axes.plot(fprs, highest, "--", color=colours[name], label=label)
        numbers["ceilings"][name] = {"adjacency": guarantee.adjacency, "fpr": fprs, "tpr": highest}
    axes.plot(fprs, fprs, ":", color=GREY)
    axes.set(xscale="log", yscale="log", xlim=(lowest_fpr, 1), ylim=(min(lowest_tpr, lowest_fpr), 1.3))
    axes.set(xlabel="false positive rate (FPR)", ylabel="true positive rate (TPR)")
    axes.set_title(f"measured attacks with {100 * confidence:.4g} % intervals (dotted: guessing)")
    legend_below(figure, handles, columns=2)
    return Plot(figure=figure, numbers=numbers)


def _steps(num_nonmembers: int) -> list[float]:
    """Return the FPRs of no non-member, of one, and so on; fewer of them where they are dense."""
    counts = np.unique(np.geomspace(1, num_nonmembers, _STEPS).astype(int))
    return [0.0, *(counts / num_nonmembers).tolist()]

"""What an attacker can get: the ceiling on true positive rates, from one (ε, δ) and from the whole profile."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raptor_acct.guarantee import Guarantee
from raptor_acct.plots._canvas import GREY, Plot, colour_of, legend_below, panels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_LOWEST = 1e-5


class Attack(NamedTuple):
    """A measured attack on a plan calibrated to ``eps``, with its guarantee; both None if there was no privacy."""

    name: str
    eps: float | None
    guarantee: Guarantee | None
    fpr: float
    tpr: float


def roc_ceilings(guarantees: Mapping[float, Guarantee], delta: float, *, attacks: Sequence[Attack] = ()) -> Plot:
    """Draw the highest TPR of any attack against its FPR, both logarithmic; beside it, measured attacks if given.

    The ceilings are public.

    Args:
        guarantees: ε at ``delta`` -> what the plan calibrated to it guarantees; a colour each.
        delta: In [1e-30, 1).
        attacks: Each is drawn in a line of its own, with its ceilings.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: Unless there are 1 to 7 guarantees.

    Source: theory.md P6; Table 3.
    """
    colours = colour_of("eps", guarantees)
    figure, (axes, *beside) = panels(2 if attacks else 1, width=10.5 if attacks else 6.4, height=5.2)
    fprs = np.geomspace(_LOWEST, 1, 41).tolist()
    ceilings = {eps: _ceilings(eps, delta, guarantee, fprs) for eps, guarantee in guarantees.items()}
    handles: list[Artist] = []
    for eps, found in ceilings.items():
        handles += axes.plot(fprs, found["profile"], color=colours[eps], label=f"ε = {eps:g}, whole profile")
        handles += axes.plot(fprs, found["one_point"], "--", color=colours[eps], label=f"ε = {eps:g}, (ε, δ) alone")
    axes.plot(fprs, fprs, ":", color=GREY)
    axes.set(xscale="log", yscale="log", xlim=(_LOWEST, 1), ylim=(_LOWEST, 1.2))
    axes.set(xlabel="false positive rate (FPR)", ylabel="true positive rate (TPR), at most")
    axes.set_title("ceiling of every attack (dotted: guessing)")
    measured = [_measured(attack, delta) for attack in attacks]
    if beside:
        _draw_attacks(beside[0], measured, colours)
    figure.suptitle(f"No attack exceeds the ceiling; the whole profile lowers it (δ = {delta:.2g})")
    legend_below(figure, handles, columns=len(guarantees) if attacks else 2)
    tpr = {f"{eps:g}": found for eps, found in ceilings.items()}
    return Plot(figure=figure, numbers={"delta": delta, "fpr": fprs, "tpr": tpr, "attacks": measured})


def _measured(attack: Attack, delta: float) -> dict[str, Any]:
    numbers = {"name": attack.name, "eps": attack.eps, "fpr": attack.fpr, "tpr": attack.tpr}
    if attack.eps is None or attack.guarantee is None:
        return numbers
    found = _ceilings(attack.eps, delta, attack.guarantee, [attack.fpr])
    return {**numbers, **{f"{name}_ceiling": values[0] for name, values in found.items()}}


def _draw_attacks(axes: "Axes", attacks: Sequence[dict[str, Any]], colours: Mapping[float, str]) -> None:
    """Draw one line an attack, from above: what it got, and its ceilings."""
    for i, attack in enumerate(attacks):
        colour = colours.get(attack["eps"], GREY)
        axes.plot([attack["tpr"]], [-i], "o", color=colour)
        for name, marker, size in (("profile", "|", 14), ("one_point", "x", 6)):
            if f"{name}_ceiling" in attack:
                axes.plot([attack[f"{name}_ceiling"]], [-i], marker, color=colour, markersize=size, markeredgewidth=2)
    axes.set_yticks([-i for i in range(len(attacks))], [attack["name"] for attack in attacks])
    axes.set(
        xscale="log", xlabel="TPR measured (dot), and at most:\nby the whole profile (bar), by (ε, δ) alone (cross)"
    )
    axes.set_title("measured attacks at their FPR")


def _ceilings(eps: float, delta: float, guarantee: Guarantee, fprs: list[float]) -> dict[str, list[float]]:
    """Return the highest TPR at each FPR; (ε, δ) bounds it directly, and by the attack that swaps its answers."""
    one_point = [min(1.0, math.exp(eps) * fpr + delta, 1 - math.exp(-eps) * (1 - delta - fpr)) for fpr in fprs]
    return {"one_point": one_point, "profile": [1 - guarantee.fnr(fpr).lower for fpr in fprs]}

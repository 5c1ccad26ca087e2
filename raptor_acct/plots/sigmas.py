"""The noise of both roles against the budget split ρ: what the basic composition asks for, and what the joint saves."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from raptor_acct.adjacency import Adjacency
from raptor_acct.calibration import KEEPS, Calibration, calibrate_sigmas, hand_back_slack
from raptor_acct.plots._canvas import GREY, Plot, colour_of, legend_below, panels

_LOW = (0.05, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4)
RHOS = (*_LOW, 0.5, *(round(1 - rho, 2) for rho in reversed(_LOW)))  # closest where the curves are steep
_STYLES: dict[str, Literal["-", "--", ":"]] = {
    "basic composition": "-",
    "joint, slack to both roles in proportion": "--",
    "joint, all slack to the role of the panel": ":",
}


def noise_against_rho(
    eps: Sequence[float],
    delta: float,
    q: float | tuple[float, float],
    steps: int | tuple[int, int],
    *,
    rhos: Sequence[float] = RHOS,
    adjacency: Adjacency = "add_remove",
) -> Plot:
    """Draw σ_shared and σ_expert against ρ, for the basic composition and the joint one. All values are public.

    Args:
        eps: One to seven targets; a colour each.
        delta: Total delta.
        q: Sampling probability of a record; a pair is (shared, expert).
        steps: Number of releases; a pair is (shared, expert).
        rhos: Shares of ε for the shared stream.
        adjacency: Which data sets count as neighbours.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: As `raptor_acct.calibrate_sigmas`; if there are more than 7 targets.

    Source: theory.md P2, P3.
    """
    colours = colour_of("eps", eps)
    figure, (left, right) = panels(2, width=8, height=4.6)
    from matplotlib.ticker import LogLocator

    curves = [_curves(one, delta, q, steps, rhos, adjacency) for one in eps]
    for axes, role, keep in ((left, "shared", "expert"), (right, "expert", "shared")):
        for colour, curve in zip(colours.values(), curves, strict=True):
            for style, composition in zip(_STYLES.values(), ("basic", "ratio", keep), strict=True):
                axes.plot(rhos, curve[composition][f"sigma_{role}"], style, color=colour)
        axes.set(yscale="log", xlim=(0, 1), xlabel="ρ, share of ε for the shared stream", title=f"{role} stream")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_ylabel(f"noise multiplier of the {role} stream")
    schedule = {"delta": delta, "q": q, "steps": steps, "adjacency": adjacency}
    told = f"δ = {delta:.2g}, {_told(q)} of the records a step, {_told(steps)} steps, {adjacency}"
    figure.suptitle(f"Joint composition needs less noise than the basic split at the same (ε, δ)\n{told}", fontsize=11)
    _legend(figure, colours)
    return Plot(figure=figure, numbers={**schedule, "rho": list(rhos), "curves": curves})


def _told(value: float | tuple[float, float]) -> str:
    return " and ".join(f"{part:.4g}" for part in value) if isinstance(value, tuple) else f"{value:.4g}"


def _curves(eps: float, delta: float, q: Any, steps: Any, rhos: Sequence[float], adjacency: Adjacency) -> Any:
    """Return both noises at every ρ, by composition."""
    basic = [calibrate_sigmas(eps, delta, rho, q, steps, adjacency=adjacency) for rho in rhos]
    results: dict[str, list[Calibration]] = {"basic": basic}
    results |= {keep: [hand_back_slack(one, keep) for one in basic] for keep in KEEPS}
    noises = {
        name: {role: [getattr(one, role) for one in found] for role in ("sigma_shared", "sigma_expert")}
        for name, found in results.items()
    }
    return {"eps": eps, **noises}


def _legend(figure: Any, colours: Mapping[float, str]) -> None:
    from matplotlib.lines import Line2D

    targets = [Line2D([], [], color=colour, label=f"ε = {eps:g}") for eps, colour in colours.items()]
    styles = [Line2D([], [], color=GREY, linestyle=style, label=name) for name, style in _STYLES.items()]
    legend_below(figure, [*targets, *styles], columns=2)

"""The best budget split against how much more noise costs on one role than on the other."""

from collections.abc import Sequence

from raptor_acct.budget import optimal_rho
from raptor_acct.plots._canvas import COLOURS, GREY, Plot, legend_below, panels


def optimal_split(ratios: Sequence[float], *, chosen: float | None = None) -> Plot:
    """Draw ρ* against λ_shared/λ_expert for both compositions.

    Args:
        ratios: Values of λ_shared/λ_expert > 0.
        chosen: A ρ to mark, such as one in use.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: As `raptor_acct.optimal_rho`.

    Source: theory.md P5.
    """
    figure, (axes,) = panels(1, width=6.4, height=4.6)
    basic, joint = ([optimal_rho(ratio, 1.0, composition=name) for ratio in ratios] for name in ("basic", "joint"))
    handles = axes.plot(ratios, basic, color=COLOURS[0], label="basic: share of ε, by cube roots of λ")
    handles += axes.plot(ratios, joint, "--", color=COLOURS[1], label="joint: share of μ², by square roots of λ")
    if chosen is not None:
        handles += [axes.axhline(chosen, color=GREY, linestyle=":", label=f"ρ = {chosen:g}")]
    axes.set(xscale="log", ylim=(0, 1), xlabel="λ_shared / λ_expert, loss per noise variance of the roles")
    axes.set_ylabel("best share of the shared stream")
    axes.set_title("The best split moves slowly with the ratio of λ")
    legend_below(figure, handles, columns=1)
    return Plot(figure=figure, numbers={"ratio": list(ratios), "basic": basic, "joint": joint, "chosen": chosen})

"""Bias against variance: what each public denominator costs as routing grows uneven."""

from collections.abc import Mapping, Sequence

from raptor_acct.mse import mse
from raptor_acct.plots._canvas import COLOURS, Plot, legend_below, panels
from raptor_acct.routing import RoutingStats

_NAMES = {
    "expected_owner": "B/E (expected owner)",
    "batch": "B (batch)",
    "public_share": "Bπ (public share, if exact)",
    "shrinkage": "shrinkage (optimal, if exact)",
}
_PARTS = {
    "bias2": "squared bias",
    "sampling": "sampling variance",
    "noise": "noise variance",
    "total": "total squared error",
}
_STYLES = ("-", "--", "-.", ":")


def denominator_errors(
    family: Sequence[RoutingStats],
    setting: Mapping[str, float],
    *,
    title: str = "Each denominator trades bias against variance",
) -> Plot:
    """Draw the parts of the mean squared error, averaged over experts, against the CV of routing.

    The public share is π itself: what a public corpus just like the private records would give.

    Args:
        family: Routings of rising CV, every share above 0.
        setting: The keyword arguments of `raptor_acct.mse` but ``public``.
        title: What is seen; the setting is written below it.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        ValueError: As `raptor_acct.mse`.

    Source: theory.md §3, B1-B5.
    """
    figure, all_axes = panels(4, width=8, height=7, columns=2)
    cvs = [stats.cv for stats in family]
    curves: dict[str, dict[str, list[float]]] = {}
    for rule in _NAMES:
        public = rule in ("public_share", "shrinkage")
        found = [mse(stats, rule, public=stats if public else None, **setting).mean for stats in family]
        curves[rule] = {part: [one[part] for one in found] for part in _PARTS}
    lines = []
    for axes, (part, name) in zip(all_axes, _PARTS.items(), strict=True):
        for colour, style, (rule, parts) in zip(COLOURS, _STYLES, curves.items(), strict=False):
            values = [value if value > 1e-12 else float("nan") for value in parts[part]]  # no line where there is none
            lines += axes.plot(cvs, values, style, color=colour, label=_NAMES[rule])
        axes.set(yscale="log", title=name)
    for axes in all_axes[2:]:
        axes.set_xlabel("CV of routing")
    figure.supylabel("mean over experts, in squared units of the gradient", fontsize=10)
    figure.suptitle(f"{title}\n{_described(setting)}", fontsize=11)
    legend_below(figure, lines[: len(_NAMES)], columns=2)
    return Plot(figure=figure, numbers={"setting": dict(setting), "cv": cvs, "curves": curves})


def _described(setting: Mapping[str, float]) -> str:
    symbols = {
        "batch_size": "B",
        "clip_norm": "C",
        "noise_multiplier": "σ",
        "num_parameters": "d",
        "mean_norm": "‖c̄‖",
        "second_moment": "m",
    }
    return ", ".join(f"{symbol} = {round(setting[name], 3):,.12g}" for name, symbol in symbols.items())

"""A run folder's pages: the same facts in Markdown and in one self-contained HTML file, with plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

from raptor_acct.cli._output import SCHEMA
from raptor_train.pages import Section, html_page, markdown_page

TITLE = "RAPTOR demo"
BLUE, ORANGE, GREY = "#2f6db3", "#d97b29", "#8a8f98"


def write_report(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write ``results.json``, ``privacy.json``, two plots, ``report.md`` and ``report.html`` into ``folder``.

    Args:
        results: What :func:`raptor_train.demo.run.run_demo` returned.
        folder: The run folder.

    Returns:
        The files written.
    """
    numbers = {
        "config.json": results["settings"],
        "results.json": {"schema": SCHEMA, **results},
        "privacy.json": _privacy(results),
    }
    pages = {name: json.dumps(content, indent=2, allow_nan=False) for name, content in numbers.items()}
    pages["report.md"] = markdown_page(TITLE, _sections(results), ["accuracy.png", "routing.png"])
    _write(pages, folder)
    plots = [plot_routing(results, folder / "routing.png"), plot_accuracy(results, folder / "accuracy.png")]
    _write({"report.html": html_page(TITLE, _sections(results), plots[::-1])}, folder)
    return [*(folder / name for name in pages), *plots, folder / "report.html"]


def _write(pages: Mapping[str, str], folder: Path) -> None:
    for name, text in pages.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")


def plot_routing(results: Mapping[str, Any], path: Path) -> Path:
    """Share of public records owned by each expert, a panel a sparse layer."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    layers = results["routing"]
    figure, panels = plt.subplots(
        1, len(layers), figsize=(3.4 * len(layers), 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, (layer, statistics) in zip(panels[0], layers.items(), strict=True):
        shares = statistics["probabilities"]
        selected = int(layer) == results["selection"]["layer"]
        axes.bar(range(len(shares)), [100 * s for s in shares], color=BLUE if selected else GREY)
        axes.axhline(100 / len(shares), color=ORANGE, linestyle="--", label="uniform")
        axes.set_title(
            f"layer {layer}{' (selected)' if selected else ''}\nH/log E = {statistics['normalized_entropy']:.3f}, "
            f"CV = {statistics['cv']:.2f}",
            fontsize=10,
        )
        axes.set_xlabel("expert")
        axes.set_xticks(range(len(shares)))
    panels[0][0].set_ylabel("public records owned, %")
    panels[0][0].legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def plot_accuracy(results: Mapping[str, Any], path: Path) -> Path:
    """Test accuracy of every run with its 95 % interval."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    runs = list(results["runs"].values())[::-1]
    figure, axes = plt.subplots(figsize=(7, 0.55 * len(runs) + 1.4), layout="constrained")
    for row, run in enumerate(runs):
        low, high = (100 * bound for bound in run["accuracy_95"])
        accuracy = 100 * run["accuracy"]
        colour = BLUE if run["name"] == "RAPTOR" else GREY
        axes.errorbar(
            accuracy, row, xerr=[[accuracy - low], [high - accuracy]], fmt="o", color=colour, capsize=4, markersize=7
        )
        axes.annotate(f"{accuracy:.1f}", (accuracy, row), xytext=(0, 8), textcoords="offset points", ha="center")
    _label_accuracy(axes, runs, results)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _label_accuracy(axes: Axes, runs: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> None:
    axes.axvline(50, color=ORANGE, linestyle="--", linewidth=1)
    axes.annotate("chance", (50, -0.4), color=ORANGE, xytext=(4, 0), textcoords="offset points")
    axes.set_yticks(range(len(runs)), [run["name"] for run in runs])
    axes.set_ylim(-0.6, len(runs) - 0.3)
    axes.set_xlabel(f"accuracy on {results['records']['test']} held-out records, % (95 % interval)")
    axes.set_title(
        f"ε = {results['settings']['eps']:g}, δ = {results['delta']:.1e}, add/remove one record", fontsize=10
    )
    axes.spines[["top", "right"]].set_visible(False)


def _privacy(results: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "adjacency": results["adjacency"],
        "delta": results["delta"],
        "epsilon_target": results["settings"]["eps"],
        "epsilon_spent": {key: run["epsilon_spent"] for key, run in results["runs"].items()},
        "plan": results["calibration"]["joint"],
        "not_covered": results["not_covered"],
    }


def _sections(results: Mapping[str, Any]) -> list[Section]:
    """Title, words, table header, table rows of every section, shared by both formats."""
    low, middle, high = (100 * d for d in results["raptor_minus_monolithic_95"])
    settings = results["settings"]
    return [
        Section(
            "Result",
            f"RAPTOR minus monolithic DP: {middle:+.1f} points, paired 95 % interval {low:+.1f} to {high:+.1f}. "
            f"Every ε is for adding or removing one record, at δ = {results['delta']:.2e}. Not covered by these ε: "
            + " ".join(results["not_covered"]),
            ["run", "accuracy, %", "95 % interval", "NLL", "ε spent"],
            [
                [
                    run["name"],
                    f"{100 * run['accuracy']:.1f}",
                    f"{100 * run['accuracy_95'][0]:.1f} to {100 * run['accuracy_95'][1]:.1f}",
                    f"{run['nll']:.3f}",
                    "no guarantee" if run["epsilon_spent"] is None else f"{run['epsilon_spent']:.4f}",
                ]
                for run in results["runs"].values()
            ],
        ),
        Section(
            "Routing of public text",
            f"Layer {results['selection']['layer']} is trained: it has the largest normalised entropy.",
            ["layer", "H/log E", "CV", "bias bound, clip norms (rms)"],
            [
                [layer, f"{s['normalized_entropy']:.3f}", f"{s['cv']:.3f}", f"{results['bias'][layer]['rms']:.3f}"]
                for layer, s in results["routing"].items()
            ],
        ),
        Section(
            "Noise",
            f"ε = {settings['eps']:g}, ρ = {settings['rho']:g}, expected batch {settings['batch_size']}, "
            f"{settings['cycles']} cycles. The run used the joint plan.",
            ["composition", "σ shared", "σ expert", "ε of both together"],
            [
                [name, f"{c['sigma_shared']:.4f}", f"{c['sigma_expert']:.4f}", f"{c['epsilon']:.4f}"]
                for name, c in results["calibration"].items()
            ],
        ),
        Section(
            "Clipping",
            "Clip norms were chosen from per-record gradient norms on public snippets.",
            ["run", "role", "parameters", "clip norm", "public records clipped, %"],
            [
                [
                    run["name"],
                    role["role"],
                    f"{role['parameters']:,}",
                    f"{role['clip_norm']:.4f}",
                    f"{100 * role['public_share_clipped']:.0f}",
                ]
                for run in results["runs"].values()
                for role in run["roles"]
            ],
        ),
    ]

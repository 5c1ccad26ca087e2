"""Several methods and seeds on the same data: a run folder each, one table, one plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from raptor_acct.cli._output import SCHEMA
from raptor_train.config import METHODS, RunConfig
from raptor_train.fit import fit
from raptor_train.resolve import Echo, silent
from raptor_train.run_folder import write_json
from raptor_train.settings import with_changes

# Ablations of RAPTOR (paper, Table 5, and theory.md B4, B5) by name, as changes of the configuration.
ABLATIONS: dict[str, dict[str, Any]] = {
    "denominator_batch": {"denominator": "batch"},
    "full_model_clip": {"clip_scope": "full_model"},
    "without_alternating": {"batches": "one", "privacy.composition": "joint"},
    "public_share": {"denominator": "public_share"},
    "shrinkage": {"denominator": "shrinkage"},
    "basic_budget": {"privacy.composition": "basic"},
    "first_layer": {"layer": "first"},
    "last_layer": {"layer": "last"},
}
NOT_COVERED = (
    "Each epsilon is of one run alone: all runs together on the same records spend more. Scores on held-out private "
    "text carry no guarantee."
)


def variant(config: RunConfig, name: str) -> RunConfig:
    """The configuration of a method or of an ablation of RAPTOR, everything else as in ``config``.

    Clip norms that the method does not use become "public".

    Raises:
        ValueError: If there is no such method or ablation.
    """
    if name in METHODS:
        changes: dict[str, Any] = {"method": name}
    elif name in ABLATIONS:
        changes = {"method": "raptor", **ABLATIONS[name]}
    else:
        raise ValueError(f"expected methods among {', '.join([*METHODS, *ABLATIONS])}, got {name!r}")
    plain = {"clip_scope": "role", "batches": "two", "denominator": "expected_owner"}
    settings = with_changes(config.to_dict(), {**plain, "clip_norm": "public", **_without_clips(), **changes})
    bare = RunConfig.from_dict(settings)
    kept = {
        role: replace(getattr(bare, role), clip_norm=getattr(config, role).clip_norm) for role in bare.clipped_roles
    }
    return replace(bare, **kept, clip_norm=config.clip_norm if bare.one_clip_norm else bare.clip_norm)


def compare(
    config: RunConfig,
    methods: Sequence[str],
    seeds: Sequence[int],
    folder: str | Path,
    *,
    echo: Echo = silent,
    progress: bool = False,
) -> dict[str, Any]:
    """Run every method with every seed, each in a folder of its own; runs that are finished are not repeated.

    Args:
        config: What all runs share.
        methods: Names of methods and ablations.
        seeds: Of the adapters' initial weights and public measurements; coins and noise are fresh in every run.
        folder: Where the run folders, comparison.json and comparison.png go.
        echo: Where words go.
        progress: Show bars.

    Returns:
        One entry a method, with means over seeds.

    Raises:
        ValueError: If a configuration is wrong or there is nothing to evaluate on; before the first run.
    """
    if not methods or not seeds:
        raise ValueError("expected at least one method and one seed, got none")
    configs = {
        (name, seed): RunConfig.from_dict(with_changes(variant(config, name).to_dict(), {"training.seed": seed}))
        for name in dict.fromkeys(methods)
        for seed in dict.fromkeys(seeds)
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for (name, seed), run_config in configs.items():
        echo(f"\n{name}, seed {seed}")
        result = fit(run_config, folder / f"{name}-{seed}", echo=echo, progress=progress)
        if "evaluation" not in result:
            raise ValueError("expected held-out records to compare on, got none: give --test FILE")
        runs.append({**result, "method": name, "seed": seed})
    results = {"schema": SCHEMA, "methods": _summary(runs), "runs": runs, "not_covered": NOT_COVERED}
    write_json(folder / "comparison.json", results)
    plot_comparison(results, folder / "comparison.png")
    return results


COMPARISON_HEADER = ["method", "seeds", "accuracy, %", "± (seeds)", "NLL", "± (seeds)", "eps"]


def comparison_rows(results: dict[str, Any]) -> list[list[str]]:
    """The table of a comparison: means and standard deviations over seeds."""

    def cell(value: float | None, scale: float, digits: int) -> str:
        return "-" if value is None else f"{scale * value:.{digits}f}"

    return [
        [
            entry["method"],
            str(entry["seeds"]),
            cell(entry["accuracy"], 100, 1),
            cell(entry["accuracy_sd"], 100, 1),
            cell(entry["nll"], 1, 3),
            cell(entry["nll_sd"], 1, 3),
            "no guarantee" if entry["epsilon"] is None else f"{entry['epsilon']:.4f}",
        ]
        for entry in results["methods"]
    ]


def plot_comparison(results: dict[str, Any], path: Path) -> Path:
    """Every run's accuracy (or NLL, of language models) with its 95 % interval."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    runs = results["runs"][::-1]
    measure = "accuracy" if all("accuracy" in run["evaluation"] for run in runs) else "nll"
    figure, axes = plt.subplots(figsize=(7, 0.45 * len(runs) + 1.4), layout="constrained")
    for row, run in enumerate(runs):
        middle, (low, high) = run["evaluation"][measure], run["evaluation"][f"{measure}_95"]
        axes.errorbar(middle, row, xerr=[[middle - low], [high - middle]], fmt="o", color="#2f6db3", capsize=4)
    axes.set_yticks(range(len(runs)), [f"{run['method']}, seed {run['seed']}" for run in runs])
    axes.set_xlabel(f"{measure} on {runs[0]['evaluation']['records']} held-out records (95 % interval)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _without_clips() -> dict[str, Any]:
    return {"shared.clip_norm": "public", "expert.clip_norm": "public"}


def _summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(run["method"] for run in runs)
    return [_means(name, [run for run in runs if run["method"] == name]) for name in names]


def _means(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {"method": name, "seeds": len(runs)}
    for measure in ("accuracy", "nll"):
        values = [run["evaluation"][measure] for run in runs if measure in run["evaluation"]]
        entry[measure] = float(np.mean(values)) if values else None
        entry[f"{measure}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    spent = [run["privacy"]["epsilon_spent"] for run in runs]
    entry["epsilon"] = None if None in spent else max(one["upper"] for one in spent)
    return entry

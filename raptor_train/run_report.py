"""The pages of a run folder, from its files alone: what was trained, what it cost, how it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raptor_train.pages import Section, html_page, markdown_page
from raptor_train.run_folder import RunFolder


def write_run_report(folder: str | Path) -> list[Path]:
    """Write report.md and report.html; nothing of the run is computed again.

    Returns:
        The files.

    Raises:
        ValueError: If the folder holds no run, or one that was not begun.
    """
    files = RunFolder(folder)
    config, _ = files.read()
    if not files.privacy.exists():
        raise ValueError(f"expected a run with privacy.json, got {folder}: train it with raptor-train fit")
    privacy = json.loads(files.privacy.read_text(encoding="utf-8"))
    title = f"RAPTOR run: {config.method} on {config.model.name}"
    sections = [*_scores(list(files.metrics())), _budget(privacy), _clipping(privacy), _course(list(files.metrics()))]
    pages = {"report.md": markdown_page(title, sections), "report.html": html_page(title, sections)}
    for name, text in pages.items():
        (files.path / name).write_text(text + "\n", encoding="utf-8")
    return [files.path / name for name in pages]


def _scores(metrics: list[dict[str, Any]]) -> list[Section]:
    """The last evaluation, if there is one."""
    found = [line["evaluation"] for line in metrics if "evaluation" in line]
    if not found:
        return []
    return [Section("Result", f"Evaluated data: {found[-1]['data']}.", SCORE_HEADER, [score_row(found[-1])])]


SCORE_HEADER = ["records", "accuracy, %", "95 % interval", "NLL", "95 % interval"]


def score_row(score: dict[str, Any]) -> list[str]:
    """One evaluation as a row of a table."""
    low, high = score["nll_95"]
    accuracy = ["-", "-"]
    if "accuracy" in score:
        accuracy = [
            f"{100 * score['accuracy']:.1f}",
            f"{100 * score['accuracy_95'][0]:.1f} to {100 * score['accuracy_95'][1]:.1f}",
        ]
    return [str(score["records"]), *accuracy, f"{score['nll']:.3f}", f"{low:.3f} to {high:.3f}"]


def _budget(privacy: dict[str, Any]) -> Section:
    outside = "Not covered: " + " ".join(privacy["not_covered"])
    if not privacy["private"]:
        return Section("Privacy", "No guarantee. " + outside)
    planned = privacy["epsilon_planned"]
    spent = "nothing" if privacy["epsilon_spent"] is None else f"≤ {privacy['epsilon_spent']['upper']:.4f}"
    words = (
        f"ε {spent} spent, ≤ {planned['upper']:.4f} planned, "
        f"at δ = {privacy['delta']:.3g}, neighbours: {privacy['adjacency']}, N = {privacy['num_records']['value']} "
        f"(public). {outside}"
    )
    rows = [
        [
            stream["role"],
            f"{stream['noise_multiplier']:.4f}",
            f"{stream['sampling_probability']:.4g}",
            str(stream["num_steps"]),
        ]
        for stream in privacy["streams"]
    ]
    return Section("Privacy", words, ["stream", "σ", "q", "steps"], rows)


def _clipping(privacy: dict[str, Any]) -> Section:
    layer = privacy["layer"]
    words = f"Layer {', '.join(map(str, layer['layers']))}: {layer['source']}. Owners: {privacy['owners']}."
    rows = [
        [
            clip["role"],
            f"{clip['clip_norm']:.4g}",
            clip["source"],
            "-" if clip["share_clipped"] is None else f"{100 * clip['share_clipped']:.0f}",
        ]
        for clip in privacy["clip_norms"]
    ]
    return Section("Layer and clipping", words, ["role", "clip norm", "from", "public records clipped, %"], rows)


def _course(metrics: list[dict[str, Any]]) -> Section:
    cycles = [line for line in metrics if "seconds" in line]
    shown = cycles[:: max(1, len(cycles) // 10)]
    rows = [
        [
            str(line["cycle"]),
            f"{line['seconds']:.1f}",
            f"{line['epsilon']:.4f}" if "epsilon" in line else "-",
            f"{100 * line['public_owner_drift']:.1f}" if "public_owner_drift" in line else "-",
        ]
        for line in shown
    ]
    words = "Public while it ran: time, ε of the ledger so far, public records whose owner has moved."
    return Section("Course", words, ["cycle", "seconds", "ε so far", "owners moved, %"], rows)

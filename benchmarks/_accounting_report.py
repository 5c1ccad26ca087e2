"""What accounting.py prints and draws of its results."""

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _accounting_tools import TOOLS

from raptor_acct.report import table

FLOOR, FAILED_BAND, UNSAFE_BAND = 1e-13, (1e6, 1e8), (1e8, 1e10)  # of the drawing

Row = dict[str, Any]


def summary(rows: Iterable[Row]) -> list[Row]:
    """Each peer against RAPTOR, with the tightness of both over the settings that both answered safely.

    In ``cpu_ratio_median_with_ended`` a call that was ended at the limit counts as that long: a lower bound.
    """
    answers = {(row["task"], row["tool"], row["setting"]): row for row in rows}
    lines = []
    for task in ("calibrate", "epsilon"):
        for name in TOOLS:
            own = {key[2]: row for key, row in answers.items() if key[:2] == (task, name)}
            base = {key: answers.get((task, "raptor", key), {}) for key in own}
            both = [(row, base[key]) for key, row in own.items() if _safe(row) and _safe(base[key])]
            line = {
                "task": task,
                "tool": name,
                "settings": len(own),
                "failures": sum("error" in row for row in own.values()),
                "unsafe": sum(bool(row.get("unsafe")) for row in own.values()),
                "compared": len(both),
            }
            for name_of, key in (("ratio", "seconds"), ("cpu_ratio", "cpu_seconds")):
                line |= _spread(name_of, [row[key] / other[key] for row, other in both])
            ended = [row["seconds"] / base[key]["cpu_seconds"] for key, row in own.items() if row.get("timed_out")]
            with_ended = [row["cpu_seconds"] / other["cpu_seconds"] for row, other in both] + ended
            line["cpu_ratio_median_with_ended"] = statistics.median(with_ended) if with_ended else None
            line |= _spread("excess", [row["excess"] for row, _ in both])
            line |= _spread("raptor_excess", [other["excess"] for _, other in both])
            lines += [line | _spread("peak_mb", [row["peak_mb"] for row, _ in both])] if own else []
    return lines


def _safe(row: Row) -> bool:
    return row.get("unsafe") is False


def _spread(name: str, values: list[float]) -> Row:
    figures = (statistics.median(values), min(values), max(values)) if values else (None, None, None)
    return dict(zip((f"{name}_median", f"{name}_least", f"{name}_most"), figures, strict=True))


def report(document: Row) -> None:
    """Print all rows, then the summary."""
    header = ["setting", "task", "tool", "seconds", "excess", "peak MB", ""]
    print(table(header, [_cells(row) for row in document["measurements"]]), end="\n\n")
    header = ["tool", "task", "settings", "failed", "UNSAFE", "time / RAPTOR's: median", "least", "excess: median"]
    header.insert(7, "CPU time: median")
    header += ["most", "RAPTOR's: median", "most", "peak MB: most"]
    columns = (
        "ratio_median",
        "ratio_least",
        "cpu_ratio_median",
        "excess_median",
        "excess_most",
        "raptor_excess_median",
    )
    columns += ("raptor_excess_most", "peak_mb_most")
    rows = [
        [line["tool"], line["task"], *(str(line[key]) for key in ("settings", "failures", "unsafe"))]
        + [_short(line[key]) for key in columns]
        for line in document["summary"]
    ]
    rows += [[n, "not installed", *[""] * 11] for n, tool in document["tools"].items() if not tool["installed"]]
    print(table(header, rows))
    odd = [name for name, setting in document["settings"].items() if disagrees(setting["reference"])]
    print("\nThe bracket disagrees with the value from elsewhere:", ", ".join(odd) or "nowhere")


def disagrees(exact: Row) -> bool:
    """Whether RAPTOR's certified bracket contradicts an exact value from elsewhere."""
    return any(exact[key]["agrees"] is False for key in ("sigma", "epsilon"))


def _cells(row: Row) -> list[str]:
    note = " ".join(["UNSAFE"] * bool(row.get("unsafe")) + [row.get("error", row.get("note", ""))[:70]])
    return [
        row["setting"],
        row["task"],
        row["tool"],
        *(_short(row.get(k)) for k in ("seconds", "excess", "peak_mb")),
        note,
    ]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def draw(document: Row, file: Path) -> None:
    """Draw how far each calibrated noise lies above the least one, against time."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 7), layout="constrained")
    joint = [name for name, setting in document["settings"].items() if setting["rho"]]
    rows = [
        row
        for row in document["measurements"]
        if row["task"] == "calibrate"
        and row["setting"] not in joint
        and ("error" in row or row.get("unsafe") is not None)
    ]
    names = [name for name in TOOLS if any(row["tool"] == name for row in rows)]
    for i, name in enumerate(names):
        points = [(row["seconds"], _height(row, i / len(names))) for row in rows if row["tool"] == name]
        style = {"marker": "*osD^v<>PXhd"[i], "color": f"C{i % 10}", "s": 110 if name == "raptor" else 36}
        label = f"{name} ({TOOLS[name].package})"
        axes.scatter(*zip(*points, strict=True), label=label, alpha=0.75, linewidths=0.3, edgecolors="black", **style)
    ticks = [10.0**power for power in range(-12, 6, 3)]
    axes.set(xscale="log", yscale="log", ylim=(FLOOR / 3, UNSAFE_BAND[1]), yticks=ticks)
    for (low, high), name, color in (
        (FAILED_BAND, "failed", "0.85"),
        (UNSAFE_BAND, "UNSAFE: too little noise", "mistyrose"),
    ):
        axes.axhspan(low, high, color=color, zorder=0)
        axes.annotate(name, (0.01, (low * high) ** 0.5), xycoords=("axes fraction", "data"), va="center")
    axes.set_xlabel("seconds to calibrate one stream; of a failure, seconds until it")
    axes.set_ylabel(f"noise above the least private one, relative ({FLOOR:g} stands for less)")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(file, dpi=130)


def _height(row: Row, share: float) -> float:
    band = FAILED_BAND if "error" in row else UNSAFE_BAND if row.get("unsafe") else None
    if band:
        return band[0] * (band[1] / band[0]) ** (0.1 + 0.8 * share)
    return max(row["excess"], FLOOR)

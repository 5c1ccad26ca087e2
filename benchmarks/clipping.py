"""Time and memory of per-record clipping, as ratios to the non-private step, against Opacus.

    pip install opacus peft matplotlib                        # the peers; one that is missing is reported as such
    python benchmarks/clipping.py run                         # everything; a part: --settings 'shared*' --tools raptor
    python benchmarks/clipping.py cycle                       # RAPTOR's cycle at the paper's scopes and full size
    python benchmarks/clipping.py plot                        # from the results on file

A step takes 64 records of 64 tokens through a Switch encoder (d 256, 6 layers, 8 experts, float32) and leaves the
clipped gradient sum of one role, without noise and without an optimizer step. The non-private step, to which every
ratio is taken, is plain autograd on peft's adapters: two nn.Linear beside each frozen one. `non-private-merged` is
plain autograd through the merged weight W + scale · up @ down, cheaper at a large rank; RAPTOR's forward has it too.

One process on one thread runs the tools in turn, round after round, so that a busy machine slows all of them. Ratios
are of CPU time, best to best and median of the rounds' own, with the least and the largest of the rounds. Peak memory
is what the full step adds to the peak of a step on two records, in a fork of its own that returns freed memory at once.
`difference` is the largest entry by which a sum differs from the record loop's, relative to the largest entry.
"""

import argparse
import ctypes
import fnmatch
import importlib.metadata
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results" / "clipping.json"
FORK = multiprocessing.get_context("fork")
BASE, EXACT = "non-private", "record-loop"
MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's mallopt

Row = dict[str, Any]


def run(options: argparse.Namespace) -> None:
    """Measure and write the results."""
    from _clipping_tools import SETTINGS, TOOLS

    tools = [tool for tool in TOOLS if tool in (BASE, *_matching(TOOLS, options.tools)) and TOOLS[tool].installed]
    rows: list[Row] = []
    for name in _matching(SETTINGS, options.settings):
        own = _fresh(measured, name, tools, options.rounds)
        print(_table(own), flush=True)
        rows += own
    document = json.loads(FILE.read_text()) if FILE.exists() else {}
    document |= {"circumstances": circumstances(options), "measurements": rows}
    FILE.write_text(json.dumps(document, indent=1) + "\n")
    print(f"wrote {FILE}")


def _fresh(call: Any, *arguments: Any) -> Any:
    """Call in a fork, which has no memory of another measurement to reuse."""
    with ProcessPoolExecutor(1, mp_context=FORK) as executor:
        return executor.submit(call, *arguments).result()


def measured(setting: str, tools: list[str], rounds: int) -> list[Row]:
    """One row a tool."""
    from _clipping_tools import SETTINGS, TOOLS, Problem

    wrong = {tool for tool in tools if SETTINGS[setting].role == "expert" and not TOOLS[tool].experts}
    right = [tool for tool in tools if tool not in wrong]
    memory = {tool: _fresh(_peak_megabytes, setting, tool) for tool in right}  # before this process has run a step
    steps = {tool: TOOLS[tool].make(Problem(SETTINGS[setting])) for tool in right}
    sums = {tool: [total.clone() for total in step()] for tool, step in steps.items()}
    clocks: dict[str, list[tuple[float, float]]] = {tool: [] for tool in right}
    for _ in range(rounds):
        for tool, step in steps.items():
            processor, wall = time.process_time(), time.perf_counter()
            step()
            clocks[tool].append((time.process_time() - processor, time.perf_counter() - wall))
    rows = []
    for tool in right:
        row = {"setting": setting, "tool": tool, **_ratios(clocks[tool], clocks[BASE])}
        row |= {"peak_mb": memory[tool], "peak_ratio": memory[tool] / memory[BASE]}
        if TOOLS[tool].private and EXACT in sums:
            row["difference"] = _difference(sums[tool], sums[EXACT])
        rows.append(row)
    reason = "wrong on experts: takes each token for a record (benchmarks/opacus_moe.py)"
    return rows + [{"setting": setting, "tool": tool, "error": reason} for tool in tools if tool in wrong]


def _ratios(clocks: list[tuple[float, float]], base: list[tuple[float, float]]) -> Row:
    (cpu, wall), (base_cpu, _) = zip(*clocks, strict=True), zip(*base, strict=True)
    ratios = [own / other for own, other in zip(cpu, base_cpu, strict=True)]
    return {
        "cpu_seconds": {"best": min(cpu), "median": statistics.median(cpu)},
        "wall_seconds": {"best": min(wall), "median": statistics.median(wall)},
        "cpu_ratio": {
            "best": min(cpu) / min(base_cpu),
            "median": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
        },
        "rounds": len(clocks),
    }


def _difference(sums: list[Any], exact: list[Any]) -> float:
    largest = max(float(e.abs().max()) for e in exact)
    return max(float((s - e).abs().max()) for s, e in zip(sums, exact, strict=True)) / largest


def _peak_megabytes(setting: str, tool: str) -> float:
    """Of a step on all records above one on two."""
    from _clipping_tools import SETTINGS, TOOLS, Problem

    _return_freed_memory()
    problem = Problem(SETTINGS[setting])
    step, everyone = TOOLS[tool].make(problem), (problem.records, problem.owners)
    problem.few(2)
    step()
    problem.records, problem.owners = everyone
    before = _megabytes()
    step()
    return _megabytes() - before


def _return_freed_memory() -> None:
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 1 << 16)


def _megabytes() -> float:
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def cycle(options: argparse.Namespace) -> None:
    """Measure a cycle against a global step and add it to the results."""
    from _clipping_cycle import PAPER

    times = _fresh(_cycle_times, options.rounds)
    memory = {which: _fresh(_cycle_memory, which, name) for which, name in (("raptor", "cycle"), ("global", "global"))}
    best = {name: min(seconds) for name, seconds in times.items()}
    per_round = [a / b for a, b in zip(times["cycle"], times["global"], strict=True)]
    result = {
        "cpu_seconds": {name: {"best": min(t), "median": statistics.median(t)} for name, t in times.items()},
        "cycle_over_global": {
            "best": best["cycle"] / best["global"],
            "median": statistics.median(per_round),
            "least": min(per_round),
            "most": max(per_round),
        },
        "memory_mb": memory,
        "memory_ratio": {key: memory["raptor"][key] / memory["global"][key] for key in memory["global"]},
        "paper": PAPER,
        "circumstances": circumstances(options),
    }
    document = json.loads(FILE.read_text()) | {"cycle": result}
    FILE.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _cycle_times(rounds: int) -> dict[str, list[float]]:
    from _clipping_cycle import steps

    calls = steps("raptor") | steps("global")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(rounds + 1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            if round_number:  # the first is a warm-up
                times[name].append(time.process_time() - started)
    return times


def _cycle_memory(which: str, name: str) -> Row:
    from _clipping_cycle import steps

    _return_freed_memory()
    call = steps(which)[name]
    weights = _megabytes()
    call()
    return {"weights": weights, "peak": _megabytes(), "above_weights": _megabytes() - weights}


def _matching(names: Any, patterns: str) -> list[str]:
    return [name for name in names if any(fnmatch.fnmatchcase(name, p) for p in patterns.split(","))]


def circumstances(options: argparse.Namespace) -> Row:
    """Under which the results were measured."""
    from _clipping_tools import TOOLS

    packages = sorted({"torch", "transformers", "peft", *(tool.package for tool in TOOLS.values())})
    return {
        "command": " ".join(["python", "benchmarks/clipping.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": options.rounds,
        "threads": 1,
        "cpus": os.cpu_count(),
        "load_average_at_the_end": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "not_installed": [name for name, tool in TOOLS.items() if not tool.installed],
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in packages}},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _table(rows: list[Row]) -> str:
    from raptor_acct.report import table

    header = ["setting", "tool", "CPU ms: best", "median", "ratio: best", "median", "least", "most"]
    header += ["peak MB", "ratio", "difference"]
    return table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    if "error" in row:
        return [row["setting"], row["tool"], *["-"] * 8, row["error"]]
    cpu = [f"{1000 * row['cpu_seconds'][key]:.0f}" for key in ("best", "median")]
    ratios = [f"{row['cpu_ratio'][key]:.2f}" for key in ("best", "median", "least", "most")]
    difference = f"{row['difference']:.0e}" if "difference" in row else ""
    return [row["setting"], row["tool"], *cpu, *ratios, f"{row['peak_mb']:.0f}", f"{row['peak_ratio']:.2f}", difference]


def plot(_: argparse.Namespace) -> None:
    """Draw the results on file."""
    from matplotlib import pyplot

    document = json.loads(FILE.read_text())
    rows = [row for row in document["measurements"] if "error" not in row and row["tool"] != BASE]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    figure, axes = pyplot.subplots(
        2, len(settings), figsize=(4.2 * len(settings), 6), layout="constrained", squeeze=False
    )
    for column, setting in enumerate(settings):
        own = [row for row in rows if row["setting"] == setting][::-1]
        names = [row["tool"] for row in own]
        colors = ["C3" if name == "raptor" else "0.6" for name in names]
        time_axis, memory_axis = axes[0, column], axes[1, column]
        medians = [row["cpu_ratio"]["median"] for row in own]
        ends = [[abs(row["cpu_ratio"][e] - m) for row, m in zip(own, medians, strict=True)] for e in ("least", "most")]
        time_axis.barh(names, medians, xerr=ends, color=colors, ecolor="black", capsize=2)
        memory_axis.barh(names, [row["peak_ratio"] for row in own], color=colors)
        time_axis.set_title(setting)
        time_axis.set_xlabel("CPU time, non-private = 1")
        memory_axis.set_xlabel("peak memory, non-private = 1")
        for axis in (time_axis, memory_axis):
            axis.axvline(1, color="black", linewidth=0.8)
            label = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            axis.bar_label(
                axis.containers[-1], fmt="%.2f", padding=14 if axis is time_axis else 3, fontsize=9, bbox=label
            )
            axis.margins(x=0.3)
    figure.suptitle("One step of per-record clipping (bars: median of the rounds, whiskers: all of them)")
    figure.savefig(FILE.with_suffix(".png"), dpi=130)
    print(f"wrote {FILE.with_suffix('.png')}")


def main() -> None:
    """Measure or draw, on one thread."""
    if os.environ.get("OMP_NUM_THREADS") != "1":
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | threads)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="measure and write the results")
    command.add_argument("--settings", default="*", help="names, separated by commas; * and ? stand for anything")
    command.add_argument("--tools", default="*", help="likewise")
    command.add_argument("--rounds", type=int, default=9, help="times that every tool runs")
    command.set_defaults(call=run)
    command = commands.add_parser(
        "cycle", help="a RAPTOR cycle against a global step at full size, added to the results"
    )
    command.add_argument("--rounds", type=int, default=3, help="times that every step runs")
    command.set_defaults(call=cycle)
    commands.add_parser("plot", help="draw the results on file").set_defaults(call=plot)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()

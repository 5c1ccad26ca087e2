"""Time, tightness, memory and failures of accounting tools for DP-SGD, setting by setting.

    pip install opacus prv-accountant riskcal matplotlib      # the peers; one that is missing is reported as such
    python benchmarks/accounting.py run                       # everything; a part: --settings 'S1*' --tools raptor,pld
    python benchmarks/accounting.py run --tools prv --merge   # adds to the results on file, replaces what it repeats
    python benchmarks/accounting.py plot                      # looseness against time, from the results on file

Two tasks: `calibrate`, from a target (eps, delta) to the noise multiplier of one stream, and `epsilon`, from noise to
epsilon at delta. The target is the same for all tools, and so is the safe side: neighbours differ by one record added
or removed, a noise multiplier must not be below the least private one, an epsilon not below the true one. An answer on
the wrong side is marked UNSAFE. `excess` is how far an answer lies above the exact one, relatively. The exact one is
the tight end of RAPTOR's certified bracket, checked against numbers from elsewhere where there are any; so RAPTOR's own
excess is the width of its bracket. Where the bracket disagrees with those numbers they are used instead.

All tools are imported and warmed up in one process on one thread; each measurement is a fork of it, which is ended at
the limit and may use 8 GiB. An untimed call comes first, unless it takes over a second: then it is the measurement.
Else the median of up to five calls within 0.3 seconds counts, each with a delta 1e-12 away from the last, so that an
answer kept from an earlier call does not count. Peak memory is what the first call adds to the process, and for calls
under 0.3 seconds at least what tracemalloc sees.
"""

import argparse
import fnmatch
import importlib.metadata
import json
import logging
import math
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from _accounting_report import draw, report, summary
from _accounting_settings import SEED, Setting, all_settings
from _accounting_tools import (
    MATCHED,
    TOOLS,
    Tool,
    one_step_spread,
    pld_matched,
    raptor_calibrate_joint,
    raptor_epsilon,
)

RESULTS = Path(__file__).parent / "results"
MEMORY = 8 << 30  # bytes
FILE = RESULTS / "accounting.json"
FORK = multiprocessing.get_context("fork")

Row = dict[str, Any]


def isolated(call: Callable[[float], Any], limit: float, warm: Callable[[], Any]) -> Row:
    """Run `call(stretch)` in a fork of this process; return the answer and its cost, or the error."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_in_fork, args=(call, warm, sender))
    started = time.perf_counter()
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(limit) else _late(limit)
    except EOFError:
        return {"error": "the process died", "seconds": time.perf_counter() - started}
    finally:
        process.kill()
        process.join()


def _late(limit: float) -> Row:
    return {"error": f"over {limit:g} s", "seconds": limit, "timed_out": True}


def _in_fork(call: Callable[[float], Any], warm: Callable[[], Any], sender: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warm()
    before, started = _peak_megabytes(), time.perf_counter()
    try:
        outcome = _timed(call, before)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        outcome = {"error": f"{type(error).__name__}: {lines[0]}", "seconds": time.perf_counter() - started}
    sender.send(outcome)


def _timed(call: Callable[[float], Any], before: float) -> Row:
    answer, first = _clock(call, 1.0)
    peak = _peak_megabytes() - before
    times = [first]
    if first[0] < 1:
        times = [_clock(call, 1 + 1e-12)[1]]
        while len(times) < 5 and sum(seconds for seconds, _ in times) < 0.3:
            times.append(_clock(call, 1 + 1e-12 * (len(times) + 1))[1])
        if first[0] < 0.3:
            peak = max(peak, _traced_megabytes(call))
    seconds, processor = (statistics.median(column) for column in zip(*times, strict=True))
    row = {"seconds": seconds, "cpu_seconds": processor, "calls": len(times), "peak_mb": peak}
    if not isinstance(answer, float):
        return {"answer": answer, **row}
    ends = {end: getattr(answer, end) for end in ("lower", "upper") if hasattr(answer, end)}
    return {"answer": float(answer), **ends, **row}


def _clock(call: Callable[[float], Any], stretch: float) -> tuple[Any, tuple[float, float]]:
    started, processor = time.perf_counter(), time.process_time()
    answer = call(stretch)
    return answer, (time.perf_counter() - started, time.process_time() - processor)


def _peak_megabytes() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _traced_megabytes(call: Callable[[float], Any]) -> float:
    tracemalloc.start()
    call(1.0)
    return tracemalloc.get_traced_memory()[1] / 2**20


def warm_up(tool: Tool) -> None:
    """A call that loads what a tool loads lazily."""
    tool.epsilon([(2.0, 0.1, 10)], 1e-5, 1.0)


def installed(name: str) -> bool:
    """Import a tool and warm it up in this process; False where it is not there."""
    try:
        warm_up(TOOLS[name])
        TOOLS[name].calibrate(1.0, 1e-5, 0.1, 10)
    except ModuleNotFoundError:
        return False
    return True


def reference(setting: Setting, limit: float) -> Row:
    """The exact answers, and the streams whose epsilon is asked for."""
    outcome = isolated(lambda _: _brackets(setting), limit, partial(warm_up, TOOLS["raptor"]))
    found = outcome.get("answer", {"sigma": None, "epsilon": None, "streams": setting.streams})
    exact = {
        key: _exact(found[key], constant, setting.accuracy)
        for key, constant in (("sigma", setting.sigma), ("epsilon", setting.epsilon))
    }
    return {"streams": found["streams"], "error": outcome.get("error"), **exact}


def _brackets(setting: Setting) -> Row:
    streams, bracket = setting.streams, None
    if setting.eps is not None:
        high = float(calibration("raptor", TOOLS["raptor"], setting)(1.0))
        bracket = (_certified_least(setting, high), high)
        streams = streams if setting.sigma else setting.at(high)
    answer = raptor_epsilon(streams, setting.delta)
    return {"streams": streams, "sigma": bracket, "epsilon": (answer.lower, float(answer))}


def _certified_least(setting: Setting, high: float) -> float | None:
    """About the largest noise that is certified to be too small; None where the engine certifies none."""

    def too_small(power: float) -> bool:
        answer = raptor_epsilon(setting.at(high * (1 - 10**power)), setting.delta)
        return answer.lower > setting.eps

    narrow, wide = -15.0, -1.0
    if not too_small(wide):
        return None
    for _ in range(9):
        middle = (narrow + wide) / 2
        narrow, wide = (narrow, middle) if too_small(middle) else (middle, wide)
    return high * (1 - 10**wide)


def _exact(bracket: tuple[float | None, float] | None, constant: float | None, accuracy: float) -> Row:
    """The exact value: the certified lower end, unless there is none or it contradicts the constant.

    Without either, RAPTOR's answer stands in; then nothing is `known`, and no answer is called unsafe.
    """
    low, high = bracket or (None, None)
    agrees = None if constant is None or low is None else low * (1 - accuracy) <= constant <= high * (1 + accuracy)
    certified = low is not None and agrees is not False
    value = low if certified else high if constant is None else constant
    return {
        "exact": value,
        "slack": 0.0 if certified else accuracy,
        "known": certified or constant is not None,
        "certified": certified,
        "bracket": bracket,
        "elsewhere": constant,
        "agrees": agrees,
    }


def calibration(name: str, tool: Tool, setting: Setting) -> Callable[[float], float]:
    """The calibration call of a setting."""
    _, q, steps = setting.streams[0]
    if setting.rho is not None and name == "raptor":
        return lambda x: raptor_calibrate_joint(setting.eps, setting.delta * x, setting.rho, q, steps)
    return lambda x: tool.calibrate(setting.eps, setting.delta * x, q, steps)


def measurements(setting: Setting, exact: Row, name: str, limit: float) -> Iterator[Row]:
    """One tool's rows for one setting. Only RAPTOR calibrates two streams at once, and only it is given the ledger."""
    if setting.eps is None and name != "raptor":
        return
    calibrates = setting.eps is not None and (setting.rho is None or name == "raptor")
    tool, warm = TOOLS[name], partial(warm_up, TOOLS[name])
    if name in MATCHED:
        tool, row = matched(name, setting, exact, limit if calibrates else 0)
        calibrates = False
        yield from [row] if row else []
    streams, about = exact["streams"], exact["epsilon"]["exact"] or setting.eps
    outcome = isolated(lambda x: tool.epsilon(streams, setting.delta * x, about), limit, warm)
    yield {"task": "epsilon", **judged(outcome, exact["epsilon"])}
    if calibrates:
        hopeless = {"error": f"not tried: epsilon(delta) alone is {outcome.get('error')}", "seconds": limit}
        timed_out = outcome.get("timed_out", False)
        outcome = hopeless if timed_out else isolated(calibration(name, tool, setting), limit, warm)
        yield {"task": "calibrate", **judged(outcome, exact["sigma"])}


def matched(name: str, setting: Setting, exact: Row, limit: float) -> tuple[Tool, Row | None]:
    """Google's PLD with the coarsest interval of a ladder that comes as close to the least noise as wanted."""
    wanted, ladder = MATCHED[name]
    spread = min(one_step_spread(s, q) for s, q, _ in exact["streams"])
    sigma, row, tried = exact["sigma"]["exact"], None, []
    best = pld_matched(ladder[0] * spread, sigma or 1.0)
    if not limit or not sigma:
        return best, None
    for interval in (fraction * spread for fraction in ladder):
        tool = pld_matched(interval, sigma)
        outcome = isolated(calibration(name, tool, setting), limit, partial(warm_up, TOOLS["pld"]))
        found = {"interval": interval, **judged(outcome, exact["sigma"])}
        tried.append({key: found.get(key) for key in ("interval", "seconds", "excess", "error")})
        if row is None or found.get("excess", math.inf) < row.get("excess", math.inf):
            best, row = tool, found
        if "error" in found or found["excess"] <= wanted:
            break
    note = {} if row.get("excess", 0.0) <= wanted else {"note": f"never within {wanted:g}"}
    return best, {"task": "calibrate", **row, **note, "tried": tried}


def judged(outcome: Row, exact: Row) -> Row:
    """The row of a measurement: what came out, set against the exact answer."""
    row = dict(outcome)
    if "error" in row:
        return row
    answer = row["answer"]
    if answer is None or not 0 < answer < math.inf:
        return {**row, "answer": str(answer), "error": f"the answer is {answer}"}
    if exact["exact"] is not None:
        row["excess"] = answer / exact["exact"] - 1
        row["unsafe"] = row["excess"] < -exact["slack"] if exact["known"] else None
    return row


def run(options: argparse.Namespace) -> None:
    """Measure, writing after each setting."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    document = load() if options.merge else {}
    names = [name for name in TOOLS if _chosen(name, options.tools)]
    present = [name for name in names if installed(name)]
    installed("raptor")
    settings = [setting for setting in all_settings() if _chosen(setting.name, options.settings)]
    document.setdefault("runs", []).append(circumstances(options))
    document.setdefault("settings", {})
    tools = document.setdefault("tools", {})
    tools |= {name: {"options": TOOLS[name].options, "installed": name in present} for name in names}
    rows = {(row["setting"], row["tool"], row["task"]): row for row in document.get("measurements", [])}
    for i, setting in enumerate(settings, start=1):
        exact = reference(setting, 10 * options.limit)
        document["settings"][setting.name] = described(setting, exact)
        for name in present:
            for row in measurements(setting, exact, name, options.limit):
                rows[setting.name, name, row["task"]] = {"setting": setting.name, "tool": name, **row}
                progress = f"[{i}/{len(settings)}] {setting.name} {name} {row['task']}: {row['seconds']:.3g} s"
                print(progress, row.get("error", ""), file=sys.stderr, flush=True)
        document["measurements"] = list(rows.values())
        document["summary"] = summary(document["measurements"])
        RESULTS.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    report(document)


def load() -> Row:
    """The results on file."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def _chosen(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))


def circumstances(options: argparse.Namespace) -> Row:
    """Under which this part was measured."""
    return {
        "command": " ".join(["python", "benchmarks/accounting.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "limit_seconds": options.limit,
        "memory_bytes": MEMORY,
        "seed": SEED,
        "cpus": os.cpu_count(),
        "threads": 1,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **dict(_versions())},
    }


def _versions() -> Iterator[tuple[str, str | None]]:
    for package in sorted({"numpy", "scipy", *(tool.package for tool in TOOLS.values())}):
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, None


def described(setting: Setting, exact: Row) -> Row:
    """A setting for the record; of a long ledger its size."""
    streams = list(exact["streams"])
    shown = {"streams": streams} if len(streams) < 5 else {"segments": len(streams)}
    target = {key: getattr(setting, key) for key in ("eps", "delta", "rho")}
    return {**target, **shown, "reference": {key: exact[key] for key in ("sigma", "epsilon", "error")}}


def plot(_: argparse.Namespace) -> None:
    """Draw the results on file."""
    file = FILE.with_suffix(".png")
    draw(load(), file)
    print(f"wrote {file}")


def main() -> None:
    """Measure or draw, on one thread."""
    if os.environ.get("OMP_NUM_THREADS") != "1":
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | threads)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="measure and write the results")
    command.add_argument("--settings", default="*", help="names, separated by commas; * and ? stand for anything")
    command.add_argument("--tools", default="*", help="likewise: " + ", ".join(TOOLS))
    command.add_argument("--limit", type=float, default=60.0, help="seconds a call may take")
    command.add_argument("--merge", action="store_true", help="keep the other results on file")
    command.set_defaults(call=run)
    commands.add_parser("plot", help="draw the results on file").set_defaults(call=plot)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()

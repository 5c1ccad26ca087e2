"""How the demo's settings were chosen, and what they give over several seeds.

    python benchmarks/demo_study.py tune        # public text only, about 15 minutes on two cores
    python benchmarks/demo_study.py seeds       # the demo's runs at eps 1 and 8, three seeds each, about 10 minutes

`tune` uses no private record: 7,000 IMDb snippets with the labels of their reviews stand in for the private task and
1,500 others for its test set. RAPTOR and monolithic DP get the same number of trials, and each keeps its best setting
by the mean accuracy over eps 1 and 8 among those that fit the demo's three minutes; the last trial of each shows what
more steps would give.

Not recorded: before this study about 27 runs of RAPTOR, 3 of the head alone and 1 of monolithic DP, on public text too
and some on earlier versions of the model, suggested the settings that all methods share (the head's own rate, the clip
quantile, the range of rates). The head alone has no trials here.

`seeds` then trains on the Rotten Tomatoes sentences.
Results are written to benchmarks/results/ as JSON.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raptor_acct import Calibration, SubsampledGaussian, calibrate_sigma, calibrate_sigmas, default_delta, select_layer
from raptor_train.demo import runs
from raptor_train.demo.settings import Settings
from raptor_train.demo.texts import Texts, load_texts
from raptor_train.modeling import load_demo_model
from raptor_train.public import measure_routing
from raptor_train.workers import run_jobs

RESULTS = Path(__file__).parent / "results"
BUDGETS = (1.0, 8.0)
TRIALS: dict[str, list[dict[str, Any]]] = {
    "raptor": [
        {"learning_rate_shared": 0.001, "learning_rate_expert": 0.001},
        {"learning_rate_shared": 0.003, "learning_rate_expert": 0.003},
        {"learning_rate_shared": 0.001, "learning_rate_expert": 0.001, "clip_quantile": 0.5},
        {"learning_rate_shared": 0.001, "learning_rate_expert": 0.001, "learning_rate_head": 0.03},
        {"learning_rate_shared": 0.001, "learning_rate_expert": 0.001, "cycles": 60},
    ],
    "monolithic": [
        {"learning_rate_monolithic": 0.001},
        {"learning_rate_monolithic": 0.003},
        {"learning_rate_monolithic": 0.001, "clip_quantile": 0.5},
        {"learning_rate_monolithic": 0.001, "learning_rate_head": 0.03},
        {"learning_rate_monolithic": 0.001, "one_stream_steps": 80},
    ],
}


def public_stand_in(max_length: int) -> Texts:
    """Public snippets as the private task, its test set, and the public text beside it."""
    public = load_texts(max_length=max_length).public
    private, test, rest = torch.arange(len(public)).tensor_split([7000, 8500])
    return Texts(public=public.take(rest), private=public.take(private), test=public.take(test))


def selected_layer(settings: Settings, texts: Texts) -> int:
    """The layer RAPTOR trains."""
    return select_layer(measure_routing(load_demo_model(), texts.public.take(torch.arange(settings.num_public)))).layer


def joint_plan(settings: Settings, num_records: int) -> Calibration:
    """The demo's plan."""
    q = settings.sampling_probability(num_records)
    delta = default_delta(num_records)
    return calibrate_sigmas(settings.eps, delta, settings.rho, q, settings.cycles, composition="joint", keep="shared")


def run_raptor(settings: Settings, texts: Texts, layer: int) -> dict[str, Any]:
    """One RAPTOR run."""
    with tempfile.TemporaryDirectory() as folder:
        plan = joint_plan(settings, len(texts.private))
        return runs.raptor(settings, texts, layer, plan, Path(folder) / "ledger").to_dict()


def run_non_private(settings: Settings, texts: Texts, layer: int) -> dict[str, Any]:
    """One run without privacy."""
    return runs.non_private(settings, texts, layer).to_dict()


def run_one_stream(settings: Settings, texts: Texts, method: str) -> dict[str, Any]:
    """One run of the monolithic baseline or of the head alone."""
    run = {"monolithic": runs.monolithic, "head": runs.head_only}[method]
    with tempfile.TemporaryDirectory() as folder:
        delta, q = default_delta(len(texts.private)), settings.sampling_probability(len(texts.private))
        sigma = calibrate_sigma(settings.eps, delta, q, settings.one_stream_steps)
        mechanism = SubsampledGaussian(
            num_steps=settings.one_stream_steps, sampling_probability=q, noise_multiplier=sigma
        )
        return run(settings, texts, mechanism, delta, Path(folder) / "ledger").to_dict()


Job = Callable[[], dict[str, Any]]


def job(method: str, settings: Settings, texts: Texts, layer: int) -> Job:
    """One run, ready to be sent to a worker process."""
    if method == "raptor":
        return partial(run_raptor, settings, texts, layer)
    if method == "non-private":
        return partial(run_non_private, settings, texts, layer)
    return partial(run_one_stream, settings, texts, method)


def run_all(jobs: dict[str, Job], settings: Settings) -> dict[str, dict[str, Any]]:
    """All jobs, two at a time."""
    return run_jobs(jobs, steps=len(jobs) * settings.cycles, workers=2, progress=True)


def tune() -> dict[str, Any]:
    """Try each method's settings on the public stand-in."""
    base = Settings()
    texts = public_stand_in(base.max_length)
    layer = selected_layer(base, texts)
    changes = {f"{m}/{i}/{eps}": c for m in TRIALS for i, c in enumerate(TRIALS[m]) for eps in BUDGETS}
    jobs = {
        key: job(key.split("/")[0], replace(base, eps=float(key.split("/")[2]), **change), texts, layer)
        for key, change in changes.items()
    }
    results = run_all(jobs, base)
    trials = [
        {
            "method": method,
            "change": change,
            "results": {str(eps): _figures(results[f"{method}/{i}/{eps}"]) for eps in BUDGETS},
        }
        for method in TRIALS
        for i, change in enumerate(TRIALS[method])
    ]
    return {"layer": layer, "trials": trials}


def _figures(result: dict[str, Any]) -> dict[str, float]:
    return {key: result[key] for key in ("accuracy", "nll", "seconds")}


def seeds() -> dict[str, Any]:
    """The demo's runs on the private task."""
    base = Settings()
    texts = load_texts(max_length=base.max_length)
    layer = selected_layer(base, texts)
    jobs: dict[str, Job] = {}
    for seed in range(3):
        jobs[f"{seed}/-/non-private"] = job("non-private", replace(base, seed=seed), texts, layer)
        for eps in BUDGETS:
            for method in ("raptor", "monolithic", "head"):
                jobs[f"{seed}/{eps:g}/{method}"] = job(method, replace(base, seed=seed, eps=eps), texts, layer)
    rows = [{"seed": None, "eps": None, **runs.public_head(texts).to_dict()}]
    for key, result in run_all(jobs, base).items():
        seed, eps, _ = key.split("/")
        rows.append({"seed": int(seed), "eps": None if eps == "-" else float(eps), **result})
    return {"layer": layer, "summary": summary(rows), "runs": rows}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        name = row["name"] if row["eps"] is None else f"{row['name']} eps={row['eps']:g}"
        groups.setdefault(name, []).append(100 * row["accuracy"])
    return {
        name: {"mean": float(np.mean(v)), "sd": float(np.std(v, ddof=1)) if len(v) > 1 else 0.0, "runs": len(v)}
        for name, v in groups.items()
    }


def main() -> None:
    """Run one study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("tune", "seeds"))
    study = parser.parse_args().study
    started = time.perf_counter()
    results = {"tune": tune, "seeds": seeds}[study]()
    document = {
        "command": f"python benchmarks/demo_study.py {study}",
        "settings": asdict(Settings()),
        "seconds": round(time.perf_counter() - started),
        **results,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"demo_{study}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

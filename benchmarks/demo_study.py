"""How the demo's settings were chosen, and what they give over several seeds.

    python benchmarks/demo_study.py tune        # public text only, about an hour on one thread
    python benchmarks/demo_study.py seeds       # the demo's runs at eps 1 and 8, three seeds each, about 15 minutes

`tune` uses no private record: 7,000 IMDb snippets with the labels of their reviews stand in for the private task and
1,500 others for its test set. RAPTOR and monolithic DP get the same number of trials, and each keeps its best setting
by the mean accuracy over eps 1 and 8. `seeds` then trains on the Rotten Tomatoes sentences.
Results are written to benchmarks/results/ as JSON.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raptor_acct import Calibration, calibrate_sigmas, default_delta, select_layer
from raptor_train.demo import runs
from raptor_train.demo.settings import Settings
from raptor_train.demo.texts import Texts, load_texts
from raptor_train.modeling import load_demo_model
from raptor_train.public import measure_routing

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


def run_one_stream(settings: Settings, texts: Texts, method: str) -> dict[str, Any]:
    """One run of the monolithic baseline or of the head alone."""
    run = {"monolithic": runs.monolithic, "head": runs.head_only}[method]
    with tempfile.TemporaryDirectory() as folder:
        delta = default_delta(len(texts.private))
        return run(settings, texts, delta, Path(folder) / "ledger").to_dict()


def tune(arguments: argparse.Namespace) -> dict[str, Any]:
    """Try each method's settings on the public stand-in."""
    base = Settings()
    texts = public_stand_in(base.max_length)
    layer = selected_layer(base, texts)
    trials: list[dict[str, Any]] = []
    for method in ("raptor", "monolithic"):
        for change in TRIALS[method]:
            scores: list[dict[str, float]] = []
            for eps in BUDGETS:
                settings = dataclasses.replace(base, eps=eps, **change)
                is_raptor = method == "raptor"
                result = run_raptor(settings, texts, layer) if is_raptor else run_one_stream(settings, texts, method)
                scores.append({"eps": eps, **{key: result[key] for key in ("accuracy", "nll", "seconds")}})
                print(method, change, scores[-1], flush=True)
            trials.append({"method": method, "change": change, "results": scores})
    return {"layer": layer, "trials": trials}


def seeds(arguments: argparse.Namespace) -> dict[str, Any]:
    """The demo's runs on the private task."""
    base = Settings()
    texts = load_texts(max_length=base.max_length)
    layer = selected_layer(base, texts)
    rows: list[dict[str, Any]] = [{"seed": None, "eps": None, **runs.public_head(texts).to_dict()}]
    for seed in range(3):
        plain = dataclasses.replace(base, seed=seed)
        rows.append({"seed": seed, "eps": None, **runs.non_private(plain, texts, layer).to_dict()})
        for eps in BUDGETS:
            settings = dataclasses.replace(plain, eps=eps)
            one_stream = [run_one_stream(settings, texts, method) for method in ("monolithic", "head")]
            for result in (run_raptor(settings, texts, layer), *one_stream):
                rows.append({"seed": seed, "eps": eps, **result})
                print(f"eps={eps:g} seed={seed} {result['name']}: {100 * result['accuracy']:.2f} %", flush=True)
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
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    started = time.perf_counter()
    results = {"tune": tune, "seeds": seeds}[arguments.study](arguments)
    document = {
        "command": f"python benchmarks/demo_study.py {arguments.study} --threads {arguments.threads}",
        "settings": dataclasses.asdict(Settings()),
        "seconds": round(time.perf_counter() - started),
        **results,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"demo_{arguments.study}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

"""Draw the theory, one picture a name, with the numbers it shows.

    python benchmarks/theory_plots.py bias_variance           # error of each denominator against the CV of routing
    python benchmarks/theory_plots.py entropy_cv --data DIR   # entropy against CV: the sharp region and real layers
    python benchmarks/theory_plots.py sigmas                  # noise of both roles against rho, basic and joint
    python benchmarks/theory_plots.py entropy_n --data DIR    # entropy against the number of records, with bands
    python benchmarks/theory_plots.py rho_lambda              # the best rho against the ratio of sensitivities
    python benchmarks/theory_plots.py roc                     # what an attacker can get at most, and what one got

Writes results/theory_NAME.png and .json. DIR adds real routing that is not part of this project; see _theory_data.py.
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import _paper as paper
import numpy as np
from _theory_data import deepseek_records, demo_records, token_counts
from paper_tables import qnli_guarantee

from raptor_acct import RoutingStats, calibrate_sigmas, default_delta, entropy_curve
from raptor_acct.plots import (
    Attack,
    Plot,
    RoutingPoint,
    denominator_errors,
    entropy_cv,
    entropy_growth,
    noise_against_rho,
    optimal_split,
    roc_ceilings,
)

RESULTS = Path(__file__).parent / "results"
SEED = 0
EPS = (1.0, 4.0, 8.0)
RECORDS = paper.RECORDS["SST-2"]
Q, STEPS = paper.BATCH_SIZE / RECORDS, math.ceil(paper.EPOCHS * RECORDS / paper.BATCH_SIZE)


def bias_variance() -> Plot:
    """Zipf-like routings over 8 experts with the paper's schedule on SST-2 at ε = 8.

    What the paper does not print is set so that bias is as large as it may be: every gradient is clipped (m = C² = 1)
    and the means are half as long (‖c̄‖ = 0.5).
    """
    ranks = np.arange(1, 9)
    family = [RoutingStats.from_probabilities(ranks**-s / np.sum(ranks**-s)) for s in np.linspace(0, 4, 41)]
    setting = {
        "batch_size": paper.BATCH_SIZE,
        "sampling_probability": Q,
        "clip_norm": 1.0,
        "noise_multiplier": calibrate_sigmas(8.0, default_delta(RECORDS), paper.RHO, Q, STEPS).sigma_expert,
        "num_parameters": int(paper.TABLE_10["experts"][0]) // 8,
        "mean_norm": 0.5,
        "second_moment": 1.0,
    }
    return denominator_errors(family, setting, title="At the paper's size noise makes the error, not bias: 8 experts")


def entropy_cv_of_layers(data: Path | None) -> Plot:
    """The paper's rows, and tokens of real models where their counts are given."""
    table_7 = [RoutingPoint(8, float(h), math.sqrt(float(chi2))) for h, _, chi2 in paper.TABLE_7.values()]
    table_9 = [RoutingPoint(8, float(h), float(cv)) for _, cv, h in paper.TABLE_9.values()]
    groups = {"the paper's Table 7, records": table_7, "the paper's Table 9, records": table_9}
    return entropy_cv(groups | (token_counts(data) if data else {}))


def entropy_n(data: Path | None) -> Plot:
    """The demo's layers on IMDb, and a layer of DeepSeek-V2-Lite where its records are given."""
    curve = partial(entropy_curve, seed=SEED)
    demo = {f"Switch, layer {layer}": curve(stats) for layer, stats in demo_records().items()}
    groups = {"small Switch on IMDb snippets, 8 experts": demo}
    if data:
        groups["DeepSeek-V2-Lite on intents, 64 experts"] = {"DeepSeek, layer 13": curve(deepseek_records(data))}
    return entropy_growth(groups)


def roc() -> Plot:
    """RAPTOR's plan on QNLI, and the attacks of Table 3, each beside the ceiling of its own plan."""
    guarantee = cache(qnli_guarantee)
    attacks = []
    for (eps, method), (_, measured) in paper.TABLE_3.items():
        target = None if eps == "∞" else float(eps)
        plan = None if target is None else guarantee(target, method == paper.RAPTOR)
        suffix = "" if target is None else f", ε = {eps}"
        attacks += [
            Attack(f"{name}, {method}{suffix}", target, plan, paper.TABLE_3_FPR, float(tpr) / 100)
            for name, (_, tpr) in measured.items()
        ]
    delta = default_delta(paper.RECORDS["QNLI"])
    return roc_ceilings({eps: guarantee(eps, True) for eps in EPS}, delta, attacks=attacks)


def plots(data: Path | None) -> dict[str, Callable[[], Plot]]:
    """Return what makes each picture."""
    return {
        "bias_variance": bias_variance,
        "entropy_cv": partial(entropy_cv_of_layers, data),
        "sigmas": partial(noise_against_rho, EPS, default_delta(RECORDS), Q, STEPS),
        "entropy_n": partial(entropy_n, data),
        "rho_lambda": partial(optimal_split, np.geomspace(1e-3, 1e4, 57).tolist(), chosen=paper.RHO),
        "roc": roc,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(plots(None)))
    parser.add_argument("--data", type=Path, help="folder with real routing, for entropy_cv and entropy_n")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the two files")
    options = parser.parse_args(arguments)
    plot = plots(options.data)[options.name]()
    command = f"python benchmarks/theory_plots.py {options.name}" + (" --data DIR" if options.data else "")
    document = {"command": command, "seed": SEED, **plot.numbers}
    options.out.mkdir(parents=True, exist_ok=True)
    plot.save(options.out / f"theory_{options.name}.png")
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    (options.out / f"theory_{options.name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

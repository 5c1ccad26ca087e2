"""Random calibrations, re-checked by another accountant: does the noise meet its target, and not by far?

    python benchmarks/check_accounting.py --plans 200 --seed 0

Each plan is `calibrate_sigmas` with eps in [0.1, 10], delta 1e-5, rho one of 0.1, 0.5, 0.9, q in [1e-3, 1] and up to
2000 steps. dp-accounting's PLD re-computes what each stream spends, from above by less than 1e-3. Writes
results/check_accounting.json, anew after every ten plans; progress goes to stderr.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from raptor_acct import SubsampledGaussian, calibrate_sigmas

DELTA = 1e-5
RESULT = Path(__file__).parent / "results" / "check_accounting.json"


def referee(stream: SubsampledGaussian, delta: float) -> float:
    """Return an upper bound on epsilon, on a grid fine against one step's deviation."""
    sigma, q, steps = stream.noise_multiplier, stream.sampling_probability, stream.num_steps
    log_rest = math.log1p(-q) if q < 1 else -math.inf
    ends = [np.logaddexp(log_rest, math.log(q) + side * 10 / sigma + 0.5 / sigma**2) for side in (-1, 1)]
    interval = max(0.01 * q / sigma, float(np.ptp(ends)) / 40_000)
    one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=interval, sampling_prob=q)
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


def check(rng: np.random.Generator) -> list[dict[str, float]]:
    """Calibrate one random plan and return what the referee says of both of its streams."""
    eps, rho = float(rng.uniform(0.1, 10)), float(rng.choice([0.1, 0.5, 0.9]))
    q, steps = float(np.exp(rng.uniform(math.log(1e-3), 0))), int(rng.integers(1, 2001))
    started = time.perf_counter()
    plan = calibrate_sigmas(eps, DELTA, rho, q, steps).plan
    seconds = time.perf_counter() - started
    rows = []
    for stream, target in ((plan.shared, rho * eps), (plan.expert, (1 - rho) * eps)):
        ours = stream.guarantee().epsilon(DELTA / 2)
        rows.append(
            {
                "sigma": stream.noise_multiplier,
                "q": q,
                "steps": steps,
                "target": target,
                "lower": ours.lower,
                "upper": ours.upper,
                "referee": referee(stream, DELTA / 2),
                "seconds": seconds,
            }
        )
    return rows


def summary(rows: list[dict[str, float]]) -> dict[str, float | int]:
    """Return counts of contradictions and the worst relative gaps."""
    gaps = [row["referee"] / row["lower"] - 1 for row in rows]
    return {
        "streams": len(rows),
        "above_target": sum(row["upper"] > row["target"] for row in rows),
        "referee_above_target_by_1e-3": sum(row["referee"] > row["target"] + 1e-3 for row in rows),
        "referee_below_target_by_1e-3": sum(row["referee"] < row["target"] - 1e-3 for row in rows),
        "referee_below_lower_end": sum(row["referee"] < row["lower"] for row in rows),
        "worst_relative_slack": max(1 - row["lower"] / row["target"] for row in rows),
        "worst_relative_width": max(1 - row["lower"] / row["upper"] for row in rows),
        "referee_least_relative_gap": min(gaps),
        "referee_largest_relative_gap": max(gaps),
        "median_calibration_s": float(np.median([row["seconds"] for row in rows])),
        "slowest_calibration_s": max(row["seconds"] for row in rows),
    }


def main() -> None:
    """Run the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, rows = np.random.default_rng(arguments.seed), []
    for i in range(arguments.plans):
        rows += check(rng)
        if (i + 1) % 10 == 0 or i + 1 == arguments.plans:
            found = summary(rows)
            print(f"{i + 1} plans", json.dumps(found), file=sys.stderr, flush=True)
            result = {"plans": i + 1, "seed": arguments.seed, "delta": DELTA, **found, "rows": rows}
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

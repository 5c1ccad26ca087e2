"""A canary in the real trainer: what its releases give away, measured, beside what the accounting says at most.

    python benchmarks/canary_audit.py --trials 8000

Settings as tight as they get: every record in every sample, a canary whose gradient is longer than both clip norms,
and an attacker who knows the model, the other records and the canary, and sees both streams' releases. A trial is one
cycle of the trainer, with the canary or without; its score is the likelihood ratio. No weight moves, so the cycles of
a run are independent trials. Writes results/canary_audit.json.
"""

import argparse
import itertools
import json
import math
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 (the libraries read the number of threads when they are loaded)

from raptor_acct.audit import trials_lower_bound  # noqa: E402
from tests.bench.recording import Recorder  # noqa: E402 (needs the path above)
from tests.bench.reference import reference_of  # noqa: E402
from tests.bench.scenarios import few  # noqa: E402
from tests.bench.setting import SIGMAS, STREAMS, plan_of  # noqa: E402
from tests.bench.system import flat  # noqa: E402

RESULT = Path(__file__).parent / "results" / "canary_audit.json"
DELTAS = (1e-5, 1e-3, 1e-2, 5e-2)
FAMILY = "switch"
CYCLES = 250  # of one run


def released(indices: list[int], cycles: int, noise: float | None) -> np.ndarray:
    """The sums of a run in standard deviations of their noise, both streams side by side, [cycles, parameters]."""
    reference = reference_of(FAMILY)
    with TemporaryDirectory() as folder:
        recorder = Recorder(family=FAMILY, folder=Path(folder) / "run", indices=indices, steps=cycles, noise=noise)
        recorder.seed = None
        releases = recorder.run().releases
    scales = [reference.denominator(s, 1.0) / (SIGMAS[s] * reference.clip_norms[s]) for s in STREAMS]
    sums = [flat(release.gradient) * scale for release, scale in zip(releases, itertools.cycle(scales))]
    return np.stack([np.concatenate(pair) for pair in zip(sums[0::2], sums[1::2], strict=True)])


def scores(trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood-ratio scores of trials without and with the canary in turn, and which is which."""
    canary, other, *_ = few(FAMILY)
    (without,), (whole,) = (released(indices, 1, 0.0) for indices in ([other], [other, canary]))
    direction = whole - without
    found, members = [], []
    for start in range(0, trials // 2, CYCLES):
        cycles = min(CYCLES, trials // 2 - start)
        for member, indices in enumerate(([other], [other, canary])):
            found.append((released(indices, cycles, None) - without) @ direction)
            members.append(np.full(cycles, member))
    return np.concatenate(found), np.concatenate(members)


def audit(trials: int, confidence: float = 0.99) -> dict[str, Any]:
    """Lower bounds, each with the accounted number of one cycle that they must not exceed.

    ``drift`` is how much further the canary moved the mean score than its clipped gradients say, in deviations of a
    mean: small if the attack is the likelihood ratio.
    """
    guarantee = plan_of((1.0, 1.0), steps=1).guarantee()
    values, members = scores(trials)
    rows = []
    for delta in DELTAS:
        found = trials_lower_bound(values, members, delta=delta, confidence=confidence)
        accounted = float(guarantee.epsilon(delta))
        rows.append(
            {"delta": delta, "epsilon": found.epsilon, "accounted": accounted, "share": found.epsilon / accounted}
        )
    mu = float(guarantee.gdp_mu())
    moved = float(values[members == 1].mean() - values[members == 0].mean()) / mu - mu
    return {
        "trials": trials,
        "confidence": confidence,
        "mu": found.mu,
        "accounted_mu": mu,
        "epsilon_by_delta": rows,
        "drift": moved / math.sqrt(4 / trials),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8000)
    result = audit(parser.parse_args().trials)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Time and memory from the owners of many records to statistics, selection and bias bounds.

    python benchmarks/routing_scale.py [--records 100000] [--experts 128] [--layers 64]

The owners are drawn from Dirichlet shares that differ by layer; drawing them is not timed. Peak memory is what
tracemalloc sees in a second run, the owners themselves not counted.
"""

import argparse
import json
import platform
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from raptor_acct import bias_bound, select_layer, stats_by_layer

SEED = 20261130
FILE = Path(__file__).parent / "results" / "routing_scale.json"


def drawn(records: int, experts: int, layers: int) -> np.ndarray:
    """Owners, [layers, records]."""
    rng = np.random.default_rng(SEED)
    shares = [rng.dirichlet(np.full(experts, concentration)) for concentration in np.geomspace(0.1, 10, layers)]
    return np.stack([rng.choice(experts, size=records, p=share) for share in shares])


def evaluate(owners: np.ndarray, experts: int) -> int:
    """Everything that is timed; the selected layer."""
    stats = stats_by_layer(owners, experts, layers=range(1, 2 * len(owners), 2))
    bias_bound(stats)
    return select_layer(stats).layer


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("records", 100_000), ("experts", 128), ("layers", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    owners = drawn(options.records, options.experts, options.layers)
    evaluate(owners[:2, :100], options.experts)  # imports
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        layer = evaluate(owners, options.experts)
        seconds.append(time.perf_counter() - start)
    tracemalloc.start()
    evaluate(owners, options.experts)
    peak = tracemalloc.get_traced_memory()[1]
    result = {
        "command": "python benchmarks/routing_scale.py",
        **vars(options),
        "seed": SEED,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seconds": sorted(seconds),
        "peak_mb": peak / 2**20,
        "owners_mb": owners.nbytes / 2**20,
        "selected_layer": layer,
    }
    FILE.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

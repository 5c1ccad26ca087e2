"""Which check of the test bench catches which planted bug: every check against every bug.

    python benchmarks/mutation_matrix.py

Writes results/mutation_matrix.json and, to read, results/mutation_matrix.md. The bugs are edits of the real source
(tests/bench/mutants_*.py), the checks run the real trainer (tests/bench/checks_*.py). The default test suite runs every
bug against the check that is meant to catch it; this runs all of them against all checks, in about five minutes.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.bench.matrix import CHECKS, checks_for, outcomes  # noqa: E402 (needs the path above)
from tests.bench.mutant import Mutant  # noqa: E402
from tests.bench.mutants import MUTANTS  # noqa: E402
from tests.bench.pair import Pair  # noqa: E402

RESULT = Path(__file__).parent / "results" / "mutation_matrix.json"
MARKS = {"caught": "✗", "passed": "·", "refused": "!", "not run": " "}


def rows(mutant: Mutant) -> dict[str, Any]:
    """What a bug is, for the matrix."""
    return {
        "bug": mutant.name,
        "place": f"{mutant.function.__module__}.{mutant.function.__qualname__}",
        "processes": mutant.processes,
        "meant to be caught by": mutant.caught_by.__name__,
        "edits": mutant.edits,
    }


def measure() -> dict[str, Any]:
    """Run every check against every bug, and against the code as it is."""
    bugs = []
    with Pair() as pair:
        passed = outcomes(None, checks_for(1)) | {
            f"{name}, two processes": outcome for name, outcome in outcomes(None, checks_for(2), pair).items()
        }
        for mutant in MUTANTS.values():
            started = time.perf_counter()
            found = outcomes(mutant, checks_for(mutant.processes), pair if mutant.processes == 2 else None)
            in_order = {check.__name__: found.get(check.__name__, "not run") for check in CHECKS}
            bugs.append({**rows(mutant), "outcomes": in_order})
            count = sum(outcome == "caught" for outcome in found.values())
            print(f"{mutant.name}: caught by {count}, {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return {"checks": [check.__name__ for check in CHECKS], "no bug": passed, "bugs": bugs}


def table(matrix: dict[str, Any]) -> str:
    """The matrix in Markdown."""
    checks, bugs = matrix["checks"], matrix["bugs"]
    caught = sum("caught" in bug["outcomes"].values() for bug in bugs)
    lines = [
        "# Planted bugs and the checks that catch them",
        "",
        f"{caught} of {len(bugs)} bugs are caught. ✗ caught, **✗** by the check that is meant to, · passed, ! the "
        "trainer refused to start, empty: not run. Without a bug every check passes. Made by `python "
        "benchmarks/mutation_matrix.py`; the edits are in mutation_matrix.json.",
        "",
        *(f"{i}. {name.replace('_', ' ')}" for i, name in enumerate(checks, start=1)),
        "",
        "| bug | processes | " + " | ".join(str(i + 1) for i in range(len(checks))) + " |",
        "|---|---|" + "---|" * len(checks),
    ]
    for bug in bugs:
        marks = [MARKS[bug["outcomes"][check]] for check in checks]
        meant = checks.index(bug["meant to be caught by"])
        marks[meant] = f"**{marks[meant]}**"
        lines.append(f"| {bug['bug']} | {bug['processes']} | " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    matrix = measure()
    RESULT.write_text(json.dumps(matrix, indent=1) + "\n")
    RESULT.with_suffix(".md").write_text(table(matrix))


if __name__ == "__main__":
    main()

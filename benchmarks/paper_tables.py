"""The paper's tables, recomputed: what does each printed number imply, and does another printed number agree?

    python benchmarks/paper_tables.py            # a line a check; some seconds
    python benchmarks/paper_tables.py --json     # the same as JSON

A printed number stands for all numbers that round to it, and so does what is recomputed from printed numbers. The two
agree if their intervals meet: then some true values print so. "cannot tell" is said where the paper prints nothing to
compare with. Disagreement is a result, not an error: the exit status is 0. Writes results/paper_tables.json.
"""

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import _paper as paper
from _paper import interval

from raptor_acct import (
    Guarantee,
    SubsampledGaussian,
    calibrate_sigma,
    calibrate_sigmas,
    default_delta,
    sensitivity_lambda,
)
from raptor_acct.entropy import cv_bounds
from raptor_acct.report import table

RESULTS = Path(__file__).parent / "results"
LOG_8 = math.log(8)

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One printed number against the interval that something else implies; None where there is no such thing."""

    table: str
    row: str
    what: str
    printed: str | None
    recomputed: Interval | None

    @property
    def verdict(self) -> str:
        """Whether some number that prints so lies in the interval."""
        if self.printed is None or self.recomputed is None:
            return "cannot tell"
        (low, high), (lowest, highest) = interval(self.printed), self.recomputed
        return "agrees" if low <= highest and lowest <= high else "DISAGREES"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {**asdict(self), "verdict": self.verdict}


def routing(rows: dict[tuple[str, int], tuple[str, str, str]] = paper.TABLE_7) -> Iterator[Check]:
    """Table 7: the deficit is (1 - H/log E)·log E, and bounds χ² = CV² by R1 and, sharply, by R2."""
    for (task, block), (entropy, printed_deficit, chi2) in rows.items():
        row = f"{task}, block {block}"
        low, high = deficits(entropy)
        yield Check(table="7", row=row, what="log E - H from H/log E", printed=printed_deficit, recomputed=(low, high))
        yield Check(table="7", row=row, what="χ² by R1", printed=chi2, recomputed=(math.expm1(low), 8 * high))
        sharp = (cv_bounds(low, 8)[0] ** 2, cv_bounds(high, 8)[1] ** 2)
        yield Check(table="7", row=row, what="χ² by R2, sharp", printed=chi2, recomputed=sharp)
    best, worst = (choose(rows, key=lambda key: float(rows[key][0])) for choose in (max, min))
    for kind, (task, block) in (("selected", best), ("collapsed", worst)):
        printed = str(paper.TABLE_9[task, kind][0])
        yield Check(
            table="7, 9", row=f"{task}, {kind}", what="block by H/log E", printed=printed, recomputed=exactly(block)
        )


def collapsed_and_selected() -> Iterator[Check]:
    """Table 9: CV by R2; and where Table 7 has the layer too, H/log E and χ² = CV² are its."""
    for (task, kind), (block, cv, entropy) in paper.TABLE_9.items():
        row = f"{task}, {kind}, block {block}"
        low, high = deficits(entropy)
        sharp = (cv_bounds(low, 8)[0], cv_bounds(high, 8)[1])
        yield Check(table="9", row=row, what="CV by R2, sharp", printed=cv, recomputed=sharp)
        if (task, block) in paper.TABLE_7:
            other_entropy, _, chi2 = paper.TABLE_7[task, block]
            squared = (interval(cv)[0] ** 2, interval(cv)[1] ** 2)
            yield Check(
                table="7, 9", row=row, what="H/log E, twice", printed=entropy, recomputed=interval(other_entropy)
            )
            yield Check(table="7, 9", row=row, what="χ² = CV²", printed=chi2, recomputed=squared)


def deficits(normalized_entropy: str) -> Interval:
    """Return log E - H in nats for 8 experts."""
    low, high = interval(normalized_entropy)
    return (1 - high) * LOG_8, (1 - low) * LOG_8


def sensitivities() -> Iterator[Check]:
    """Table 10: λ₊ = max(0, ΔL) per million parameters, of the numbers of parameters that follow from the model."""
    count = trainable_parameters()
    for role, (parameters, loss, sensitivity) in paper.TABLE_10.items():
        yield Check(
            table="10", row=role, what="parameters", printed=parameters, recomputed=exactly(count[f"RAPTOR, {role}"])
        )
        low, high = (sensitivity_lambda(end, float(parameters)) for end in interval(loss))
        yield Check(
            table="10", row=role, what="λ₊ = max(0, ΔL) / millions", printed=sensitivity, recomputed=(low, high)
        )


def footprint() -> Iterator[Check]:
    """Table 11: millions of parameters, per cent, and GPU-hours as seconds a step times steps."""
    count = trainable_parameters()
    count |= {paper.RAPTOR: count["RAPTOR, shared"] + count["RAPTOR, experts"]}
    reference = paper.TABLE_11[paper.FULL]
    steps = [3600 * end / interval(reference[2])[i - 1] for i, end in enumerate(interval(reference[3]))]
    epochs = paper.EPOCHS * paper.RECORDS["SST-2"] / paper.BATCH_SIZE
    for method, (millions, percent, seconds, hours) in paper.TABLE_11.items():
        share = 100 * count[method] / count[paper.FULL]
        yield Check(
            table="11",
            row=method,
            what="millions of parameters",
            printed=millions,
            recomputed=exactly(count[method] / 1e6),
        )
        yield Check(table="11", row=method, what="% of parameters", printed=percent, recomputed=exactly(share))
        low, high = interval(seconds)
        schedules = [(f"GPU-hours, {paper.EPOCHS} epochs of SST-2", (math.floor(epochs), math.ceil(epochs)))]
        if method != paper.FULL:
            schedules.append((f"GPU-hours, steps of '{paper.FULL}'", (steps[0], steps[1])))
        for what, (fewest, most) in schedules:
            yield Check(
                table="11", row=method, what=what, printed=hours, recomputed=(low * fewest / 3600, high * most / 3600)
            )


def trainable_parameters() -> dict[str, int]:
    """Count parameters of google/switch-base-8's encoder with a 768→2 head, by method and role (theory.md §8).

    The ranks are inferred: 128 gives Table 10, 32 gives Table 11's smallest count.
    """
    width, hidden, experts, blocks, sparse = 768, 3072, 8, 12, 6
    attention, head = 12 * 64, 2 * width + 2  # 12 heads of 64; the head has a bias
    feed_forward = 2 * width * hidden
    norms = (2 * blocks + 1) * width
    position_buckets = 32 * 12
    full = (
        32128 * width  # token embeddings
        + blocks * 4 * width * attention
        + (blocks - sparse) * feed_forward
        + sparse * (experts * feed_forward + width * experts)  # experts and router
        + norms
        + position_buckets
        + head
    )

    def lora(rank: int, matrices: int, other_side: int) -> int:
        return rank * matrices * (width + other_side)

    return {
        paper.FULL: full,
        "RAPTOR, shared": lora(128, blocks * 4, attention) + head,
        "RAPTOR, experts": lora(128, experts * 2, hidden),
        paper.LORA: lora(32, blocks * 4, attention) + lora(32, sparse * experts * 2, hidden) + head,
    }


def attacks() -> Iterator[Check]:
    """Table 3: AUC and TPR under what (ε, δ) alone allows, and under the whole profile of the paper's schedule."""
    for (eps, method), (_, measured) in paper.TABLE_3.items():
        ceilings = {} if eps == "∞" else _ceilings(float(eps), method == paper.RAPTOR)
        for attack, (auc, tpr) in measured.items():
            for what in (
                "AUC at most, (ε, δ)",
                "AUC at most, profile",
                "TPR % at most, (ε, δ)",
                "TPR % at most, profile",
            ):
                printed = auc if what.startswith("AUC") else tpr
                highest = ceilings.get(what)
                yield Check(
                    table="3",
                    row=f"ε = {eps}, {method}, {attack}",
                    what=what,
                    printed=printed,
                    recomputed=None if highest is None else (0.0, highest),
                )


@cache
def _ceilings(eps: float, two_streams: bool) -> dict[str, float]:
    delta, fpr = default_delta(paper.RECORDS["QNLI"]), paper.TABLE_3_FPR
    guarantee = qnli_guarantee(eps, two_streams)
    return {
        "AUC at most, (ε, δ)": 1 - (1 - delta) ** 2 / (1 + math.exp(eps)),
        "AUC at most, profile": auc_ceiling(guarantee),
        "TPR % at most, (ε, δ)": 100 * (math.exp(eps) * fpr + delta),
        "TPR % at most, profile": 100 * (1 - guarantee.fnr(fpr).lower),
    }


def qnli_guarantee(eps: float, two_streams: bool) -> Guarantee:
    """Return what the schedule of Table 4 guarantees on QNLI: RAPTOR's two streams by the basic split, or one."""
    records = paper.RECORDS["QNLI"]
    q, steps = paper.BATCH_SIZE / records, math.ceil(paper.EPOCHS * records / paper.BATCH_SIZE)
    delta = default_delta(records)
    if two_streams:
        return calibrate_sigmas(eps, delta, paper.RHO, q, steps).plan.guarantee()
    noise = calibrate_sigma(eps, delta, q, steps)
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=noise).guarantee()


def auc_ceiling(guarantee: Guarantee, cells: int = 32) -> float:
    """Return an upper bound on every attack's AUC = 1 - ∫ FNR: the least FNR is convex, so midpoints are below it."""
    return 1 - math.fsum(guarantee.fnr((i + 0.5) / cells).lower for i in range(cells)) / cells


def deltas() -> Iterator[Check]:
    """δ = N^-1.1 of every task; the paper prints the rule only."""
    sizes = [*paper.RECORDS.items(), ("QQP", paper.RECORDS_QQP_OTHER_COPY)]
    for task, records in sizes:
        delta = exactly(default_delta(records))
        yield Check(table="1", row=f"{task}, N = {records}", what="δ = N^-1.1", printed=None, recomputed=delta)


def accuracies() -> Iterator[Check]:
    """Table 1, 3, 5 and 6: an accuracy printed in several places is the same in all of them."""
    places: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for name, rows in (("1", paper.TABLE_1), ("5", paper.TABLE_5), ("6", paper.TABLE_6)):
        for (eps, method), printed in rows.items():
            for task, text in zip(paper.TASKS, printed, strict=True):
                places[eps, _as_selected(method, task), task].append((name, text))
    for (eps, method), (accuracy, _) in paper.TABLE_3.items():
        places[eps, method, "QNLI"].append(("3", accuracy))
    for (eps, method, task), ((first, expected), *others) in places.items():
        for name, text in others:
            yield Check(
                table=f"{first}, {name}",
                row=f"ε = {eps}, {method}",
                what=f"accuracy on {task}, twice",
                printed=text,
                recomputed=interval(expected),
            )


def _as_selected(method: str, task: str) -> str:
    """Return the method's name; the first or last sparse layer is the selected one where entropy selects it."""
    fixed = {paper.FIRST: paper.FIRST_BLOCK, paper.LAST: paper.LAST_BLOCK}
    return paper.RAPTOR if fixed.get(method) == paper.SELECTED_BLOCKS[task] else method


def exactly(value: float) -> Interval:
    """Return the interval of one number."""
    return float(value), float(value)


def all_checks() -> list[Check]:
    """Return every check."""
    parts = (deltas, attacks, routing, collapsed_and_selected, sensitivities, footprint, accuracies)
    return [check for part in parts for check in part()]


def report(checks: Sequence[Check]) -> str:
    """Return a line a check, the disagreements once more, and their number."""
    header = ["table", "row", "what", "printed", "recomputed from", "to", "verdict"]
    rows = [_cells(check) for check in checks]
    text = [_aligned(header, rows)]
    odd = [cells for cells, check in zip(rows, checks, strict=True) if check.verdict == "DISAGREES"]
    if odd:
        text.append("Disagreements:\n" + _aligned(header, odd))
    count = summary(checks)
    text.append(", ".join(f"{number} {verdict}" for verdict, number in count.items()) + f"; {len(checks)} checks")
    return "\n\n".join(text)


def _cells(check: Check) -> list[str]:
    ends = ["-", "-"] if check.recomputed is None else [f"{end:.7g}" for end in check.recomputed]
    return [check.table, check.row, check.what, check.printed or "-", *ends, check.verdict]


def _aligned(header: list[str], rows: list[list[str]]) -> str:
    """Lay out the words to the left, the numbers to the right."""
    words = [max(len(row[i]) for row in [header, *rows]) for i in (1, 2)]
    padded = [[row[0], row[1].ljust(words[0]), row[2].ljust(words[1]), *row[3:]] for row in [header, *rows]]
    return table(padded[0], padded[1:])


def summary(checks: Sequence[Check]) -> dict[str, int]:
    """Return how often each verdict was given."""
    given = Counter(check.verdict for check in checks)
    return {verdict: given[verdict] for verdict in ("agrees", "DISAGREES", "cannot tell")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the checks, print and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of paper_tables.json")
    options = parser.parse_args(arguments)
    checks = all_checks()
    document = {"summary": summary(checks), "checks": [check.to_dict() for check in checks]}
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    (options.out / "paper_tables.json").write_text(text + "\n", encoding="utf-8")
    print(text if options.json else report(checks))


if __name__ == "__main__":
    main()

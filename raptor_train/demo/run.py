"""The demo from beginning to end, told in words a newcomer follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from raptor_acct import (
    BiasBound,
    Calibration,
    LayerSelection,
    RoutingStats,
    SubsampledGaussian,
    bias_bound,
    calibrate_sigma,
    calibrate_sigmas,
    default_delta,
    hand_back_slack,
    select_layer,
)
from raptor_acct.report import table
from raptor_acct.routing_file import RoutingFile, write_routing
from raptor_train.demo import runs
from raptor_train.demo.runs import Outcome
from raptor_train.demo.settings import Settings
from raptor_train.demo.texts import Texts, load_texts
from raptor_train.modeling import load_demo_model
from raptor_train.public import measure_routing
from raptor_train.workers import run_jobs

Echo = Callable[[str], None]

NOT_COVERED = [
    "Each eps is of one run alone; this folder holds several runs on the same records, one without a guarantee.",
    "Accuracies on held-out private text are for comparison; they carry no guarantee.",
    "The demonstration's seed is known, so its noise can be replayed; a private run uses seed=None.",
]


def run_demo(
    settings: Settings, folder: Path, echo: Echo, *, progress: bool = True, workers: int = 2
) -> dict[str, Any]:
    """Run all four parts.

    Args:
        settings: What to run.
        folder: A folder to make; the ledgers and the routing statistics are written there.
        echo: Where the words go.
        progress: Show bars.
        workers: Processes that train side by side, one thread each.

    Returns:
        Every number, ready for JSON; :mod:`raptor_train.report` turns them into pages.

    Raises:
        ValueError: On settings that cannot be met, before any work.
        FileExistsError: If the folder exists.
    """
    started = time.perf_counter()
    texts = load_texts(max_length=settings.max_length, num_private=settings.num_private, num_test=settings.num_test)
    delta, q = default_delta(len(texts.private)), settings.sampling_probability(len(texts.private))
    basic = calibrate_sigmas(settings.eps, delta, settings.rho, q, settings.cycles)
    joint = hand_back_slack(basic, "shared")
    one_stream = SubsampledGaussian(
        num_steps=settings.one_stream_steps,
        sampling_probability=q,
        noise_multiplier=calibrate_sigma(settings.eps, delta, q, settings.one_stream_steps),
    )
    folder.mkdir(parents=True)
    echo(
        f"Public: {len(texts.public)} snippets of IMDb reviews. Private: {len(texts.private)} Rotten Tomatoes "
        f"sentences to learn from, {len(texts.test)} held out.\nModel: a small Switch Transformer encoder, "
        "pretrained on the public text without labels;\nonly adapters and a new head are trained."
    )

    echo("\n1. Which sparse layer?  The router sends public text through the model; this costs no privacy.\n")
    public = texts.public.take(torch.arange(settings.num_public))
    statistics = measure_routing(load_demo_model(), public, progress=progress)
    write_routing(RoutingFile(layers=statistics, source="IMDb review snippets"), folder / "routing.json")
    selection, bias = select_layer(statistics), bias_bound(statistics)
    echo(layer_words(statistics, selection, bias))

    echo(f"\n2. How much noise?  For eps = {settings.eps:g} in total, adding or removing one record.\n")
    echo(noise_words(settings, len(texts.private), delta, basic, joint))

    echo("\n3. Training.  The head starts at zero, so every run starts at chance.\n")
    jobs = jobs_for(settings, texts, selection.layer, joint, one_stream, delta, folder)
    steps = 2 * settings.cycles + 2 * settings.one_stream_steps
    outcomes = run_jobs(jobs, steps=steps, workers=workers, progress=progress)
    echo(clipping_words(outcomes))

    echo(f"\n4. Result on the {len(texts.test)} held-out sentences.\n")
    echo(outcome_table(outcomes))
    difference = outcomes["raptor"].evaluation.minus(outcomes["monolithic"].evaluation)
    echo(
        "\n" + verdict(difference) + "\n\nNot covered by these eps:\n" + "\n".join(f"- {line}" for line in NOT_COVERED)
    )
    return {
        "settings": asdict(settings),
        "records": {"public": len(texts.public), "private": len(texts.private), "test": len(texts.test)},
        "delta": delta,
        "adjacency": "add_remove",
        "not_covered": NOT_COVERED,
        "selection": selection.to_dict(),
        "routing": {str(layer): s.to_dict() for layer, s in statistics.items()},
        "bias": {str(layer): bound.to_dict() for layer, bound in bias.items()},
        "calibration": {"basic": basic.to_dict(), "joint": joint.to_dict()},
        "runs": {key: outcome.to_dict() for key, outcome in outcomes.items()},
        "raptor_minus_monolithic_95": list(difference),
        "seconds": time.perf_counter() - started,
    }


def jobs_for(
    settings: Settings,
    texts: Texts,
    layer: int,
    joint: Calibration,
    one_stream: SubsampledGaussian,
    delta: float,
    folder: Path,
) -> dict[str, Callable[[], Outcome]]:
    """Every run of the demo, ready for a worker; each has coins and noise of its own."""
    seed = settings.seed
    return {
        "start": partial(runs.start, texts),
        "public": partial(runs.public_head, texts),
        "raptor": partial(runs.raptor, settings, texts, layer, joint, folder / "ledger.jsonl"),
        "monolithic": partial(
            runs.monolithic,
            replace(settings, seed=seed + 1),
            texts,
            one_stream,
            delta,
            folder / "ledger-monolithic.jsonl",
        ),
        "head": partial(
            runs.head_only, replace(settings, seed=seed + 2), texts, one_stream, delta, folder / "ledger-head.jsonl"
        ),
        "non_private": partial(runs.non_private, replace(settings, seed=seed + 3), texts, layer),
    }


def layer_words(statistics: dict[int, RoutingStats], selection: LayerSelection, bias: dict[int, BiasBound]) -> str:
    """Entropy, CV and bias bound of every sparse layer, and which one is selected."""
    rows = [
        [
            f"{layer} *" if layer == selection.layer else str(layer),
            f"{s.normalized_entropy:.3f}",
            f"{s.cv:.3f}",
            f"{bias[layer].rms:.3f}",
            " ".join(f"{100 * p:3.0f}" for p in s.probabilities),
        ]
        for layer, s in statistics.items()
    ]
    header = ["layer", "H/log E", "CV", "bias bound", "% of records owned by each expert"]
    certified = "proves" if selection.certified else "suggests, but does not prove,"
    return (
        f"{table(header, rows)}\n\nEach record is owned by one expert. Layer {selection.layer} (*) has the most even "
        f"owners: dividing expert updates\nby the public B/E there is off by at most {bias[selection.layer].rms:.2f} "
        f"clip norms (root mean square). The entropy order {certified} that no\nother layer has a smaller bias."
    )


def noise_words(settings: Settings, num_records: int, delta: float, basic: Calibration, joint: Calibration) -> str:
    """Both compositions side by side."""
    rows = [
        [c.composition, f"{c.sigma_shared:.3f}", f"{c.sigma_expert:.3f}", f"{c.epsilon:.3f}"] for c in (basic, joint)
    ]
    header = ["composition", "sigma shared", "sigma expert", "eps spent together"]
    less = basic.sigma_expert / joint.sigma_expert
    return (
        f"N = {num_records} records, expected batch {settings.batch_size}, {settings.cycles} cycles, "
        f"rho = {settings.rho:g}, delta = N^-1.1 = {delta:.2e}\n\n{table(header, rows)}\n\n"
        "The basic split (the paper's) adds up the two streams' eps and leaves part of the budget unspent.\n"
        f"Composing their privacy losses jointly turns that part into {less:.1f} times less expert noise;\n"
        "RAPTOR trains with the joint plan."
    )


def clipping_words(outcomes: dict[str, Outcome]) -> str:
    """Roles, sizes and clip norms of the private runs."""
    rows = [
        [
            outcome.name,
            clipping.norms.role,
            f"{clipping.num_parameters:,}",
            f"{clipping.clip_norm:.3f}",
            f"{100 * clipping.norms.share_clipped(clipping.clip_norm):.0f} %",
            f"{clipping.scale:g}",
        ]
        for outcome in outcomes.values()
        for clipping in outcome.clipping
    ]
    header = ["run", "role", "parameters", "clip norm", "public records clipped", "LoRA scale"]
    return f"\nClip norms come from gradients of public snippets:\n{table(header, rows)}"


def outcome_table(outcomes: dict[str, Outcome]) -> str:
    """Accuracy with intervals, loss, ε spent and time of every run."""
    rows = []
    for outcome in outcomes.values():
        low, high = outcome.evaluation.interval()
        rows.append(
            [
                outcome.name,
                f"{100 * outcome.evaluation.accuracy:.1f} %",
                f"{100 * low:.1f} - {100 * high:.1f}",
                f"{outcome.evaluation.nll:.3f}",
                "no guarantee" if outcome.epsilon is None else f"{outcome.epsilon:.3f}",
                f"{outcome.seconds:.0f} s",
            ]
        )
    return table(["run", "accuracy", "95 % interval", "NLL", "eps spent", "time"], rows)


def verdict(difference: tuple[float, float, float]) -> str:
    """Who wins, RAPTOR or monolithic DP, with the paired interval."""
    low, middle, high = (100 * d for d in difference)
    if low > 0:
        winner = "RAPTOR wins"
    elif high < 0:
        winner = "monolithic DP wins"
    else:
        winner = "no difference is shown: one run on this test set cannot tell them apart"
    return (
        f"RAPTOR minus monolithic DP: {middle:+.1f} points (paired 95 % interval {low:+.1f} to {high:+.1f}): {winner}."
    )

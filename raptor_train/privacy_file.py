"""What a run guarantees, in numbers for privacy.json and as a table of words."""

from __future__ import annotations

from typing import Any

from raptor_acct import Calibration, Guarantee
from raptor_acct.bound import Bound
from raptor_acct.cli._output import SCHEMA
from raptor_acct.ledger import Ledger
from raptor_acct.report import table
from raptor_train.run import Run


def privacy_of(run: Run) -> dict[str, Any]:
    """The content of privacy.json: what was spent and what stays outside. The run may be finished or not."""
    config, resolved = run.config, run.resolved
    return {
        "schema": SCHEMA,
        "private": config.private,
        "adjacency": config.privacy.adjacency if config.private else None,
        "delta": resolved.delta if config.private else None,
        "epsilon_target": config.privacy.eps if config.private else None,
        "epsilon_planned": _planned(run),
        "epsilon_spent": _ends(guarantee(run).epsilon(resolved.delta)) if run.writes and _released(run) else None,
        "num_records": {"value": resolved.num_records, "public": True},
        "layer": {"layers": list(resolved.layers), "source": resolved.layer_source},
        "clip_norms": [clip.to_dict() for clip in resolved.clips],
        "owners": config.owners,
        "streams": [
            {
                "role": stream.role.name,
                "noise_multiplier": stream.noise_multiplier,
                "sampling_probability": stream.sampling_probability,
                "num_steps": stream.num_steps,
                "clip_norm": stream.clip_norm,
                "parts": [
                    {"role": part.role.name, "noise_multiplier": part.noise_multiplier, "clip_norm": part.clip_norm}
                    for part in stream.parts
                ],
            }
            for stream in run.trainer.streams
        ]
        if config.private
        else [],
        "not_covered": not_covered(run),
    }


def guarantee(run: Run) -> Guarantee:
    """What the run's ledger adds up to, for the configured neighbours.

    Raises:
        ValueError: If nothing was released.
    """
    return Ledger.replay(run.folder.ledger, adjacency=run.config.privacy.adjacency)


def not_covered(run: Run) -> list[str]:
    """What the guarantee does not speak of."""
    if not run.config.private:
        return ["This run has no guarantee at all: neither clipping nor noise."]
    lines = ["The number of records and the names of the classes are taken as public."]
    if run.inputs.test is not None:
        lines.append("Scores on held-out private text carry no guarantee.")
    if run.config.training.replay_seed is not None:
        lines.append("The seed of coins and noise is known, so the noise can be replayed: not for release.")
    if run.config.data.overlap == "ignore":
        lines.append("Private records that are public text too were not looked for.")
    if any(line.get("not_private") for line in run.folder.metrics()):
        lines.append("Losses of private records were shown and written to metrics.jsonl, marked not_private.")
    lines.append("Records that come from one person or document are protected one by one, not together.")
    return lines


def plan_table(run: Run) -> str:
    """What is trained, with which noise, over which denominator, and what each stream spends."""
    alone = _alone(run)
    rows = [
        [
            part.role.name,
            f"{part.role.num_parameters:,}",
            f"{part.clip_norm:.4g}",
            f"{part.noise_multiplier:.4f}",
            f"{part.sampling_probability:.4g}",
            str(part.num_steps),
            _range(part.denominators),
            alone.get(part.role.name, "-"),
        ]
        for stream in run.trainer.streams
        for part in stream.parts
    ]
    header = ["role", "parameters", "clip norm", "sigma", "q", "steps", "denominator", "eps alone"]
    resolved, words = run.resolved, [""]
    words.append(
        f"{run.config.method}: layer {', '.join(map(str, resolved.layers))} ({resolved.layer_source}), "
        f"N = {resolved.num_records}, delta = {resolved.delta:.3g}"
    )
    words.append(table(header, rows))
    for clip in resolved.clips:
        measured = "" if clip.share_clipped is None else f"; clips {100 * clip.share_clipped:.0f} % of public records"
        words.append(f"clip norm of {clip.role}: from {clip.source}{measured}")
    words.append(_total(run))
    return "\n".join(words)


def _total(run: Run) -> str:
    planned = _planned(run)
    if planned is None:
        return "no guarantee: neither clipping nor noise"
    return (
        f"all together: epsilon <= {planned['upper']:.4f} (and >= {planned['lower']:.4f}) at delta = "
        f"{run.resolved.delta:.3g}, {run.config.privacy.adjacency}"
    )


def _planned(run: Run) -> dict[str, float] | None:
    if run.noise is None:
        return None
    if isinstance(run.noise, Calibration):
        return _ends(run.noise.epsilon)
    return _ends(run.noise.guarantee(run.config.privacy.adjacency).epsilon(run.resolved.delta))


def _alone(run: Run) -> dict[str, str]:
    """ε of each role's stream alone; of a plan, at the stream's share of δ."""
    if isinstance(run.noise, Calibration):
        both = zip(run.config.clipped_roles, (run.noise.epsilon_shared, run.noise.epsilon_expert), strict=True)
        return {name: f"{epsilon:.4f}" for name, epsilon in both}
    planned = _planned(run)
    return {} if planned is None else {stream.role.name: f"{planned['upper']:.4f}" for stream in run.trainer.streams}


def _released(run: Run) -> bool:
    return run.config.private and Ledger.verify(run.folder.ledger).num_releases > 0


def _ends(epsilon: Bound) -> dict[str, float]:
    return {"lower": float(epsilon.lower), "upper": float(epsilon.upper)}


def _range(denominators: tuple[float, ...]) -> str:
    low, high = min(denominators), max(denominators)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"

"""The command ``epsilon``: what given noise spends, and what another accountant says about it."""

from dataclasses import dataclass
from typing import Any

import click

from raptor_acct._arguments import check_q
from raptor_acct._validate import number, whole
from raptor_acct.adjacency import Adjacency
from raptor_acct.bound import Bound
from raptor_acct.calibration import privacy_spent
from raptor_acct.cli._input import adjacency_option, json_option, numbers, read_file
from raptor_acct.cli._output import echo_json, echo_table, one_line_errors, rounded_up
from raptor_acct.composition import sequential_across_streams
from raptor_acct.mechanisms import MOST_STEPS, NOISE_RANGE, Mechanism, SubsampledGaussian
from raptor_acct.referee import ENGINE, INTERVAL, Comparison, compare
from raptor_acct.segments import merged, parse_segments


@dataclass(frozen=True, kw_only=True)
class _Spending:
    """A line of the table: a mechanism, and the epsilon it spends at delta."""

    what: str
    mechanism: Mechanism
    delta: float
    epsilon: Bound


@click.command()
@click.option("--sigma-shared", type=float, help="Noise multiplier of the shared stream.")
@click.option("--sigma-expert", type=float, help="Noise multiplier of the experts.")
@click.option("--q", help="Sampling probability; a pair 'shared,expert' if they differ.")
@click.option("--steps", help="Releases of a stream; a pair 'shared,expert' if they differ.")
@click.option("--segments", help="Instead: a file (JSON or CSV, - for standard input) of segments with other settings.")
@click.option("--delta", type=float, required=True, help="Total delta.")
@click.option("--referee", is_flag=True, help="Also ask dp-accounting's PLD accountant, and compare.")
@click.option("--interval", type=float, default=INTERVAL, show_default=True, help="The referee's grid.")
@adjacency_option
@json_option
@one_line_errors
def epsilon(
    sigma_shared: float | None,
    sigma_expert: float | None,
    q: str | None,
    steps: str | None,
    segments: str | None,
    delta: float,
    referee: bool,
    interval: float,
    adjacency: Adjacency,
    as_json: bool,
) -> None:
    """Print what given noise spends: of both streams together, of the one whose sigma is given, or of --segments.

    A segments file is a list of {"noise_multiplier": .., "sampling_probability": .., "num_steps": ..}, or CSV with
    these columns.
    """
    if segments is not None:
        if any(value is not None for value in (sigma_shared, sigma_expert, q, steps)):
            raise ValueError("expected --segments alone, got it with --sigma-shared, --sigma-expert, --q or --steps")
        result, rows = _schedule(segments, delta, adjacency)
    elif q is None or steps is None:
        raise ValueError("expected --q and --steps, or --segments")
    elif sigma_shared is not None and sigma_expert is not None:
        result, rows = _two_streams(
            sigma_shared, sigma_expert, numbers("q", q), numbers("steps", steps), delta, adjacency
        )
    else:
        result, rows = _one_stream(
            sigma_shared, sigma_expert, numbers("q", q), numbers("steps", steps), delta, adjacency
        )
    checks = [compare(row.epsilon, row.mechanism, row.delta, adjacency, interval) for row in rows] if referee else []
    if as_json:
        echo_json("epsilon", {**result, **_referee_json(rows, checks, interval)})
    else:
        _echo(rows, checks, adjacency, interval)


def _two_streams(
    sigma_shared: float, sigma_expert: float, q: Any, steps: Any, delta: float, adjacency: Adjacency
) -> tuple[dict[str, Any], list[_Spending]]:
    spent = privacy_spent(sigma_shared, sigma_expert, q, steps, delta=delta, adjacency=adjacency)
    plan, half = spent.plan, delta / 2
    return spent.to_dict(), [
        _Spending(what="both streams together", mechanism=plan, delta=delta, epsilon=spent.epsilon),
        _Spending(what="shared stream alone", mechanism=plan.shared, delta=half, epsilon=spent.epsilon_shared),
        _Spending(what="expert stream alone", mechanism=plan.expert, delta=half, epsilon=spent.epsilon_expert),
    ]


def _one_stream(
    sigma_shared: float | None, sigma_expert: float | None, q: Any, steps: Any, delta: float, adjacency: Adjacency
) -> tuple[dict[str, Any], list[_Spending]]:
    role, sigma = ("shared", sigma_shared) if sigma_expert is None else ("expert", sigma_expert)
    if sigma is None:
        raise ValueError("expected --sigma-shared, --sigma-expert or both")
    if isinstance(q, tuple) or isinstance(steps, tuple):
        raise ValueError("expected q to be one number and steps another for a single stream, got a pair")
    stream = SubsampledGaussian(
        num_steps=whole("steps", steps, high=MOST_STEPS),
        sampling_probability=check_q("q", q),
        noise_multiplier=number(f"sigma_{role}", sigma, NOISE_RANGE),
    )
    return _single_row(f"{role} stream alone", stream, delta, adjacency)


def _schedule(file: str, delta: float, adjacency: Adjacency) -> tuple[dict[str, Any], list[_Spending]]:
    data, name = read_file(file)
    segments = parse_segments(data, name=name)
    streams = merged((s.noise_multiplier, s.sampling_probability, s.num_steps) for s in segments)
    what = f"{len(segments)} segments, {sum(stream.num_steps for stream in streams)} releases"
    return _single_row(what, sequential_across_streams(streams), delta, adjacency)


def _single_row(
    what: str, mechanism: Mechanism, delta: float, adjacency: Adjacency
) -> tuple[dict[str, Any], list[_Spending]]:
    guarantee = mechanism.guarantee(adjacency)
    spent = guarantee.epsilon(delta)
    result = {"epsilon": spent, "epsilon_lower": spent.lower, "delta": delta, **guarantee.to_dict()}
    return result, [_Spending(what=what, mechanism=mechanism, delta=delta, epsilon=spent)]


def _referee_json(rows: list[_Spending], checks: list[Comparison], interval: float) -> dict[str, Any]:
    if not checks:
        return {}
    pairs = zip(rows, checks, strict=True)
    found = [{"what": row.what, "delta": row.delta, **check.to_dict()} for row, check in pairs]
    return {"referee": {"engine": ENGINE, "interval": interval, "checks": found}}


def _echo(rows: list[_Spending], checks: list[Comparison], adjacency: Adjacency, interval: float) -> None:
    header = ["what", "delta", f"epsilon ({adjacency})", "known to"]
    table = [[row.what, f"{row.delta:.4g}", rounded_up(row.epsilon), f"{row.epsilon.width:.0e}"] for row in rows]
    if not checks:
        echo_table(header, table)
        return
    header += ["referee", "relative difference"]
    both = zip(table, checks, strict=True)
    echo_table(header, [[*cells, f"{c.referee:.6f}", f"{c.relative_difference:+.1e}"] for cells, c in both])
    click.echo(f"epsilon: raptor_acct; the referee: {ENGINE}, pessimistic, interval {interval:g}")
    for row, check in zip(rows, checks, strict=True):
        click.echo(f"{row.what}: {check.explain()}")

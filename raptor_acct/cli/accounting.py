"""The commands ``calibrate`` (noise for a target) and ``epsilon`` (what given noise spends)."""

import math
from typing import Any

import click

from raptor_acct._arguments import check_q
from raptor_acct._validate import number, whole
from raptor_acct.adjacency import ADJACENCIES, Adjacency
from raptor_acct.calibration import (
    KEEPS,
    Calibration,
    calibrate_sigmas,
    default_delta,
    hand_back_slack,
    privacy_spent,
)
from raptor_acct.cli._output import echo_json, echo_table, one_line_errors
from raptor_acct.mechanisms import MOST_STEPS, NOISE_RANGE, SubsampledGaussian

_adjacency = click.option(
    "--adjacency", type=click.Choice(ADJACENCIES), default="add_remove", show_default=True, help="What neighbours are."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.option("--eps", type=float, required=True, help="Total epsilon.")
@click.option("--delta", type=float, help="Total delta; records^-1.1 if --records is given.")
@click.option("--rho", type=float, default=0.9, show_default=True, help="Share of eps for the shared stream.")
@click.option("--q", help="Sampling probability; a pair 'shared,expert' if they differ.")
@click.option("--steps", help="Releases of a stream; a pair 'shared,expert' if they differ.")
@click.option("--records", type=int, help="Number of private records.")
@click.option("--batch-size", type=int, help="Expected batch size, with --records.")
@click.option("--epochs", type=float, help="Expected passes over the records, with --records.")
@_adjacency
@_as_json
@one_line_errors
def calibrate(
    eps: float,
    delta: float | None,
    rho: float,
    q: str | None,
    steps: str | None,
    records: int | None,
    batch_size: int | None,
    epochs: float | None,
    adjacency: Adjacency,
    as_json: bool,
) -> None:
    """Print the noise of both streams for a total (eps, delta).

    All four ways to spend it stand side by side: the basic composition, and the joint one with each way of handing
    its slack back.
    """
    q_pair, steps_pair = _schedule(q, steps, records, batch_size, epochs)
    if delta is None:
        if records is None:
            raise ValueError("expected --delta, or --records from which it follows")
        delta = default_delta(records)
    basic = calibrate_sigmas(eps, delta, rho, q_pair, steps_pair, adjacency=adjacency)
    results = [basic, *(hand_back_slack(basic, keep) for keep in KEEPS)]
    if as_json:
        echo_json("calibrate", {"calibrations": [result.to_dict() for result in results]})
        return
    shared, expert = basic.plan.shared, basic.plan.expert
    click.echo(f"Target: epsilon <= {eps:g} ({adjacency}) at delta = {delta:.4g}, rho = {rho:g}")
    for role, stream in (("shared", shared), ("expert", expert)):
        click.echo(f"The {role} stream: q = {stream.sampling_probability:.6g}, {stream.num_steps} steps")
    click.echo()
    header = ["composition", "sigma_shared", "sigma_expert", f"epsilon ({adjacency})"]
    echo_table(header, [_row(result) for result in results])


def _row(result: Calibration) -> list[str]:
    name = "basic" if result.keep is None else f"joint, keep {result.keep}"
    return [name, _up(result.sigma_shared), _up(result.sigma_expert), _up(result.epsilon)]


def _up(value: float) -> str:
    """Print ``value`` rounded up: noise and epsilon stay on the safe side when copied."""
    return f"{math.ceil(value * 1e6) / 1e6:.6f}"


@click.command()
@click.option("--sigma-shared", type=float, help="Noise multiplier of the shared stream.")
@click.option("--sigma-expert", type=float, help="Noise multiplier of the experts.")
@click.option("--q", required=True, help="Sampling probability; a pair 'shared,expert' if they differ.")
@click.option("--steps", required=True, help="Releases of a stream; a pair 'shared,expert' if they differ.")
@click.option("--delta", type=float, required=True, help="Total delta.")
@_adjacency
@_as_json
@one_line_errors
def epsilon(
    sigma_shared: float | None,
    sigma_expert: float | None,
    q: str,
    steps: str,
    delta: float,
    adjacency: Adjacency,
    as_json: bool,
) -> None:
    """Print what given noise spends: of both streams together, or of the one whose sigma is given."""
    q_pair, steps_pair = _numbers("q", q), _numbers("steps", steps)
    if sigma_shared is not None and sigma_expert is not None:
        spent = privacy_spent(sigma_shared, sigma_expert, q_pair, steps_pair, delta=delta, adjacency=adjacency)
        result = spent.to_dict()
        rows = [
            ["both streams together", f"{delta:.4g}", _up(spent.epsilon)],
            ["shared stream alone", f"{delta / 2:.4g}", _up(spent.epsilon_shared)],
            ["expert stream alone", f"{delta / 2:.4g}", _up(spent.epsilon_expert)],
        ]
    else:
        role, sigma = ("shared", sigma_shared) if sigma_expert is None else ("expert", sigma_expert)
        if sigma is None:
            raise ValueError("expected --sigma-shared, --sigma-expert or both")
        if isinstance(q_pair, tuple) or isinstance(steps_pair, tuple):
            raise ValueError("expected q to be one number and steps another for a single stream, got a pair")
        stream = SubsampledGaussian(
            num_steps=whole("steps", steps_pair, high=MOST_STEPS),
            sampling_probability=check_q("q", q_pair),
            noise_multiplier=number(f"sigma_{role}", sigma, NOISE_RANGE),
        )
        guarantee = stream.guarantee(adjacency)
        result = {"epsilon": guarantee.epsilon(delta), "delta": delta, **guarantee.to_dict()}
        rows = [[f"{role} stream alone", f"{delta:.4g}", _up(result["epsilon"])]]
    if as_json:
        echo_json("epsilon", result)
    else:
        echo_table(["what", "delta", f"epsilon ({adjacency})"], rows)


def _schedule(
    q: str | None, steps: str | None, records: int | None, batch_size: int | None, epochs: float | None
) -> tuple[Any, Any]:
    """Return q and steps, given as such or by the size of the run."""
    if q is not None and steps is not None and batch_size is None and epochs is None:
        return _numbers("q", q), _numbers("steps", steps)
    if records is None or batch_size is None or epochs is None or q is not None or steps is not None:
        raise ValueError("expected either --q and --steps, or --records, --batch-size and --epochs")
    whole("records", records, low=2, high=10**15)
    whole("batch-size", batch_size)
    if batch_size > records:
        raise ValueError(f"expected batch-size in [1, records], got batch-size={batch_size} and records={records}")
    number("epochs", epochs, "(0, 1e9]")
    return batch_size / records, math.ceil(epochs * records / batch_size)


def _numbers(name: str, text: str) -> Any:
    """Return the number in ``text``, or the pair; whole numbers stay whole."""
    values = [_number(name, part) for part in text.split(",")]
    return values[0] if len(values) == 1 else tuple(values)


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected {name} to be a number or a pair, got {name}={text!r}") from None

"""The command ``calibrate``: noise for a target."""

import click

from raptor_acct.adjacency import Adjacency
from raptor_acct.calibration import KEEPS, Calibration, calibrate_sigmas, hand_back_slack
from raptor_acct.cli._input import adjacency_option, json_option, schedule, total_delta
from raptor_acct.cli._output import echo_json, echo_table, one_line_errors, rounded_up


@click.command()
@click.option("--eps", type=float, required=True, help="Total epsilon.")
@click.option("--delta", type=float, help="Total delta; records^-1.1 if --records is given.")
@click.option("--rho", type=float, default=0.9, show_default=True, help="Share of eps for the shared stream.")
@click.option("--q", help="Sampling probability; a pair 'shared,expert' if they differ.")
@click.option("--steps", help="Releases of a stream; a pair 'shared,expert' if they differ.")
@click.option("--records", type=int, help="Number of private records.")
@click.option("--batch-size", type=int, help="Expected batch size, with --records.")
@click.option("--epochs", type=float, help="Expected passes over the records, with --records.")
@adjacency_option
@json_option
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
    q_pair, steps_pair = schedule(q, steps, records, batch_size, epochs)
    delta = total_delta(delta, records)
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
    return [name, rounded_up(result.sigma_shared), rounded_up(result.sigma_expert), rounded_up(result.epsilon)]

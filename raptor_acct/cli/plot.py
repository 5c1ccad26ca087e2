"""The commands ``plot sigmas``, ``plot roc`` and ``plot routing``: pictures of the user's own numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from raptor_acct.adjacency import Adjacency
from raptor_acct.calibration import calibrate_sigmas
from raptor_acct.cli._input import adjacency_option, numbers, schedule, total_delta
from raptor_acct.cli._output import echo_json, one_line_errors
from raptor_acct.cli._routing_input import file_command, origin, read_routing
from raptor_acct.plots import Plot, entropy_cv, noise_against_rho, points_of, roc_ceilings


@click.group()
def plot() -> None:
    """Draw pictures, as .png, .pdf or .svg; needs matplotlib: pip install 'raptor-moe-dp[plots]'."""


def _out_option(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option("--out", default=f"{name}.png", show_default=True, metavar="FILE", help="Picture to write.")


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what says how a run is private, and errors in one line."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Also print what is drawn, as JSON."),
        adjacency_option,
        click.option("--epochs", type=float, help="Expected passes over the records, with --records."),
        click.option("--batch-size", type=int, help="Expected batch size, with --records."),
        click.option("--records", type=int, help="Number of private records."),
        click.option("--steps", help="Releases of a stream; a pair 'shared,expert' if they differ."),
        click.option("--q", help="Sampling probability; a pair 'shared,expert' if they differ."),
        click.option("--delta", type=float, help="Total delta; records^-1.1 if --records is given."),
        click.option("--eps", required=True, help="Total epsilon; several with commas between."),
    ):
        command = option(command)
    return command


@plot.command()
@_run_options
@_out_option("sigmas")
@one_line_errors
def sigmas(eps: str, delta: float | None, adjacency: Adjacency, as_json: bool, out: str, **size: Any) -> None:
    """Draw the noise of both roles against rho, for the basic and the joint composition."""
    q, steps = schedule(**size)
    drawn = _draw(
        lambda: noise_against_rho(_several(eps), total_delta(delta, size["records"]), q, steps, adjacency=adjacency)
    )
    _write("plot sigmas", drawn, out, as_json, {})


@plot.command()
@_run_options
@click.option("--rho", type=float, default=0.9, show_default=True, help="Share of eps for the shared stream.")
@_out_option("roc")
@one_line_errors
def roc(eps: str, delta: float | None, rho: float, adjacency: Adjacency, as_json: bool, out: str, **size: Any) -> None:
    """Draw the highest true positive rate of any attack on a plan of the basic composition."""
    q, steps = schedule(**size)
    total = total_delta(delta, size["records"])
    guarantees = {
        one: calibrate_sigmas(one, total, rho, q, steps, adjacency=adjacency).plan.guarantee(adjacency)
        for one in _several(eps)
    }
    _write("plot roc", _draw(lambda: roc_ceilings(guarantees, total)), out, as_json, {"adjacency": adjacency})


@plot.command()
@file_command
@_out_option("routing")
def routing(file: str, where: Sequence[str], as_json: bool, out: str) -> None:
    """Draw CV against entropy for the layers in FILE, with the region that the entropy allows."""
    content = read_routing(file, where)
    label = f"{content.source or 'layers of the file'} ({content.unit})"
    drawn = _draw(lambda: entropy_cv({label: points_of(content.layers)}))
    _write("plot routing", drawn, out, as_json, origin(content))


def _several(text: str) -> tuple[float, ...]:
    found = numbers("eps", text)
    return found if isinstance(found, tuple) else (found,)


def _draw(make: Callable[[], Plot]) -> Plot:
    try:
        return make()
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None


def _write(command: str, drawn: Plot, out: str, as_json: bool, told: dict[str, Any]) -> None:
    drawn.save(out)
    if as_json:
        echo_json(command, {"file": out, **told, **drawn.numbers})
    else:
        click.echo(f"written: {out}")

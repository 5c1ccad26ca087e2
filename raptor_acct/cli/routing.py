"""The commands on routing statistics: ``routing``, ``select``, ``bias``. A file is a path, or - for standard input."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from raptor_acct.cli._input import read_file
from raptor_acct.cli._output import echo_json, echo_table, one_line_errors
from raptor_acct.denominators import BiasBound, bias_bound
from raptor_acct.routing import RoutingStats
from raptor_acct.routing_file import RoutingFile, parse_routing, parse_where
from raptor_acct.selection import select_layer

_STATS_HEADER = ("layer", "experts", "records", "H [nats]", "H/log E", "CV", "CV from H", "χ²", "e^H")
_BIAS_HEADER = ("layer", "rms bias", "rms from H", "worst", "of expert", "CV", "denominator")


def _file_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add what the three commands share: the file, --where, --json, and errors in one line."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)
    where = "Keep the CSV rows with these values, as column=value,column=value; may be repeated."
    command = click.option("--where", "where", multiple=True, metavar="COLUMN=VALUE", help=where)(command)
    return click.argument("file")(one_line_errors(command))


@click.command()
@_file_command
def routing(file: str, where: Sequence[str], as_json: bool) -> None:
    """Print the routing statistics of every layer in FILE (JSON or CSV)."""
    content = _read(file, where)
    if as_json:
        layers = {str(layer): stats.to_dict() for layer, stats in content.layers.items()}
        echo_json("routing", {**_origin(content), "layers": layers})
        return
    _echo_origin(content)
    echo_table(_header(content), [_stats_row(stats) for stats in content.layers.values()])


@click.command()
@_file_command
def select(file: str, where: Sequence[str], as_json: bool) -> None:
    """Select the layer in FILE with the largest normalised routing entropy."""
    content = _read(file, where)
    selection = select_layer(content.layers)
    if as_json:
        echo_json("select", {**_origin(content), **selection.to_dict()})
        return
    _echo_origin(content)
    echo_table(_header(content), [_stats_row(stats) for stats in selection.table])
    click.echo(f"selected layer: {selection.layer} (largest H/log E)")
    if selection.certified:
        click.echo("certified: its entropy alone proves that no other layer has a smaller CV (bias)")
    else:
        layers = ", ".join(map(str, selection.overlapping))
        click.echo(f"not certified: entropy alone leaves open whether layers {layers} have a smaller CV (bias)")
    click.echo(f"smallest measured CV: layer {selection.smallest_cv_layer}")


@click.command()
@_file_command
@click.option("--clip-norm", type=float, default=1.0, show_default=True, help="C of the expert stream.")
@click.option("--denominator", default="expected_owner", show_default=True, help="expected_owner (B/E) or batch (B).")
@click.option("--batch-size", type=float, help="B, the expected batch size; reported as D_e.")
def bias(
    file: str,
    where: Sequence[str],
    as_json: bool,
    clip_norm: float,
    denominator: str,
    batch_size: float | None,
) -> None:
    """Bound the bias of a public denominator for every layer in FILE."""
    content = _read(file, where)
    bounds = bias_bound(content.layers, clip_norm=clip_norm, denominator=denominator, batch_size=batch_size)
    if as_json:
        layers = {str(layer): bound.to_dict() for layer, bound in bounds.items()}
        echo_json("bias", {**_origin(content), "layers": layers})
        return
    _echo_origin(content)
    click.echo(f"bias: of each expert's release, at most, in units of the gradient clipped to C = {clip_norm:g}")
    echo_table(_BIAS_HEADER, [_bias_row(layer, bound) for layer, bound in bounds.items()])


def _read(file: str, where: Sequence[str]) -> RoutingFile:
    chosen = parse_where(where)
    data, name = read_file(file)
    return parse_routing(data, name=name, where=chosen)


def _origin(content: RoutingFile) -> dict[str, Any]:
    return {"source": content.source, "unit": content.unit}


def _echo_origin(content: RoutingFile) -> None:
    if content.source:
        click.echo(f"source: {content.source}")
    if content.unit != "records":
        click.echo(f"unit: {content.unit}; the theory is about records, each with one owner expert")


def _header(content: RoutingFile) -> list[str]:
    return [content.unit if name == "records" else name for name in _STATS_HEADER]


def _stats_row(stats: RoutingStats) -> list[str]:
    low, high = stats.cv_bounds_from_entropy()
    records = "-" if stats.num_records is None else str(stats.num_records)
    numbers = [f"{x:.4g}" for x in (stats.chi2, stats.effective_experts)]
    entropy = [f"{stats.entropy:.4f}", f"{stats.normalized_entropy:.4f}", f"{stats.cv:.4g}"]
    return [str(stats.layer), str(stats.num_experts), records, *entropy, _interval(low, high), *numbers]


def _bias_row(layer: int, bound: BiasBound) -> list[str]:
    worst = bound.per_expert.index(bound.worst)
    name = {"expected_owner": "B/E", "batch": "B"}[bound.denominator]
    denominator = name if bound.denominator_value is None else f"{name} = {bound.denominator_value:g}"
    interval = _interval(*bound.entropy_bounds)
    return [str(layer), f"{bound.rms:.4g}", interval, f"{bound.worst:.4g}", str(worst), f"{bound.cv:.4g}", denominator]


def _interval(low: float, high: float) -> str:
    return f"{low:.4g}..{high:.4g}"

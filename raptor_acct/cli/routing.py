"""The commands on routing statistics: ``routing``, ``select``, ``bias``. A file is a path, or - for standard input."""

import math
from collections.abc import Sequence

import click

from raptor_acct.bias import BiasBound, bias_bound
from raptor_acct.cli._output import echo_json, echo_table
from raptor_acct.cli._routing_input import echo_origin, file_command, origin, read_routing
from raptor_acct.confidence import RoutingConfidence
from raptor_acct.denominators import RULES
from raptor_acct.routing import RoutingStats
from raptor_acct.routing_file import RoutingFile
from raptor_acct.selection import LayerSelection, select_layer
from raptor_acct.stability import SelectionStability, smallest_stable_sample_of_counts

_STATS_HEADER = ("layer", "experts", "records", "H [nats]", "H/log E", "CV", "CV from H", "χ²", "e^H")
_CONFIDENCE_HEADER = ("layer", "H", "H rigorous", "H bootstrap", "H corrected", "CV", "CV rigorous", "CV bootstrap")
_BIAS_HEADER = ("layer", "rms bias", "rms from H", "worst", "of expert", "CV", "denominator")


@click.command()
@file_command
@click.option("--level", type=float, help="Add confidence intervals at this level, such as 0.95; needs counts.")
def routing(file: str, where: Sequence[str], as_json: bool, level: float | None) -> None:
    """Print the routing statistics of every layer in FILE (JSON or CSV)."""
    content = read_routing(file, where)
    found = {} if level is None else {layer: stats.confidence(level) for layer, stats in content.layers.items()}
    if as_json:
        added = {layer: {"confidence": confidence.to_dict()} for layer, confidence in found.items()}
        layers = {str(layer): {**stats.to_dict(), **added.get(layer, {})} for layer, stats in content.layers.items()}
        echo_json("routing", {**origin(content), "layers": layers})
        return
    echo_origin(content)
    echo_table(_header(content), [_stats_row(stats) for stats in content.layers.values()])
    if level is not None:
        click.echo(f"\nof the population that these are independent draws from, at level {level:g} in each layer:")
        echo_table(_CONFIDENCE_HEADER, [_confidence_row(layer, confidence) for layer, confidence in found.items()])
        click.echo("rigorous: for any number of records, H and CV together; bootstrap and corrected: approximate")


@click.command()
@file_command
@click.option("--level", type=float, help="Add how many records it takes to select the same layer this often.")
def select(file: str, where: Sequence[str], as_json: bool, level: float | None) -> None:
    """Select the layer in FILE with the largest normalised routing entropy."""
    content = read_routing(file, where)
    selection = select_layer(content.layers)
    stability = None if level is None else smallest_stable_sample_of_counts(content.layers, level=level)
    if as_json:
        added = {} if stability is None else {"stability": stability.to_dict()}
        echo_json("select", {**origin(content), **selection.to_dict(), **added})
        return
    echo_origin(content)
    echo_table(_header(content), [_stats_row(stats) for stats in selection.table])
    _echo_certificate(selection)
    if stability is not None:
        _echo_stability(stability)


def _echo_certificate(selection: LayerSelection) -> None:
    """Print which layer was selected, what entropy alone proves about it, and how sure so many records make it."""
    click.echo(f"selected layer: {selection.layer} (largest H/log E)")
    if selection.certified:
        click.echo("certified: its entropy alone proves that no other layer has a smaller CV (bias)")
    else:
        layers = ", ".join(map(str, selection.overlapping))
        click.echo(f"not certified: entropy alone leaves open whether layers {layers} have a smaller CV (bias)")
    click.echo(f"smallest measured CV: layer {selection.smallest_cv_layer}")
    undecided, pairs = len(selection.undecided_pairs), math.comb(len(selection.table), 2)
    click.echo(f"order by CV (bias): entropy alone leaves it open for {undecided} of {pairs} pairs of layers")
    if selection.confidence is not None:
        sure = math.floor(selection.confidence * 1e6) / 1e6
        holds = f"holds at confidence {sure:g}" if sure else "does not hold at any confidence"
        click.echo(f"sampling: the selection {holds} for the population that the records are independent draws from")


def _echo_stability(stability: SelectionStability) -> None:
    selects = f"fresh samples select layer {stability.layer} with a frequency"
    if stability.smallest is None:
        click.echo(f"not stable: even of {stability.sizes[-1]} records, {selects} below {stability.level:g}")
    else:
        click.echo(f"stable: from {stability.smallest} records on, {selects} of at least {stability.level:g}")


@click.command()
@file_command
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
    content = read_routing(file, where)
    bounds = bias_bound(content.layers, clip_norm=clip_norm, denominator=denominator, batch_size=batch_size)
    if as_json:
        layers = {str(layer): bound.to_dict() for layer, bound in bounds.items()}
        echo_json("bias", {**origin(content), "layers": layers})
        return
    echo_origin(content)
    click.echo(f"bias: of each expert's release, at most, in units of the gradient clipped to C = {clip_norm:g}")
    echo_table(_BIAS_HEADER, [_bias_row(layer, bound) for layer, bound in bounds.items()])


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
    name = RULES[bound.denominator]
    denominator = name if bound.denominator_value is None else f"{name} = {bound.denominator_value:g}"
    interval = "-" if bound.entropy_bounds is None else _interval(*bound.entropy_bounds)
    return [str(layer), f"{bound.rms:.4g}", interval, f"{bound.worst:.4g}", str(worst), f"{bound.cv:.4g}", denominator]


def _confidence_row(layer: int, found: RoutingConfidence) -> list[str]:
    intervals = [_interval(*ends, form=".4f") for ends in (found.entropy_rigorous, found.entropy_bootstrap)]
    entropy = [f"{found.entropy:.4f}", *intervals, f"{found.entropy_miller_madow:.4f}"]
    cv = [f"{found.cv:.4g}", _interval(*found.cv_rigorous), _interval(*found.cv_bootstrap)]
    return [str(layer), *entropy, *cv]


def _interval(low: float, high: float, *, form: str = ".4g") -> str:
    return f"{low:{form}}..{high:{form}}"

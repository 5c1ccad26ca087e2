"""The command ``mse``: what each public denominator costs, side by side."""

from collections.abc import Iterable, Sequence

import click

from raptor_acct.cli._output import echo_json, echo_table
from raptor_acct.cli._routing_input import echo_origin, file_command, origin, read_routing
from raptor_acct.denominators import RULES
from raptor_acct.mse import MeanSquaredError
from raptor_acct.mse import mse as mean_squared_error
from raptor_acct.routing import RoutingStats

_HEADER = ("layer", "denominator", "D [records]", "bias²", "sampling", "noise", "total")


@click.command()
@file_command
@click.option("--public", metavar="FILE", help="Routing statistics of public records, for the rules that need them.")
@click.option("--denominator", "rules", multiple=True, help="A rule to show; may be repeated. All, if not given.")
@click.option("--batch-size", type=float, required=True, help="B, the expected batch size.")
@click.option("--q", type=float, required=True, help="Sampling probability of a record.")
@click.option("--sigma-expert", type=float, required=True, help="Noise multiplier of the experts.")
@click.option("--num-parameters", type=int, required=True, help="Trainable parameters of one expert.")
@click.option("--clip-norm", type=float, default=1.0, show_default=True, help="C of the expert stream.")
@click.option("--mean-norm", type=float, help="Norm of an expert's mean clipped gradient; C, the worst, by default.")
@click.option("--second-moment", type=float, help="Mean squared norm of clipped gradients; C², the worst, by default.")
def mse(
    file: str,
    where: Sequence[str],
    as_json: bool,
    public: str | None,
    rules: Sequence[str],
    batch_size: float,
    q: float,
    sigma_expert: float,
    num_parameters: int,
    clip_norm: float,
    mean_norm: float | None,
    second_moment: float | None,
) -> None:
    """Print the mean squared error of the experts' releases under every public denominator, for each layer in FILE.

    Without --public only the denominators that need no public estimate of the routing can be shown.
    """
    content = read_routing(file, where)
    estimates = _estimates(public, content.layers)
    shown = rules or [rule for rule in RULES if public is not None or rule in ("expected_owner", "batch")]
    errors = {
        layer: [
            mean_squared_error(
                stats,
                rule,
                batch_size=batch_size,
                sampling_probability=q,
                clip_norm=clip_norm,
                noise_multiplier=sigma_expert,
                num_parameters=num_parameters,
                mean_norm=clip_norm if mean_norm is None else mean_norm,
                second_moment=clip_norm * clip_norm if second_moment is None else second_moment,
                public=estimates[layer],
            )
            for rule in shown
        ]
        for layer, stats in content.layers.items()
    }
    if as_json:
        layers = {str(layer): {e.denominator: e.to_dict() for e in row} for layer, row in errors.items()}
        echo_json("mse", {**origin(content), "layers": layers})
        return
    echo_origin(content)
    click.echo("mean over experts of E‖g - c̄‖², the error of a release about the mean clipped gradient")
    echo_table(_HEADER, [_row(layer, error) for layer, row in errors.items() for error in row])


def _estimates(public: str | None, layers: Iterable[int]) -> dict[int, RoutingStats | None]:
    """Return the public estimate of each layer's routing; None for all without a file."""
    if public is None:
        return dict.fromkeys(layers)
    known = read_routing(public, ()).layers
    for layer in layers:
        if layer not in known:
            raise ValueError(f"expected layer {layer} in the public file {public}, got layers {list(known)}")
    return {layer: known[layer] for layer in layers}


def _row(layer: int, error: MeanSquaredError) -> list[str]:
    low, high = error.denominators.min(), error.denominators.max()
    interval = f"{low:.4g}" if low == high else f"{low:.4g}..{high:.4g}"
    return [str(layer), error.denominator, interval, *(f"{x:.4g}" for x in error.mean.values())]

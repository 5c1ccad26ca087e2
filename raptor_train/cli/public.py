"""The commands ``routing`` and ``norms``: what public text says before any budget is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from raptor_acct import RoutingStats
from raptor_acct.cli._output import echo_json, echo_table
from raptor_train.cli._config import config_options, listed


@click.command(
    epilog=listed(
        "Example",
        "raptor-train routing --model demo --public reviews.csv --text-column text --out routing.json",
        "raptor-acct select routing.json",
    )
)
@config_options
@click.option("--out", type=click.Path(path_type=Path), help="Write the counts here, .json or .csv, for raptor-acct.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def routing(config: Any, out: Path | None, as_json: bool) -> None:
    """Count the owner experts of public records at every sparse layer of the starting model."""
    from raptor_acct import select_layer
    from raptor_acct.routing_file import RoutingFile, write_routing
    from raptor_train.inputs import fresh_model, load_public
    from raptor_train.public import measure_routing

    public, _ = load_public(config)
    statistics: dict[int, RoutingStats] = measure_routing(
        fresh_model(config, ()), public.records, micro_batch_size=config.training.micro_batch_size, progress=not as_json
    )
    if out is not None:
        write_routing(RoutingFile(layers=statistics, source=public.source), out)
    selection = select_layer(statistics)
    if as_json:
        layers = {str(layer): stats.to_dict() for layer, stats in statistics.items()}
        echo_json("routing", {"records": len(public.records), "layers": layers, "selected": selection.layer})
        return
    rows = [
        [
            f"{layer} *" if layer == selection.layer else str(layer),
            f"{stats.normalized_entropy:.4f}",
            f"{stats.cv:.4f}",
            " ".join(map(str, stats.counts or ())),
        ]
        for layer, stats in statistics.items()
    ]
    echo_table(["layer", "H/log E", "CV", "public records owned"], rows)
    click.echo(f"\n{len(public.records)} public records; * has the largest entropy")


@click.command(epilog=listed("Example", "raptor-train norms --task movie_reviews --clip-quantile 0.8"))
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def norms(config: Any, as_json: bool) -> None:
    """Per-record gradient norms of each role on public records: proposes clip norms and LoRA scales."""
    from raptor_train.inputs import load_public
    from raptor_train.resolve import choose_in_public, silent

    choices = choose_in_public(config, *load_public(config), echo=silent if as_json else click.echo)
    found = choices.choice
    if as_json:
        clips = [clip.to_dict() for clip in found.clips]
        echo_json("norms", {"clips": clips, "scales": dict(found.scales), "layers": list(choices.layers)})
        return
    rows = [
        [
            clip.role,
            *("-" if point is None else f"{point:.4g}" for point in (clip.p10, clip.p50, clip.p90)),
            f"{clip.clip_norm:.4g}",
            "-" if clip.share_clipped is None else f"{100 * clip.share_clipped:.0f} %",
            f"{found.scales.get(clip.role, 1.0):.3g}",
        ]
        for clip in found.clips
    ]
    click.echo()
    echo_table(["role", "10 %", "median", "90 %", "clip norm", "clips", "LoRA scale"], rows)

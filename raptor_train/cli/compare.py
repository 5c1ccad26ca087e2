"""The command ``compare``: methods and seeds side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from raptor_acct.cli._output import echo_table
from raptor_train.cli._config import config_options, listed, needs, whole_numbers


@click.command(
    epilog=listed(
        "Example",
        "raptor-train compare --task movie_reviews --steps 40 --methods raptor,head_only --seeds 0,1 --out runs/c",
    )
)
@config_options
@click.option(
    "--methods", default="raptor,monolithic,head_only,non_private_lora", show_default=True, help="Methods, ablations."
)
@click.option("--seeds", default="0", show_default=True, help="Seeds of adapters and public measurements: 0,1,2.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for all runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words.")
def compare(config: Any, methods: str, seeds: str, out: Path, as_json: bool) -> None:
    """Run several methods with several seeds on the same data: a table, comparison.json and comparison.png.

    Ablations of raptor by name: denominator_batch, full_model_clip, without_alternating, public_share, shrinkage,
    basic_budget, first_layer, last_layer.
    """
    needs("matplotlib")
    from raptor_acct.cli._output import echo_json
    from raptor_train.compare import COMPARISON_HEADER, comparison_rows
    from raptor_train.compare import compare as run
    from raptor_train.resolve import silent

    words = silent if as_json else click.echo
    results = run(config, methods.split(","), whole_numbers("seeds", seeds), out, echo=words, progress=not as_json)
    if as_json:
        echo_json("compare", {key: value for key, value in results.items() if key != "schema"})
        return
    click.echo()
    echo_table(COMPARISON_HEADER, comparison_rows(results))
    click.echo(f"\n{results['not_covered']}\nAll runs: {out}/comparison.json and .png")

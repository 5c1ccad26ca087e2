"""The command ``fit``: one private run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from raptor_acct.cli._output import echo_json
from raptor_train.cli._config import config_options, listed
from raptor_train.config import METHODS

_EPILOG = (
    listed(
        "Examples",
        "raptor-train fit --model demo --task movie_reviews --eps 8 --steps 40",
        "raptor-train fit --model ./olmoe --task sst2 --data ./SST-2 --public imdb.jsonl --eps 1 --out runs/sst2",
        "raptor-train fit --config run.yaml --method monolithic",
    )
    + "\n\n"
    + listed("Methods", *(f"{name:17} {words}" for name, words in METHODS.items()))
)


@click.command(epilog=_EPILOG)
@config_options
@click.option("--out", type=click.Path(path_type=Path), help="Run folder  [default: runs/METHOD-DATE-TIME]")
@click.option("--show-private-loss", is_flag=True, help="Show losses of private records; they are NOT private.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of words.")
def fit(config: Any, out: Path | None, show_private_loss: bool, as_json: bool) -> None:
    """Fine-tune a model by role, or with a baseline, under differential privacy.

    Goes on by itself where a run of the same settings in the same folder was interrupted. Under torchrun, all
    processes train together.
    """
    from raptor_train.distributed import torchrun_group
    from raptor_train.fit import fit as run
    from raptor_train.resolve import silent
    from raptor_train.run_report import SCORE_HEADER, score_row

    with torchrun_group() as group:
        folder = out or Path("runs") / group.from_first(time.strftime(f"{config.method}-%Y%m%d-%H%M%S"))
        words = silent if as_json or group.rank else click.echo
        result = run(config, folder, echo=words, progress=not as_json, show_private_loss=show_private_loss, group=group)
        if group.rank:
            return
    if as_json:
        echo_json("fit", result)
        return
    if "evaluation" in result:
        from raptor_acct.report import table

        click.echo("\n" + table(["data", *SCORE_HEADER], [["held out (private)", *score_row(result["evaluation"])]]))
    spent = result["privacy"]["epsilon_spent"]
    click.echo("no guarantee" if spent is None else f"spent: epsilon <= {spent['upper']:.4f}")
    click.echo("\n".join(f"- {line}" for line in result["privacy"]["not_covered"]))
    click.echo(f"Everything: {folder}/report.html (or .md), privacy.json, checkpoints")

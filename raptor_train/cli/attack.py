"""The command ``attack``: membership inference on shadow models, beside the ceiling of the mechanism."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from raptor_acct.cli._output import echo_json, echo_table
from raptor_train.cli._config import config_options, listed, needs, whole_numbers


@click.command(
    epilog=listed(
        "Examples",
        "raptor-train attack --task movie_reviews --max-records 400 --batch-size 32 --steps 30 --out runs/attack",
        "raptor-train attack --config run.yaml --shard 3/16 --out runs/attack     one of 16 jobs of any scheduler",
    )
)
@config_options
@click.option(
    "--methods", default="non_private_lora,monolithic,global_clip,raptor", show_default=True, help="Methods, ablations."
)
@click.option("--budgets", default="1,4", show_default=True, help="Each private method's ε; --eps is not used.")
@click.option("--models", default=64, show_default=True, help="Shadow models of each method and budget.")
@click.option("--workers", type=int, help="Models trained side by side, a thread each  [default: one a core]")
@click.option("--shard", default="0/1", show_default=True, help="I/K: train only every K-th model, from the I-th.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of scores and results.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of words.")
def attack(
    config: Any, methods: str, budgets: str, models: int, workers: int | None, shard: str, out: Path, as_json: bool
) -> None:
    """Attack a run's mechanism: how well can members of the private data be told from others?

    Trains shadow models on random halves of the private records, each with the whole mechanism; goes on where it was
    interrupted. Writes attack.json and a plot for each budget. All of it is as private as the records.
    """
    needs("matplotlib")
    from raptor_train.attack import ATTACK_HEADER, NOT_COVERED, attack_rows
    from raptor_train.attack import attack as run
    from raptor_train.resolve import silent

    results = run(
        config,
        out,
        methods=methods.split(","),
        budgets=_numbers("budgets", budgets),
        num_models=models,
        workers=workers or os.cpu_count() or 1,
        shard=_shard(shard),
        echo=silent if as_json else click.echo,
        progress=not as_json,
    )
    if as_json:
        echo_json("attack", results or {"complete": False})
    elif results is not None:
        echo_table(ATTACK_HEADER, attack_rows(results))
        click.echo(f"\n{results['num_models']} shadow models each; online LiRA by leave-one-out. {NOT_COVERED}")
        click.echo(f"Everything: {out}/attack.json and the plots beside it")


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected {name} as numbers with commas between, got {text!r}") from None


def _shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if slash and len(numbers := [*whole_numbers("shard", index), *whole_numbers("shard", count)]) == 2:
        i, k = numbers
        if 0 <= i < k:
            return i, k
    raise ValueError(f"expected shard as I/K with 0 <= I < K, got {text!r}")

"""The command ``evaluate``: how a trained run does on held-out or on public records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from raptor_acct.cli._output import echo_json, echo_table, one_line_errors
from raptor_train.cli._config import needs


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--test", help="Records to evaluate on  [default: the run's held-out records].")
@click.option("--text-column", help="Column of the text, for --test.")
@click.option("--label-column", help="Column of the label, for --test.")
@click.option("--public-data", is_flag=True, help="The records of --test are public.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@one_line_errors
def evaluate(
    run: Path, test: str | None, text_column: str | None, label_column: str | None, public_data: bool, as_json: bool
) -> None:
    """Accuracy and negative log-likelihood of a run's model, with 95 % intervals."""
    needs("torch", "transformers")
    from raptor_train.evaluate_run import evaluate_run
    from raptor_train.run_report import SCORE_HEADER, score_row

    changes: dict[str, Any] = {"test": test, "text_column": text_column, "label_column": label_column}
    result = evaluate_run(run, changes={k: v for k, v in changes.items() if v is not None}, public_data=public_data)
    if as_json:
        echo_json("evaluate", result)
        return
    echo_table(["data", *SCORE_HEADER], [[result["data"], *score_row(result)]])

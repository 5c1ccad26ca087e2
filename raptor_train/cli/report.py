"""The command ``report``: the pages of a run folder anew."""

from __future__ import annotations

from pathlib import Path

import click

from raptor_acct.cli._output import echo_json, one_line_errors


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
@one_line_errors
def report(run: Path, as_json: bool) -> None:
    """Write report.html and report.md of a run again, from its files alone."""
    from raptor_train.run_report import write_run_report

    files = [str(path) for path in write_run_report(run)]
    if as_json:
        echo_json("report", {"files": files})
    else:
        click.echo("\n".join(files))

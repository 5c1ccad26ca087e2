"""The command ``ledger``: what a run's ledger holds, and what it adds up to."""

from dataclasses import asdict
from typing import Any

import click

from raptor_acct._validate import number
from raptor_acct.adjacency import Adjacency
from raptor_acct.cli._input import adjacency_option, json_option, read_file
from raptor_acct.cli._output import echo_json, echo_table, one_line_errors, rounded_up
from raptor_acct.ledger_file import LedgerContent, parse_ledger

_HEADER = ("stream", "releases", "sigma", "q", "C")


@click.command()
@click.argument("file")
@click.option("--delta", type=float, help="Also print the epsilon that all releases spend at this delta.")
@adjacency_option
@json_option
@one_line_errors
def ledger(file: str, delta: float | None, adjacency: Adjacency, as_json: bool) -> None:
    """Check the ledger in FILE; print its releases by stream and setting, and what they spend.

    A damaged ledger exits with status 2.
    """
    if delta is not None:
        number("delta", delta, "(0, 1)")
    data, name = read_file(file)
    content = parse_ledger(data, name=name)
    spent = None if delta is None else _epsilon(content, delta, adjacency)
    if as_json:
        echo_json("ledger", {**_contents(content), "adjacency": adjacency, "delta": delta, "epsilon": spent})
    else:
        _echo(content, delta, spent, adjacency)


def _epsilon(content: LedgerContent, delta: float, adjacency: Adjacency) -> float:
    return content.guarantee(adjacency).epsilon(delta) if content.segments else 0.0


def _contents(content: LedgerContent) -> dict[str, Any]:
    return {
        "file": content.name,
        "num_releases": content.num_releases,
        "last_line_cut_short": content.torn,
        "segments": [asdict(segment) for segment in content.segments],
    }


def _echo(content: LedgerContent, delta: float | None, spent: float | None, adjacency: Adjacency) -> None:
    rows = [
        [
            s.stream,
            str(s.num_releases),
            *(f"{x:.6g}" for x in (s.noise_multiplier, s.sampling_probability, s.clip_norm)),
        ]
        for s in content.segments
    ]
    echo_table(_HEADER, rows)
    click.echo(f"{content.num_releases} releases; every line follows from the one before it")
    if content.torn:
        streams = ", ".join(sorted({key[0] for key in content.charged_by_torn})) or "nothing"
        click.echo(f"the last line was cut short: it counts as one more release of {streams}")
    if delta is not None and spent is not None:
        click.echo(f"epsilon ({adjacency}) at delta = {delta:.4g}: {rounded_up(spent)}")

"""A routing file as the argument of a command: a path, or - for standard input."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from raptor_acct.cli._input import read_file
from raptor_acct.cli._output import one_line_errors
from raptor_acct.routing_file import RoutingFile, parse_routing, parse_where


def file_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add what commands on a routing file share: the file, --where, --json, and errors in one line."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)
    where = "Keep the CSV rows with these values, as column=value,column=value; may be repeated."
    command = click.option("--where", "where", multiple=True, metavar="COLUMN=VALUE", help=where)(command)
    return click.argument("file")(one_line_errors(command))


def read_routing(file: str, where: Sequence[str]) -> RoutingFile:
    chosen = parse_where(where)
    data, name = read_file(file)
    return parse_routing(data, name=name, where=chosen)


def origin(content: RoutingFile) -> dict[str, Any]:
    return {"source": content.source, "unit": content.unit}


def echo_origin(content: RoutingFile) -> None:
    if content.source:
        click.echo(f"source: {content.source}")
    if content.unit != "records":
        click.echo(f"unit: {content.unit}; the theory is about records, each with one owner expert")

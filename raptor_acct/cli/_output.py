"""What every command shares: one-line errors with exit status 2, tables that line up, JSON without NaN."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from raptor_acct.report import table

SCHEMA = 1


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the library's ValueError and a file's OSError into one line on standard error and exit status 2."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, OSError) as error:
            click.echo(f"error: {' '.join(str(error).split())}", err=True)
            raise SystemExit(2) from None

    return wrapped


def echo_json(command: str, result: Mapping[str, Any]) -> None:
    """Print ``result`` with the schema version; a NaN or infinity in it is a bug and raises."""
    click.echo(json.dumps({"schema": SCHEMA, "command": command, **result}, indent=2, allow_nan=False))


def echo_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns that line up."""
    click.echo(table(header, rows))


def rounded_up(value: float) -> str:
    """Return ``value`` as text, rounded up: noise and epsilon stay on the safe side when copied.

    >>> rounded_up(1.8281771)
    '1.828178'
    """
    return f"{math.ceil(value * 1e6) / 1e6:.6f}"


def run(group: click.Group, name: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command group; click's own complaints also become one line on standard error and exit status 2."""
    try:
        status = group.main(arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"error: {' '.join(error.format_message().split())}", err=True)
        raise SystemExit(2) from None
    except click.Abort:
        click.echo("error: interrupted", err=True)
        raise SystemExit(130) from None
    raise SystemExit(status or 0)

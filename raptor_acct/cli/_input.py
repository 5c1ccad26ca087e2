"""What commands take in: shared options, files or standard input, and numbers that may be pairs."""

import sys
from typing import Any

import click

from raptor_acct.adjacency import ADJACENCIES

adjacency_option = click.option(
    "--adjacency", type=click.Choice(ADJACENCIES), default="add_remove", show_default=True, help="What neighbours are."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_file(file: str) -> tuple[bytes, str]:
    """Return the content of a file, or of standard input for ``-``, and what to call it.

    Raises:
        OSError: If it cannot be read.
        ValueError: If standard input is closed.
    """
    if file == "-" and sys.stdin is None:
        raise ValueError("standard input is closed: give a file")
    with click.open_file(file, "rb") as stream:
        return stream.read(), "standard input" if file == "-" else file


def numbers(name: str, text: str) -> Any:
    """Return the number in ``text``, or the tuple of several with commas between; whole numbers stay whole.

    Raises:
        ValueError: If a part is not a number.

    >>> numbers("q", "0.01"), numbers("steps", "100,20")
    (0.01, (100, 20))
    """
    values = [_number(name, part) for part in text.split(",")]
    return values[0] if len(values) == 1 else tuple(values)


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected {name} to be a number or a pair, got {name}={text!r}") from None

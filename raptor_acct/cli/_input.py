"""What commands take in: shared options, files or standard input, and numbers that may be pairs."""

import math
import sys
from typing import Any

import click

from raptor_acct._validate import number, whole
from raptor_acct.adjacency import ADJACENCIES
from raptor_acct.calibration import default_delta

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


def schedule(
    q: str | None, steps: str | None, records: int | None, batch_size: int | None, epochs: float | None
) -> tuple[Any, Any]:
    """Return q and steps, given as such or by the size of the run; each is a number, or a pair (shared, expert).

    Raises:
        ValueError: If neither way, or a mixture of both, was given, or a number is outside its range.

    >>> schedule("0.01", "100,20", None, None, None)
    (0.01, (100, 20))
    >>> schedule(None, None, 1000, 10, 2)
    (0.01, 200)
    """
    if q is not None and steps is not None and batch_size is None and epochs is None:
        return numbers("q", q), numbers("steps", steps)
    if records is None or batch_size is None or epochs is None or q is not None or steps is not None:
        raise ValueError("expected either --q and --steps, or --records, --batch-size and --epochs")
    whole("records", records, low=2, high=10**15)
    whole("batch-size", batch_size)
    if batch_size > records:
        raise ValueError(f"expected batch-size in [1, records], got batch-size={batch_size} and records={records}")
    number("epochs", epochs, "(0, 1e9]")
    return batch_size / records, math.ceil(epochs * records / batch_size)


def total_delta(delta: float | None, records: int | None) -> float:
    """Return delta as given, or the default for the number of records.

    Raises:
        ValueError: If neither was given, or ``records`` is no number of records.
    """
    if delta is not None:
        return delta
    if records is None:
        raise ValueError("expected --delta, or --records from which it follows")
    return default_delta(records)


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected {name} to be a number or a pair, got {name}={text!r}") from None

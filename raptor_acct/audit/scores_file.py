"""The file of an audit: CSV with the columns score and member, a record, trial or canary a line."""

import csv
import io

import numpy as np

from raptor_acct._validate import shown
from raptor_acct.audit._inputs import BoolArray, FloatArray, memberships, real_array

_COLUMNS = ("score", "member")


def parse_scores(data: bytes, *, name: str = "input") -> tuple[FloatArray, BoolArray]:
    r"""Read scores and memberships; other columns are ignored.

    Args:
        data: The content of the file, in UTF-8.
        name: The file's name, for messages.

    Returns:
        Scores and memberships, [records] each.

    Raises:
        ValueError: If it is not such a file; the message says which line, from 1 for the first after the header.

    >>> parse_scores(b"score,member\n2.5,1\n-1,0\n")
    (array([ 2.5, -1. ]), array([ True, False]))
    """
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
        header = [cell.strip() for cell in rows[0]] if rows else []
        if any(header.count(column) != 1 for column in _COLUMNS):
            raise ValueError(f"expected CSV with the columns {','.join(_COLUMNS)}, got {shown(header)}")
        places = [header.index(column) for column in _COLUMNS]
        pairs = [_pair(i, row, places) for i, row in enumerate(rows[1:], start=1) if row]
        scores = real_array("scores", [score for score, _ in pairs], dimensions=(1,))
        return scores, memberships("members", np.array([member for _, member in pairs]), scores.shape)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: expected CSV in UTF-8, got other bytes at position {error.start}") from None
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}: {error}") from None


def _pair(line: int, row: list[str], places: list[int]) -> tuple[float, float]:
    try:
        score, member = (float(row[place]) for place in places)
    except (ValueError, IndexError):
        raise ValueError(f"line {line}: expected a number in each of score and member, got {shown(row)}") from None
    return score, member

"""Schedules: streams whose noise or sampling probability changes on the way, one segment for each setting.

The file format is JSON, ``[{"noise_multiplier": 1.0, "sampling_probability": 0.01, "num_steps": 900}, ...]`` (or an
object with that list under ``segments``), or CSV with these three columns.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from raptor_acct._validate import shown
from raptor_acct.mechanisms import SubsampledGaussian

Setting = tuple[float, float]  # noise multiplier, sampling probability

_FIELDS = ("noise_multiplier", "sampling_probability", "num_steps")


def merged(segments: Iterable[tuple[float, float, int]]) -> tuple[SubsampledGaussian, ...]:
    """Return one stream for each setting; the order of releases makes no difference to what they spend.

    Args:
        segments: Noise multiplier, sampling probability and number of releases of each segment. Public.

    Raises:
        ValueError: If a number is outside its range.

    >>> merged([(1.0, 0.01, 5), (2.0, 0.01, 1), (1.0, 0.01, 3)])[0]
    SubsampledGaussian(num_steps=8, sampling_probability=0.01, noise_multiplier=1.0)
    """
    totals: dict[Setting, int] = {}
    for noise, q, steps in segments:
        totals[noise, q] = totals.get((noise, q), 0) + steps
    return tuple(
        SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=noise)
        for (noise, q), steps in totals.items()
    )


def parse_segments(data: bytes, *, name: str = "input") -> tuple[SubsampledGaussian, ...]:
    r"""Read the segments of a schedule; JSON is recognised by a first ``[`` or ``{``.

    Args:
        data: The content of the file.
        name: The file's name, for messages.

    Raises:
        ValueError: If it is not a schedule of at least one segment; the message says which segment, from 1.

    >>> [stream.num_steps for stream in parse_segments(b"num_steps,noise_multiplier,sampling_probability\n9,1.0,0.1\n")]
    [9]
    """
    try:
        text = _decoded(data)
        rows = _json_rows(text) if text.lstrip()[:1] in ("[", "{") else _csv_rows(text)
        if not rows:
            raise ValueError("expected at least one segment, got none")
        return tuple(_segment(i, row) for i, row in enumerate(rows, start=1))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected JSON or CSV in UTF-8, got other bytes at position {error.start}") from None


def _segment(index: int, row: object) -> SubsampledGaussian:
    if not isinstance(row, Mapping) or set(row) != set(_FIELDS):
        got = shown(sorted(row)) if isinstance(row, Mapping) else shown(row)
        raise ValueError(f"segment {index}: expected {', '.join(_FIELDS)}, got {got}")
    try:
        return SubsampledGaussian(**row)
    except ValueError as error:
        raise ValueError(f"segment {index}: {error}") from None


def _json_rows(text: str) -> list[object]:
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"expected JSON, got something else ({error})") from None
    if isinstance(content, dict) and set(content) == {"segments"}:
        content = content["segments"]
    if not isinstance(content, list):
        raise ValueError(f"expected a list of segments, or an object with 'segments' alone, got {shown(content)}")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError(f"expected every key once, got {shown([key for key, _ in pairs])} in one object")
    return content


def _csv_rows(text: str) -> list[object]:
    try:
        lines = [cells for cells in csv.reader(io.StringIO(text, newline=""), strict=True) if cells]
    except csv.Error as error:
        raise ValueError(f"expected JSON or CSV, got something else ({error})") from None
    header = [cell.strip() for cell in lines[0]] if lines else []
    if sorted(header) != sorted(_FIELDS):
        raise ValueError(f"expected JSON, or CSV with the columns {','.join(_FIELDS)}, got {shown(header)}")
    for i, cells in enumerate(lines[1:], start=1):
        if len(cells) != len(header):
            raise ValueError(f"segment {i}: expected {len(header)} values, got {len(cells)}")
    return [{name: _value(cell) for name, cell in zip(header, cells, strict=True)} for cells in lines[1:]]


def _value(cell: str) -> int | float | str:
    """Return the number in ``cell``; whole numbers stay whole, and other text is left for the checks to refuse."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell

"""The file format of routing statistics, as JSON or CSV, plain or gzipped.

JSON: ``{"layers": {"1": {"counts": [..]}, ...}, "source": "...", "unit": "records"}``, where a layer may have
``probabilities`` instead of ``counts``. CSV: a line an expert with the columns ``layer,expert,count``, maybe ``unit``,
and any others naming a part of the data (a model, a domain); parts are never pooled: ``where`` picks one. Without a
unit a file counts records.
Layers go by the model's real numbers; a dense layer has no router and no place in the file.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raptor_acct.routing import RoutingStats, by_layer

_COLUMNS = ("layer", "expert", "count")
_GZIP_MAGIC = b"\x1f\x8b"
_Rows = list[tuple[int, dict[str, str]]]  # (line number, column -> cell)


@dataclass(frozen=True, kw_only=True)
class RoutingFile:
    """What a file of routing statistics says.

    Attributes:
        layers: The statistics of each layer by its real number, lowest first.
        source: Where they come from, as the file says; "" if it does not.
        unit: What was counted. The theory speaks of "records" with one owner each; other units, such as "tokens",
            are carried along so that whoever reads the numbers can tell.
    """

    layers: dict[int, RoutingStats]
    source: str = ""
    unit: str = "records"


def read_routing(path: str | Path, *, where: Mapping[str, str] | None = None) -> RoutingFile:
    """Read a file of routing statistics.

    Args:
        path: A JSON or CSV file, which may be gzipped.
        where: Column to value; keeps the CSV rows that have these values.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a valid file of routing statistics, or rows of several parts of the data remain.
    """
    return parse_routing(Path(path).read_bytes(), name=str(path), where=where)


def parse_routing(data: bytes, *, name: str = "input", where: Mapping[str, str] | None = None) -> RoutingFile:
    r"""Read routing statistics from bytes; gzip is recognised by its first bytes, JSON by ``.json`` or a first ``{``.

    Args:
        data: The content of the file.
        name: The file's name, for messages and its suffix.
        where: Column to value; keeps the CSV rows that have these values.

    Raises:
        ValueError: As `read_routing`; the message starts with ``name``.

    >>> file = parse_routing(b"domain,layer,expert,count\nlaw,3,0,6\nlaw,3,1,2\nart,3,0,1\n", where={"domain": "law"})
    >>> file.layers[3].counts, file.source, file.unit
    ((6, 2), 'domain=law', 'records')
    """
    try:
        text = _decode(data)
        suffixes = Path(name).suffixes
        if ".json" in suffixes[-2:] or (".csv" not in suffixes[-2:] and text.lstrip().startswith("{")):
            return _parse_json(text, where or {})
        return _parse_csv(text, where or {})
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def write_routing(file: RoutingFile, path: str | Path) -> None:
    """Write ``file`` as CSV if ``path`` ends in .csv or .csv.gz, else as JSON; gzipped if it ends in .gz.

    CSV has no place for the source, and needs counts.

    Raises:
        ValueError: If CSV is asked for and a layer has only probabilities.
    """
    as_csv = ".csv" in Path(path).suffixes[-2:]
    data = (_to_csv(file) if as_csv else _to_json(file)).encode()
    Path(path).write_bytes(gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def parse_where(options: Sequence[str]) -> dict[str, str]:
    """Return column to value from options like ``model=a,domain=b``; a comma splits only before the next ``column=``.

    Raises:
        ValueError: On an option without ``=``, or a column named twice.

    >>> parse_where(["model=org/a,domain=law", "selection=top1"])
    {'model': 'org/a', 'domain': 'law', 'selection': 'top1'}
    """
    where: dict[str, str] = {}
    for part in (part for option in options for part in re.split(r",(?=[^,=]+=)", option)):
        column, equals, value = part.partition("=")
        if not (column and equals) or column in where:
            raise ValueError(f"expected every --where as column=value, each column once, got --where {part!r}")
        where[column] = value
    return where


def _decode(data: bytes) -> str:
    try:
        text = (gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"expected a whole gzip file, got a damaged one ({error})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"expected JSON or CSV in UTF-8, got other bytes at position {error.start}") from None
    if not text.strip():
        raise ValueError("expected routing statistics as JSON or CSV, got an empty file")
    return text


def _parse_json(text: str, where: Mapping[str, str]) -> RoutingFile:
    if where:
        raise ValueError(f"expected a CSV file with --where, got JSON; it has no columns such as {next(iter(where))!r}")
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"expected JSON, got something else ({error})") from None
    if not isinstance(content, dict) or not {"layers"} <= content.keys() <= {"layers", "source", "unit"}:
        got = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"expected an object with 'layers' and maybe 'source' and 'unit', got {got}")
    named = {key: content[key] for key in ("source", "unit") if key in content}
    if not all(isinstance(value, str) for value in named.values()):
        raise ValueError(f"expected 'source' and 'unit' to be text, got {named}")
    if not isinstance(content["layers"], dict):
        raise ValueError(f"expected 'layers' to be an object, got {type(content['layers']).__name__}")
    layers = {key: _json_layer(key, entry) for key, entry in content["layers"].items()}
    return RoutingFile(layers=by_layer("layers", layers), **named)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
    if twice is not None:
        raise ValueError(f"expected every key once, got {twice!r} twice in one object")
    return dict(pairs)


def _json_layer(layer: str, entry: object) -> RoutingStats:
    if not isinstance(entry, dict) or len(entry) != 1 or not entry.keys() <= {"counts", "probabilities"}:
        got = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise ValueError(f"expected layer {layer} to be an object with 'counts' or 'probabilities', got {got}")
    try:
        return RoutingStats.from_dict(entry)
    except ValueError as error:
        raise ValueError(f"layer {layer}: {error}") from None


def _parse_csv(text: str, where: Mapping[str, str]) -> RoutingFile:
    rows = _csv_rows(text)
    for column, value in where.items():
        rows = _chosen(rows, column, value)
    parts = {column: _values(rows, column) for column in rows[0][1] if column not in _COLUMNS}
    split = [column for column, values in parts.items() if len(values) > 1]
    if split:
        example = ",".join(f"{column}={parts[column][0]}" for column in split)
        hint = f"choose one part, for example --where {example!r}; parts are never pooled"
        raise ValueError(f"expected rows of one part of the data, got several values of {', '.join(split)}; {hint}")
    unit = parts.pop("unit", ["records"])[0]
    source = ", ".join(f"{column}={values[0]}" for column, values in parts.items())
    return RoutingFile(layers=by_layer("layers", _csv_layers(rows)), source=source, unit=unit)


def _csv_rows(text: str) -> _Rows:
    """Return every row with its line number; all have the header's columns."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header, *lines = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: expected CSV, got something else ({error})") from None
    columns = header[1]
    if not set(_COLUMNS) <= set(columns) or len(set(columns)) < len(columns):
        raise ValueError(f"expected JSON, or CSV with the columns layer,expert,count each once, got {columns[:8]}")
    for number, cells in lines:
        if len(cells) != len(columns):
            raise ValueError(f"line {number}: expected {len(columns)} values, got {len(cells)}")
    if not lines:
        raise ValueError("expected rows below the header, got none")
    return [(number, dict(zip(columns, cells, strict=True))) for number, cells in lines]


def _chosen(rows: _Rows, column: str, value: str) -> _Rows:
    if column not in rows[0][1]:
        raise ValueError(f"expected --where with one of the columns {', '.join(rows[0][1])}, got {column!r}")
    kept = [(number, row) for number, row in rows if row[column] == value]
    if not kept:
        known = ", ".join(_values(rows, column)[:8])
        raise ValueError(f"expected --where {column} to be one of {known}, got {column}={value!r}")
    return kept


def _values(rows: _Rows, column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for _, row in rows))


def _csv_layers(rows: _Rows) -> dict[str, list[int]]:
    """Return the counts of each layer; every expert of every layer must have its row, also those that own nothing."""
    layers: dict[str, dict[int, int]] = {}
    for number, row in rows:
        layer, expert, count = (_digits(number, column, row[column]) for column in _COLUMNS)
        counts = layers.setdefault(str(layer), {})
        if expert in counts:
            raise ValueError(f"line {number}: expected every expert once, got layer {layer}, expert {expert} again")
        counts[expert] = count
    experts = 1 + max(max(counts) for counts in layers.values())
    for layer_name, counts in layers.items():
        if len(counts) < experts:
            missing = next(e for e in range(experts) if e not in counts)
            hint = "give experts without records the count 0"
            raise ValueError(
                f"expected experts 0..{experts - 1} in layer {layer_name}, got no expert {missing}; {hint}"
            )
    return {layer: [counts[e] for e in range(experts)] for layer, counts in layers.items()}


def _digits(line: int, column: str, cell: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4000}(\.0*)?", cell.strip()):
        raise ValueError(f"line {line}: expected {column} to be a whole number >= 0, got {column}={cell[:40]!r}")
    return int(cell.partition(".")[0])


def _to_json(file: RoutingFile) -> str:
    layers = {
        str(layer): {"counts": stats.counts} if stats.counts else {"probabilities": stats.probabilities.tolist()}
        for layer, stats in file.layers.items()
    }
    return json.dumps({"layers": layers, "source": file.source, "unit": file.unit}, indent=2) + "\n"


def _to_csv(file: RoutingFile) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    unit = {} if file.unit == "records" else {"unit": file.unit}
    writer.writerow([*_COLUMNS, *unit])
    for layer, stats in file.layers.items():
        if stats.counts is None:
            hint = f"got only probabilities in layer {layer}; use .json"
            raise ValueError(f"expected counts in every layer for CSV, {hint}")
        writer.writerows([layer, expert, count, *unit.values()] for expert, count in enumerate(stats.counts))
    return out.getvalue()

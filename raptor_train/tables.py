"""Files of texts and labels, as tables."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from raptor_acct._validate import shown

Text = tuple[str, ...]  # one text, or a pair


@dataclass(frozen=True, kw_only=True)
class Table:
    """Texts and labels of one file.

    Attributes:
        name: The file, for messages.
        texts: One record a text or pair. Private, if the file is.
        labels: The labels as written; None where there are none.
    """

    name: str
    texts: tuple[Text, ...]
    labels: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: Iterable[int]) -> Table:
        """Return the records at ``indices``."""
        indices = list(indices)
        labels = None if self.labels is None else tuple(self.labels[i] for i in indices)
        return replace(self, texts=tuple(self.texts[i] for i in indices), labels=labels)

    def sample(self, count: int) -> Table:
        """Return ``count`` records, or all if there are fewer, in an order that the table's length alone decides."""
        return self.take(np.random.default_rng(0).permutation(len(self))[:count].tolist())


def read_table(path: str | Path, texts: Sequence[Text], label: Sequence[str] = ()) -> Table:
    """Read TSV, CSV or JSON lines, maybe gzipped.

    Args:
        path: The file; its suffix tells the format. A .txt file holds one text a line.
        texts: Possible columns of the text; the first that the file has count.
        label: Possible columns of the label, likewise; empty for none.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is in no such format or lacks the columns; it then lists those that it has.
    """
    rows = _rows(Path(path))
    if not rows:
        raise ValueError(f"{path}: expected records, got none")
    columns = list(rows[0])
    chosen = next((names for names in texts if set(names) <= set(columns)), None)
    if chosen is None:
        wanted = " or ".join("+".join(names) for names in texts)
        raise ValueError(f"{path}: expected the text in {wanted}, got the columns {', '.join(columns)}; --text-column")
    found = next((name for name in label if name in columns), None)
    if label and found is None:
        raise ValueError(
            f"{path}: expected the label in {' or '.join(label)}, got the columns {', '.join(columns)}; --label-column"
        )
    return Table(
        name=str(path),
        texts=tuple(tuple(row.get(name) or "" for name in chosen) for row in rows),
        labels=None if found is None else tuple(row.get(found) or "" for row in rows),
    )


def overlap(first: Table, second: Table) -> list[int]:
    """Places in ``first`` of the records whose text stands in ``second`` too, but for case and white space."""
    known = {_key(text) for text in second.texts}
    return [i for i, text in enumerate(first.texts) if _key(text) in known]


def repeats(table: Table) -> list[int]:
    """Places of the records whose text stands earlier in the table too, but for case and white space."""
    first: dict[Text, int] = {}
    return [i for i, text in enumerate(table.texts) if first.setdefault(_key(text), i) != i]


def _rows(path: Path) -> list[Mapping[str, str]]:
    data = path.read_bytes()
    try:
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
        kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
        if kind in (".jsonl", ".json"):
            return [_json_row(line) for line in text.split("\n") if line.strip()]
        if kind == ".txt":
            return [{"text": line} for line in text.split("\n") if line.strip()]
        if kind not in (".tsv", ".csv"):
            raise ValueError(
                f"a name that ends in .tsv, .csv, .jsonl or .txt (or these with .gz) is expected, got {kind}"
            )
        lines = io.StringIO(text, newline="")
        if kind == ".tsv":  # GLUE's TSV files have lone quotation marks
            return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
        return list(csv.DictReader(lines))
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _json_row(line: str) -> Mapping[str, str]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"expected an object on every line, got {shown(row)}")
    return {key: value if isinstance(value, str) else str(value) for key, value in row.items()}


def _key(text: Text) -> Text:
    return tuple(" ".join(part.lower().split()) for part in text)

"""A durable record of every noisy release, and what it adds up to (theory.md §7, condition 7)."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from raptor_acct._validate import number
from raptor_acct.adjacency import Adjacency
from raptor_acct.composition import sequential_across_streams
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import SubsampledGaussian

FORMAT = "raptor-ledger/1"


class LedgerDamaged(ValueError):
    """A ledger whose chain of hashes is broken: what was spent can no longer be told."""


class Ledger:
    """Append-only JSON lines, each holding the hash of the line before it, on disk before ``append`` returns.

    Args:
        path: A file that does not exist yet.

    Raises:
        FileExistsError: If it does: a ledger is never overwritten.

    **Guarantee.** Appending comes before the noise is drawn, so a crash at any point charges at least what was
    released. A last line that was cut short counts as one more release of every stream seen before. Whole lines
    removed from the end cannot be seen from the file alone.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._head: str | None = ""  # None while a write is under way, and for good if it failed
        self._write({"format": FORMAT}, mode="x")

    def append(self, *, stream: str, noise_multiplier: float, sampling_probability: float, clip_norm: float) -> None:
        """Charge one release of one stream, flushed to the disk.

        Raises:
            ValueError: If a number could not be that of a private release.
        """
        self._write(_checked(stream, noise_multiplier, sampling_probability, clip_norm))

    def _write(self, entry: dict[str, Any], mode: str = "a") -> None:
        if self._head is None:
            raise ValueError(f"{self.path}: an earlier write failed; replay this ledger and start a new one")
        head, self._head = self._head, None
        line = json.dumps({**entry, "previous": head}, allow_nan=False)
        with self.path.open(mode, encoding="utf-8", newline="\n") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._head = _digest(line.encode())


def replay(path: str | Path, *, adjacency: Adjacency = "add_remove") -> Guarantee:
    """Check a ledger and return the guarantee of everything that was released.

    Args:
        path: The ledger's file.
        adjacency: Which data sets are neighbours.

    Raises:
        LedgerDamaged: If a line other than the last cannot be read or does not fit the one before.
        ValueError: If nothing was released.
    """
    released = list(streams(path).values())
    if not released:
        raise ValueError(f"{path}: nothing was released, so there is nothing to account for")
    return sequential_across_streams(released).guarantee(adjacency)


def streams(path: str | Path) -> dict[tuple[str, float, float], SubsampledGaussian]:
    """The releases of a ledger, one mechanism for each (stream, noise multiplier, sampling probability)."""
    entries, torn = _read(Path(path))
    steps = Counter((e["stream"], e["noise_multiplier"], e["sampling_probability"]) for e in entries)
    return {
        key: SubsampledGaussian(num_steps=count + torn, noise_multiplier=key[1], sampling_probability=key[2])
        for key, count in steps.items()
    }


def _read(path: Path) -> tuple[list[dict[str, Any]], bool]:
    *lines, rest = path.read_bytes().split(b"\n")
    entries, head = [], ""
    for i, line in enumerate(lines, start=1):
        entry = _entry(line, head, first=i == 1)
        if entry is None:
            raise LedgerDamaged(f"{path}: line {i} is damaged or does not follow from the line before it")
        entries.append(entry)
        head = _digest(line)
    if not entries:
        raise LedgerDamaged(f"{path}: has no complete first line, so it is no ledger")
    return entries[1:], bool(rest)


def _entry(line: bytes, head: str, *, first: bool) -> dict[str, Any] | None:
    """The line's content, None if it is damaged."""
    try:
        entry = json.loads(line)
        if entry["previous"] != head or (first and entry["format"] != FORMAT):
            return None
        if not first:
            _checked(entry["stream"], entry["noise_multiplier"], entry["sampling_probability"], entry["clip_norm"])
    except (ValueError, KeyError, TypeError):
        return None
    return dict(entry)


def _checked(
    stream: str, noise_multiplier: float, sampling_probability: float, clip_norm: float
) -> dict[str, str | float]:
    return {
        "stream": str(stream),
        "noise_multiplier": number("noise_multiplier", noise_multiplier, "(0, inf)"),
        "sampling_probability": number("sampling_probability", sampling_probability, "(0, 1]"),
        "clip_norm": number("clip_norm", clip_norm, "(0, inf)"),
    }


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()

"""A durable record of every noisy release, and what it adds up to (theory.md §7, condition 7)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from raptor_acct.adjacency import Adjacency
from raptor_acct.guarantee import Guarantee
from raptor_acct.ledger_file import (
    FORMAT,
    LedgerContent,
    LedgerDamaged,
    checked_release,
    digest,
    parse_ledger,
    release_line,
)
from raptor_acct.mechanisms import SubsampledGaussian

__all__ = ["Ledger", "LedgerDamaged", "replay", "streams"]


class Ledger:
    """Append-only JSON lines, each holding the hash of the line before it, on disk before ``append`` returns.

    Args:
        path: A file that does not exist yet; :meth:`open` goes on with one that does.

    Raises:
        FileExistsError: If it does: a ledger is never overwritten.

    **Guarantee.** Appending comes before the noise is drawn, so a crash at any point charges at least what was
    released. A last line that was cut short counts as one more release of the stream whose line it began, or of every
    stream if that cannot be told. Whole lines removed from the end cannot be seen from the file alone. One process at
    a time may write; a write of another one since is an error.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ledger.jsonl"
    >>> Ledger(path).append(stream="shared", noise_multiplier=1.0, sampling_probability=0.01, clip_norm=0.5)
    >>> Ledger.open(path).append(stream="shared", noise_multiplier=1.0, sampling_probability=0.01, clip_norm=0.5)
    >>> Ledger.verify(path).num_releases, round(Ledger.replay(path).epsilon(1e-5), 2)
    (2, 0.25)
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._head: str | None = ""  # None while a write is under way, and for good if it failed
        self._size = 0
        self._write({"format": FORMAT}, mode="x")

    @classmethod
    def open(cls, path: str | Path) -> Ledger:
        """Go on with a ledger after a restart.

        A last line that was cut short is replaced by the releases it counts as, so what was spent stays the same.

        Raises:
            FileNotFoundError: If there is none.
            LedgerDamaged: As :meth:`verify`.
        """
        content = cls.verify(path)
        ledger = cls.__new__(cls)  # without __init__, which begins a new file
        ledger.path, ledger._head, ledger._size = Path(path), content.head, Path(path).stat().st_size
        if content.torn:
            ledger._settle(content)
        return ledger

    @staticmethod
    def verify(path: str | Path) -> LedgerContent:
        """Check a ledger, and return what it holds.

        Raises:
            LedgerDamaged: If a line other than the last cannot be read or does not fit the one before.
        """
        return parse_ledger(Path(path).read_bytes(), name=str(path))

    @staticmethod
    def replay(path: str | Path, *, adjacency: Adjacency = "add_remove") -> Guarantee:
        """Check a ledger and return the guarantee of everything that was released.

        Args:
            path: The ledger's file.
            adjacency: Which data sets are neighbours.

        Raises:
            LedgerDamaged: As :meth:`verify`.
            ValueError: If nothing was released.
        """
        return Ledger.verify(path).guarantee(adjacency)

    def append(self, *, stream: str, noise_multiplier: float, sampling_probability: float, clip_norm: float) -> None:
        """Charge one release of one stream, flushed to the disk.

        Raises:
            ValueError: If a number could not be that of a private release, or if another process wrote meanwhile.
        """
        self._write(checked_release(stream, noise_multiplier, sampling_probability, clip_norm))

    def _write(self, entry: dict[str, Any], mode: str = "a") -> None:
        if self._head is None:
            raise ValueError(f"{self.path}: an earlier write failed; go on with Ledger.open")
        if mode == "a" and self.path.stat().st_size != self._size:
            raise ValueError(f"{self.path}: another process has written to it: one run, one ledger")
        head, self._head = self._head, None
        line = release_line(entry, head)
        self._size += _to_disk(self.path, line + b"\n", mode + "b")
        self._head = digest(line)

    def _settle(self, content: LedgerContent) -> None:
        """Put the releases that it counts as in the place of the torn line, in one move of a whole new file."""
        whole_lines, _, _ = self.path.read_bytes().rpartition(b"\n")
        clip_norms = {(s.stream, s.noise_multiplier, s.sampling_probability): s.clip_norm for s in content.segments}
        lines, head = [whole_lines], content.head
        for key in sorted(content.charged_by_torn):
            lines.append(release_line(checked_release(*key, clip_norms[key]), head))
            head = digest(lines[-1])
        settled = self.path.with_name(self.path.name + ".settled")
        self._size = _to_disk(settled, b"\n".join(lines) + b"\n", "wb")
        settled.replace(self.path)
        _names_to_disk(self.path.parent)
        self._head = head


replay = Ledger.replay


def streams(path: str | Path) -> dict[tuple[str, float, float], SubsampledGaussian]:
    """The releases of a ledger, one mechanism for each (stream, noise multiplier, sampling probability)."""
    return Ledger.verify(path).streams()


def _to_disk(path: Path, data: bytes, mode: str) -> int:
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if mode == "xb":
        _names_to_disk(path.parent)
    return len(data)


def _names_to_disk(folder: Path) -> None:
    """Make a new name in a folder outlast a power cut, where the system lets a folder be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

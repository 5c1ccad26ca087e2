"""What a ledger's file says: JSON lines, each holding the hash of the line before it."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raptor_acct._validate import number
from raptor_acct.adjacency import Adjacency
from raptor_acct.composition import sequential_across_streams
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import SubsampledGaussian

FORMAT = "raptor-ledger/1"


class LedgerDamaged(ValueError):
    """A ledger whose chain of hashes is broken: what was spent can no longer be told."""


@dataclass(frozen=True, kw_only=True)
class LedgerSegment:
    """The releases of one stream with one setting. All values are public.

    Attributes:
        stream: Name of the stream.
        noise_multiplier: Its noise on the sum, in clip norms.
        sampling_probability: Probability that a record is in a sample.
        clip_norm: The clip norm.
        num_releases: Number of whole lines with this setting.
    """

    stream: str
    noise_multiplier: float
    sampling_probability: float
    clip_norm: float
    num_releases: int


@dataclass(frozen=True, kw_only=True)
class LedgerContent:
    """What an undamaged ledger holds. All values are public.

    Attributes:
        name: The ledger's file, for messages.
        segments: One for each stream and setting, in the order of their first releases.
        head: The hash of the last whole line.
        torn: Whether the last line was cut short.
        charged_by_torn: The (stream, noise multiplier, sampling probability) of which such a line counts as one more
            release: those whose line begins like it, or all of them if none does.
    """

    name: str
    segments: tuple[LedgerSegment, ...]
    head: str
    torn: bool
    charged_by_torn: frozenset[tuple[str, float, float]]

    @property
    def num_releases(self) -> int:
        """Number of whole lines that charge a release."""
        return sum(segment.num_releases for segment in self.segments)

    def streams(self) -> dict[tuple[str, float, float], SubsampledGaussian]:
        """Return what to account for, one mechanism for each (stream, noise multiplier, sampling probability).

        Raises:
            ValueError: If a number is outside what the accountant can certify.
        """
        steps: Counter[tuple[str, float, float]] = Counter()
        for segment in self.segments:
            steps[segment.stream, segment.noise_multiplier, segment.sampling_probability] += segment.num_releases
        return {
            key: SubsampledGaussian(
                num_steps=count + (key in self.charged_by_torn), noise_multiplier=key[1], sampling_probability=key[2]
            )
            for key, count in steps.items()
        }

    def guarantee(self, adjacency: Adjacency = "add_remove") -> Guarantee:
        """Return the guarantee of everything that was released.

        Raises:
            ValueError: If nothing was released, or as :meth:`streams`.
        """
        released = list(self.streams().values())
        if not released:
            raise ValueError(f"{self.name}: nothing was released, so there is nothing to account for")
        return sequential_across_streams(released).guarantee(adjacency)


def parse_ledger(data: bytes, *, name: str = "input") -> LedgerContent:
    """Check a ledger, and return what it holds.

    Args:
        data: The content of the file.
        name: The file's name, for messages.

    Raises:
        LedgerDamaged: If a line other than the last cannot be read or does not fit the one before.
    """
    *lines, rest = data.split(b"\n")
    releases: Counter[tuple[str, float, float, float]] = Counter()
    head = ""
    for i, line in enumerate(lines, start=1):
        entry = _entry(line, head, first=i == 1)
        if entry is None:
            raise LedgerDamaged(f"{name}: line {i} is damaged or does not follow from the line before it")
        if i > 1:
            releases[entry["stream"], entry["noise_multiplier"], entry["sampling_probability"], entry["clip_norm"]] += 1
        head = digest(line)
    if not lines:
        raise LedgerDamaged(f"{name}: has no complete first line, so it is no ledger")
    segments = tuple(
        LedgerSegment(stream=s, noise_multiplier=noise, sampling_probability=q, clip_norm=c, num_releases=count)
        for (s, noise, q, c), count in releases.items()
    )
    charged = _charged_by_torn(rest, head, releases) if rest else frozenset[tuple[str, float, float]]()
    return LedgerContent(name=name, segments=segments, head=head, torn=bool(rest), charged_by_torn=charged)


def checked_release(
    stream: str, noise_multiplier: float, sampling_probability: float, clip_norm: float
) -> dict[str, str | float]:
    """Return a line's content.

    Raises:
        ValueError: If a number could not be that of a private release.
    """
    return {
        "stream": str(stream),
        "noise_multiplier": number("noise_multiplier", noise_multiplier, "(0, inf)"),
        "sampling_probability": number("sampling_probability", sampling_probability, "(0, 1]"),
        "clip_norm": number("clip_norm", clip_norm, "(0, inf)"),
    }


def release_line(entry: Mapping[str, Any], head: str) -> bytes:
    """Return the line of an entry that follows the line of which ``head`` is the hash, without its newline."""
    return json.dumps({**entry, "previous": head}, allow_nan=False).encode()


def digest(line: bytes) -> str:
    """Return the hash by which the next line names ``line``."""
    return hashlib.sha256(line).hexdigest()


def _charged_by_torn(
    rest: bytes, head: str, releases: Iterable[tuple[str, float, float, float]]
) -> frozenset[tuple[str, float, float]]:
    lines = {key: release_line(checked_release(*key), head) for key in releases}
    possible = [key for key, line in lines.items() if line.startswith(rest)]
    return frozenset(key[:3] for key in possible or lines)


def _entry(line: bytes, head: str, *, first: bool) -> dict[str, Any] | None:
    """The line's content, None if it is damaged."""
    try:
        entry = json.loads(line)
        if entry["previous"] != head or (first and entry["format"] != FORMAT):
            return None
        if first:
            return {}
        return checked_release(
            entry["stream"], entry["noise_multiplier"], entry["sampling_probability"], entry["clip_norm"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None

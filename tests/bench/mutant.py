"""A planted bug: an edit of the real source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .patching import rewritten
from .system import System

Check = Callable[[System], None]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A bug.

    Attributes:
        name: Its name in the matrix.
        function: Where it is planted.
        edits: New source text by old.
        caught_by: The check that is meant to catch it; others may too.
        processes: How many processes it takes to show.
    """

    name: str
    function: Callable[..., Any]
    edits: dict[str, str]
    caught_by: Check
    processes: int = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug inside the block."""
        with rewritten(self.function, self.edits):
            yield

"""Plant a bug: replace a piece of a real function's source text while a block runs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any


@contextmanager
def rewritten(function: Callable[..., Any], edits: dict[str, str]) -> Iterator[None]:
    """Run ``function`` with other source text inside the block, wherever it was imported to.

    Its code object is exchanged, so every reference to the function sees the change; decorators stay as they are.

    Args:
        function: A plain function or method, decorated or not; of a property, its ``fget``.
        edits: New text by old text. Each old text must occur exactly once: a bug must not rot silently.
    """
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in edits.items():
        if (found := source.count(old)) != 1:
            raise ValueError(f"expected {old!r} once in {function.__qualname__}, found it {found} times")
        source = source.replace(old, new)
    original: CodeType = function.__code__
    function.__code__ = _compiled(source, function.__name__, original)
    try:
        yield
    finally:
        function.__code__ = original


def _compiled(source: str, name: str, original: CodeType) -> CodeType:
    """The code of the function ``name`` in ``source``, which is compiled and never executed."""
    cells = "".join(f" {cell} = None\n" for cell in original.co_freevars)  # super() needs the cell __class__
    wrapped = f"def outer():\n{cells} pass\n{textwrap.indent(source, ' ')}"
    found = next(code for code in _codes(compile(wrapped, original.co_filename, "exec")) if code.co_name == name)
    assert found.co_freevars == original.co_freevars
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)

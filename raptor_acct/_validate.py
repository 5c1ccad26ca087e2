"""Checks of user input: every failure is a ValueError that names the argument, the range and the value."""

import math
import numbers
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache


@lru_cache(maxsize=64)
def _parse(interval: str) -> tuple[float, float, bool, bool]:
    low, high = interval[1:-1].split(",")
    return float(low), float(high), interval[0] == "[", interval[-1] == "]"


def number(name: str, value: object, interval: str, *, hint: str = "") -> float:
    """Return ``value`` as a float inside ``interval``.

    Args:
        name: The argument as the user wrote it.
        value: Any real number; bool, text, NaN and arrays are refused.
        interval: Mathematical notation, for example ``"(0, 1]"`` or ``"(0, inf)"``.
        hint: The usual fix, added to the message.

    Raises:
        ValueError: If ``value`` is not a real number in ``interval``.

    >>> number("q", 0.01, "(0, 1]")
    0.01
    >>> number("q", 1.3, "(0, 1]")
    Traceback (most recent call last):
    ValueError: expected q in (0, 1], got q=1.3
    """
    low, high, low_closed, high_closed = _parse(interval)
    x = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with suppress(OverflowError):  # an int beyond every float
            x = float(value)
    above = x >= low if low_closed else x > low
    below = x <= high if high_closed else x < high
    if not (above and below):
        raise ValueError(f"expected {name} in {interval}, got {name}={shown(value)}" + (f"; {hint}" if hint else ""))
    return x


def whole(name: str, value: object, *, low: int = 1, high: int | None = None, hint: str = "") -> int:
    """Return ``value`` as an int from ``low`` to ``high``; numpy integers are fine, 2.5, True and '1000' are not.

    Raises:
        ValueError: If ``value`` is not a whole number, or outside the range.

    >>> whole("steps", 1000)
    1000
    >>> whole("steps", 2.5)
    Traceback (most recent call last):
    ValueError: expected steps to be a whole number >= 1, got steps=2.5
    """
    count = int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else low - 1
    if count < low or (high is not None and count > high):
        allowed = f">= {low}" if count < low or high is None else f"<= {high}"
        message = f"expected {name} to be a whole number {allowed}, got {name}={shown(value)}"
        raise ValueError(message + (f"; {hint}" if hint else ""))
    return count


def choice(name: str, value: object, allowed: Collection[str]) -> str:
    """Return ``value`` if it is one of ``allowed``.

    Raises:
        ValueError: If it is not.

    >>> choice("keep", "both", ("ratio", "shared"))
    Traceback (most recent call last):
    ValueError: expected keep to be one of 'ratio', 'shared', got keep='both'
    """
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, allowed))}, got {name}={shown(value)}")
    return value


def shown(value: object) -> str:
    """Return ``value`` as it can stand in a message: cut if long, and never failing."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"

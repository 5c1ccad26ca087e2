"""Root search whose answer lies on the safe side, with few evaluations."""

import math
from collections.abc import Callable

_STRIDE = 0.05
_CLOSE = 0.05  # two points this close give the slope at the root well enough
_PATIENCE = 12  # secant steps before halving takes over


def safe_root(
    excess: Callable[[float], float],
    start: float,
    *,
    low: float,
    high: float,
    width: float,
    below: str | None,
    above: str,
    slope: float = 0.0,
) -> float:
    """Return a point just above the root of a decreasing function of a logarithm, where it is not positive.

    Secant steps that aim a little above the root, inside the bracket found so far; halving if they take long.

    Args:
        excess: A decreasing function; a value above zero means the point is unsafe.
        start: A guess.
        low: The least point tried.
        high: The largest point tried.
        width: How far above the root the answer may lie, by the slope there.
        below: What is wrong if even ``low`` is safe; None if that is an answer.
        above: What is wrong if ``high`` is not safe.
        slope: The slope about the guess, if known.

    Returns:
        A point that was evaluated and found safe.

    Raises:
        ValueError: If the root is not between ``low`` and ``high``.

    >>> root = safe_root(lambda x: 2 - x * x, 1.0, low=0, high=9, width=1e-9, below="tiny", above="huge")
    >>> 0 <= root - 2**0.5 <= 1e-9
    True
    """
    unsafe, safe = -math.inf, math.inf  # the bracket
    x, stride = min(max(start, low), high), _STRIDE
    previous = (math.nan, math.nan)
    for attempt in range(400):
        value = excess(x)
        if value > 0:
            unsafe = max(unsafe, x)
        else:
            safe = min(safe, x)
        if unsafe >= high:
            raise ValueError(above)
        if safe <= low and below is None:
            return low
        if safe <= low:
            raise ValueError(below)
        if attempt and x != previous[0]:
            slope = (value - previous[1]) / (x - previous[0])
            close = abs(x - previous[0]) < _CLOSE
            if x == safe and close and slope < 0 and -value <= -slope * width:
                return safe
        if safe - unsafe <= width:
            return safe
        previous = (x, value)
        aim = x - value / slope + width / 3 if slope < 0 else math.copysign(math.inf, value)
        aim = min(max(aim, x - stride, low), x + stride, high)
        if abs(aim - x) < width / 3:  # any closer, differences are noise
            aim = x + math.copysign(width / 3, value)
        if math.isinf(safe - unsafe):
            stride *= 3
        elif attempt > _PATIENCE or not unsafe < aim < safe:
            aim = (unsafe + safe) / 2
        x = aim
    return safe

"""Root search whose answer lies on the safe side, with few evaluations."""

from collections.abc import Callable


def safe_root(
    excess: Callable[[float], float],
    start: float,
    *,
    low: float,
    high: float,
    width: float,
    below: str,
    above: str,
) -> float:
    """Return a point just above the root of a decreasing function, where the function is not positive.

    Args:
        excess: A decreasing function; a value above zero means the point is unsafe.
        start: A guess.
        low: The least point tried.
        high: The largest point tried.
        width: How far above the root the answer may lie.
        below: What is wrong if even ``low`` is safe.
        above: What is wrong if ``high`` is not safe.

    Returns:
        A point that was evaluated and found safe.

    Raises:
        ValueError: If the root is not between ``low`` and ``high``.

    >>> root = safe_root(lambda x: 2 - x * x, 1.0, low=0, high=9, width=1e-9, below="tiny", above="huge")
    >>> 0 <= root - 2**0.5 <= 1e-9
    True
    """
    from scipy.optimize import brentq  # here, since it takes longer to import than the rest of the package

    seen: dict[float, float] = {}

    def remembered(x: float) -> float:
        if x not in seen:
            seen[x] = excess(x)
        return seen[x]

    unsafe, safe = _bracket(remembered, min(max(start, low), high), low, high, below, above)
    root = float(brentq(remembered, unsafe, safe, xtol=width / 4, rtol=1e-15))
    reachable = [x for x, value in seen.items() if value <= 0 and x <= root + width]
    if reachable:
        return min(reachable)
    x = root + width / 2
    while remembered(x) > 0:  # a function that is decreasing only up to rounding
        x += width / 2
    return x


def _bracket(
    excess: Callable[[float], float], start: float, low: float, high: float, below: str, above: str
) -> tuple[float, float]:
    """Return (unsafe, safe) points around the root, walking away from ``start`` in growing strides."""
    here, stride = start, 0.02 * max(1.0, abs(start))
    direction = 1 if excess(start) > 0 else -1
    while True:
        if here == (high if direction > 0 else low):
            raise ValueError(above if direction > 0 else below)
        there = min(max(here + direction * stride, low), high)
        if (excess(there) > 0) != (direction > 0):
            return (here, there) if direction > 0 else (there, here)
        here, stride = there, 3 * stride

"""A number of which both ends are known: a float on the safe side that carries its certified interval."""

from typing import Literal


class Bound(float):
    """A certified interval; as a float, its safe end.

    It can be used wherever a float can; arithmetic gives plain floats.

    Attributes:
        lower: The true value is at least this.
        upper: The true value is at most this.
        method: How the ends were found.

    >>> eps = Bound(0.99, 1.0, safe="upper", method="closed form")
    >>> eps, eps.lower, round(eps.width, 4)
    (1.0, 0.99, 0.01)
    """

    lower: float
    upper: float
    method: str
    _safe: Literal["lower", "upper"]

    def __new__(cls, lower: float, upper: float, *, safe: Literal["lower", "upper"], method: str) -> "Bound":
        """Return the bound whose value as a float is the ``safe`` end."""
        bound = super().__new__(cls, lower if safe == "lower" else upper)
        bound.lower, bound.upper, bound.method, bound._safe = float(lower), float(upper), method, safe
        return bound

    @property
    def width(self) -> float:
        """What is not known: upper - lower."""
        return self.upper - self.lower

    def __getnewargs_ex__(self) -> tuple[tuple[float, float], dict[str, str]]:
        return (self.lower, self.upper), {"safe": self._safe, "method": self.method}

    def to_dict(self) -> dict[str, float | str]:
        """Return the value, both ends and the method, ready for JSON."""
        return {"value": float(self), "lower": self.lower, "upper": self.upper, "method": self.method}

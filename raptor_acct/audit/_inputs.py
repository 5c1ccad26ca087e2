"""Checks of what audits are given: scores, memberships, confidences."""

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def real_array(name: str, values: npt.ArrayLike, *, dimensions: tuple[int, ...]) -> FloatArray:
    """Return finite real numbers as float64, of one of the numbers of ``dimensions``, none of them empty.

    Raises:
        ValueError: On anything else.
    """
    array = np.asarray(values)
    if array.ndim not in dimensions or array.size == 0 or array.dtype.kind not in "fiu":
        allowed = " or ".join(map(str, dimensions))
        got = f"shape {array.shape} of type {array.dtype}"
        raise ValueError(f"expected {name} to be real numbers in {allowed} dimensions, at least one, got {got}")
    if not np.isfinite(array).all():
        raise ValueError(f"expected {name} to be finite, got nan or inf; make them from logits in float64")
    return array.astype(np.float64)


def memberships(name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> BoolArray:
    """Return 0 and 1, or False and True, as booleans of this shape.

    Raises:
        ValueError: On anything else.
    """
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"expected {name} of shape {shape}, as the scores, got {array.shape}")
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"expected {name} to hold only 1 (member) and 0 (non-member), got other values")
    return array.astype(np.bool_)


def scored_members(scores: npt.ArrayLike, members: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the scores of members and those of non-members, at least one each.

    Raises:
        ValueError: If there are none of one kind, or on shapes or values that do not fit.
    """
    checked = real_array("scores", scores, dimensions=(1,))
    inside = memberships("members", members, checked.shape)
    if inside.all() or not inside.any():
        raise ValueError(f"expected members and non-members, got {inside.sum()} members among {inside.size} records")
    return checked[inside], checked[~inside]


def error_of(confidence: float) -> float:
    """Return 1 - ``confidence``.

    Raises:
        ValueError: If ``confidence`` is outside (0, 1).
    """
    return 1 - number("confidence", confidence, "(0, 1)")

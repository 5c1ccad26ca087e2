"""The owner expert of every record: the rule that assigns it, and the check of owners that someone else assigned.

The *owner* of a record is the expert with the largest gate weight summed over the record's real tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import shown, whole

Owners = Mapping[Any, npt.ArrayLike] | Sequence[npt.ArrayLike] | npt.NDArray[Any]


def owners_from_gates(gates: npt.ArrayLike, mask: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the owner expert of every record: the argmax over experts of its summed gate weights.

    Ties go to the lowest index. A record whose real tokens activated no expert at all ties everywhere, so expert 0
    owns it: an error would depend on one record's private content.

    Args:
        gates: [records, tokens, experts], weights of the experts the router really activated, zero elsewhere.
        mask: [records, tokens], 1 for a real token and 0 for padding, which is ignored whatever its gates hold.

    Returns:
        [records], integers in 0..E-1; as private as the records are.

    Raises:
        ValueError: On shapes that do not fit, a mask not of 0 and 1, a record without a real token, or weights of
            real tokens that are negative or not finite.

    Source: the paper's owner rule (Fig. 2); theory.md §1.

    >>> owners_from_gates([[[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]]], [[1, 1, 0]])
    array([0])
    """
    weights, real = np.asarray(gates), np.asarray(mask)
    if weights.ndim != 3 or 0 in weights.shape or real.shape != weights.shape[:2]:
        raise ValueError(
            "expected gates of shape (records, tokens, experts), one layer at a time, and mask of shape "
            f"(records, tokens), got gates of shape {weights.shape} and mask of shape {real.shape}"
        )
    if weights.dtype.kind not in "fiu":
        raise ValueError(f"expected gates to be real numbers, got gates of type {weights.dtype}")
    if real.dtype.kind not in "biuf" or not np.isin(real, (0, 1)).all():
        raise ValueError("expected mask to hold only 1 (real token) and 0 (padding), got other values")
    if not real.any(axis=1).all():
        raise ValueError(f"expected a real token in every record, got none in record {real.any(axis=1).argmin()}")
    # C order: the sum then runs token by token, and trailing padding cannot change even its last bit
    masked = np.ascontiguousarray(np.where(real[:, :, None] == 1, weights, 0), dtype=np.float64)
    if not (np.isfinite(masked) & (masked >= 0)).all():
        raise ValueError("expected gates of real tokens to be finite and >= 0, got negative, infinite or nan weights")
    owners: npt.NDArray[np.int64] = masked.sum(axis=1).argmax(axis=1)
    return owners


def checked_owners(name: str, owners: npt.ArrayLike, num_experts: int) -> npt.NDArray[np.int64]:
    """Return the owners of one layer's records, [records], as integers that are known to lie in 0..num_experts-1.

    Raises:
        ValueError: If ``num_experts`` is not a whole number from 2 to 10**6, or ``owners`` not such integers.

    >>> checked_owners("owners", [0, 2, 2], 3)
    array([0, 2, 2])
    """
    experts = whole("num_experts", num_experts, low=2, high=10**6)
    array = np.asarray(owners)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        got = f"{name} of shape {array.shape} and type {array.dtype}"
        raise ValueError(f"expected {name} of shape (records,) and whole numbers, for one layer, got {got}")
    if array.min() < 0 or array.max() >= experts:
        raise ValueError(f"expected {name} in 0..{experts - 1}, got {name} from {array.min()} to {array.max()}")
    return array.astype(np.int64, copy=False)


def owners_by_layer(
    owners: Owners, num_experts: int, layers: Sequence[int | str] | None
) -> dict[int, npt.NDArray[np.int64]]:
    """Return the owners of the same records in every layer, [records] each, under its real number, lowest first.

    Args:
        owners: [layers, records], or a mapping from layer number to [records].
        num_experts: E of every layer.
        layers: The model's real layer number of each row; None with a mapping, whose keys they are.

    Raises:
        ValueError: If ``layers`` does not fit ``owners``, a layer is named twice, layers differ in their number of
            records, or owners are not integers in 0..num_experts-1.

    >>> owners_by_layer([[0, 1, 1], [2, 0, 1]], 3, [3, 1])
    {1: array([2, 0, 1]), 3: array([0, 1, 1])}
    """
    if isinstance(owners, Mapping) == (layers is not None):
        raise ValueError("expected layers, the number of each row, with an array of owners and not with a mapping")
    keys, rows = (list(owners), list(owners.values())) if isinstance(owners, Mapping) else (list(layers or ()), owners)
    numbers = [number for number in map(layer_number, keys) if number is not None]
    if not numbers or len(set(numbers)) < len(keys) or len(rows) != len(keys):
        raise ValueError(f"expected every layer of the {len(rows)} in owners once, got layers {shown(keys)}")
    checked = {n: checked_owners(f"owners[{n}]", row, num_experts) for n, row in zip(numbers, rows, strict=True)}
    records = {layer: len(row) for layer, row in checked.items()}
    if len(set(records.values())) > 1:
        raise ValueError(f"expected the same records in every layer of owners, got numbers of records {records}")
    return dict(sorted(checked.items()))


def layer_number(layer: int | str | None) -> int | None:
    """Return the layer's real number, from an int >= 0 or a string of digits; None if not given.

    Raises:
        ValueError: If it is neither.

    >>> layer_number("11")
    11
    """
    digits = isinstance(layer, str) and layer.isascii() and layer.isdigit()
    return None if layer is None else whole("layer", int(layer) if digits else layer, low=0)

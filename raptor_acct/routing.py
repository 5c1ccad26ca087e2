"""How evenly one layer's records spread over its experts: entropy, coefficient of variation, and what ties them.

Everything here describes π, the shares of the records that each expert of one sparse layer owns, against the uniform
u = 1/E; `raptor_acct.owners` says who owns a record. Layers are never pooled: two layers that each collapse onto a
different expert would look perfectly balanced together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number, whole
from raptor_acct.confidence import RoutingConfidence, routing_confidence
from raptor_acct.entropy import cv_bounds, excess
from raptor_acct.owners import Owners, checked_owners, layer_number, owners_by_layer, owners_from_gates

FloatArray = npt.NDArray[np.float64]
Vector = Sequence[int] | Sequence[float] | npt.NDArray[Any]

SUM_TOLERANCE = 1e-6  # how far from 1 the sum of given probabilities may be: what float32 leaves of a softmax
_ROUNDING = 4 * np.finfo(np.float64).eps


@dataclass(frozen=True, kw_only=True, eq=False)
class RoutingStats:
    """The routing statistics of one layer. Build it with a ``from_`` method: those check their input.

    It is exactly as private as the records it was made from: public for a public corpus, private otherwise.

    Attributes:
        probabilities: [experts], the share π_e of the records that each expert owns; read-only.
        counts: [experts], the number of records each expert owns; None if only shares are known.
        layer: The model's real layer number (dense layers count too); None if not given.

    Source: Table 7 and 9; theory.md §4.

    >>> stats = RoutingStats.from_counts([6, 1, 1, 0], layer=3)
    >>> round(stats.entropy, 4), round(stats.normalized_entropy, 4), round(stats.cv, 4)
    (0.7356, 0.5306, 1.1726)
    >>> [round(end, 4) for end in stats.cv_bounds_from_entropy()]
    [0.9834, 1.2557]
    """

    probabilities: FloatArray
    counts: tuple[int, ...] | None = None
    layer: int | None = None

    @classmethod
    def from_counts(cls, counts: Vector, *, layer: int | str | None = None) -> Self:
        """Build from how many records each expert owns: whole numbers of any size, for one layer.

        Raises:
            ValueError: Unless ``counts`` is one-dimensional, for at least 2 experts, of whole numbers >= 0, not all 0.
        """
        exact = tuple(_count(f"counts[{i}]", value) for i, value in enumerate(_vector("counts", counts)))
        if not any(exact):
            raise ValueError(f"expected counts of at least one record, got all {len(exact)} counts = 0")
        total = sum(exact)
        return cls(probabilities=_frozen([c / total for c in exact]), counts=exact, layer=layer_number(layer))

    @classmethod
    def from_probabilities(cls, probabilities: Vector, *, layer: int | str | None = None) -> Self:
        """Build from the shares of the experts; a sum within 1e-6 of one is accepted and normalised away.

        Raises:
            ValueError: Unless they are one-dimensional, for at least 2 experts, each in [0, 1], and sum to one.
        """
        named = enumerate(_vector("probabilities", probabilities))
        shares = [number(f"probabilities[{i}]", share, "[0, inf)") for i, share in named]
        total = math.fsum(shares)
        if abs(total - 1) > SUM_TOLERANCE:
            raise ValueError(f"expected probabilities that sum to 1 within {SUM_TOLERANCE:g}, got sum {total!r}")
        if abs(total - 1) > _ROUNDING:  # not below: so that a vector once normalised stays bit for bit as it is
            shares = [share / total for share in shares]
        return cls(probabilities=_frozen(shares), layer=layer_number(layer))

    @classmethod
    def from_owners(cls, owners: Vector, num_experts: int, *, layer: int | str | None = None) -> Self:
        """Build from the owner expert of each record, [records], integers in 0..num_experts-1.

        Raises:
            ValueError: If ``num_experts`` is not a whole number >= 2, or ``owners`` not such integers.
        """
        array = checked_owners("owners", owners, num_experts)
        return cls.from_counts(np.bincount(array, minlength=num_experts), layer=layer)

    @classmethod
    def from_gates(cls, gates: npt.ArrayLike, mask: npt.ArrayLike, *, layer: int | str | None = None) -> Self:
        """Build from the router's gate weights by the owner rule; arguments and errors of `owners_from_gates`."""
        owners = owners_from_gates(gates, mask)
        return cls.from_owners(owners, np.shape(gates)[2], layer=layer)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild exactly what `to_dict` wrote; the derived numbers in it are computed anew.

        Raises:
            ValueError: If ``data`` has neither counts nor probabilities, or they are not valid.
        """
        if data.get("counts") is not None:
            return cls.from_counts(data["counts"], layer=data.get("layer"))
        if data.get("probabilities") is not None:
            return cls.from_probabilities(data["probabilities"], layer=data.get("layer"))
        raise ValueError(f"expected 'counts' or 'probabilities' in the dict, got keys {sorted(map(str, data))}")

    @property
    def num_experts(self) -> int:
        """E."""
        return len(self.probabilities)

    @property
    def num_records(self) -> int | None:
        """N, or None if only shares are known."""
        return None if self.counts is None else sum(self.counts)

    @cached_property
    def deviations(self) -> FloatArray:
        """Eπ_e - 1 of every expert, [experts]: how far, relatively, its share is from 1/E; 0 within rounding is 0."""
        experts = self.num_experts
        if self.counts is None:
            raw = experts * self.probabilities - 1
        else:  # exact in whole numbers, rounded once
            total = sum(self.counts)
            raw = np.array([(experts * count - total) / total for count in self.counts])
        return _frozen(np.where(np.abs(raw) <= _ROUNDING, 0.0, raw))

    @property
    def entropy(self) -> float:
        """H(π) in nats."""
        direct = -math.fsum(p * math.log(p) for p in self.probabilities.tolist() if p > 0)
        return min(max(0.0, direct), math.log(self.num_experts))

    @property
    def entropy_deficit(self) -> float:
        """KL(π‖u) = log E - H in nats, without the cancellation near uniform."""
        return math.fsum(map(excess, self.deviations.tolist())) / self.num_experts

    @property
    def normalized_entropy(self) -> float:
        """H / log E, in [0, 1]; from the smaller of H and its deficit, so that it is accurate at both ends."""
        largest = math.log(self.num_experts)
        return self.entropy / largest if self.entropy < largest / 2 else 1 - self.entropy_deficit / largest

    @property
    def chi2(self) -> float:
        """χ²(π‖u) = EΣπ² - 1 = CV²."""
        return math.fsum(self.deviations**2) / self.num_experts

    @property
    def cv(self) -> float:
        """Coefficient of variation of π over the experts: standard deviation over mean, = √χ²."""
        return math.sqrt(self.chi2)

    @property
    def effective_experts(self) -> float:
        """e^H, between 1 and E."""
        return math.exp(self.entropy)

    def cv_bounds_from_entropy(self) -> tuple[float, float]:
        """Return the sharp interval of CVs that this entropy allows (R2); it always holds `cv`."""
        return cv_bounds(self.entropy_deficit, self.num_experts)

    def confidence(self, level: float = 0.95, *, resamples: int = 2000, seed: int = 0) -> RoutingConfidence:
        """Return intervals for the H and CV of the population that these records are independent draws from (R4).

        The rigorous ones hold at any number of records; the bootstrap ones are approximate, and the same for one seed.

        Args:
            level: Confidence level in (0, 1).
            resamples: Samples that the bootstrap draws.
            seed: Of the bootstrap.

        Raises:
            ValueError: If only shares are known, as from probabilities, or an argument is outside its range.

        >>> found = RoutingStats.from_counts([300, 200, 250, 250]).confidence(0.9)
        >>> [round(end, 3) for end in found.cv_rigorous], [round(end, 3) for end in found.cv_bootstrap]
        ([0.0, 0.263], [0.017, 0.173])
        """
        if self.counts is None:
            raise ValueError("expected statistics from counts, got only probabilities: how many records is not known")
        measured = {"entropy": self.entropy, "entropy_deficit": self.entropy_deficit, "cv": self.cv}
        return routing_confidence(self.counts, **measured, level=level, resamples=resamples, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON; `from_dict` restores the same object from it."""
        derived = ("entropy", "normalized_entropy", "entropy_deficit", "chi2", "cv", "effective_experts")
        return {
            "layer": self.layer,
            "num_experts": self.num_experts,
            "num_records": self.num_records,
            "counts": None if self.counts is None else list(self.counts),
            "probabilities": self.probabilities.tolist(),
            **{name: getattr(self, name) for name in derived},
            "cv_bounds_from_entropy": list(self.cv_bounds_from_entropy()),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoutingStats) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.layer, self.counts, self.probabilities.tobytes()


def as_stats(name: str, value: "RoutingStats | Vector", *, layer: int | str | None = None) -> RoutingStats:
    """Return ``value`` as statistics: floats that sum to one are probabilities, else whole numbers are counts.

    Raises:
        ValueError: If it is neither, or is a `RoutingStats` of another layer than ``layer``.

    >>> as_stats("stats", [0.5, 0.25, 0.25]).cv == as_stats("stats", [2, 1, 1]).cv
    True
    """
    if value is None:
        raise ValueError(f"expected {name}, got None; a dense layer has no router: leave it out")
    if isinstance(value, RoutingStats):
        if layer is None or value.layer == layer_number(layer):
            return value
        if value.layer is not None:
            raise ValueError(f"expected {name} to be of layer {layer}, got statistics of layer {value.layer}")
        return replace(value, layer=layer_number(layer))
    entries = _vector(name, value)
    floats = [x for x in entries if isinstance(x, float)]
    shares = [x for x in entries if isinstance(x, int | float) and 0 <= x <= 1 + SUM_TOLERANCE]
    if floats and len(shares) == len(entries) and abs(math.fsum(shares) - 1) <= SUM_TOLERANCE:
        return RoutingStats.from_probabilities(entries, layer=layer)
    if not all(x.is_integer() for x in floats):
        rule = "whole numbers >= 0 (counts), or floats that sum to 1 (probabilities)"
        raise ValueError(f"expected {name} to be {rule}, got {name} from {entries[:3]}")
    return RoutingStats.from_counts(entries, layer=layer)


def by_layer(name: str, mapping: "Mapping[Any, RoutingStats | Vector]") -> dict[int, RoutingStats]:
    """Return the statistics of each layer under its real number, lowest first; layers are never pooled.

    Args:
        name: The argument as the user wrote it, for messages.
        mapping: Layer number (an int >= 0 or a string of digits) to statistics, counts or probabilities.

    Raises:
        ValueError: If it is no mapping, is empty, or names a layer twice (as 1 and "1"), or a value is not valid.
    """
    if not isinstance(mapping, Mapping):
        hint = "with the model's real layer numbers, dense layers left out"
        raise ValueError(f"expected {name} to be a mapping layer -> statistics, got {type(mapping).__name__}; {hint}")
    if not mapping:
        raise ValueError(f"expected {name} to have at least one layer, got none")
    result: dict[int, RoutingStats] = {}
    for key, value in mapping.items():
        layer = layer_number(key)
        if layer is None or layer in result:
            raise ValueError(f"expected every layer once in {name}, got layer {key!r} twice or without a number")
        try:
            result[layer] = as_stats("statistics", value, layer=layer)
        except ValueError as error:
            raise ValueError(f"{name}[{key!r}]: {error}") from None
    return dict(sorted(result.items()))


def stats_by_layer(
    owners: Owners, num_experts: int, *, layers: Sequence[int | str] | None = None
) -> dict[int, RoutingStats]:
    """Return the statistics of each layer, lowest first, from the owner expert of every record in every layer.

    Args:
        owners: [layers, records], integers in 0..num_experts-1; or a mapping from layer number to [records].
        num_experts: E of every layer.
        layers: The model's real layer number of each row of ``owners``; with a mapping they are its keys.

    Raises:
        ValueError: If ``layers`` does not fit ``owners``, a layer is named twice, layers differ in their number of
            records, or owners are not such integers.

    >>> {layer: stats.counts for layer, stats in stats_by_layer([[0, 1, 1], [2, 0, 1]], 3, layers=[1, 3]).items()}
    {1: (1, 2, 0), 3: (1, 1, 1)}
    """
    checked = owners_by_layer(owners, num_experts, layers)
    return {
        layer: RoutingStats.from_counts(np.bincount(row, minlength=num_experts), layer=layer)
        for layer, row in checked.items()
    }


def _vector(name: str, values: object) -> list[Any]:
    """Return the entries of a one-dimensional input for at least 2 experts, exactly: ints stay whole at any size."""
    array = np.asarray(values, dtype=object)
    if array.ndim != 1 or len(array) < 2:
        hint = "one layer at a time, at least 2 experts"
        raise ValueError(f"expected {name} of shape (experts,), {hint}, got {name} of shape {array.shape}")
    return [x.item() if isinstance(x, np.generic) else x for x in array]


def _count(name: str, value: object) -> int:
    """Return a count as an exact int; floats are taken as far as each whole number has its own, to 2**53."""
    exact = isinstance(value, float) and value.is_integer() and abs(value) <= 2**53
    return whole(name, int(value) if exact else value, low=0)  # type: ignore[call-overload]


def _frozen(values: npt.ArrayLike) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array

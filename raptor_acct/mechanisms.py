"""The mechanisms of one training run: Poisson-subsampled Gaussian streams, alone or as the plan of the two roles."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from raptor_acct._validate import choice, number, shown, whole
from raptor_acct.adjacency import Adjacency
from raptor_acct.guarantee import Guarantee

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Sampling = Literal["independent", "same_batch"]
SAMPLINGS: tuple[Sampling, ...] = ("independent", "same_batch")

# What the accountants can be asked. Beyond, numbers under- or overflow before a bound could be certified.
MOST_STEPS = 10**9
SMALLEST_SAMPLING = 1e-9
SAMPLING_RANGE = "[1e-9, 1]"
SMALLEST_NOISE = 0.01
NOISE_RANGE = "[0.01, 1e8]"


class Mechanism(ABC):
    """Anything that amounts to independent Poisson-subsampled Gaussian streams."""

    @property
    @abstractmethod
    def streams(self) -> tuple["SubsampledGaussian", ...]:
        """The independent streams, whose privacy losses add."""

    def to_dp_event(self) -> "DpEvent":
        """Return the event by which any accountant of dp-accounting can check the plan."""
        from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

        events: list[DpEvent] = [
            SelfComposedDpEvent(
                PoissonSampledDpEvent(stream.sampling_probability, GaussianDpEvent(stream.noise_multiplier)),
                stream.num_steps,
            )
            for stream in self.streams
        ]
        return events[0] if len(events) == 1 else ComposedDpEvent(events)

    def guarantee(self, adjacency: Adjacency = "add_remove") -> Guarantee:
        """Return what the mechanism guarantees for neighbours by ``adjacency``.

        Raises:
            ValueError: If ``adjacency`` is neither "add_remove" nor "replace_one".
        """
        return Guarantee(streams=self.streams, adjacency=adjacency)


@dataclass(frozen=True, kw_only=True)
class SubsampledGaussian(Mechanism):
    """One stream: at each step a fresh Poisson sample, a sum of clipped gradients, and Gaussian noise.

    Attributes:
        num_steps: Number of releases, from 1 to 10^9. Public.
        sampling_probability: Probability in [1e-9, 1] that a record is in the sample of a step. Public.
        noise_multiplier: Standard deviation of the noise on the *sum*, in units of the clip norm, in [0.01, 1e8].
            Public.

    Raises:
        ValueError: If a value is outside its range.

    Guarantee:
        Holds where each record is sampled independently of the others and of the past, its gradient depends on that
        record (and on earlier releases) alone, and its norm is clipped before the sum.

    >>> stream = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0)
    >>> round(stream.guarantee().epsilon(1e-5), 3), round(stream.guarantee("replace_one").epsilon(1e-5), 3)
    (1.828, 2.843)
    """

    num_steps: int
    sampling_probability: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "num_steps": whole("num_steps", self.num_steps, high=MOST_STEPS),
            "sampling_probability": number("sampling_probability", self.sampling_probability, SAMPLING_RANGE),
            "noise_multiplier": number("noise_multiplier", self.noise_multiplier, NOISE_RANGE),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def streams(self) -> tuple["SubsampledGaussian", ...]:
        """The stream itself."""
        return (self,)


@dataclass(frozen=True, kw_only=True)
class RolePlan(Mechanism):
    """The plan of one run: a stream for the shared parameters, one for the experts of the selected layer.

    The expert stream stands for *all* experts of the layer at once (theory P1): a record gives a gradient to its
    owner expert only, the expert with the largest gate weight summed over the record's tokens.

    Attributes:
        shared: The stream of the shared parameters.
        expert: The stream of the experts.
        sampling: "independent": each stream draws its own samples, and the losses add (P2). "same_batch": both
            release from one sample; that is one mechanism with noise (σ_s⁻² + σ_e⁻²)^(-1/2) (P4). At the small deltas
            in use it spends *more* than two independent streams would, near epsilon 0 it may spend less.

    Raises:
        ValueError: If the streams of one batch differ in sampling probability or steps.

    >>> one = SubsampledGaussian(num_steps=1, sampling_probability=0.01, noise_multiplier=1.0)
    >>> round(RolePlan(shared=one, expert=one, sampling="same_batch").guarantee().epsilon(1e-5), 4)
    0.816
    """

    shared: SubsampledGaussian
    expert: SubsampledGaussian
    sampling: Sampling = "independent"

    def __post_init__(self) -> None:
        choice("sampling", self.sampling, SAMPLINGS)
        for name, stream in (("shared", self.shared), ("expert", self.expert)):
            if not isinstance(stream, SubsampledGaussian):
                raise ValueError(f"expected {name} to be a SubsampledGaussian, got {name}={shown(stream)}")
        _ = self.streams  # refuses what cannot share a batch

    @property
    def streams(self) -> tuple[SubsampledGaussian, ...]:
        """Two independent streams, or the one that a shared batch amounts to."""
        if self.sampling == "independent":
            return (self.shared, self.expert)
        return (same_batch([self.shared, self.expert]),)


@dataclass(frozen=True, kw_only=True)
class IndependentStreams(Mechanism):
    """Any number of mechanisms, each with samples and noise of its own; built by ``sequential_across_streams``.

    Attributes:
        parts: The mechanisms, at least one.
    """

    parts: tuple[Mechanism, ...]

    @property
    def streams(self) -> tuple[SubsampledGaussian, ...]:
        """The streams of all parts."""
        return tuple(stream for part in self.parts for stream in part.streams)


def check_mechanisms(mechanisms: object, kind: type[Any]) -> None:
    """Check that ``mechanisms`` is a sequence of at least one ``kind``.

    Raises:
        ValueError: If it is not.
    """
    items = list(mechanisms) if isinstance(mechanisms, Iterable) else None
    if not items or not all(isinstance(item, kind) for item in items):
        got = "none" if items == [] else shown(mechanisms)
        raise ValueError(f"expected a sequence of at least one {kind.__name__}, got {got}")


def same_batch(mechanisms: Sequence[SubsampledGaussian]) -> SubsampledGaussian:
    """Return the one stream that releases from one and the same Poisson sample amount to (theory P4, P7).

    Theorem: divide each release by its noise and stack them. A record moves the stack by a vector of squared length
    Σ σ⁻² at most; a rotation lays it along one axis. So they are one Poisson-subsampled Gaussian with noise multiplier
    (Σ σ⁻²)^(-1/2), in whatever blocks the record's contributions lie.

    Args:
        mechanisms: One stream a release: the two roles (P4), or several sparse layers, each with owner experts of its
            own and the noise of its least noisy expert (P7).

    Raises:
        ValueError: If there is none, they differ in sampling probability or number of steps, or their joint noise
            multiplier is below 0.01.

    >>> layers = [SubsampledGaussian(num_steps=100, sampling_probability=0.1, noise_multiplier=4.0)] * 4
    >>> same_batch(layers)
    SubsampledGaussian(num_steps=100, sampling_probability=0.1, noise_multiplier=2.0)
    """
    check_mechanisms(mechanisms, SubsampledGaussian)
    noise = math.fsum(stream.noise_multiplier**-2 for stream in mechanisms) ** -0.5
    if noise < SMALLEST_NOISE:
        noises = [stream.noise_multiplier for stream in mechanisms]
        raise ValueError(
            f"expected noise multipliers that amount to at least {SMALLEST_NOISE:g} on one batch, got {noises}, which "
            f"amount to {noise:g}"
        )
    return one_batch(mechanisms, noise)


def one_batch(streams: Sequence[SubsampledGaussian], noise_multiplier: float) -> SubsampledGaussian:
    """Return the single mechanism that streams on one and the same Poisson sample amount to.

    Args:
        streams: The streams, at least one.
        noise_multiplier: Its noise, by the theorem that the caller states.

    Raises:
        ValueError: If there is no stream, or they differ in sampling probability or steps.
    """
    for name in ("sampling_probability", "num_steps"):
        values = [getattr(stream, name) for stream in streams]
        if len(set(values)) > 1:
            raise ValueError(f"expected equal {name} for streams that share a batch, got {name}={values}")
    return replace(streams[0], noise_multiplier=noise_multiplier)

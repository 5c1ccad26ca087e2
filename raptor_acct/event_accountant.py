"""This library's accountant for code written for dp-accounting; importing it imports that library."""

import math
from collections import Counter

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    PrivacyAccountant,
    SelfComposedDpEvent,
)

from raptor_acct._validate import number, shown, whole
from raptor_acct.adjacency import Adjacency
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import MOST_STEPS, NOISE_RANGE, SAMPLING_RANGE
from raptor_acct.segments import Setting, merged

_ADJACENCIES: dict[NeighboringRelation, Adjacency] = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "add_remove",
    NeighboringRelation.REPLACE_ONE: "replace_one",
}
_NOT_PRIVATE: Setting = (0.0, 1.0)


class EventAccountant(PrivacyAccountant):
    """An accountant in dp-accounting's sense, for the events that are Poisson-subsampled Gaussians.

    Supported are ``NoOpDpEvent``, ``NonPrivateDpEvent``, ``GaussianDpEvent``, ``PoissonSampledDpEvent`` of Gaussians,
    and every ``ComposedDpEvent`` and ``SelfComposedDpEvent`` of those. Several Gaussians inside one
    ``PoissonSampledDpEvent`` share its sample; they are one Gaussian with noise (Σ σ⁻²)^(-1/2) (theory P4). Any other
    event is reported as unsupported, in that library's way.

    Args:
        neighboring_relation: ``ADD_OR_REMOVE_ONE`` ("add_remove" here) or ``REPLACE_ONE`` ("replace_one").

    Raises:
        ValueError: If ``neighboring_relation`` is another one.

    **Guarantee.** As :class:`raptor_acct.Guarantee`: both methods return upper bounds.

    >>> from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    >>> step = PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0))
    >>> round(EventAccountant().compose(step, 1000).get_epsilon(1e-5), 3)
    1.828
    """

    def __init__(self, neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE):
        if neighboring_relation not in _ADJACENCIES:
            raise ValueError(
                "expected neighboring_relation to be ADD_OR_REMOVE_ONE or REPLACE_ONE, "
                f"got neighboring_relation={shown(neighboring_relation)}"
            )
        super().__init__(neighboring_relation)
        self._releases: Counter[Setting] = Counter()
        self._known: Guarantee | None = None  # of all releases so far; None after a change

    def get_epsilon(self, target_delta: float) -> float:
        """Return an upper bound on epsilon at ``target_delta``; infinite if an event was not private.

        Raises:
            ValueError: If ``target_delta`` is outside [0, 1], or below what can be certified.
        """
        delta = number("target_delta", target_delta, "[0, 1]")
        if not self._releases:
            return 0.0
        if _NOT_PRIVATE in self._releases or delta == 0:
            return math.inf
        return 0.0 if delta == 1 else self._guarantee.epsilon(delta)

    def get_delta(self, target_epsilon: float) -> float:
        """Return an upper bound on delta at ``target_epsilon``; 1 if an event was not private.

        Raises:
            ValueError: If ``target_epsilon`` is negative or not finite.
        """
        eps = number("target_epsilon", target_epsilon, "[0, inf)")
        if not self._releases:
            return 0.0
        return 1.0 if _NOT_PRIVATE in self._releases else self._guarantee.delta(eps)

    @property
    def _guarantee(self) -> Guarantee:
        if self._known is None:
            streams = merged((noise, q, steps) for (noise, q), steps in self._releases.items())
            self._known = Guarantee(streams=streams, adjacency=_ADJACENCIES[self.neighboring_relation])
        return self._known

    def _maybe_compose(
        self, event: DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        try:
            releases = _releases(event)
        except _Unsupported as error:
            return self.CompositionErrorDetails(invalid_event=error.event, error_message=str(error))
        if do_compose:
            self._releases.update({setting: steps * count for setting, steps in releases.items()})
            self._known = None
        return None


class _Unsupported(Exception):
    """An event that is not a Poisson-subsampled Gaussian, or out of range."""

    def __init__(self, event: DpEvent, message: str):
        super().__init__(message)
        self.event = event


def _releases(event: DpEvent) -> Counter[Setting]:
    """Return how many releases of each setting an event makes."""
    try:
        match event:
            case NoOpDpEvent():
                return Counter()
            case NonPrivateDpEvent():
                return Counter([_NOT_PRIVATE])
            case GaussianDpEvent():
                return _gaussian(event.noise_multiplier)
            case PoissonSampledDpEvent():
                return _sampled(event, _releases(event.event))
            case SelfComposedDpEvent():
                count = whole("count", event.count, high=MOST_STEPS)
                return Counter({setting: steps * count for setting, steps in _releases(event.event).items()})
            case ComposedDpEvent():
                total: Counter[Setting] = Counter()
                for part in event.events:
                    total.update(_releases(part))
                return total
    except ValueError as error:
        raise _Unsupported(event, str(error)) from None
    raise _Unsupported(event, "expected Gaussians, Poisson-sampled Gaussians and compositions of these")


def _gaussian(noise_multiplier: float) -> Counter[Setting]:
    noise = number("noise_multiplier", noise_multiplier, "[0, inf)")
    return Counter([(number("noise_multiplier", noise, NOISE_RANGE), 1.0) if noise else _NOT_PRIVATE])


def _sampled(event: PoissonSampledDpEvent, releases: Counter[Setting]) -> Counter[Setting]:
    """Return what ``releases`` on one Poisson sample amount to: a single release."""
    q = number("sampling_probability", event.sampling_probability, "[0, 1]")
    if any(inner != 1 for _, inner in releases):
        raise _Unsupported(event, "expected Gaussians in a Poisson sample, got another Poisson sample in it")
    if q == 0 or not releases:
        return Counter()
    if _NOT_PRIVATE in releases:
        return Counter([_NOT_PRIVATE])
    q = number("sampling_probability", q, SAMPLING_RANGE)
    if releases.total() == 1:
        return Counter((noise, q) for noise, _ in releases)  # as given, to the last digit
    noise = sum(steps * noise**-2 for (noise, _), steps in releases.items()) ** -0.5
    return Counter([(number("noise_multiplier of all releases of one sample", noise, NOISE_RANGE), q)])

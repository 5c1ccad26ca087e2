"""Noise for a privacy target, for one stream or for the two roles, and what given noise spends."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from raptor_acct._arguments import check_delta, check_q, check_target, plan_of
from raptor_acct._noise_search import Asked, least_noise
from raptor_acct._validate import choice, number, shown, whole
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.bound import Bound
from raptor_acct.guarantee import SMALLEST_DELTA, Guarantee
from raptor_acct.mechanisms import (
    MOST_STEPS,
    NOISE_RANGE,
    SAMPLINGS,
    RolePlan,
    Sampling,
    SubsampledGaussian,
)

Composition = Literal["basic", "joint"]
Keep = Literal["ratio", "shared", "expert"]
COMPOSITIONS: tuple[Composition, ...] = ("basic", "joint")
KEEPS: tuple[Keep, ...] = ("ratio", "shared", "expert")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The noise of both roles, and what it spends. Unpacks as ``sigma_shared, sigma_expert``. All values are public.

    Attributes:
        plan: The calibrated plan.
        eps: The target that was asked for.
        delta: The total delta.
        rho: Share of the budget given to the shared stream.
        delta_share: Share of delta given to the shared stream in the basic split.
        composition: "basic" or "joint".
        keep: How the slack was handed back; None for the basic composition.
        adjacency: Which data sets count as neighbours.
        epsilon_shared: Upper bound on what the shared stream spends alone, at its share of delta.
        epsilon_expert: The same for the experts.
        epsilon: Upper bound on what both spend together at ``delta``; never above ``eps``.
    """

    plan: RolePlan
    eps: float
    delta: float
    rho: float
    delta_share: float
    composition: Composition
    keep: Keep | None
    adjacency: Adjacency
    epsilon_shared: Bound
    epsilon_expert: Bound
    epsilon: Bound

    @property
    def sigma_shared(self) -> float:
        """Noise multiplier of the shared stream."""
        return self.plan.shared.noise_multiplier

    @property
    def sigma_expert(self) -> float:
        """Noise multiplier of the experts."""
        return self.plan.expert.noise_multiplier

    def __iter__(self) -> Iterator[float]:
        return iter((self.sigma_shared, self.sigma_expert))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON, with the two noise multipliers at the top."""
        return {
            "sigma_shared": self.sigma_shared,
            "sigma_expert": self.sigma_expert,
            **asdict(self),
            "epsilon_lower": self.epsilon.lower,
        }


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What two streams spend. All values are public.

    Attributes:
        epsilon: Upper bound on what both spend together at ``delta``.
        epsilon_shared: Upper bound on what the shared stream spends alone, at half of ``delta``.
        epsilon_expert: The same for the experts. The sum of the two is what basic composition reports.
        delta: The total delta.
        adjacency: Which data sets count as neighbours.
        plan: The plan.
    """

    epsilon: Bound
    epsilon_shared: Bound
    epsilon_expert: Bound
    delta: float
    adjacency: Adjacency
    plan: RolePlan

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON, with the lower end of epsilon."""
        return {**asdict(self), "epsilon_lower": self.epsilon.lower}


def default_delta(num_records: int) -> float:
    """Return ``num_records ** -1.1``, the paper's delta.

    Raises:
        ValueError: If ``num_records`` is not a whole number of at least 2.

    >>> default_delta(67349)
    4.8846756719704545e-06
    """
    return float(whole("num_records", num_records, low=2, high=10**15) ** -1.1)


def calibrate_sigma(eps: float, delta: float, q: float, steps: int, *, adjacency: Adjacency = "add_remove") -> float:
    """Return the least noise multiplier of a single stream that is certified (eps, delta)-private.

    Args:
        eps: The target, above 0.
        delta: The target, in (0, 1).
        q: Sampling probability of a record, in (0, 1].
        steps: Number of releases.
        adjacency: Which data sets count as neighbours.

    Raises:
        ValueError: If an argument is outside its range, or the target outside what the accountant can certify.

    >>> round(calibrate_sigma(1.0, 1e-5, q=0.01, steps=1000), 3)
    1.415
    """
    eps, delta = check_target(eps, delta)
    stream = SubsampledGaussian(
        num_steps=whole("steps", steps, high=MOST_STEPS), sampling_probability=check_q("q", q), noise_multiplier=1.0
    )
    asked = Asked(stream="the single stream")
    return _calibrated(stream, asked, eps, delta, check_adjacency(adjacency))[0].noise_multiplier


def calibrate_sigmas(
    eps: float,
    delta: float,
    rho: float,
    q: float | tuple[float, float],
    steps: int | tuple[int, int],
    *,
    composition: Composition = "basic",
    keep: Keep = "ratio",
    delta_share: float = 0.5,
    adjacency: Adjacency = "add_remove",
    sampling: Sampling = "independent",
) -> Calibration:
    """Return the noise multipliers of the shared and the expert stream for a total of (eps, delta).

    "basic" gives the streams (rho eps, delta_share delta) and the rest, as the paper does (theory P2). Together they
    then spend less than eps. "joint" hands that slack back (P3), in one of three ways: the noise is the least for which
    the accountant certifies eps, so what it spends is eps but for the width of the accountant's interval and the
    search's tolerance, and never more. Where that interval is so wide that the least noise found is above the basic
    split's, the basic split is returned.

    Args:
        eps: Total epsilon, above 0.
        delta: Total delta, in (0, 1); see :func:`default_delta`.
        rho: Share of epsilon given to the shared stream in the basic split, in (0, 1).
        q: Sampling probability of a record, in (0, 1]; a pair is (shared, expert).
        steps: Number of releases; a pair is (shared, expert).
        composition: "basic" or "joint".
        keep: For "joint": "ratio" scales both noises by one factor; "shared" leaves the shared noise at the basic
            split's value and lowers the experts'; "expert" is the other way round.
        delta_share: Share of delta given to the shared stream in the basic split, in (0, 1).
        adjacency: "add_remove" or "replace_one".
        sampling: "independent" samples, or "same_batch": both streams release from one sample. That is one mechanism
            (P4), so the basic split only fixes where ``keep`` starts from.

    Returns:
        The plan and what it spends, with both ends of each epsilon. A noise is at most about 1e-6 (relatively) above
        the least possible wherever the accountant's interval is that narrow, and never below it.

    Raises:
        ValueError: If an argument is outside its range, or a target outside what the accountant can certify; the
            message says which stream and which bound.

    Guarantee:
        The returned plan is certified (eps, delta)-private by the accountant that ``plan.guarantee`` uses, under the
        assumptions of :class:`RolePlan` and :func:`parallel_across_experts`.

    >>> sigma_shared, sigma_expert = calibrate_sigmas(1.0, default_delta(67349), 0.9, 1000 / 67349, 1347)
    >>> round(sigma_shared, 2), round(sigma_expert, 1)
    (2.57, 18.7)
    >>> joint = calibrate_sigmas(1.0, 1e-5, 0.9, q=1, steps=1, composition="joint", keep="shared")
    >>> round(joint.sigma_shared, 3), round(joint.sigma_expert, 3)
    (4.278, 7.621)
    """
    eps, delta = check_target(eps, delta)
    rho = number("rho", rho, "(0, 1)", hint="rho is the share of eps given to the shared stream")
    delta_share = number("delta_share", delta_share, "(0, 1)")
    choice("composition", composition, COMPOSITIONS)
    choice("keep", keep, KEEPS)
    choice("sampling", sampling, SAMPLINGS)
    adjacency = check_adjacency(adjacency)
    smallest = delta * min(delta_share, 1 - delta_share)
    if smallest < SMALLEST_DELTA:
        raise ValueError(
            f"expected each stream's share of delta >= {SMALLEST_DELTA:g}, got {smallest:g} by delta={delta:g} and "
            f"delta_share={delta_share:g}; choose a larger delta or delta_share closer to 0.5"
        )
    if sampling == "same_batch" and composition == "basic":
        raise ValueError(
            'expected composition="joint" with sampling="same_batch": two releases from one batch are a single '
            "mechanism, and adding the epsilons of two does not bound it (P4)"
        )
    start = plan_of(1.0, 1.0, q, steps, sampling)
    of = {"fix": "eps or delta, or change its share of them by rho or delta_share"}
    asked = Asked(stream="the shared stream", eps="rho * eps", delta="delta_share * delta", **of)
    shared, of_shared = _calibrated(start.shared, asked, rho * eps, delta_share * delta, adjacency)
    asked = Asked(stream="the expert stream", eps="(1 - rho) * eps", delta="(1 - delta_share) * delta", **of)
    expert, of_expert = _calibrated(start.expert, asked, (1 - rho) * eps, (1 - delta_share) * delta, adjacency)
    plan = replace(start, shared=shared, expert=expert)
    guarantees = (plan.guarantee(adjacency), of_shared, of_expert)
    if composition == "joint":
        plan, guarantees = _without_slack(plan, keep, eps, delta, adjacency)
    return Calibration(
        plan=plan,
        eps=eps,
        delta=delta,
        rho=rho,
        delta_share=delta_share,
        composition=composition,
        keep=keep if composition == "joint" else None,
        adjacency=adjacency,
        **_spending(guarantees, delta, delta_share),
    )


def hand_back_slack(basic: Calibration, keep: Keep = "ratio") -> Calibration:
    """Return the joint calibration that starts from an existing basic one, without its searches (theory P3).

    Args:
        basic: What ``calibrate_sigmas(..., composition="basic")`` returned.
        keep: As in :func:`calibrate_sigmas`.

    Raises:
        ValueError: If ``basic`` is a joint calibration, or ``keep`` is unknown.

    >>> basic = calibrate_sigmas(1.0, 1e-5, 0.9, q=1, steps=1)
    >>> joint = hand_back_slack(basic, "shared")
    >>> round(basic.epsilon, 3), round(basic.sigma_expert / joint.sigma_expert, 1)
    (0.869, 4.3)
    """
    if not isinstance(basic, Calibration):
        raise ValueError(f"expected basic to be a Calibration, got basic={shown(basic)}")
    choice("basic.composition", basic.composition, ("basic",))
    choice("keep", keep, KEEPS)
    plan, guarantees = _without_slack(basic.plan, keep, basic.eps, basic.delta, basic.adjacency)
    spent = _spending(guarantees, basic.delta, basic.delta_share)
    return replace(
        basic,
        plan=plan,
        composition="joint",
        keep=keep,
        epsilon=spent["epsilon"],
        epsilon_shared=spent["epsilon_shared"],
        epsilon_expert=spent["epsilon_expert"],
    )


def privacy_spent(
    sigma_shared: float,
    sigma_expert: float,
    q: float | tuple[float, float],
    steps: int | tuple[int, int],
    *,
    delta: float,
    adjacency: Adjacency = "add_remove",
    sampling: Sampling = "independent",
) -> Spent:
    """Return what two streams with the given noise spend; arguments as in :func:`calibrate_sigmas`.

    Raises:
        ValueError: If an argument is outside its range, or delta below what the accountant can certify.

    >>> spent = privacy_spent(2.57316138, 18.7071945, 1000 / 67349, 1347, delta=4.8846756719704545e-06)
    >>> round(spent.epsilon, 3), round(spent.epsilon_shared, 3), round(spent.epsilon_expert, 3)
    (0.87, 0.9, 0.1)
    """
    sigma_shared = number("sigma_shared", sigma_shared, NOISE_RANGE)
    sigma_expert = number("sigma_expert", sigma_expert, NOISE_RANGE)
    delta, adjacency = check_delta(delta), check_adjacency(adjacency)
    plan = plan_of(sigma_shared, sigma_expert, q, steps, sampling)
    return Spent(delta=delta, adjacency=adjacency, plan=plan, **_spending(_guarantees(plan, adjacency), delta, 0.5))


_Guarantees = tuple[Guarantee, Guarantee, Guarantee]  # of the plan, of the shared and of the expert stream


def _guarantees(plan: RolePlan, adjacency: Adjacency) -> _Guarantees:
    return plan.guarantee(adjacency), plan.shared.guarantee(adjacency), plan.expert.guarantee(adjacency)


def _spending(guarantees: _Guarantees, delta: float, delta_share: float) -> dict[str, Bound]:
    """Return what a plan and each stream alone spend, under the names of the result's fields."""
    plan, shared, expert = guarantees
    epsilon, of_shared = plan.epsilon(delta), shared.epsilon(delta_share * delta)
    of_expert = expert.epsilon((1 - delta_share) * delta)
    summed = (of_shared.upper + of_expert.upper) * (1 + 1e-15)
    if len(plan.streams) > 1 and summed < epsilon.upper:  # basic composition (P2), where the accountant is wide
        epsilon = Bound(min(epsilon.lower, summed), summed, safe="upper", method=f"sum of {epsilon.method}")
    return {"epsilon": epsilon, "epsilon_shared": of_shared, "epsilon_expert": of_expert}


def _calibrated(
    stream: SubsampledGaussian, asked: Asked, eps: float, delta: float, adjacency: Adjacency
) -> tuple[SubsampledGaussian, Guarantee]:
    """Return ``stream`` with the least noise that meets the target, and what it then guarantees."""
    noise, guarantee = least_noise(lambda x: replace(stream, noise_multiplier=x), eps, delta, adjacency, asked=asked)
    return replace(stream, noise_multiplier=noise), guarantee


def _without_slack(
    basic: RolePlan, keep: Keep, eps: float, delta: float, adjacency: Adjacency
) -> tuple[RolePlan, _Guarantees]:
    """Return ``basic`` with its noise changed, in the way ``keep`` says, until the total is just (eps, delta)."""
    ratio = basic.expert.noise_multiplier / basic.shared.noise_multiplier

    def family(noise: float) -> RolePlan:
        shared = replace(basic.shared, noise_multiplier=noise)
        if keep == "expert":
            return replace(basic, shared=shared)
        expert = replace(basic.expert, noise_multiplier=noise if keep == "shared" else noise * ratio)
        return replace(basic, expert=expert) if keep == "shared" else replace(basic, shared=shared, expert=expert)

    asked = Asked(stream=f'the joint plan with keep="{keep}"')
    both = ratio if keep == "ratio" else 1.0
    noise, guarantee = least_noise(family, eps, delta, adjacency, asked=asked, ratio=both)
    start = (basic.expert if keep == "shared" else basic.shared).noise_multiplier
    if noise > start and basic.sampling == "independent":  # by the sum of the parts ``basic`` is certified, too
        return basic, _guarantees(basic, adjacency)
    plan = family(noise)
    return plan, (guarantee, plan.shared.guarantee(adjacency), plan.expert.guarantee(adjacency))

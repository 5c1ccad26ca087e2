"""A second opinion on epsilon, from an accountant of other authors: dp-accounting's, by discretised loss and FFT."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from raptor_acct._validate import number
from raptor_acct.adjacency import Adjacency, check_adjacency
from raptor_acct.bound import Bound
from raptor_acct.mechanisms import Mechanism

Verdict = Literal["agree", "within", "referee_below", "no_answer"]

ENGINE = "dp_accounting.pld.PLDAccountant"
INTERVAL = 1e-4


def referee_epsilon(
    mechanism: Mechanism, delta: float, adjacency: Adjacency = "add_remove", interval: float = INTERVAL
) -> float:
    """Return dp-accounting's pessimistic epsilon of ``mechanism.to_dp_event()``.

    That is an upper bound in exact arithmetic. In floating point it can come out too small where delta is near or
    below the rounding of an FFT (about 1e-16 a step); infinite where delta is below the tails it truncates.

    Args:
        mechanism: A stream or plan.
        delta: In (0, 1).
        adjacency: Which data sets count as neighbours.
        interval: Width of the grid on the privacy loss, in [1e-6, 1]. Finer is tighter, and slower.

    Raises:
        ValueError: If an argument is outside its range.

    >>> from raptor_acct import SubsampledGaussian
    >>> stream = SubsampledGaussian(num_steps=10, sampling_probability=0.1, noise_multiplier=1.0)
    >>> round(referee_epsilon(stream, 1e-5), 2), round(stream.guarantee().epsilon(1e-5), 2)
    (2.85, 2.85)
    """
    delta = number("delta", delta, "(0, 1)")
    interval = number("interval", interval, "[1e-6, 1]")
    replaced = check_adjacency(adjacency) == "replace_one"
    from dp_accounting import NeighboringRelation  # here, since it takes seconds to import
    from dp_accounting.pld import PLDAccountant

    relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    return float(PLDAccountant(relation, interval).compose(mechanism.to_dp_event()).get_epsilon(delta))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Our epsilon beside the referee's, at the same delta.

    Attributes:
        epsilon: Our certified upper bound.
        lower: Our certified lower bound.
        referee: The referee's upper bound, maybe infinite.

    >>> Comparison(epsilon=1.0, lower=0.9999, referee=1.001).verdict
    'agree'
    """

    epsilon: float
    lower: float
    referee: float

    @property
    def verdict(self) -> Verdict:
        """Whether the two agree.

        "agree": the referee's bound is not below ours. "within": it lies between our two bounds, so ours is the
        looser. "referee_below": it is below our lower bound, so one of the two is wrong. "no_answer": it is infinite.
        """
        if not math.isfinite(self.referee):
            return "no_answer"
        if self.referee < self.lower:
            return "referee_below"
        return "agree" if self.epsilon <= self.referee else "within"

    @property
    def relative_difference(self) -> float:
        """How far the referee is above (or, if negative, below) our epsilon, as a part of it."""
        if self.epsilon == self.referee:
            return 0.0
        return self.referee / self.epsilon - 1 if self.epsilon else math.inf

    def explain(self) -> str:
        """Return the verdict in one line."""
        return {
            "agree": "the engines agree: the referee's upper bound is not below ours",
            "within": "the engines agree: the referee's upper bound lies between our lower and our upper bound",
            "referee_below": f"the engines DISAGREE: the referee is below our certified lower bound {self.lower:.6f}; "
            "dp_accounting's untilted FFT is known to under-report at a tiny delta",
            "no_answer": "the referee gives no finite epsilon at this delta",
        }[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; None stands for what is not finite."""
        numbers = {
            "epsilon": self.epsilon,
            "epsilon_lower": self.lower,
            "referee_epsilon": self.referee,
            "relative_difference": self.relative_difference,
        }
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {**finite, "verdict": self.verdict}


def compare(
    epsilon: Bound, mechanism: Mechanism, delta: float, adjacency: Adjacency = "add_remove", interval: float = INTERVAL
) -> Comparison:
    """Return ``epsilon``, which ``mechanism.guarantee(adjacency).epsilon(delta)`` gave, beside the referee's.

    Args and errors are those of :func:`referee_epsilon`.

    >>> from raptor_acct import SubsampledGaussian
    >>> stream = SubsampledGaussian(num_steps=10, sampling_probability=0.1, noise_multiplier=1.0)
    >>> abs(compare(stream.guarantee().epsilon(1e-5), stream, 1e-5).relative_difference) < 1e-3
    True
    """
    referee = referee_epsilon(mechanism, delta, adjacency, interval)
    return Comparison(epsilon=float(epsilon), lower=epsilon.lower, referee=referee)

"""The ROC curve of an attack, its area, and its true positive rate at any false positive rate, with exact intervals."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raptor_acct._validate import number
from raptor_acct.audit._inputs import FloatArray, error_of, scored_members
from raptor_acct.audit.binomial import clopper_pearson
from raptor_acct.audit.ceiling import tpr_ceiling
from raptor_acct.guarantee import Guarantee

TABLE_FPRS = (0.001, 0.01, 0.1)


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """One threshold of an attack: what it got on the records at hand, and what follows for others like them.

    Attributes:
        fpr_target: The false positive rate that was asked for.
        threshold: Records with a score above it are taken for members.
        false_positives: Non-members above it.
        true_positives: Members above it.
        fpr: Measured; at most ``fpr_target``.
        tpr: Measured.
        fpr_interval: Clopper and Pearson's, at ``confidence``, which holds although the same non-members chose the
            threshold, as it is one of their order statistics (proofs/a1); where non-members tie, only the upper end.
        tpr_interval: Clopper and Pearson's, at ``confidence``.
        confidence: Of each interval alone; each end of one fails with at most half of the rest.
    """

    fpr_target: float
    threshold: float
    false_positives: int
    true_positives: int
    fpr: float
    tpr: float
    fpr_interval: tuple[float, float]
    tpr_interval: tuple[float, float]
    confidence: float

    def exceeds(self, guarantee: Guarantee) -> bool:
        """Return whether the attack is above the ceiling beyond chance, which no attack can be.

        It compares the lower end of the TPR's interval with the ceiling at the upper end of the FPR's. Against a
        mechanism that keeps its guarantee the answer is yes with a chance of at most 1 - ``confidence``; if the records
        are independent, which those of a single run are only nearly.
        """
        return self.tpr_interval[0] > tpr_ceiling(guarantee, self.fpr_interval[1])

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON; the threshold is None if no record is above it."""
        return {**asdict(self), "threshold": self.threshold if math.isfinite(self.threshold) else None}


@dataclass(frozen=True, kw_only=True, eq=False)
class Roc:
    """The ROC curve of scores where higher means "member". As private as the records.

    Attributes:
        thresholds: [points], falling from infinity; a record is called a member if its score is *at least* this.
        false_positives: [points], non-members so called; from 0 to all.
        true_positives: [points], members so called. Records with the same score are called so together.
        auc: The area: the probability that a member's score is above a non-member's, ties counting half (the statistic
            of Mann and Whitney over the product of the sizes, from whole numbers).
        auc_standard_error: DeLong's, for large samples; None if there are fewer than 2 records of a kind.
    """

    thresholds: FloatArray
    false_positives: npt.NDArray[np.int64]
    true_positives: npt.NDArray[np.int64]
    auc: float
    auc_standard_error: float | None

    @property
    def num_members(self) -> int:
        """How many members were scored."""
        return int(self.true_positives[-1])

    @property
    def num_nonmembers(self) -> int:
        """How many non-members were scored."""
        return int(self.false_positives[-1])

    @property
    def fpr(self) -> FloatArray:
        """[points], false positive rates."""
        return self.false_positives / self.num_nonmembers

    @property
    def tpr(self) -> FloatArray:
        """[points], true positive rates."""
        return self.true_positives / self.num_members

    def auc_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for the population's area that needs no large sample: Hoeffding's, and so a wide one.

        Raises:
            ValueError: If ``confidence`` is outside (0, 1).

        Source: Hoeffding 1963, §5b, for U-statistics of two samples.
        """
        smaller = min(self.num_members, self.num_nonmembers)
        reach = math.sqrt(math.log(2 / error_of(confidence)) / (2 * smaller))
        return max(0.0, self.auc - reach), min(1.0, self.auc + reach)

    def tpr_at_fpr(self, fpr: float, confidence: float = 0.95) -> OperatingPoint:
        """Return the attack at the lowest threshold whose measured false positive rate is at most ``fpr``.

        Nothing is interpolated: below one false positive the threshold lies at the highest non-member, and if all
        records tie nobody is called a member.

        Raises:
            ValueError: If ``fpr`` is outside [0, 1], or ``confidence`` outside (0, 1).
        """
        target = number("fpr", fpr, "[0, 1]")
        # 0.001 of 1000 is one, whatever rounding says
        allowed = min(math.floor(target * self.num_nonmembers * (1 + 1e-12)), self.num_nonmembers)
        i = int(np.searchsorted(self.false_positives, allowed, side="right")) - 1
        false, true = int(self.false_positives[i]), int(self.true_positives[i])
        return OperatingPoint(
            fpr_target=target,
            threshold=float(self.thresholds[i + 1]) if i + 1 < len(self.thresholds) else -math.inf,
            false_positives=false,
            true_positives=true,
            fpr=false / self.num_nonmembers,
            tpr=true / self.num_members,
            fpr_interval=(
                clopper_pearson(false, self.num_nonmembers, confidence)[0],
                clopper_pearson(allowed, self.num_nonmembers, confidence)[1],
            ),
            tpr_interval=clopper_pearson(true, self.num_members, confidence),
            confidence=confidence,
        )

    def table(self, fprs: Sequence[float] = TABLE_FPRS, confidence: float = 0.95) -> list[OperatingPoint]:
        """Return the attack at each of several false positive rates."""
        return [self.tpr_at_fpr(fpr, confidence) for fpr in fprs]


def roc(scores: npt.ArrayLike, members: npt.ArrayLike) -> Roc:
    """Return the ROC curve of an attack.

    Args:
        scores: [records], higher for "member".
        members: [records], 1 for a member, 0 for a non-member; at least one each.

    Raises:
        ValueError: On shapes or values that do not fit.

    >>> curve = roc([0.9, 0.8, 0.3, 0.8, 0.2, 0.1], [1, 1, 1, 0, 0, 0])
    >>> round(curve.auc, 4), curve.fpr.round(2), curve.tpr.round(2)
    (0.8333, array([0.  , 0.  , 0.33, 0.33, 0.67, 1.  ]), array([0.  , 0.33, 0.67, 1.  , 1.  , 1.  ]))
    >>> point = curve.tpr_at_fpr(0.001)
    >>> round(point.tpr, 3), [round(end, 3) for end in point.tpr_interval]
    (0.333, [0.008, 0.906])
    """
    inside, outside = scored_members(scores, members)
    values, group = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    in_group = np.bincount(group[: inside.size], minlength=values.size)
    out_group = np.bincount(group[inside.size :], minlength=values.size)
    beaten = 2 * np.cumsum(out_group) - out_group  # twice the non-members that a member of the group beats
    beating = 2 * np.cumsum(in_group[::-1])[::-1] - in_group
    return Roc(
        thresholds=np.concatenate([[math.inf], values[::-1]]),
        false_positives=np.concatenate([[0], np.cumsum(out_group[::-1])]),
        true_positives=np.concatenate([[0], np.cumsum(in_group[::-1])]),
        auc=int((beaten * in_group).sum()) / (2 * inside.size * outside.size),
        auc_standard_error=_delong(
            np.repeat(beaten / (2 * outside.size), in_group), np.repeat(beating / (2 * inside.size), out_group)
        ),
    )


def _delong(of_members: FloatArray, of_nonmembers: FloatArray) -> float | None:
    """Return DeLong's standard error of the area, from the share of the other kind on the right side of each record."""
    if min(of_members.size, of_nonmembers.size) < 2:
        return None
    parts = (np.var(shares, ddof=1) / shares.size for shares in (of_members, of_nonmembers))
    return math.sqrt(float(sum(parts)))

"""Accuracy and loss of an adapted model of any family, with intervals.

Figures on private text carry no guarantee: they are for demonstrations and benchmarks, never released with a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from raptor_train.adapters.base import AdaptedModel
from raptor_train.evaluation import Evaluation
from raptor_train.records import Records


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a model does on some records.

    Attributes:
        nll: Negative log-likelihood of each record (of a language model, its mean over the record's tokens), nats.
        correct: Whether each record was classified correctly; None for a language model.
    """

    nll: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_] | None = None

    @property
    def mean_nll(self) -> float:
        """Mean over the records."""
        return float(self.nll.mean())

    def nll_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Normal interval of the mean."""
        half = stats.norm.ppf((1 + level) / 2) * self.nll.std(ddof=1) / np.sqrt(len(self.nll))
        return float(self.mean_nll - half), float(self.mean_nll + half)

    @property
    def evaluation(self) -> Evaluation | None:
        """Accuracy with its interval; None for a language model."""
        return None if self.correct is None else Evaluation(correct=self.correct, nll=self.mean_nll)

    def to_dict(self) -> dict[str, Any]:
        """Means and 95 % intervals, ready for JSON."""
        found: dict[str, Any] = {"records": len(self.nll), "nll": self.mean_nll, "nll_95": list(self.nll_interval())}
        if (evaluation := self.evaluation) is not None:
            found |= {"accuracy": evaluation.accuracy, "accuracy_95": list(evaluation.interval())}
        return found


def score(adapted: AdaptedModel, records: Records, *, micro_batch_size: int = 64) -> Score:
    """Evaluate an adapted model.

    Raises:
        ValueError: If there are fewer than two records: there is no interval then.
    """
    if len(records) < 2:
        raise ValueError(f"expected at least 2 records to evaluate on, got {len(records)}")
    losses = losses_by_class(adapted, records, micro_batch_size=micro_batch_size)
    if records.token_labels:
        return Score(nll=losses[:, 0].numpy())
    nll = losses.gather(1, records.labels[:, None]).squeeze(1)
    return Score(nll=nll.numpy(), correct=(losses.argmin(1) == records.labels).numpy())


@torch.no_grad()
def losses_by_class(adapted: AdaptedModel, records: Records, *, micro_batch_size: int = 64) -> Tensor:
    """Loss of each record for every class as its label, [records, classes]; for a language model [records, 1].

    A classifier's log-probability of a class is minus its loss with that class as the label, so that no family needs
    more than its losses. Float64; as private as the records.
    """
    classes = 1 if records.token_labels else adapted.num_labels
    losses = torch.zeros(len(records), classes, dtype=torch.float64)
    for positions, part in records.micro_batches(micro_batch_size):
        for c in range(classes):
            labels = part.labels if records.token_labels else torch.full_like(part.labels, c)
            losses[positions, c] = adapted.losses(replace(part, labels=labels)).double().cpu()
    return losses

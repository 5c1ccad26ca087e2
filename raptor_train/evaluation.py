"""Accuracy and loss on held-out records, with intervals.

Figures on private text carry no guarantee: they are for demonstrations and benchmarks, never released with a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How one model does on the test records.

    Attributes:
        correct: Whether each record was classified correctly, [records]. Private when the records are.
        nll: Mean negative log-likelihood, nats.
    """

    correct: npt.NDArray[np.bool_]
    nll: float

    @property
    def accuracy(self) -> float:
        """Share of correct records."""
        return float(self.correct.mean())

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Wilson score interval of the accuracy."""
        result = stats.binomtest(int(self.correct.sum()), len(self.correct))
        bounds = result.proportion_ci(confidence_level=level, method="wilson")
        return float(bounds.low), float(bounds.high)

    def minus(self, other: Evaluation, level: float = 0.95) -> tuple[float, float, float]:
        """Difference of the accuracies on the same records, with its paired normal interval: (low, middle, high)."""
        paired = self.correct.astype(float) - other.correct
        half = stats.norm.ppf((1 + level) / 2) * paired.std(ddof=1) / np.sqrt(len(paired))
        return float(paired.mean() - half), float(paired.mean()), float(paired.mean() + half)


@torch.no_grad()
def evaluate(model: EncoderClassifier, records: Records, *, micro_batch_size: int = 256) -> Evaluation:
    """Classify ``records`` in evaluation mode; the model's mode is restored."""
    was_training = model.training
    model.eval()
    logits = torch.zeros(len(records), model.head.out_features)
    for positions, part in records.micro_batches(micro_batch_size):
        logits[positions] = model(part.input_ids, part.attention_mask).float()
    model.train(was_training)
    nll = torch.nn.functional.cross_entropy(logits, records.labels)
    return Evaluation(correct=(logits.argmax(1) == records.labels).numpy(), nll=float(nll))


def train_head(model: EncoderClassifier, records: Records, *, weight_decay: float = 1e-4) -> None:
    """Fit the head alone by logistic regression on frozen features; not private, for public records."""
    with torch.no_grad():
        features = torch.zeros(len(records), model.head.in_features)
        for positions, part in records.micro_batches(256):
            features[positions] = model.features(part.input_ids, part.attention_mask)
    head = torch.nn.Linear(model.head.in_features, model.head.out_features)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(features), records.labels)
        loss = loss + weight_decay * head.weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    model.head.load_state_dict(head.state_dict())

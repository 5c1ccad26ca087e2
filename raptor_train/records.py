"""A data set as one tensor a field; a batch is the same thing with fewer rows, also with none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Records:
    """Tokenised records, right-padded.

    Attributes:
        input_ids: Token ids [records, tokens].
        attention_mask: 1 for real tokens, 0 for the padding on the right, [records, tokens].
        labels: Class indices [records].
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        ids, mask, labels = self.input_ids.shape, self.attention_mask.shape, self.labels.shape
        if len(ids) != 2 or mask != ids or labels != ids[:1]:
            raise ValueError(
                "expected input_ids and attention_mask (records, tokens) and labels (records,), "
                f"got {tuple(ids)}, {tuple(mask)} and {tuple(labels)}"
            )

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    def take(self, indices: Tensor) -> Records:
        """Return the records at ``indices`` (or where a boolean mask is true)."""
        return Records(self.input_ids[indices], self.attention_mask[indices], self.labels[indices])

    def trimmed(self) -> Records:
        """Drop the columns that are padding for every record."""
        longest = max(int(self.attention_mask.sum(1).max()), 1) if len(self) else 1
        return Records(self.input_ids[:, :longest], self.attention_mask[:, :longest], self.labels)

    def micro_batches(self, size: int) -> Iterator[tuple[Tensor, Records]]:
        """Yield (positions, records) in chunks of at most ``size`` of similar length, each trimmed."""
        by_length = self.attention_mask.sum(1).argsort(stable=True)
        for start in range(0, len(self), size):
            positions = by_length[start : start + size]
            yield positions, self.take(positions).trimmed()

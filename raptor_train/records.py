"""A data set as one tensor a field; a batch is the same thing with fewer rows, also with none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor, nn

IGNORED = -100  # label of a token that is not to be predicted, as in transformers


@dataclass(frozen=True)
class Records:
    """Tokenised records, right-padded.

    Attributes:
        input_ids: Token ids [records, tokens].
        attention_mask: 1 for real tokens, 0 for the padding on the right, [records, tokens].
        labels: Class indices [records]; for language modelling the token ids that stand at each place, or ``IGNORED``
            where none is to be predicted (a prompt, padding), [records, tokens].
        pixel_values: Images of a vision-language model, [records, tiles, channels, height, width]; None without.
            What stands in the rows of records without an image token is never looked at.
    """

    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    pixel_values: Tensor | None = None

    def __post_init__(self) -> None:
        ids, mask, labels = self.input_ids.shape, self.attention_mask.shape, self.labels.shape
        if len(ids) != 2 or mask != ids or labels not in (ids[:1], ids):
            raise ValueError(
                "expected input_ids and attention_mask (records, tokens) and labels (records,) or (records, tokens), "
                f"got {tuple(ids)}, {tuple(mask)} and {tuple(labels)}"
            )
        if (pixels := self.pixel_values) is not None and (pixels.dim() != 5 or len(pixels) != len(self)):
            raise ValueError(
                f"expected pixel_values (records={len(self)}, tiles, channels, height, width), "
                f"got {tuple(pixels.shape)}"
            )

    @classmethod
    def for_language_modelling(
        cls, input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor | None = None
    ) -> Self:
        """Records in which every real token but the first is predicted from those before it."""
        return cls(input_ids, attention_mask, input_ids.masked_fill(attention_mask != 1, IGNORED), pixel_values)

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    @property
    def token_labels(self) -> bool:
        """Whether there is a label for each token instead of one for each record."""
        return self.labels.dim() == 2

    def take(self, indices: Tensor) -> Records:
        """Return the records at ``indices`` (or where a boolean mask is true)."""
        pixels = None if self.pixel_values is None else self.pixel_values[indices]
        return Records(self.input_ids[indices], self.attention_mask[indices], self.labels[indices], pixels)

    def trimmed(self) -> Records:
        """Drop the columns that are padding for every record."""
        longest = max(int(self.attention_mask.sum(1).max()), 1) if len(self) else 1
        labels = self.labels[:, :longest] if self.token_labels else self.labels
        ids, mask = self.input_ids[:, :longest], self.attention_mask[:, :longest]
        return replace(self, input_ids=ids, attention_mask=mask, labels=labels)

    def padded(self, extra: int) -> Records:
        """Add ``extra`` columns of padding on the right."""
        ids, mask = (nn.functional.pad(x, (0, extra)) for x in (self.input_ids, self.attention_mask))
        labels = nn.functional.pad(self.labels, (0, extra), value=IGNORED) if self.token_labels else self.labels
        return replace(self, input_ids=ids, attention_mask=mask, labels=labels)

    def micro_batches(self, size: int) -> Iterator[tuple[Tensor, Records]]:
        """Yield (positions, records) in chunks of at most ``size`` of similar length, each trimmed."""
        by_length = self.attention_mask.sum(1).argsort(stable=True)
        for start in range(0, len(self), size):
            positions = by_length[start : start + size]
            yield positions, self.take(positions).trimmed()

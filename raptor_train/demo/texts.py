"""The demo's records: public review snippets, private sentences, held-out private sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from raptor_train.data import encode, load_movie_reviews, split_sentences
from raptor_train.modeling import load_demo_tokenizer
from raptor_train.records import Records


@dataclass(frozen=True)
class Texts:
    """Tokenised records.

    Attributes:
        public: One snippet of every public review, with the review's label, in a seeded order.
        private: What is trained on.
        test: What is evaluated on.
    """

    public: Records
    private: Records
    test: Records

    @property
    def probe(self) -> Records:
        """A few public records for the independence check."""
        return self.public.take(torch.arange(5)).trimmed()


def load_texts(*, max_length: int, num_private: int | None = None, num_test: int | None = None) -> Texts:
    """Read, cut and tokenise the movie reviews.

    Args:
        max_length: Tokens kept of each record.
        num_private: Private records to keep, None for all.
        num_test: Held-out records to keep, None for all.

    Raises:
        ValueError: If the data package is missing or its file is not the expected one.
    """
    reviews, tokenizer = load_movie_reviews(), load_demo_tokenizer()
    generator = np.random.default_rng(0)
    snippets = [split_sentences(text) for text in reviews.public_texts]
    order = [int(i) for i in generator.permutation(len(snippets)) if snippets[i]]
    chosen = [snippets[i][generator.integers(len(snippets[i]))] for i in order]

    def records(texts: list[str], labels: npt.NDArray[np.int64]) -> Records:
        ids, mask = encode(tokenizer, texts, max_length)
        has_token = mask[:, 0] == 1
        return Records(ids, mask, torch.from_numpy(labels)).take(has_token)

    def some(records: Records, number: int | None) -> Records:
        kept = min(number or len(records), len(records))
        return records.take(torch.arange(kept) * len(records) // kept)  # evenly: the file may be sorted by label

    return Texts(
        public=records(chosen, reviews.public_labels[order]),
        private=some(records(reviews.private_texts, reviews.private_labels), num_private),
        test=some(records(reviews.test_texts, reviews.test_labels), num_test),
    )

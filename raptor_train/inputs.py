"""From a configuration to tokenised records and a fresh model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from raptor_train.config import RunConfig
from raptor_train.models import Encode, load_model, load_tokenizer
from raptor_train.records import Records
from raptor_train.tables import Table, overlap, repeats
from raptor_train.tasks import TaskTexts, class_names, load_texts, read_public, read_test

# Of different length and by nobody in particular: what the independence check runs, whatever the data.
_PROBE = (
    "Yes.",
    "The river was quiet that morning.",
    "A long walk through the old town ended, as it often did, at the harbour, where two boats were unloading.",
    "Which of the two?",
)


@dataclass(frozen=True, kw_only=True)
class PublicRecords:
    """Public text, tokenised.

    Attributes:
        records: In an order of no meaning; the labels are 0 where ``labelled`` is false.
        labelled: Whether they have labels of the task, so that gradients can be measured on them.
        source: Where they come from.
    """

    records: Records
    labelled: bool
    source: str


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run works on.

    Attributes:
        private: What is trained on. Private.
        test: Held-out records, as private; None without any.
        public: Public records; None without any.
        probe: A few fixed sentences for the independence check. Public.
        label_names: The classes; empty for language modelling. Public.
    """

    private: Records
    test: Records | None
    public: PublicRecords | None
    probe: Records
    label_names: tuple[str, ...]


def load_inputs(config: RunConfig, *, echo: Callable[[str], None] | None = None) -> Inputs:
    """Read, check and tokenise all texts of a configuration.

    Args:
        config: What to read.
        echo: Where the private counts go that ``data.count_duplicates`` asks for: the user's terminal, never a file.

    Raises:
        OSError: If a file cannot be read.
        ValueError: Naming what is missing or wrong.
    """
    texts = load_texts(config.data, labelled=_classifies(config), num_labels=config.model.num_labels)
    if config.data.count_duplicates and echo is not None:
        echo(_duplicates(texts))
    encode, names = load_tokenizer(config.model), texts.label_names
    probe = Table(name="probe", texts=tuple((text,) * len(texts.private.texts[0]) for text in _PROBE))
    return Inputs(
        private=to_records(texts.private, encode, config, names),
        test=None if texts.test is None else to_records(texts.test, encode, config, names),
        public=None if texts.public is None else _public(texts.public, encode, config, names),
        probe=to_records(probe, encode, config, names),
        label_names=names,
    )


def _duplicates(texts: TaskTexts) -> str:
    """How many texts are there twice, in words that say what that means. Private."""
    words = (
        f"NOT PRIVATE, not for release: {len(repeats(texts.private))} of {len(texts.private)} private records repeat "
        "an earlier text; epsilon is for one record, so what stands m times has less protection"
    )
    if texts.test is not None:
        words += (
            f"; {len(overlap(texts.test, texts.private))} of {len(texts.test)} held-out texts are trained on too, so "
            "their score may be too good"
        )
    return words


def load_public(config: RunConfig) -> tuple[PublicRecords, tuple[str, ...]]:
    """Read and tokenise the public texts alone.

    Returns:
        The records and the names of the classes, as far as they have labels.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If there are none.
    """
    table = read_public(config.data)
    names: tuple[str, ...] = ()
    if _classifies(config) and table.labels is not None:
        names = class_names(table, config.data.task, config.model.num_labels)
    return _public(table, load_tokenizer(config.model), config, names), names


def _public(table: Table, encode: Encode, config: RunConfig, label_names: Sequence[str]) -> PublicRecords:
    records = to_records(table.sample(config.data.max_public), encode, config, label_names)
    labelled = not _classifies(config) or table.labels is not None
    return PublicRecords(records=records, labelled=labelled, source=table.name)


def load_test(config: RunConfig, label_names: Sequence[str]) -> Records:
    """Read and tokenise the held-out records alone.

    Raises:
        ValueError: If there are none, or their labels are not those of the run.
    """
    test = read_test(config.data, label_names)
    return to_records(test, load_tokenizer(config.model), config, label_names)


def to_records(table: Table, encode: Encode, config: RunConfig, label_names: Sequence[str]) -> Records:
    """Tokenise a table; records without a token are dropped, and labels are 0 where there are none."""
    ids, mask = encode(table.texts, config.data.max_length)
    if not _classifies(config):
        records = Records.for_language_modelling(ids, mask)
    else:
        place = {name: i for i, name in enumerate(label_names)}
        labels = [0] * len(table) if table.labels is None else [place[name] for name in table.labels]
        records = Records(ids, mask, torch.tensor(labels, dtype=torch.int64))
    kept = records.take(mask[:, 0] == 1)
    if not len(kept):
        raise ValueError(f"{table.name}: expected records with at least one token, got none")
    return kept


def fresh_model(config: RunConfig, label_names: Sequence[str]) -> nn.Module:
    """The starting model, the same at every call."""
    return load_model(config.model, num_labels=max(len(label_names), 2), seed=config.training.seed)


def _classifies(config: RunConfig) -> bool:
    return config.model.objective == "classification"

"""Private, held-out and public texts by the name of a task, from local files; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raptor_acct._validate import shown
from raptor_train.config import DataConfig
from raptor_train.data import load_movie_reviews, split_sentences
from raptor_train.tables import Table, Text, overlap, read_table


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is known of a task's files.

    Attributes:
        texts: Columns of the text; of several possibilities, the first that a file has.
        label: Columns of the label, likewise.
        labels: The names of the classes, in order; of several possibilities, the first that a file fits. Public.
    """

    texts: tuple[Text, ...]
    label: tuple[str, ...] = ("label",)
    labels: tuple[tuple[str, ...], ...] = ()


BUILT_IN = "movie_reviews"  # the demo's: private Rotten Tomatoes sentences, public snippets of IMDb reviews
_PAIR = ("text_a", "text_b")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "neutral", "contradiction")
TASKS = {
    "sst2": Task(texts=(("sentence",),), labels=(_BINARY,)),
    "qnli": Task(texts=(("question", "sentence"), _PAIR), labels=(("entailment", "not_entailment"), _BINARY)),
    "qqp": Task(texts=(("question1", "question2"), _PAIR), label=("is_duplicate", "label"), labels=(_BINARY,)),
    "mnli": Task(
        texts=(("premise", "hypothesis"), ("sentence1", "sentence2"), _PAIR),
        label=("label", "gold_label"),
        labels=(_ENTAILMENT, ("0", "1", "2")),
    ),
    "imdb": Task(texts=(("text",),), labels=(_BINARY,)),
    "rt_polarity": Task(texts=(("sentence",), ("text",)), labels=(_BINARY,)),
    "text": Task(texts=(("text",),)),
    BUILT_IN: Task(texts=(("text",),), labels=(_BINARY,)),
}
_TEST_NAMES = ("dev", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class TaskTexts:
    """All texts of a run.

    Attributes:
        private: What is trained on. Private.
        test: Held-out records, as private as they are; None without any.
        public: Public text; None without any.
        label_names: The classes in the order of their numbers; empty for language modelling. Public.
    """

    private: Table
    test: Table | None
    public: Table | None
    label_names: tuple[str, ...]


def load_texts(data: DataConfig, *, labelled: bool = True, num_labels: int | None = None) -> TaskTexts:
    """Read the texts of a configuration, and keep private and public text apart.

    Args:
        data: Files, columns and what to do about overlaps.
        labelled: False for language modelling, where labels are not read.
        num_labels: The number of classes, where the task's name does not say it.

    Raises:
        OSError: If a file cannot be read.
        ValueError: Naming what is missing or unexpected; if private records are public text too.
    """
    if data.task == BUILT_IN:
        parts: tuple[Table, Table | None, Table | None] = movie_reviews()
    else:
        parts = _from_files(data, labelled)
    private, test, public = parts
    if data.max_records is not None:
        private = private.sample(data.max_records)
    private = _apart(private, public, data.overlap)
    names = class_names(private, data.task, num_labels) if labelled else ()
    for table in (test, public):
        if table is not None and table.labels is not None and labelled:
            _check_labels(table, names)
    return TaskTexts(private=private, test=test, public=public, label_names=names)


def class_names(table: Table, task: str | None, num_labels: int | None) -> tuple[str, ...]:
    """The classes by name: the task's, where it is known, else those that occur, in order.

    Raises:
        ValueError: If there are fewer than two, or others than the configuration says.
    """
    occurring = set(table.labels or ())
    known = next((names for names in _task(task).labels if occurring <= set(names)), None)
    if known is None and _task(task).labels:
        raise ValueError(f"{table.name}: expected labels {_task(task).labels[0]} of {task}, got {_some(occurring)}")
    names = known or tuple(
        sorted(occurring, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
    )
    if len(names) < 2 or (num_labels is not None and num_labels != len(names)):
        wanted = f"{num_labels} labels" if num_labels else "at least 2 different labels"
        raise ValueError(f"{table.name}: expected {wanted}, got {_some(names)}")
    return names


def _apart(private: Table, public: Table | None, what_to_do: str) -> Table:
    """``private`` without the records that are public text, or an error: what is public can no longer be protected."""
    shared = overlap(private, public) if public is not None and what_to_do != "ignore" else []
    if shared and what_to_do == "refuse":
        raise ValueError(
            f"{len(shared)} of {len(private)} private records are public text too, for example at place {shared[0]}: "
            "drop them with --overlap drop, or ignore it with --overlap ignore"
        )
    return private.take(sorted(set(range(len(private))) - set(shared))) if shared else private


def _from_files(data: DataConfig, labelled: bool) -> tuple[Table, Table | None, Table | None]:
    train = data.train or _in_folder(data, ("train",))
    if train is None:
        raise ValueError(
            f"expected private records: --train FILE, or --data FOLDER with a train file, got {data.folder}"
        )
    private = read_table(train, *_columns(data, labelled))
    return private, _held_out(data, labelled), read_public(data) if data.public else None


def read_test(data: DataConfig, label_names: Sequence[str]) -> Table:
    """Read the held-out records alone; without class names their labels are not read.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If there are none, or they have other labels.
    """
    test = movie_reviews()[1] if data.task == BUILT_IN and data.test is None else _held_out(data, bool(label_names))
    if test is None:
        raise ValueError("expected held-out records, got none: --test FILE")
    if label_names:
        _check_labels(test, label_names)
    return test


def _held_out(data: DataConfig, labelled: bool) -> Table | None:
    test = data.test or _in_folder(data, _TEST_NAMES)
    return read_table(test, *_columns(data, labelled)) if test else None


def _columns(data: DataConfig, labelled: bool) -> tuple[Sequence[Text], Sequence[str]]:
    """Possible columns of the text and of the label."""
    task = _task(data.task)
    texts = (tuple(data.text_column.split(",")),) if data.text_column else task.texts
    label = (data.label_column,) if data.label_column else task.label
    return texts, label if labelled else ()


def read_public(data: DataConfig) -> Table:
    """Read the public file; its labels are read where it has them.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it has no text column.
    """
    if data.public is None and data.task == BUILT_IN:
        return movie_reviews()[2]
    if data.public is None:
        raise ValueError("expected public text, got none: --public FILE")
    task = _task(data.task)
    column = data.public_text_column or data.text_column
    texts = (tuple(column.split(",")),) if column else (*task.texts, ("text",), ("sentence",))
    named = data.public_label_column or data.label_column
    label = (named,) if named else task.label
    try:
        return read_table(data.public, texts, label)
    except ValueError:
        if data.public_label_column:
            raise
        return read_table(data.public, texts)


def _task(name: str | None) -> Task:
    if name is None:
        return TASKS["text"]
    if name not in TASKS:
        raise ValueError(f"expected task to be one of {', '.join(TASKS)}, got task={shown(name)}")
    return TASKS[name]


def _in_folder(data: DataConfig, stems: Sequence[str]) -> Path | None:
    if data.folder is None:
        return None
    folder = Path(data.folder)
    if not folder.is_dir():
        raise ValueError(f"expected a folder, got --data {folder}")
    files = {path.name.partition(".")[0]: path for path in sorted(folder.iterdir(), reverse=True) if path.is_file()}
    return next((files[stem] for stem in stems if stem in files), None)


def _check_labels(table: Table, names: Sequence[str]) -> None:
    unknown = set(table.labels or ()) - set(names)
    if unknown:
        raise ValueError(f"{table.name}: expected labels {_some(names)}, got {_some(unknown)}")


def movie_reviews() -> tuple[Table, Table, Table]:
    """The demo's private, held-out and public texts."""
    reviews = load_movie_reviews()
    generator = np.random.default_rng(0)
    snippets = [split_sentences(text) for text in reviews.public_texts]
    order = [int(i) for i in generator.permutation(len(snippets)) if snippets[i]]

    def table(name: str, texts: Sequence[str], labels: Sequence[int]) -> Table:
        return Table(name=name, texts=tuple((text,) for text in texts), labels=tuple(str(int(y)) for y in labels))

    return (
        table("Rotten Tomatoes", reviews.private_texts, list(reviews.private_labels)),
        table("Rotten Tomatoes, held out", reviews.test_texts, list(reviews.test_labels)),
        table(
            "IMDb snippets",
            [snippets[i][generator.integers(len(snippets[i]))] for i in order],
            [reviews.public_labels[i] for i in order],
        ),
    )


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

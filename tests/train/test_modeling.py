"""The classifier: a head that starts at zero, and files that come back as they were."""

from pathlib import Path

import pytest
import torch

from raptor_train.modeling import DEMO_DIR, EncoderClassifier, load_demo_model

from .conftest import random_records, tiny_classifier


def test_the_start_is_chance() -> None:
    model, records = tiny_classifier().eval(), random_records(4)
    assert not model(records.input_ids, records.attention_mask).any()


def test_saved_and_loaded_models_agree(tmp_path: Path) -> None:
    model, records = tiny_classifier().eval(), random_records(4)
    model.half().float()  # what the file can hold
    torch.nn.init.normal_(model.head.weight)
    model.head.half().float()
    model.save_pretrained(tmp_path, with_head=True)
    loaded = EncoderClassifier.from_pretrained(tmp_path, num_labels=3)
    assert torch.equal(
        loaded(records.input_ids, records.attention_mask), model(records.input_ids, records.attention_mask)
    )
    assert loaded.encoder.encoder.embed_tokens.weight is loaded.encoder.shared.weight
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_public_body_is_saved_without_the_private_head(tmp_path: Path) -> None:
    model = tiny_classifier()
    torch.nn.init.normal_(model.head.weight)
    model.save_pretrained(tmp_path)
    assert not EncoderClassifier.from_pretrained(tmp_path, num_labels=3).head.weight.any()


def test_what_is_missing_or_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json"):
        EncoderClassifier.from_pretrained(tmp_path)
    tiny_classifier().save_pretrained(tmp_path, with_head=True)
    with pytest.raises(ValueError, match="does not fit"):
        EncoderClassifier.from_pretrained(tmp_path, num_labels=7)


def test_the_shipped_files_are_small_and_complete() -> None:
    files = {path.name: path.stat().st_size for path in DEMO_DIR.iterdir()}
    assert set(files) == {"config.json", "model.safetensors", "tokenizer.json", "pretraining.json"}
    assert sum(files.values()) < 10_000_000
    assert not load_demo_model().head.weight.any()

"""The classifier: a head that starts at zero, and files that come back as they were."""

import pickle
from pathlib import Path

import pytest
import torch

from raptor_train.adapters.switch import sparse_blocks
from raptor_train.evaluation import evaluate
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


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(marker), "w")

    tiny_classifier().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.pt", "model.safetensors"):
        (tmp_path / name).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match="no safetensors file"):
        EncoderClassifier.from_pretrained(tmp_path)
    assert not marker.exists()


def test_evaluation_is_repeatable_and_leaves_the_mode_as_it_was() -> None:
    model, records = tiny_classifier(dropout_rate=0.5), random_records(8)
    torch.nn.init.normal_(model.head.weight)
    model.train()
    first, second = evaluate(model, records), evaluate(model, records)
    assert first.nll == second.nll
    assert model.training


def test_a_model_without_a_router_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Linear"):
        sparse_blocks(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has no sparse layer"):
        sparse_blocks(tiny_classifier(encoder_sparse_step=0))

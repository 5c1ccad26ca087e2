"""A tiny model in a folder, tiny text files, and configurations of runs on them."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, SwitchTransformersConfig

from raptor_train.config import RunConfig
from raptor_train.settings import with_changes

WORDS = [f"w{i}" for i in range(46)]


def write_tokenizer(folder: Path) -> None:
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)


def switch_folder(folder: Path) -> Path:
    """Configuration and tokenizer of a tiny Switch encoder with sparse blocks 1 and 3."""
    folder.mkdir()
    SwitchTransformersConfig(
        vocab_size=50,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_heads=2,
        num_layers=4,
        num_sparse_encoder_layers=2,
        num_experts=4,
    ).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_texts(path: Path, num_records: int, seed: int) -> Path:
    """Sentences whose label is whether their first word is one of the first half of the vocabulary."""
    generator = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["sentence", "label"])
        for _ in range(num_records):
            words = [generator.choice(WORDS) for _ in range(generator.randint(3, 9))]
            writer.writerow([" ".join(words), str(int(int(words[0][1:]) < len(WORDS) // 2))])
    return path


def tiny_settings(folder: Path) -> dict[str, Any]:
    """Settings of a run of three steps on all 60 records each, q = 1, which is the quickest to account for."""
    return {
        "model": {"name": str(switch_folder(folder / "model")), "random_weights": True},
        "data": {
            "task": "sst2",
            "train": str(write_texts(folder / "train.tsv", 60, seed=0)),
            "test": str(write_texts(folder / "dev.tsv", 30, seed=1)),
            "public": str(write_texts(folder / "public.tsv", 40, seed=2)),
            "max_length": 12,
        },
        "shared": {"rank": 2},
        "expert": {"rank": 2},
        "privacy": {"delta": 1e-3},
        "training": {"batch_size": 60, "steps": 3, "rehearsal_steps": 2, "learning_rate": 0.01},
    }


def configured(settings: dict[str, Any], **changes: Any) -> RunConfig:
    """``settings`` with changes by dotted names, dots written as two underscores."""
    return RunConfig.from_dict(with_changes(settings, {k.replace("__", "."): v for k, v in changes.items()}))

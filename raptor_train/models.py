"""Models and tokenizers by name: the packaged demo, a local folder, or a configuration with random weights.

Nothing is downloaded: a name of the hub must be in transformers' cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    SwitchTransformersConfig,
    SwitchTransformersEncoderModel,
)

from raptor_train.adapters.families import OlmoeForSequenceClassification
from raptor_train.config import ModelConfig
from raptor_train.configurations import CONFIGURATIONS, configuration
from raptor_train.data import encode
from raptor_train.modeling import DEMO_DIR, EncoderClassifier, load_demo_model, load_demo_tokenizer

DEMO = "demo"
Encode = Callable[[Sequence[tuple[str, ...]], int], tuple[Tensor, Tensor]]


def load_model(model: ModelConfig, *, num_labels: int, seed: int = 0) -> nn.Module:
    """Load a model for the objective, in float32 and evaluation mode.

    Args:
        model: Name, objective, and whether the weights are random.
        num_labels: Classes of the head.
        seed: Seed of random weights and of a new head.

    Raises:
        ValueError: If there is no such model, or it is of a family without an adapter.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if model.name == DEMO:
            _check_encoder(model)
            return (
                _random_encoder(_read_config(DEMO_DIR), num_labels)
                if model.random_weights
                else load_demo_model(num_labels)
            )
        config = _config(model)
        if isinstance(config, SwitchTransformersConfig):
            _check_encoder(model)
            return _switch(model, config, num_labels).float().eval()
        return _decoder(model, config, num_labels).float().eval()


def load_tokenizer(model: ModelConfig) -> Encode:
    """Return a function from texts and a length to right-padded ids and mask, [records, tokens].

    Raises:
        ValueError: If the model has no tokenizer.
    """
    if model.name == DEMO or (model.name in CONFIGURATIONS and model.random_weights):
        demo = load_demo_tokenizer()
        return lambda texts, max_length: encode(demo, [" ".join(text) for text in texts], max_length)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model.name, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{model.name}: expected a tokenizer beside the model, got none ({_first(error)})") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    tokenizer.padding_side = "right"  # padding on the left changes the routing

    def encoded(texts: Sequence[tuple[str, ...]], max_length: int) -> tuple[Tensor, Tensor]:
        columns = [list(column) for column in zip(*texts, strict=True)]
        batch = tokenizer(*columns, truncation=True, max_length=max_length, padding="max_length", return_tensors="pt")
        return batch["input_ids"], batch["attention_mask"]

    return encoded


def _config(model: ModelConfig) -> PreTrainedConfig:
    if model.random_weights and model.name in CONFIGURATIONS:
        return configuration(model.name)
    return _read_config(model.name)


def _read_config(name: str | Path) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"expected model to be {DEMO}, a folder with config.json, a name in transformers' cache or, with "
            f"random_weights, one of {', '.join(CONFIGURATIONS)}; got model={str(name)!r} ({_first(error)})"
        ) from None
    return config


def _check_encoder(model: ModelConfig) -> None:
    if model.objective != "classification":
        raise ValueError("expected objective='classification' for a Switch encoder, got objective='language_model'")


def _random_encoder(config: PreTrainedConfig, num_labels: int) -> EncoderClassifier:
    return EncoderClassifier(config, num_labels).eval()  # type: ignore[arg-type]


def _switch(model: ModelConfig, config: SwitchTransformersConfig, num_labels: int) -> EncoderClassifier:
    if model.random_weights:
        return _random_encoder(config, num_labels)
    if _is_classifier(Path(model.name)):
        return EncoderClassifier.from_pretrained(model.name, num_labels)
    found = _random_encoder(config, num_labels)
    found.encoder = _pretrained(SwitchTransformersEncoderModel, model.name)
    return found


def _is_classifier(folder: Path) -> bool:
    """Whether the folder is one that :meth:`EncoderClassifier.save_pretrained` wrote."""
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return False
    with safe_open(weights, "pt") as file:
        return "feature_mean" in file.keys()  # noqa: SIM118 (a safetensors file is no mapping)


def _decoder(model: ModelConfig, config: PreTrainedConfig, num_labels: int) -> nn.Module:
    config.num_labels = num_labels
    automatic: Any = AutoModelForCausalLM
    if model.objective == "classification":
        olmoe = config.model_type == "olmoe"
        automatic = OlmoeForSequenceClassification if olmoe else AutoModelForSequenceClassification
    if not model.random_weights:
        found: nn.Module = _pretrained(automatic, model.name, config=config)
        return found
    make = automatic.from_config if hasattr(automatic, "from_config") else automatic
    made: nn.Module = make(config)
    return made


def _pretrained(kind: Any, name: str, **settings: Any) -> Any:
    try:
        return kind.from_pretrained(name, dtype=torch.float32, local_files_only=True, **settings)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected weights for {kind.__name__}, got none ({_first(error)})") from None


def _first(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]

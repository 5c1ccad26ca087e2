"""Trained adapters on disk: merged into a plain model, or in the format of peft."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
)

from raptor_train.adapters import DecoderModel, Lora, adapt
from raptor_train.modeling import EncoderClassifier

from .conftest import adapt as adapt_switch
from .conftest import random_records, randomise
from .family_models import DECODERS, EXPERTS, LAYER, TASKS, adapt_decoder, logits, records_for, tiny_decoder

EVERY_FAMILY = pytest.mark.parametrize("family", DECODERS)
BOTH_TASKS = pytest.mark.parametrize("task", TASKS)


@BOTH_TASKS
@EVERY_FAMILY
def test_merged_weights_reload_to_the_same_logits(family: str, task: str, tmp_path: Path) -> None:
    adapted, records = adapt_decoder(family, task), records_for(task)
    randomise(adapted)
    trained = logits(adapted.model, records)
    merged = adapted.merged()
    merged.save_pretrained(tmp_path)
    reloaded = type(merged).from_pretrained(tmp_path).eval()
    assert torch.allclose(logits(reloaded, records), trained, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(adapted.model, records), trained)  # the adapted model goes on as it was
    assert not torch.allclose(logits(adapted.detach(), records), trained, rtol=1e-2, atol=1e-2)


def peft_deltas(directory: Path, num_experts: int) -> dict[str, Tensor]:
    """What peft adds to each weight, by its documented rules, read from the files alone."""
    config = json.loads((directory / "adapter_config.json").read_text())
    tensors = load_file(directory / "adapter_model.safetensors")

    def factors(name: str, level: str = "") -> tuple[Tensor, Tensor]:
        return tuple(tensors.pop(f"base_model.model.{name}{level}.lora_{x}.weight").double() for x in "AB")

    deltas = {}
    whole = [name.removesuffix(".weight") for name in config["target_parameters"] if name.endswith(".weight")]
    for name in config["target_modules"] + whole:
        down, up = factors(name)
        deltas[name + ".weight"] = config["lora_alpha"] / config["r"] * up @ down
    for name in config["rank_pattern"]:
        module, _, parameter = name.rpartition(".")
        down, up = factors(module, ".base_layer" if parameter == "gate_up_proj" else "")
        down, up = down.reshape(num_experts, -1, down.shape[1]), up.reshape(len(up), -1, num_experts)
        scale = config["alpha_pattern"][name] / config["rank_pattern"][name]
        deltas[name] = scale * torch.einsum("ore,eri->eoi", up, down)
    assert list(tensors) == [f"base_model.model.{name}.weight" for name in config["modules_to_save"] or []]
    return deltas


@BOTH_TASKS
@EVERY_FAMILY
def test_an_adapter_in_pefts_format_holds_what_merging_adds(family: str, task: str, tmp_path: Path) -> None:
    model = tiny_decoder(family, task).double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapted = adapt(model, expert_layers=[LAYER], shared=Lora(rank=3, scale=0.7), expert=Lora(rank=2, scale=0.4))
    assert isinstance(adapted, DecoderModel)
    randomise(adapted)
    adapted.save_adapter(tmp_path)
    deltas = peft_deltas(tmp_path, EXPERTS)
    after = dict(adapted.merged().named_parameters())
    changed = {name for name, p in after.items() if not torch.equal(p, before[name])}
    assert changed == set(deltas) | ({"score.weight"} if task == "classification" else set())
    for name, delta in deltas.items():
        assert torch.allclose(after[name] - before[name], delta, rtol=1e-9, atol=1e-12)


def test_a_merged_switch_model_has_the_same_logits() -> None:
    adapted, records = adapt_switch(), random_records()
    randomise(adapted)
    trained = adapted.model(records.input_ids, records.attention_mask)
    merged = adapted.merged()
    assert isinstance(merged, EncoderClassifier)
    assert torch.allclose(merged(records.input_ids, records.attention_mask), trained, rtol=1e-4, atol=1e-5)


def test_merged_weights_of_a_language_model_generate() -> None:
    merged = adapt_decoder("mixtral", "language model").merged()
    assert isinstance(merged, AutoModelForCausalLM._model_mapping[type(merged.config)])
    assert merged.generate(torch.tensor([[3, 4]]), max_new_tokens=2, do_sample=False).shape == (1, 4)

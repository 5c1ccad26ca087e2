"""Tiny models with random weights of every decoder family, and records for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV2ForSequenceClassification,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DeepseekV3ForSequenceClassification,
    MixtralConfig,
    MixtralForCausalLM,
    MixtralForSequenceClassification,
    OlmoeConfig,
    OlmoeForCausalLM,
    PreTrainedModel,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen2MoeForSequenceClassification,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3MoeForSequenceClassification,
)

from raptor_train.adapters import DecoderModel, Lora, adapt
from raptor_train.adapters.families import OlmoeForSequenceClassification
from raptor_train.adapters.vision_language import (
    DeepseekVL2Config,
    DeepseekVL2ForCausalLM,
    DeepseekVL2ForSequenceClassification,
)
from raptor_train.records import Records

from .conftest import random_records

EXPERTS = 9
LAYER = 1  # the only layer tested that is sparse in every family and has attention above it
DECODERS = ("olmoe", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
TASKS = ("classification", "language model")

_SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "num_labels": 3,
}
_LATENT: dict[str, Any] = {  # multi-head latent attention, one dense layer
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 2,
    "intermediate_size": 20,
    "moe_intermediate_size": 8,
    "n_group": 1,
    "topk_group": 1,
}
_QWEN: dict[str, Any] = {
    "num_experts": EXPERTS,
    "intermediate_size": 20,
    "moe_intermediate_size": 8,
    "mlp_only_layers": [0],
}
_FAMILIES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "olmoe": (
        OlmoeConfig,
        OlmoeForSequenceClassification,
        OlmoeForCausalLM,
        {"intermediate_size": 8, "num_experts": 9},
    ),
    "mixtral": (
        MixtralConfig,
        MixtralForSequenceClassification,
        MixtralForCausalLM,
        {"intermediate_size": 8, "num_local_experts": EXPERTS},
    ),
    "qwen2_moe": (
        Qwen2MoeConfig,
        Qwen2MoeForSequenceClassification,
        Qwen2MoeForCausalLM,
        {**_QWEN, "shared_expert_intermediate_size": 12},
    ),
    "qwen3_moe": (
        Qwen3MoeConfig,
        Qwen3MoeForSequenceClassification,
        Qwen3MoeForCausalLM,
        {**_QWEN, "num_local_experts": EXPERTS, "norm_topk_prob": True, "head_dim": 8},
    ),
    "deepseek_v2": (
        DeepseekV2Config,
        DeepseekV2ForSequenceClassification,
        DeepseekV2ForCausalLM,
        {**_LATENT, "q_lora_rank": None, "routed_scaling_factor": 1.5},
    ),
    "deepseek_v3": (
        DeepseekV3Config,
        DeepseekV3ForSequenceClassification,
        DeepseekV3ForCausalLM,
        {**_LATENT, "q_lora_rank": 6},
    ),
    "deepseek_vl_v2": (
        DeepseekVL2Config,
        DeepseekVL2ForSequenceClassification,
        DeepseekVL2ForCausalLM,
        {
            "vocab_size": 51,
            "head_dim": 8,
            "n_routed_experts": EXPERTS,
            "n_shared_experts": 2,
            "intermediate_size": 20,
            "moe_intermediate_size": 8,
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "image_token_id": 50,
            "tile_grid": (1, 2),
            "vision_config": {
                "hidden_size": 8,
                "intermediate_size": 12,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 6,
                "patch_size": 2,
                "vision_use_head": False,
            },
        },
    ),
}


def tiny_decoder(family: str, task: str = "classification", *, top_k: int = 2, **changes: Any) -> PreTrainedModel:
    """A random model whose router prefers different experts for different tokens."""
    config_class, classifier, language_model, settings = _FAMILIES[family]
    config = config_class(**{**_SIZES, **settings, "num_experts_per_tok": top_k, **changes})
    torch.manual_seed(0)
    model: PreTrainedModel = (classifier if task == "classification" else language_model)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=2 / parameter.shape[-1] ** 0.5)
            elif "bias" in name:
                parameter.normal_(std=0.1)
        for name, buffer in model.named_buffers():
            if "e_score_correction_bias" in name:
                buffer.normal_(std=0.1)
    return model.eval()


def adapt_decoder(family: str, task: str = "classification", *, rank: int = 3, **changes: Any) -> DecoderModel:
    lora = Lora(rank=rank, scale=0.7)
    model = tiny_decoder(family, task, **changes)
    adapted = adapt(model, expert_layers=[LAYER], shared=lora, expert=lora)
    assert isinstance(adapted, DecoderModel)
    return adapted


def records_for(task: str, num_records: int = 8, num_tokens: int = 10, seed: int = 0) -> Records:
    """Random records; of a language model's, the first has a prompt that is not predicted."""
    records = random_records(num_records, num_tokens, seed)
    if task == "classification":
        return records
    records = Records.for_language_modelling(records.input_ids, records.attention_mask)
    records.labels[0, :4] = -100
    return records


@torch.no_grad()
def logits(model: Any, records: Records) -> Tensor:
    found: Tensor = model(input_ids=records.input_ids, attention_mask=records.attention_mask).logits
    return found

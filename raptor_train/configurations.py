"""Published sizes of the model families, by their names on the hub: to count parameters and to measure time.

A run on one of them needs the weights in transformers' cache, or ``random_weights``. Values that a transformers
configuration class has by default are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    MixtralConfig,
    OlmoeConfig,
    PreTrainedConfig,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
    SwitchTransformersConfig,
)

_LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}

CONFIGURATIONS: Mapping[str, tuple[type[PreTrainedConfig], Mapping[str, Any]]] = {
    "google/switch-base-8": (
        SwitchTransformersConfig,
        {
            "vocab_size": 32128,
            "d_model": 768,
            "d_kv": 64,
            "d_ff": 3072,
            "num_layers": 12,
            "num_sparse_encoder_layers": 6,
            "num_heads": 12,
            "num_experts": 8,
            "expert_capacity": 64,
        },
    ),
    "allenai/OLMoE-1B-7B-0924": (
        OlmoeConfig,
        {
            "vocab_size": 50304,
            "hidden_size": 2048,
            "intermediate_size": 1024,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "norm_topk_prob": False,
        },
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        MixtralConfig,
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "Qwen/Qwen1.5-MoE-A2.7B": (
        Qwen2MoeConfig,
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "norm_topk_prob": False,
        },
    ),
    "Qwen/Qwen3-30B-A3B": (
        Qwen3MoeConfig,
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
        },
    ),
    "deepseek-ai/DeepSeek-V2-Lite": (
        DeepseekV2Config,
        {
            **_LATENT,
            "vocab_size": 102400,
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "q_lora_rank": None,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
            "n_routed_experts": 64,
            "num_experts_per_tok": 6,
            "topk_method": "greedy",
            "routed_scaling_factor": 1.0,
            "norm_topk_prob": False,
        },
    ),
    "deepseek-ai/DeepSeek-V3": (
        DeepseekV3Config,
        {
            **_LATENT,
            "vocab_size": 129280,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "q_lora_rank": 1536,
            "first_k_dense_replace": 3,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "n_group": 8,
            "topk_group": 4,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
        },
    ),
}


def configuration(name: str) -> PreTrainedConfig:
    """A fresh configuration of that size.

    Raises:
        KeyError: If the name is not among :data:`CONFIGURATIONS`.
    """
    kind, settings = CONFIGURATIONS[name]
    return kind(**settings)

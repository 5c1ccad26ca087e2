"""Adapters on disk in the format of the peft library (0.17 or later, which can adapt fused expert tensors)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from raptor_train.adapters.fused_experts import ByRecord, LoraExperts
from raptor_train.lora import LoraLinear

_PREFIX = "base_model.model."
# peft wraps a module's fused tensors one around the other: the first tensor's adapter lies under the second's.
_FUSED = {"gate_up_proj": ("gate_up", ".base_layer"), "down_proj": ("down", "")}


def save_adapter(model: PreTrainedModel, directory: str | Path) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors`` of an adapted decoder.

    ``peft.PeftModel.from_pretrained(base, directory)`` reads them onto the model that was adapted. In a private run
    the tensors are releases.

    Args:
        model: A decoder while it is adapted.
        directory: Made when it does not exist.
    """
    tensors, config = _contents(model)
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: t.detach().cpu().contiguous() for name, t in tensors.items()}, target / "adapter_model.safetensors"
    )
    (target / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _contents(model: PreTrainedModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    linears = {name: module.lora for name, module in model.named_modules() if isinstance(module, ByRecord)}
    fused = {name: module for name, module in model.named_modules() if isinstance(module, LoraExperts)}
    tensors: dict[str, Tensor] = {}
    for name, lora in linears.items():
        tensors |= _factors(_PREFIX + name, lora.down.weight, lora.up.weight)
    expert_loras: dict[str, LoraLinear] = {}
    for name, experts in fused.items():
        for parameter, (attribute, level) in _FUSED.items():
            loras = [cast("LoraLinear", lora) for lora in getattr(experts, attribute)]
            expert_loras[f"{name}.{parameter}"] = loras[0]
            tensors |= _factors(_PREFIX + name + level, *_stacked(loras))
    if classifies := hasattr(model, "score"):
        tensors[_PREFIX + "score.weight"] = model.get_parameter("score.weight")
    # peft takes a module name that ends in gate_proj for routed experts of an older layout, but not a parameter's name.
    in_shared_experts = [name for name in linears if ".mlp." in name]
    any_shared = next(iter(linears.values()))
    return tensors, {
        "peft_type": "LORA",
        "task_type": "SEQ_CLS" if classifies else "CAUSAL_LM",
        "base_model_name_or_path": model.config.name_or_path or None,
        "inference_mode": True,
        "r": any_shared.up.in_features,
        "lora_alpha": _alpha(any_shared),
        "lora_dropout": 0.0,
        "target_modules": [name for name in linears if name not in in_shared_experts],
        "target_parameters": [*expert_loras, *(f"{name}.weight" for name in in_shared_experts)],
        "rank_pattern": {name: lora.up.in_features for name, lora in expert_loras.items()},
        "alpha_pattern": {name: _alpha(lora) for name, lora in expert_loras.items()},
        "modules_to_save": ["score"] if classifies else None,
    }


def _factors(name: str, down: Tensor, up: Tensor) -> dict[str, Tensor]:
    return {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}


def _stacked(loras: Iterable[LoraLinear]) -> tuple[Tensor, Tensor]:
    """All experts' factors: ``down`` [E · r, in] with the expert first, ``up`` [out, r · E] with the expert last."""
    loras = list(loras)
    down = torch.cat([lora.down.weight for lora in loras])
    return down, torch.stack([lora.up.weight for lora in loras], dim=-1).flatten(1)


def _alpha(lora: LoraLinear) -> float:
    return lora.scale * lora.up.in_features  # peft's scale is alpha / r

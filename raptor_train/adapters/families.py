"""The decoder families of transformers that the trainer knows, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import OlmoePreTrainedModel, PreTrainedModel
from transformers.modeling_layers import GenericForSequenceClassification

from raptor_train.adapters.base import evaluating
from raptor_train.adapters.gates import GateRule, deepseek_v2, deepseek_v3, normalised_top_k, softmax_top_k


@dataclass(frozen=True, kw_only=True)
class Family:
    """What an adapter must know of a decoder whose sparse layers are ``layers[i].mlp`` with ``gate`` and ``experts``.

    Attributes:
        gates: The routing rule, from the router's input to gates.
        shared_experts: The child of a sparse layer through which every token goes, None where there is none.
    """

    gates: GateRule
    shared_experts: str | None = None


FAMILIES = {  # by model_type of the configuration
    "olmoe": Family(gates=softmax_top_k),
    "mixtral": Family(gates=normalised_top_k),
    "qwen2_moe": Family(gates=softmax_top_k, shared_experts="shared_expert"),
    "qwen3_moe": Family(gates=softmax_top_k),
    "deepseek_v2": Family(gates=deepseek_v2, shared_experts="shared_experts"),
    "deepseek_v3": Family(gates=deepseek_v3, shared_experts="shared_experts"),
    "deepseek_vl_v2": Family(gates=deepseek_v2, shared_experts="shared_experts"),
}


class OlmoeForSequenceClassification(GenericForSequenceClassification, OlmoePreTrainedModel):  # type: ignore[no-untyped-call]
    """OLMoE with a linear head on the last token that is not padding, which transformers has for the other families."""


def as_decoder(model: nn.Module) -> PreTrainedModel | None:
    """``model`` itself if it is a known decoder with a classification or a language-model head, else None."""
    if not isinstance(model, PreTrainedModel) or model.config.model_type not in FAMILIES:
        return None
    return model if isinstance(model, GenericForSequenceClassification) or hasattr(model, "lm_head") else None


def family_of(model: PreTrainedModel) -> Family:
    """The family of a known decoder."""
    return FAMILIES[model.config.model_type]


def decoder_layers(model: PreTrainedModel) -> list[Any]:
    """All blocks, dense and sparse."""
    return list(cast("nn.ModuleList", model.base_model.layers))


def sparse_layers(model: PreTrainedModel) -> dict[int, Any]:
    """The sparse layers by their real block number.

    Raises:
        ValueError: If the model has none.
    """
    layers = {i: block.mlp for i, block in enumerate(decoder_layers(model)) if hasattr(block.mlp, "experts")}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no sparse layer: its configuration makes every layer dense")
    return layers


@torch.no_grad()
def router_gates(model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor) -> dict[int, Tensor]:
    """Gate weights of every sparse layer, recomputed by the family's rule in evaluation mode.

    Args:
        model: A known decoder, adapted or not.
        input_ids: Token ids [records, tokens].
        attention_mask: 1 for real tokens, [records, tokens].

    Returns:
        For each sparse layer's real number the gates [records, tokens, experts]; 0 where an expert is not activated.
    """
    gates: dict[int, Tensor] = {}
    rule = family_of(model).gates

    def keep(layer: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(router: nn.Module, args: tuple[Tensor, ...]) -> None:
            hidden = args[0].reshape(-1, args[0].shape[-1])
            gates[layer] = rule(hidden, router).reshape(*input_ids.shape, -1)

        return hook

    handles = [mlp.gate.register_forward_pre_hook(keep(i)) for i, mlp in sparse_layers(model).items()]
    try:
        with evaluating(model):
            model.base_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return gates

"""Decoders with fused experts: OLMoE, Mixtral, Qwen2-MoE, Qwen3-MoE, DeepSeek-V2 and DeepSeek-V3."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GenericForSequenceClassification

from raptor_train.adapters.base import Attachment, Lora, chosen_layers, class_losses
from raptor_train.adapters.families import decoder_layers, family_of, router_gates, sparse_layers
from raptor_train.adapters.fused_experts import ByRecord, LoraExperts
from raptor_train.adapters.peft_format import save_adapter
from raptor_train.adapters.precision import InDouble
from raptor_train.records import IGNORED, Records
from raptor_train.roles import Role
from raptor_train.tape import RecordedLinear


class DecoderModel:
    """A decoder for sequence classification or language modelling, made ready for per-record clipping by role.

    Shared role: LoRA on every linear layer of every attention block and of the shared experts, and the classification
    head; a language model's head stays frozen, since it may be tied to the embeddings. Expert role: LoRA on both maps
    of every routed expert of ``expert_layers``. Everything else is frozen: routers, the gate of a shared expert, the
    MLPs of dense layers, norms and embeddings. The model is kept in evaluation mode, with the experts' eager
    implementation.

    Args:
        model: A known decoder with the head ``score`` or ``lm_head``; wrapped in place, see :meth:`detach`.
        expert_layers: Real numbers of the sparse layers whose experts are trained (RAPTOR: the one selected layer).
        shared: Adapters of the shared role.
        expert: Adapters of the expert role.
        seed: Seed of the initial ``down`` weights (public).

    Raises:
        ValueError: If a layer in ``expert_layers`` has no router, or the model is adapted already.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        expert_layers: Sequence[int],
        shared: Lora | None = None,
        expert: Lora | None = None,
        seed: int = 0,
    ):
        sparse = sparse_layers(model)
        self.expert_layers = chosen_layers(expert_layers, sparse)
        self.num_experts = len(sparse[self.expert_layers[0]].gate.weight)
        self.model = model
        self._precision: Callable[[], AbstractContextManager[object]] = nullcontext
        self._experts_implementation = model.config._experts_implementation
        self._attachment = Attachment(model, seed=seed)
        self.shared = self._adapt_shared(shared or Lora())
        self.expert = self._adapt_experts(expert or Lora())
        model.config._experts_implementation = "eager"
        model.train(False)  # the new layers too

    @property
    def num_labels(self) -> int:
        """Classes of the head; of a language model, the size of its vocabulary."""
        return cast("nn.Linear", self._head).out_features

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        return int(self.model.config.vocab_size)

    def losses(self, records: Records) -> Tensor:
        """Loss of every record on its own, [records]; never a batch mean, never an auxiliary loss.

        Classification: cross-entropy at the last real token. Language modelling: mean cross-entropy over the
        record's own predicted tokens, which are those after its first whose label is not ``IGNORED``; 0 if there is
        none.
        """
        with self._precision():
            hidden = self.model.base_model(
                input_ids=records.input_ids, attention_mask=records.attention_mask, use_cache=False
            ).last_hidden_state
            if self._classifies:
                return class_losses(self._head(_last_real(hidden, records.attention_mask)), records)
            return _next_token_losses(self._head(hidden[:, :-1]), records)

    def gates(self, records: Records) -> dict[int, Tensor]:
        """Gate weights of the trained sparse layers under the current weights, see :func:`router_gates`."""
        with self._precision():
            gates = router_gates(self.model, records.input_ids, records.attention_mask)
        return {layer: gates[layer] for layer in self.expert_layers}

    def double(self) -> Self:
        """Move to float64, the norms', routers' and rotary arithmetic included that transformers keeps in float32."""
        self.model.double()
        self._precision = InDouble
        return self

    def merged(self) -> PreTrainedModel:
        """A copy of the model without adapters, their low-rank terms added to its weights.

        ``save_pretrained`` of the copy writes what the class's ``from_pretrained`` reads; the logits agree up to
        rounding. In a private run the weights are releases.
        """
        twin = copy.deepcopy(self)
        twin._attachment.fold()
        return twin.detach()

    def save_adapter(self, directory: str | Path) -> None:
        """Write both roles' adapters, and a classification head, as peft reads them: :func:`save_adapter`."""
        save_adapter(self.model, directory)

    def detach(self) -> PreTrainedModel:
        """Put the original layers back and return the model, without the adapters and as trainable as it was.

        A classification head keeps what it learned: private in a non-private run, a release in a private one.
        """
        self._attachment.undo()
        self.model.config._experts_implementation = self._experts_implementation
        return self.model

    @property
    def _classifies(self) -> bool:
        return isinstance(self.model, GenericForSequenceClassification)

    @property
    def _head(self) -> Any:
        return self.model.score if self._classifies else self.model.lm_head

    def _adapt_shared(self, lora: Lora) -> Role:
        parents = [block.self_attn for block in decoder_layers(self.model)]
        if (name := family_of(self.model).shared_experts) is not None:
            parents += [getattr(mlp, name) for mlp in sparse_layers(self.model).values()]
        layers: list[RecordedLinear] = []
        for parent in parents:
            for child, linear in list(parent.named_children()):
                if isinstance(linear, nn.Linear):
                    adapter = self._attachment.lora(linear, lora)
                    self._attachment.replace(parent, child, ByRecord(adapter))
                    layers += [adapter.down, adapter.up]
        if self._classifies:
            layers.append(self._attachment.head(self.model, "score"))
        return Role(name="shared", layers=tuple(layers))

    def _adapt_experts(self, lora: Lora) -> Role:
        layers: list[RecordedLinear] = []
        for i in self.expert_layers:
            mlp = sparse_layers(self.model)[i]
            experts = LoraExperts(mlp.experts, lambda linear: self._attachment.lora(linear, lora))
            self._attachment.replace(mlp, "experts", experts)
            layers += [layer for e in range(experts.num_experts) for layer in experts.layers_of(e)]
        return Role(name="expert", layers=tuple(layers), owned=len(self.expert_layers) == 1)


def _last_real(hidden: Tensor, mask: Tensor) -> Tensor:
    """State of every record's last real token, [records, hidden]; told by the mask, since a text may use the pad id."""
    place = torch.arange(mask.shape[1], device=mask.device)
    last = (place * (mask == 1)).argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), last]


def _next_token_losses(logits: Tensor, records: Records) -> Tensor:
    """Mean cross-entropy over each record's predicted tokens, [records], from logits [records, tokens - 1, V]."""
    if not records.token_labels:
        raise ValueError("expected token labels (records, tokens) for a language model: Records.for_language_modelling")
    targets = records.labels[:, 1:].masked_fill(records.attention_mask[:, 1:] != 1, IGNORED)
    losses = nn.functional.cross_entropy(logits.mT, targets, ignore_index=IGNORED, reduction="none")
    return losses.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

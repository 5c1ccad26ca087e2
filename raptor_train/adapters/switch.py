"""Switch Transformers (``transformers.SwitchTransformersEncoderModel``) with a classification head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Self, cast

import torch
from torch import Tensor, nn
from transformers.models.switch_transformers import modeling_switch_transformers as switch

from raptor_train.adapters.base import Attachment, Lora, chosen_layers, class_losses, evaluating
from raptor_train.adapters.precision import InDouble
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.tape import RecordedLinear

PROJECTIONS = ("q", "k", "v", "o")


class SwitchClassifier:
    """A Switch encoder and its head, made ready for per-record clipping by role.

    Shared role: LoRA on q, k, v, o of every block, and the head. Expert role: LoRA on wi and wo of every expert of
    ``expert_layers``. Everything else, the router above all, is frozen, and the model is kept in evaluation mode: no
    dropout and no router jitter, so that a record's gradient depends on the record alone.

    Args:
        model: The classifier; its linear layers are wrapped in place. Call :meth:`detach` to undo.
        expert_layers: Block numbers of the sparse layers whose experts are trained (RAPTOR: the one selected layer).
        shared: Adapters of the shared role.
        expert: Adapters of the expert role.
        seed: Seed of the initial ``down`` weights (public).

    Raises:
        ValueError: If the model is of another class, or a layer in ``expert_layers`` has no router.
    """

    def __init__(
        self,
        model: EncoderClassifier,
        *,
        expert_layers: Sequence[int],
        shared: Lora | None = None,
        expert: Lora | None = None,
        seed: int = 0,
    ):
        sparse = sparse_blocks(model)
        self.expert_layers = chosen_layers(expert_layers, sparse)
        self.model = model
        self.num_experts = int(model.encoder.config.num_experts)
        self._precision: Callable[[], AbstractContextManager[object]] = nullcontext
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._attachment = Attachment(model, seed=seed)
        self.shared = self._adapt_shared(shared or Lora())
        self.expert = self._adapt_experts([sparse[i] for i in self.expert_layers], expert or Lora())
        self.model.eval()  # the new layers too

    def losses(self, records: Records) -> Tensor:
        """Cross-entropy of every record on its own, [records]; never a batch mean."""
        with self._precision():
            return class_losses(self.model(records.input_ids, records.attention_mask), records)

    def gates(self, records: Records) -> dict[int, Tensor]:
        """Gate weights of the trained sparse layers under the current weights, see :func:`router_gates`."""
        with self._precision():
            gates = router_gates(self.model, records.input_ids, records.attention_mask)
        return {layer: gates[layer] for layer in self.expert_layers}

    @property
    def num_labels(self) -> int:
        """Classes of the head."""
        return self.model.head.out_features

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        return int(self.model.encoder.config.vocab_size)

    def double(self) -> Self:
        """Move to float64, the norms' and the router's arithmetic included that transformers keeps in float32."""
        self.model.double()
        self._precision = InDouble
        return self

    def merged(self) -> EncoderClassifier:
        """A copy of the model without adapters, their low-rank terms added to its weights."""
        twin = copy.deepcopy(self)
        twin._attachment.fold()
        return twin.detach()

    def detach(self) -> EncoderClassifier:
        """Put the original layers back and return the model, without the adapters and as trainable as it was.

        The head keeps what it learned: private in a non-private run, a release in a private one.
        """
        for handle in self._hooks:
            handle.remove()
        self._hooks = []
        self._attachment.undo()
        return self.model

    def _lora(self, parent: nn.Module, name: str, lora: Lora) -> list[RecordedLinear]:
        adapter = self._attachment.lora(getattr(parent, name), lora)
        self._attachment.replace(parent, name, adapter)
        return [adapter.down, adapter.up]

    def _adapt_shared(self, lora: Lora) -> Role:
        layers: list[RecordedLinear] = []
        for block in encoder_blocks(self.model):
            for name in PROJECTIONS:
                layers += self._lora(_attention(block), name, lora)
        return Role(name="shared", layers=(*layers, self._attachment.head(self.model, "head")))

    def _adapt_experts(self, mlps: Iterable[switch.SwitchTransformersSparseMLP], lora: Lora) -> Role:
        layers: list[RecordedLinear] = []
        for mlp in mlps:
            by_expert: list[list[RecordedLinear]] = []
            for e in range(self.num_experts):
                expert = mlp.experts[f"expert_{e}"]
                by_expert.append([r for name in ("wi", "wo") for r in self._lora(expert, name, lora)])
                for layer in by_expert[e]:
                    layer.expert = e
            dispatch = _Dispatch(by_expert)
            self._hooks += [
                mlp.register_forward_pre_hook(dispatch.see_batch),
                mlp.experts.register_forward_pre_hook(dispatch.see_choice),
                mlp.register_forward_hook(dispatch.forget),
            ]
            layers += [layer for group in by_expert for layer in group]
        return Role(name="expert", layers=tuple(layers), owned=len(self.expert_layers) == 1)


@dataclass
class _Dispatch:
    """Tells the experts' layers which record each of their gathered rows came from."""

    layers: list[list[RecordedLinear]]
    num_tokens: int = field(default=0, init=False)

    def see_batch(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.num_tokens = args[0].shape[1]

    def see_choice(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        chosen = args[1]  # [records * tokens, 1, experts], one-hot after capacity
        for e, layers in enumerate(self.layers):
            record_of_row = chosen[:, 0, e].nonzero().squeeze(-1) // self.num_tokens
            for layer in layers:
                layer.record_of_row = record_of_row

    def forget(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        for layers in self.layers:
            for layer in layers:
                layer.record_of_row = None  # which record went where is private; the tape has its own copy


def sparse_blocks(model: nn.Module) -> dict[int, switch.SwitchTransformersSparseMLP]:
    """The sparse layers by their real block number.

    Raises:
        ValueError: If the model is not a Switch encoder classifier, or has no sparse layer.
    """
    if not isinstance(model, EncoderClassifier):
        raise ValueError(f"expected an EncoderClassifier around a Switch encoder, got {type(model).__name__}")
    blocks = {
        i: cast("switch.SwitchTransformersSparseMLP", block.layer[-1].mlp)
        for i, block in enumerate(encoder_blocks(model))
        if block.is_sparse
    }
    if not blocks:
        raise ValueError(
            f"{type(model.encoder).__name__} has no sparse layer: its configuration has encoder_sparse_step=0"
        )
    return blocks


def encoder_blocks(model: EncoderClassifier) -> Iterable[switch.SwitchTransformersBlock]:
    """All blocks of the encoder, dense and sparse."""
    return cast("Iterable[switch.SwitchTransformersBlock]", model.encoder.encoder.block)


def _attention(block: switch.SwitchTransformersBlock) -> nn.Module:
    return cast("nn.Module", block.layer[0].SelfAttention)


@torch.no_grad()
def router_gates(model: EncoderClassifier, input_ids: Tensor, attention_mask: Tensor) -> dict[int, Tensor]:
    """Gate weights of every sparse layer, recomputed from the router's logits in evaluation mode.

    Args:
        model: A Switch encoder with a head.
        input_ids: Token ids [records, tokens].
        attention_mask: 1 for real tokens, [records, tokens].

    Returns:
        For each sparse block number the gates [records, tokens, experts]: the softmax weight of the token's expert,
        0 for every other expert and for tokens beyond the expert's capacity.
    """
    blocks, logits = sparse_blocks(model), {}

    def keep(layer: int) -> torch.utils.hooks.RemovableHandle:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            logits[layer] = output

        return blocks[layer].router.classifier.register_forward_hook(hook)

    handles = [keep(layer) for layer in blocks]
    try:
        with evaluating(model):
            model(input_ids, attention_mask)
    finally:
        for handle in handles:
            handle.remove()
    return {layer: _gates(logits[layer], blocks[layer].router.expert_capacity) for layer in blocks}


def _gates(logits: Tensor, capacity: int) -> Tensor:
    weights = logits.softmax(-1)
    chosen = nn.functional.one_hot(weights.argmax(-1), logits.shape[-1])
    within_capacity = chosen.cumsum(1) <= capacity
    return weights * chosen * within_capacity

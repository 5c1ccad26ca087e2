"""Full fine-tuning of a Switch classifier's linear layers, for the monolithic baseline."""

from __future__ import annotations

from typing import cast

from torch import nn

from raptor_train.adapters.base import Lora
from raptor_train.adapters.switch import SwitchClassifier, encoder_blocks
from raptor_train.roles import Role
from raptor_train.tape import RecordedLinear


class FullSwitchClassifier(SwitchClassifier):
    """Every linear layer of attention, FFN and experts, and the head, trained itself: no low-rank adapters.

    Embeddings, norms, relative position biases and routers stay frozen: the tape has no per-record gradient of
    theirs. Unlike adapters, the weights change in place, also those of the model that :meth:`detach` returns.
    """

    def _lora(self, parent: nn.Module, name: str, lora: Lora) -> list[RecordedLinear]:
        return [self._attachment.head(parent, name)]

    def _adapt_shared(self, lora: Lora) -> Role:
        dense = [cast("nn.Module", block.layer[-1].mlp) for block in encoder_blocks(self.model) if not block.is_sparse]
        layers = [self._attachment.head(mlp, name) for mlp in dense for name in ("wi", "wo")]
        return Role(name="shared", layers=(*layers, *super()._adapt_shared(lora).layers))

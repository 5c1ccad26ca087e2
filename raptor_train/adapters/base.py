"""What the trainer asks of a model, whatever its family, and how adapters are put into a model and taken out again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from raptor_acct._validate import number, whole
from raptor_train.lora import LoraLinear
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.tape import RecordedLinear


class AdaptedModel(Protocol):
    """A model whose trainable layers are recorded layers, in two roles."""

    @property
    def model(self) -> nn.Module:
        """The adapted model."""
        ...

    @property
    def shared(self) -> Role:
        """The layers that every record trains."""
        ...

    @property
    def expert(self) -> Role:
        """The experts' layers."""
        ...

    @property
    def num_experts(self) -> int:
        """E, experts in one layer."""
        ...

    @property
    def expert_layers(self) -> tuple[int, ...]:
        """Real numbers of the sparse layers whose experts are trained; one for RAPTOR."""
        ...

    @property
    def num_labels(self) -> int:
        """Classes of the head; of a language model, the size of its vocabulary."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        ...

    def losses(self, records: Records) -> Tensor:
        """Loss of every record on its own, [records]."""
        ...

    def gates(self, records: Records) -> dict[int, Tensor]:
        """Gate weights [records, tokens, experts] of the trained sparse layers under the current weights.

        0 for every expert that the router did not activate for the token.
        """
        ...

    def double(self) -> Self:
        """Move to float64, the arithmetic included that the model itself keeps in float32."""
        ...

    def merged(self) -> nn.Module:
        """A copy of the model without adapters, their low-rank terms added to its weights."""
        ...

    def detach(self) -> nn.Module:
        """Put the original layers back and return the model, without the adapters."""
        ...


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Rank and scale of one role's low-rank adapters; the scale is chosen on public data."""

    rank: int = 8
    scale: float = 1.0

    def __post_init__(self) -> None:
        whole("rank", self.rank)
        number("scale", self.scale, "(0, inf)")


class Attachment:
    """What was put into a model, so that it can be added to its weights or taken out again.

    Args:
        model: All its parameters are frozen; those of the layers put in afterwards train.
        seed: Seed of the adapters' initial ``down`` weights (public).

    Raises:
        ValueError: If the model is adapted already.
    """

    def __init__(self, model: nn.Module, *, seed: int):
        if any(isinstance(module, RecordedLinear) for module in model.modules()):
            raise ValueError("the model is already adapted: call detach() on its adapter first")
        self._trained = {p: p.requires_grad for p in model.parameters()}
        self._originals: list[tuple[nn.Module, str, nn.Module]] = []
        self._loras: list[LoraLinear] = []
        self._generator = torch.Generator().manual_seed(seed)
        model.requires_grad_(False)

    def replace(self, parent: nn.Module, name: str, new: nn.Module) -> None:
        """Put ``new`` in place of the child ``name``."""
        self._originals.append((parent, name, getattr(parent, name)))
        setattr(parent, name, new)

    def lora(self, linear: nn.Linear, lora: Lora) -> LoraLinear:
        """Make the adapter of a linear layer; it belongs to the model once it is put in."""
        self._loras.append(LoraLinear(linear, rank=lora.rank, scale=lora.scale, generator=self._generator))
        return self._loras[-1]

    def head(self, parent: nn.Module, name: str) -> RecordedLinear:
        """Let the child ``name`` itself train, on its own parameters."""
        head = RecordedLinear.of(getattr(parent, name)).requires_grad_(True)
        self.replace(parent, name, head)
        return head

    @torch.no_grad()
    def fold(self) -> None:
        """Add every adapter's low-rank term to the weight that it adapts."""
        for lora in self._loras:
            lora.base.weight.add_(lora.up.weight @ lora.down.weight, alpha=lora.scale)

    def undo(self) -> None:
        """Put the original layers back, and let those parameters train that did before."""
        for parent, name, original in reversed(self._originals):
            setattr(parent, name, original)
        self._originals, self._loras = [], []
        for parameter, trained in self._trained.items():
            parameter.requires_grad_(trained)


def class_losses(logits: Tensor, records: Records) -> Tensor:
    """Cross-entropy of every record on its own, [records]; never a batch mean.

    Raises:
        ValueError: If the records have token labels.
    """
    if records.token_labels:
        raise ValueError("expected labels (records,) for a classifier, got token labels (records, tokens)")
    return nn.functional.cross_entropy(logits, records.labels, reduction="none")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode inside the block, and each back into its own after it."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def chosen_layers(expert_layers: Sequence[int], sparse: Iterable[int]) -> tuple[int, ...]:
    """Return ``expert_layers`` if each is the number of a sparse layer, once.

    Raises:
        ValueError: Listing the sparse layers.
    """
    layers, sparse = [whole("layer", layer, low=0) for layer in expert_layers], sorted(sparse)
    if not layers or len(set(layers)) < len(layers) or not set(layers) <= set(sparse):
        raise ValueError(f"expected expert_layers among the sparse layers {sparse}, each once, got {layers}")
    return tuple(layers)

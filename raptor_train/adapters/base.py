"""What the trainer asks of a model, whatever its family."""

from __future__ import annotations

from typing import Protocol, Self

from torch import Tensor, nn

from raptor_train.records import Records
from raptor_train.roles import Role


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
        """Classes of the head."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Token ids are below it."""
        ...

    def losses(self, records: Records) -> Tensor:
        """Loss of every record on its own, [records]."""
        ...

    def gates(self, records: Records) -> dict[int, Tensor]:
        """Gate weights [records, tokens, experts] of the trained sparse layers under the current weights."""
        ...

    def double(self) -> Self:
        """Move to float64, the router's own arithmetic included."""
        ...

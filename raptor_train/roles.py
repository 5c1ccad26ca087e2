"""Roles: the disjoint sets of trainable parameters that are clipped and noised together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from torch import nn

from raptor_train.tape import RecordedLinear


@dataclass(frozen=True, kw_only=True)
class Role:
    """The layers that one stream trains.

    Attributes:
        name: "shared", "expert", or a baseline's name.
        layers: The recorded layers, in a fixed order.
        owned: Whether a record reaches only the layers of its owner expert. Then all experts compose in parallel
            (theory.md P1) and each expert's sum is divided by D_e = B/E.
    """

    name: str
    layers: tuple[RecordedLinear, ...]
    owned: bool = False

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """All trainable tensors of the role, in a fixed order."""
        tensors = [cast("nn.Parameter | None", t) for layer in self.layers for t in (layer.weight, layer.bias)]
        return tuple(p for p in tensors if p is not None and p.requires_grad)

    @property
    def trained_layers(self) -> tuple[RecordedLinear, ...]:
        """The layers of which at least one tensor trains."""
        kept = {id(p) for p in self.parameters}
        return tuple(layer for layer in self.layers if {id(layer.weight), id(layer.bias)} & kept)

    @property
    def num_parameters(self) -> int:
        """Number of trainable scalars."""
        return sum(p.numel() for p in self.parameters)


def check_roles(model: nn.Module, roles: Iterable[Role]) -> None:
    """Check that every trainable parameter has exactly one role and every role has parameters.

    Raises:
        ValueError: Naming the role or the parameter, and what to change.
    """
    owner_role: dict[int, str] = {}
    for role in roles:
        if not role.parameters:
            names = ", ".join(f"{type(layer).__name__}" for layer in role.layers[:4]) or "none"
            raise ValueError(
                f"role '{role.name}' has 0 trainable tensors (layers matched: {names}); adapt its layers first"
            )
        for parameter in role.parameters:
            if id(parameter) in owner_role:
                raise ValueError(
                    f"one tensor is trained by role '{owner_role[id(parameter)]}' and by role '{role.name}': untie it"
                )
            owner_role[id(parameter)] = role.name
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in owner_role:
            fix = "freeze the router" if "router" in name or ".gate." in name else "freeze it or give it a role"
            raise ValueError(f"trainable parameter '{name}' belongs to no role: {fix} (requires_grad_(False))")

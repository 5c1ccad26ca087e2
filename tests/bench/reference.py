"""What plain autograd says of every record on its own: the releases that the trainer must make, by other means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from raptor_train.adapters.base import AdaptedModel
from raptor_train.adapters.families import sparse_layers
from raptor_train.adapters.switch import sparse_blocks
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from raptor_train.roles import Role

from .setting import NUM_RECORDS, PUBLIC_RECORDS, STREAMS, model_of, records_at


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The records' own gradients, each of the record alone and unpadded.

    Attributes:
        owners: Owner expert of each record, from what the router itself returns.
        clipped: For each stream, each record's clipped gradient by parameter name.
        norms: For each stream, the length of each record's gradient before clipping.
        clip_norms: For each stream, a clip norm that about half of the records exceed.
        expert_of: The expert of every parameter of the experts' role.
        num_experts: E.
    """

    owners: list[int]
    clipped: dict[str, list[dict[str, Tensor]]]
    norms: dict[str, list[float]]
    clip_norms: dict[str, float]
    expert_of: dict[str, int]
    num_experts: int

    def names(self, stream: str) -> set[str]:
        """Names of the parameters that a stream releases."""
        return set(self.clipped[stream][0])

    def denominator(self, stream: str, sampling_probability: float) -> float:
        """B, or B/E for the experts."""
        batch = sampling_probability * PUBLIC_RECORDS
        return batch / self.num_experts if stream == "expert" else batch


_known: dict[str, Reference] = {}


def reference_of(family: str) -> Reference:
    """Made once, before any bug is planted."""
    if family not in _known:
        _known[family] = _measured(family)
    return _known[family]


def take_reference(family: str, reference: Reference) -> None:
    """Use what another process has made."""
    _known[family] = reference


def _measured(family: str) -> Reference:
    adapted = model_of(family)
    records = [records_at([i]).trimmed() for i in range(NUM_RECORDS)]
    names = {stream: _layers(adapted, getattr(adapted, stream)) for stream in STREAMS}
    owners, gradients = zip(*(_owner_and_gradient(adapted, record) for record in records), strict=True)
    clipped, norms, clip_norms = {}, {}, {}
    for stream, layers in names.items():
        of_stream = [
            {
                name: torch.zeros_like(g) if stream == "expert" and layer.expert != owner else g
                for name, layer in layers.items()
                for g in (gradient[name],)
            }
            for owner, gradient in zip(owners, gradients, strict=True)
        ]
        norms[stream] = [math.sqrt(sum(float(g.square().sum()) for g in gradient.values())) for gradient in of_stream]
        clip_norms[stream] = float(f"{sorted(norms[stream])[NUM_RECORDS // 2]:.2g}")
        clipped[stream] = [
            {name: g * min(1.0, clip_norms[stream] / norm) for name, g in gradient.items()}
            for gradient, norm in zip(of_stream, norms[stream], strict=True)
        ]
    return Reference(
        owners=list(owners),
        clipped=clipped,
        norms=norms,
        clip_norms=clip_norms,
        expert_of={name: layer.expert for name, layer in names["expert"].items()},
        num_experts=adapted.num_experts,
    )


def _layers(adapted: AdaptedModel, role: Role) -> dict[str, Any]:
    """The layer of every parameter of a role, by the parameter's name."""
    names = {id(p): name for name, p in adapted.model.named_parameters()}
    return {names[id(p)]: layer for layer in role.layers for p in (layer.weight, layer.bias) if p is not None}


def _owner_and_gradient(adapted: AdaptedModel, record: Records) -> tuple[int, dict[str, Tensor]]:
    """The expert with the largest gate weight over the record's tokens, from the router's own output; all gradients."""
    routed: list[tuple[Tensor, ...]] = []
    model: Any = adapted.model
    switch = isinstance(model, EncoderClassifier)
    (layer,) = adapted.expert_layers
    router: Any = sparse_blocks(model)[layer].router if switch else sparse_layers(model)[layer].gate
    handle = router.register_forward_hook(lambda module, args, output: routed.append(output))
    loss = adapted.losses(record).sum()
    handle.remove()
    trained = {name: p for name, p in adapted.model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    gradients = {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(trained.items(), found, strict=True)}
    ((first, second, third),) = routed
    if switch:  # one-hot after capacity, weight, logits
        return int((first * second).sum((0, 1)).argmax()), gradients
    mass = torch.zeros(adapted.num_experts, dtype=second.dtype)  # logits, weights, experts
    return int(mass.index_add_(0, third.flatten(), second.detach().flatten()).argmax()), gradients

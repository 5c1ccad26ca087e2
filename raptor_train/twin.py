"""A twin of an adapted model on which records' gradients are compared, so that the model itself stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from raptor_train.adapters.base import AdaptedModel
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import current_owners, record_gradients
from raptor_train.tape import Rows


class Seen(NamedTuple):
    """What one pass showed of each record; as private as the records."""

    gradients: Tensor  # [records, parameters] as they are clipped
    states: Tensor  # [records, features] sums of the trained layers' inputs over the record's tokens, experts' left out


class Twin:
    """A copy of a model, in float64 where it can run there, whose adapters and head hold random values.

    With their initial zeros most gradients vanish and hide a coupling.

    Args:
        adapted: The model.
        roles: What is trained.
        records: The records to try it on.

    Attributes:
        adapted: The copy.
        dtype: float64; float32 where a pass in float64 fails.
    """

    def __init__(self, adapted: AdaptedModel, roles: Sequence[Role], records: Records):
        try:
            self._copy(adapted, roles, torch.float64)
            self.see(records, first=1)
        except (RuntimeError, TypeError):  # a kernel without float64, a constant in float32, a device without float64
            self._copy(adapted, roles, torch.float32)

    def see(self, batch: Records, *, first: int) -> Seen:
        """Run one forward and backward pass over a batch, with owners found before it where a role has them.

        Args:
            batch: The records.
            first: How many records, from the first, are looked at.
        """
        gradients, states = [], []
        for role in self._roles:
            owner = None
            if role.owned:
                with self._same_mode():
                    owner = current_owners(self.adapted, batch)
            tape = record_gradients(role, self.adapted, batch, owner=owner)
            by_layer = {id(rows.layer): _of_first(rows, first) for rows in tape.rows}
            for layer in role.trained_layers:
                weight = layer.weight.new_zeros(first, layer.out_features, layer.in_features)
                bias = weight.new_zeros(weight.shape[:2])
                if (rows := by_layer.get(id(layer))) is not None:
                    weight[rows.record] = rows.left.mT @ rows.right
                    bias[rows.record] = rows.left.sum(1)
                    if layer.expert is None:  # of an expert's rows it is not known which are padding
                        states.append(_sum_over_tokens(rows.right, batch.attention_mask[:first]))
                gradients += [weight.flatten(1), bias]
        return Seen(torch.cat(gradients, dim=1), torch.cat([*states, gradients[0][:, :0]], dim=1))

    def _copy(self, adapted: AdaptedModel, roles: Sequence[Role], dtype: torch.dtype) -> None:
        memo: dict[int, object] = {}
        self.adapted, self.dtype = copy.deepcopy(adapted, memo), dtype
        self._roles = _in_one_pass([copy.deepcopy(role, memo) for role in roles])
        if dtype == torch.float64:
            self.adapted.double()
        else:
            self.adapted.model.to(dtype)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for role in (self.adapted.shared, self.adapted.expert):
                for layer in role.layers:
                    for p in (layer.weight, layer.bias):
                        if p is not None:
                            p.add_((torch.randn(p.shape, dtype=dtype, generator=generator) * 0.05).to(p.device))

    @contextmanager
    def _same_mode(self) -> Iterator[None]:
        """Give every module its own mode back: adapters find owners in evaluation mode."""
        modes = [(module, module.training) for module in self.adapted.model.modules()]
        yield
        for module, training in modes:
            module.training = training


def _in_one_pass(roles: Sequence[Role]) -> list[Role]:
    """The roles as one, where owners mean the same for all their experts: one pass then shows all gradients."""
    if len({role.owned for role in roles if any(layer.expert is not None for layer in role.layers)}) > 1:
        return list(roles)
    layers = dict.fromkeys(layer for role in roles for layer in role.layers)
    return [Role(name="probe", layers=tuple(layers), owned=any(role.owned for role in roles))]


def _of_first(rows: Rows, count: int) -> Rows:
    few = rows.record < count
    return Rows(rows.layer, rows.left[few], rows.right[few], rows.record[few])


def _sum_over_tokens(inputs: Tensor, mask: Tensor) -> Tensor:
    """Sum of a layer's inputs over each record's tokens, without padding where the layer sees it, [records, in]."""
    if inputs.shape[1] == mask.shape[1]:
        inputs = inputs * mask[..., None]
    return inputs.sum(1)

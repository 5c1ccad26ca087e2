"""Low-rank adapters for layers that a model calls on the tokens of all records at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from raptor_train.lora import LoraLinear
from raptor_train.tape import RecordedLinear, Tape


class ByRecord(nn.Module):
    """Shows an adapted layer its rows record by record, however the model arranges them.

    Model code calls some linear layers on [records · tokens, in] and others on [records, 1, tokens, in]. Both are in
    the records' order, so that each record's rows can be told by their place.
    """

    def __init__(self, lora: LoraLinear):
        super().__init__()
        self.lora = lora

    def forward(self, x: Tensor) -> Tensor:
        """Return the adapted output, [..., out]."""
        tape = self.lora.down.tape or self.lora.up.tape
        if tape is None:
            adapted: Tensor = self.lora(x)
            return adapted
        num_rows = _rows_per_record(x.numel() // x.shape[-1], tape)
        adapted = self.lora(x.reshape(tape.num_records, num_rows, x.shape[-1]))
        return adapted.reshape(*x.shape[:-1], adapted.shape[-1])


class LoraExperts(nn.Module):
    """Fused experts (``gate_up_proj`` [E, 2f, d], ``down_proj`` [E, d, f]) with an adapter on each expert's two maps.

    The experts run one after the other in ascending order, each on its tokens in the order that transformers' eager
    implementation has: the output is bit-identical to it while all ``up`` weights are zero.

    Args:
        experts: The model's own module. It is frozen and stays part of this one.
        adapter: Makes the adapter of one linear map.
    """

    def __init__(self, experts: nn.Module, adapter: Callable[[nn.Linear], LoraLinear]):
        super().__init__()
        self.base = experts.requires_grad_(False)
        self.gate_up, self.down = nn.ModuleList(), nn.ModuleList()
        for e in range(len(cast("Tensor", experts.gate_up_proj))):
            self.gate_up.append(adapter(cast("nn.Linear", _ExpertLinear(experts, "gate_up_proj", e))))
            self.down.append(adapter(cast("nn.Linear", _ExpertLinear(experts, "down_proj", e))))
            for layer in self.layers_of(e):
                layer.expert = e

    @property
    def num_experts(self) -> int:
        """E."""
        return len(self.gate_up)

    def layers_of(self, e: int) -> tuple[RecordedLinear, ...]:
        """The recorded layers of expert ``e``, in a fixed order."""
        gate_up, down = cast("LoraLinear", self.gate_up[e]), cast("LoraLinear", self.down[e])
        return gate_up.down, gate_up.up, down.down, down.up

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Return the weighted sum of the activated experts' outputs, [rows, hidden].

        Args:
            hidden_states: All records' tokens in order, [rows, hidden].
            top_k_index: Activated experts, [rows, k].
            top_k_weights: Their gate weights, [rows, k].
        """
        activate = cast("Callable[[Tensor], Tensor]", self.base.act_fn)
        output = torch.zeros_like(hidden_states)
        for e in range(self.num_experts):
            place, row = torch.where(top_k_index.T.eq(e))
            if not len(row):
                continue
            gate, up = _call(self.gate_up[e], hidden_states[row], row, len(output)).chunk(2, dim=-1)
            result = _call(self.down[e], activate(gate) * up, row, len(output)) * top_k_weights[row, place, None]
            output.index_add_(0, row, result.to(output.dtype))
        return output


class _ExpertLinear(nn.Module):
    """One expert's frozen linear map, a view of the fused tensor [E, out, in]."""

    bias = None

    def __init__(self, experts: nn.Module, name: str, e: int):
        super().__init__()
        self._fused = (experts, name, e)  # in a tuple: the module must not be registered a second time
        self.out_features, self.in_features = self.weight.shape

    @property
    def weight(self) -> Tensor:
        experts, name, e = self._fused
        weight: Tensor = getattr(experts, name)[e]
        return weight

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight)


def _call(adapter: Any, x: Tensor, row: Tensor, total: int) -> Tensor:
    """Call an expert's adapter on the rows ``row`` of ``total``, and tell its layers whose rows these are."""
    if (tape := adapter.down.tape or adapter.up.tape) is not None:
        adapter.down.record_of_row = adapter.up.record_of_row = row // _rows_per_record(total, tape)
    output: Tensor = adapter(x)
    adapter.down.record_of_row = adapter.up.record_of_row = None  # which record went where is private
    return output


def _rows_per_record(num_rows: int, tape: Tape) -> int:
    if num_rows % tape.num_records:
        raise ValueError(f"expected as many rows for each of {tape.num_records} records, got {num_rows} rows in all")
    return num_rows // tape.num_records

"""Every family's records are independent, and what couples them in transformers' own code is found and named."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

from raptor_train.adapters import DecoderModel, Lora
from raptor_train.adapters.families import sparse_layers
from raptor_train.independence import LOSS, Coupling, check_record_independence
from raptor_train.records import Records

from .family_models import DECODERS, LAYER, TASKS, adapt_decoder, records_for, tiny_decoder

LEFT = "padding on the left"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("family", DECODERS)
def test_records_are_independent(family: str, task: str) -> None:
    """Padding on the left, which is never trained on, would make a language model predict the first token from it."""
    report = check_record_independence(adapt_decoder(family, task), records_for(task, 3), batch_size=5)
    assert report.independent
    assert report.dtype == torch.float64
    assert max(c.size for c in report.couplings if c.in_training) < 1e-13
    found = [(c.condition, c.cause, c.in_training) for c in report.found]
    assert found == ([(LEFT, LOSS, False)] if task == "language model" else [])


class OwnLoss(DecoderModel):
    """The loss that transformers computes of labels: a mean over the tokens, or records, of the batch."""

    def losses(self, records: Records) -> Tensor:
        with self._precision():
            loss: Tensor = self.model(
                input_ids=records.input_ids,
                attention_mask=records.attention_mask,
                labels=records.labels,
                use_cache=False,
            ).loss
        return loss


def couplings(
    kind: type[DecoderModel], family: str, task: str = "language model", **changes: object
) -> dict[str, Coupling]:
    model = tiny_decoder(family, task, **changes)
    adapted = kind(model, expert_layers=[LAYER], shared=Lora(rank=3), expert=Lora(rank=3))
    records = records_for(task, 3)
    return {c.condition: c for c in check_record_independence(adapted, records, batch_size=3).couplings}


@pytest.mark.parametrize(
    ("family", "changes", "cause"),
    [
        ("mixtral", {"output_router_logits": True}, "auxiliary loss and batch-mean loss"),
        ("qwen3_moe", {"output_router_logits": True}, "auxiliary loss and batch-mean loss"),
        ("olmoe", {"output_router_logits": False}, "batch-mean loss"),
        ("deepseek_v3", {}, "batch-mean loss"),
    ],
)
def test_the_loss_that_the_model_itself_returns_is_seen(family: str, changes: dict[str, object], cause: str) -> None:
    found = couplings(OwnLoss, family, router_aux_loss_coef=0.1, **changes)["other records in the batch"]
    assert found.cause == cause
    assert 1e-2 < found.size < 1
    assert found.in_training


def test_dropout_and_jitter_of_a_decoder_are_seen() -> None:
    adapted = adapt_decoder("mixtral", attention_dropout=0.1, router_jitter_noise=0.01)
    adapted.model.train()
    report = check_record_independence(adapted, records_for("classification", 3), batch_size=3)
    assert [(c.condition, c.cause) for c in report.found] == [("the same batch again", "dropout and router jitter")]


class ExpertChoice(MixtralTopKRouter):
    """Gives an expert only those tokens of the batch that want it most."""

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, weights, indices = super().forward(hidden_states)
        wanted = torch.zeros_like(logits).scatter(1, indices, weights)
        best = wanted.topk(max(len(wanted) // 8, 1), dim=0).indices
        kept = torch.zeros_like(wanted).scatter(0, best, 1.0)
        return logits, weights * kept.gather(1, indices), indices


def test_expert_choice_is_seen() -> None:
    adapted = adapt_decoder("mixtral")
    for mlp in sparse_layers(adapted.model).values():
        mlp.gate.__class__ = ExpertChoice
    report = check_record_independence(adapted, records_for("classification", 3), batch_size=3)
    found = {c.condition: c for c in report.found}["other records in the batch"]
    assert found.cause == "expert-choice routing"
    assert found.size > 1e-3

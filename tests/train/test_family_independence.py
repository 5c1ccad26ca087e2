"""Every family's records are independent, and what couples them is seen: losses over the batch, left padding."""

from __future__ import annotations

import pytest
from torch import Tensor
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from raptor_train.adapters import DecoderModel, Lora
from raptor_train.adapters.families import sparse_layers
from raptor_train.independence import check_record_independence
from raptor_train.records import Records

from .family_models import DECODERS, EXPERTS, LAYER, TASKS, adapt_decoder, records_for, tiny_decoder

EVERY_FAMILY = pytest.mark.parametrize("family", DECODERS)
BOTH_TASKS = pytest.mark.parametrize("task", TASKS)


@BOTH_TASKS
@EVERY_FAMILY
def test_records_are_independent(family: str, task: str) -> None:
    report = check_record_independence(adapt_decoder(family, task), records_for(task, 3), batch_size=5)
    assert report.independent
    assert max(c.size for c in report.couplings) < 1e-13


class WithAuxiliaryLoss(DecoderModel):
    """Adds what ``output_router_logits=True`` adds in transformers: load balancing over the whole batch."""

    def losses(self, records: Records) -> Tensor:
        seen: list[Tensor] = []
        router = sparse_layers(self.model)[2].gate
        handle = router.register_forward_hook(lambda module, args, output: seen.append(output[0]))
        losses = super().losses(records)
        handle.remove()
        return losses + 0.1 * load_balancing_loss_func(tuple(seen), EXPERTS, 2, records.attention_mask)


class WithMeanLoss(DecoderModel):
    def losses(self, records: Records) -> Tensor:
        return super().losses(records) / len(records)


class LeftPadded(DecoderModel):
    def losses(self, records: Records) -> Tensor:
        labels = records.labels.flip(1) if records.token_labels else records.labels
        return super().losses(Records(records.input_ids.flip(1), records.attention_mask.flip(1), labels))


def coupling(kind: type[DecoderModel], family: str, task: str = "classification") -> float:
    adapted = kind(tiny_decoder(family, task), expert_layers=[LAYER], shared=Lora(rank=3), expert=Lora(rank=3))
    return max(c.size for c in check_record_independence(adapted, records_for(task, 3), batch_size=3).couplings)


@pytest.mark.parametrize(
    ("kind", "family"),
    [*((WithAuxiliaryLoss, f) for f in DECODERS if f not in ("deepseek_v2", "deepseek_v3")), (WithMeanLoss, "mixtral")],
)
def test_losses_over_the_batch_are_seen_as_couplings(kind: type[DecoderModel], family: str) -> None:
    assert coupling(kind, family) > 1e-4


def test_left_padding_couples_a_language_model_and_not_a_classifier() -> None:
    """A padding place would predict the first real token; the state of the last one sees relative places only."""
    assert coupling(LeftPadded, "deepseek_v2") < 1e-12
    assert coupling(LeftPadded, "deepseek_v2", "language model") > 1e-3

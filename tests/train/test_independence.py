"""The independence check passes a clean model and names what couples records in the others."""

import pytest
import torch
from torch import Tensor

from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.independence import RecordsCoupled, check_record_independence
from raptor_train.records import Records

from .conftest import adapt, random_records


def sizes(adapted: SwitchClassifier) -> list[float]:
    return [c.size for c in check_record_independence(adapted, random_records(4)).couplings]


def test_the_switch_encoder_in_evaluation_mode_is_independent() -> None:
    report = check_record_independence(adapt(), random_records(5))
    assert report.independent
    assert max(c.size for c in report.couplings) < 1e-13
    report.raise_if_coupled()


def test_the_model_itself_is_left_as_it_was() -> None:
    adapted = adapt()
    before = [p.clone() for p in adapted.model.parameters()]
    check_record_independence(adapted, random_records(3))
    assert all(torch.equal(a, b) for a, b in zip(before, adapted.model.parameters(), strict=True))
    assert next(adapted.model.parameters()).dtype == torch.float32


def test_dropout_and_jitter_are_seen() -> None:
    adapted = adapt()
    adapted.model.train()
    assert sizes(adapted)[0] > 1e-3


def test_a_batch_mean_loss_is_seen() -> None:
    class MeanLoss(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            return super().losses(records) / len(records)

    report = check_record_independence(MeanLoss(adapt().detach(), expert_layers=(1,)), random_records(4))
    assert not report.independent
    with pytest.raises(RecordsCoupled, match="other records in the batch"):
        report.raise_if_coupled()


def test_an_auxiliary_loss_over_the_batch_is_seen() -> None:
    class BalancingLoss(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            losses = super().losses(records)
            return losses + 0.01 * losses.mean() ** 2

    assert sizes(BalancingLoss(adapt().detach(), expert_layers=(1,)))[1] > 1e-6


def test_attention_to_padding_is_seen() -> None:
    class Unmasked(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            return super().losses(Records(records.input_ids, torch.ones_like(records.attention_mask), records.labels))

    assert sizes(Unmasked(adapt().detach(), expert_layers=(1,)))[2] > 1e-3


def test_capacity_that_is_full_of_left_padding_is_seen() -> None:
    """Capacity is counted from the left of a sequence, so a record's tokens compete with what stands before them."""

    class LeftPadded(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            return super().losses(Records(records.input_ids.flip(1), records.attention_mask.flip(1), records.labels))

    clean = adapt(expert_capacity=2)
    assert check_record_independence(clean, random_records(4)).independent
    assert max(sizes(LeftPadded(adapt(expert_capacity=2).detach(), expert_layers=(1,)))) > 1e-3


@pytest.mark.parametrize("threshold", [4, 8])
def test_a_coupling_that_starts_at_the_size_of_a_micro_batch_is_seen(threshold: int) -> None:
    class LargeBatches(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            losses = super().losses(records)
            return losses * losses.mean() if len(records) > threshold else losses

    adapted = LargeBatches(adapt().detach(), expert_layers=(1,))
    assert check_record_independence(adapted, random_records(3), batch_size=threshold).independent
    assert not check_record_independence(adapted, random_records(3), batch_size=2 * threshold).independent


def test_a_probe_that_could_show_nothing_is_refused() -> None:
    same = random_records(1).take(torch.tensor([0, 0, 0]))
    for probe in (random_records(1), same):
        with pytest.raises(ValueError, match="two records of different length"):
            check_record_independence(adapt(), probe)

"""The independence check passes a clean model, and finds, sizes and names what couples records in the others."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersTop1Router,
    load_balancing_loss_func,
)

from raptor_train.adapters.switch import SwitchClassifier, sparse_blocks
from raptor_train.independence import Coupling, IndependenceReport, RecordsCoupled, check_record_independence
from raptor_train.records import Records

from .conftest import EXPERTS, adapt, random_records

AGAIN, TOGETHER = "the same batch again", "other records in the batch"
RIGHT, LEFT = "more padding on the right", "padding on the left"


def check(adapted: SwitchClassifier, num_records: int = 3, **settings: float) -> IndependenceReport:
    return check_record_independence(adapted, random_records(num_records), **{"batch_size": 4, **settings})  # type: ignore[arg-type]


def by_condition(report: IndependenceReport) -> dict[str, Coupling]:
    return {c.condition: c for c in report.couplings}


def remade(kind: type[SwitchClassifier], **changes: object) -> SwitchClassifier:
    """A tiny Switch behind another adapter."""
    return kind(adapt(**changes).detach(), expert_layers=(1,))


def test_the_switch_encoder_in_evaluation_mode_is_independent() -> None:
    report = check(adapt(), 5)
    assert report.independent
    assert not report.found
    assert max(c.size for c in report.couplings) < 1e-13
    assert {c.cause for c in report.couplings} == {None}
    assert (report.tolerance, report.dtype) == (1e-12, torch.float64)
    report.raise_if_coupled()


def test_the_model_itself_is_left_as_it_was() -> None:
    adapted = adapt()
    adapted.model.train()
    before, losses = [p.clone() for p in adapted.model.parameters()], vars(adapted).copy()
    assert check(adapted).found
    assert all(torch.equal(a, b) for a, b in zip(before, adapted.model.parameters(), strict=True))
    assert next(adapted.model.parameters()).dtype == torch.float32
    assert vars(adapted) == losses
    assert all(module.training for module in adapted.model.modules())
    assert adapted.model.encoder.config.dropout_rate == 0.1


@pytest.mark.parametrize(
    ("changes", "cause", "at_least"),
    [
        ({"router_jitter_noise": 0.0}, "dropout", 1e-2),
        ({"dropout_rate": 0.0}, "router jitter", 1e-3),
        ({}, "dropout and router jitter", 1e-2),
    ],
)
def test_randomness_is_named_once_and_does_not_hide_the_rest(
    changes: dict[str, float], cause: str, at_least: float
) -> None:
    adapted = adapt(**changes)
    adapted.model.train()
    report = check(adapted)
    assert not report.independent
    (coupling,) = report.found
    assert (coupling.condition, coupling.cause) == (AGAIN, cause)
    assert at_least < coupling.size < 10
    with pytest.raises(RecordsCoupled, match=rf"again: .*, by {cause} \(model.eval\(\)\)"):
        report.raise_if_coupled()


def test_one_module_in_training_mode_is_enough_to_be_seen() -> None:
    adapted = adapt(router_jitter_noise=0.0)
    adapted.model.encoder.encoder.block[3].train()
    (coupling,) = check(adapted).found
    assert (coupling.condition, coupling.cause) == (AGAIN, "dropout")


class MeanLoss(SwitchClassifier):
    def losses(self, records: Records) -> Tensor:
        return super().losses(records) / len(records)


def test_a_batch_mean_loss_is_seen() -> None:
    adapted = remade(MeanLoss, router_jitter_noise=0.0)
    adapted.model.train()
    found = by_condition(check(adapted))
    assert found[AGAIN].cause == "dropout"
    assert found[TOGETHER].cause == found["a batch of 4 records"].cause == found[RIGHT].cause == "batch-mean loss"
    assert found[TOGETHER].size == pytest.approx(2 / 3)  # a third is left of the largest gradient
    assert found["a batch of 4 records"].size == pytest.approx(3 / 4)


class BalancingLoss(SwitchClassifier):
    """Adds transformers' own load balancing over all tokens of the batch, with the coefficient of the configuration."""

    def losses(self, records: Records) -> Tensor:
        seen: list[tuple[Tensor, ...]] = []
        handle = sparse_blocks(self.model)[1].router.register_forward_hook(lambda m, a, output: seen.append(output))
        losses = super().losses(records)
        handle.remove()
        probabilities = seen[0][2].softmax(-1).flatten(0, 1)[None]
        balance = load_balancing_loss_func(probabilities, seen[0][2].argmax(-1).flatten()[None])
        return losses + self.model.encoder.config.router_aux_loss_coef * balance


class OwnBalancingLoss(SwitchClassifier):
    """A term over the batch whose coefficient nobody can find."""

    def losses(self, records: Records) -> Tensor:
        losses = super().losses(records)
        return losses + 0.01 * losses.mean() ** 2


@pytest.mark.parametrize(("kind", "cause"), [(BalancingLoss, "auxiliary loss"), (OwnBalancingLoss, "loss")])
def test_an_auxiliary_loss_over_the_batch_is_seen(kind: type[SwitchClassifier], cause: str) -> None:
    found = by_condition(check(remade(kind, router_aux_loss_coef=0.1)))
    assert found[AGAIN].cause is None
    assert found[TOGETHER].cause == found["the batch backwards"].cause == cause
    assert 1e-6 < found[TOGETHER].size < 1


class BatchNorm(nn.BatchNorm1d):
    """Over the tokens [records, tokens, d] of a batch, or over its records [records, d], padding included."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input.transpose(1, -1)).transpose(1, -1)


def test_batch_norm_is_seen() -> None:
    adapted = adapt()
    adapted.model.encoder.encoder.final_layer_norm = BatchNorm(16, track_running_stats=False).eval()
    records = random_records(6).take(random_records(6).attention_mask.sum(1) > 1)
    report = check_record_independence(adapted, records, batch_size=4)
    found = by_condition(report)
    assert {found[TOGETHER].cause, found[RIGHT].cause, found[LEFT].cause} == {"batch norm"}
    assert 1e-3 < found[TOGETHER].size < 10


def test_batch_norm_that_refuses_a_record_alone_is_a_coupling_and_other_errors_are_errors() -> None:
    class Normed(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            with self._precision():
                logits = self.model.norm(self.model(records.input_ids, records.attention_mask))  # type: ignore[operator]
            return nn.functional.cross_entropy(logits, records.labels, reduction="none")

    class Demanding(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            if len(records) < 2:
                raise RuntimeError("not alone")
            return super().losses(records)

    model = adapt().detach()
    model.add_module("norm", nn.BatchNorm1d(3, track_running_stats=False).requires_grad_(False))
    found = by_condition(check(Normed(model, expert_layers=(1,))))
    assert (found[TOGETHER].size, found[TOGETHER].cause) == (math.inf, "batch norm")
    with pytest.raises(RuntimeError, match="not alone"):
        check(remade(Demanding))


class Unmasked(SwitchClassifier):
    def losses(self, records: Records) -> Tensor:
        return super().losses(Records(records.input_ids, torch.ones_like(records.attention_mask), records.labels))


class LeftPadded(SwitchClassifier):
    """Turns padding on the right into padding on the left: capacity is then counted from it."""

    def losses(self, records: Records) -> Tensor:
        return super().losses(Records(records.input_ids.flip(1), records.attention_mask.flip(1), records.labels))


def test_attention_to_padding_is_seen() -> None:
    found = by_condition(check(remade(Unmasked)))
    assert found[RIGHT].size > 1e-3
    assert found[RIGHT].cause is None
    assert "mask padding" in found[RIGHT].fix


def test_capacity_that_is_full_of_padding_refuses_only_where_training_pads() -> None:
    report = check(adapt(expert_capacity=2), 4)
    assert report.independent
    report.raise_if_coupled()
    (coupling,) = report.found
    assert (coupling.condition, coupling.cause, coupling.in_training) == (LEFT, "expert capacity", False)
    assert coupling.size > 1e-3
    padded = check(remade(LeftPadded, expert_capacity=2), 4)
    assert not padded.independent
    assert by_condition(padded)[RIGHT].cause == "expert capacity"
    assert by_condition(padded)[RIGHT].size > 1e-3


class OverTheBatch(SwitchTransformersTop1Router):
    """Counts capacity over all tokens of the batch, as they stand in memory."""

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, weights, logits = super().forward(hidden_states)
        chosen = nn.functional.one_hot(logits.argmax(-1), EXPERTS)
        place = chosen.flatten(0, 1).cumsum(0).view_as(chosen)
        return chosen * (place <= self.expert_capacity), weights, logits


class ExpertChoice(SwitchTransformersTop1Router):
    """Lets every expert keep those tokens of the whole batch that want it most."""

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        index, weights, logits = super().forward(hidden_states)
        scores = (logits.softmax(-1) * index).flatten(0, 1)
        best = scores.topk(max(len(scores) // 2 // EXPERTS, 1), dim=0).indices
        kept = torch.zeros_like(scores).scatter_(0, best, 1).view_as(logits)
        return index * kept.to(index.dtype), weights, logits


@pytest.mark.parametrize(
    ("kind", "cause"), [(OverTheBatch, "expert capacity"), (ExpertChoice, "expert-choice routing")]
)
def test_routing_that_looks_at_the_whole_batch_is_seen(kind: type[SwitchTransformersTop1Router], cause: str) -> None:
    adapted = adapt(expert_capacity=3)
    for block in sparse_blocks(adapted.model).values():
        block.router.__class__ = kind
    found = by_condition(check(adapted, 4))
    assert found[TOGETHER].cause == found["the batch backwards"].cause == cause
    assert found[TOGETHER].size > 1e-3


def test_a_coupling_that_starts_at_the_size_of_a_micro_batch_is_seen() -> None:
    threshold = 8

    class LargeBatches(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            losses = super().losses(records)
            return losses * losses.mean() if len(records) > threshold else losses

    adapted = remade(LargeBatches)
    assert check(adapted, batch_size=threshold).independent
    assert not check(adapted, batch_size=2 * threshold).independent


def test_what_depends_on_the_order_or_on_few_companions_is_seen() -> None:
    class LongestFirst(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            lengths = records.attention_mask.sum(1)
            return super().losses(records) * (2 if lengths[0] < lengths[-1] else 1)

    class NotANumberInPairs(SwitchClassifier):
        def losses(self, records: Records) -> Tensor:
            return super().losses(records) * (math.nan if len(records) == 2 else 1)

    assert {c.condition for c in check(remade(LongestFirst)).found} == {"the batch backwards"}
    assert {c.condition for c in check(remade(NotANumberInPairs)).found} == {"fewer other records in the batch"}


class OnlyFloat32(SwitchClassifier):
    def losses(self, records: Records) -> Tensor:
        with self._precision():
            logits = self.model(records.input_ids, records.attention_mask) @ torch.eye(3)  # fails in float64
        return nn.functional.cross_entropy(logits, records.labels, reduction="none")


class OnlyFloat32Mean(OnlyFloat32):
    def losses(self, records: Records) -> Tensor:
        return super().losses(records) / len(records)


def test_a_model_that_cannot_run_in_float64_is_measured_in_float32() -> None:
    report = check(remade(OnlyFloat32))
    assert (report.dtype, report.tolerance, report.independent) == (torch.float32, 1e-5, True)
    assert 0 < max(c.size for c in report.couplings) < 1e-5
    coupled = by_condition(check(remade(OnlyFloat32Mean)))[TOGETHER]
    assert coupled.size == pytest.approx(2 / 3, rel=1e-4)
    assert coupled.cause == "batch-mean loss"


def test_a_probe_that_could_show_nothing_is_refused() -> None:
    same = random_records(1).take(torch.tensor([0, 0, 0]))
    for probe in (random_records(1), same):
        with pytest.raises(ValueError, match="two records of different length"):
            check_record_independence(adapt(), probe)

"""The owner rule: one owner a record, from that record's real tokens and activated experts alone."""

import numpy as np
import pytest
import torch
from transformers.models.switch_transformers import modeling_switch_transformers as switch

from raptor_acct.routing import owners_from_gates
from raptor_train.adapters.switch import router_gates, sparse_blocks
from raptor_train.owner import owner_of
from raptor_train.records import Records

from .conftest import random_records, tiny_classifier


def test_padding_counts_for_nothing() -> None:
    model, records = tiny_classifier().eval(), random_records(6)
    longer = Records(
        torch.nn.functional.pad(records.input_ids, (0, 30), value=7),
        torch.nn.functional.pad(records.attention_mask, (0, 30)),
        records.labels,
    )
    for layer, gates in router_gates(model, records.input_ids, records.attention_mask).items():
        padded = router_gates(model, longer.input_ids, longer.attention_mask)[layer]
        assert torch.equal(owner_of(gates, records.attention_mask), owner_of(padded, longer.attention_mask))


def test_only_activated_experts_count_and_ties_go_to_the_lowest_index() -> None:
    gates = torch.tensor([[[0.4, 0.6, 0.0], [0.4, 0.0, 0.6]]])
    mask = torch.ones(1, 2)
    assert owner_of(gates, mask, top_k=3).item() == 0  # .8 against .6 and .6
    assert owner_of(gates, mask, top_k=1).item() == 1  # only the winners count: .6 and .6 tie


def test_gates_that_are_cut_already_all_count() -> None:
    gates = torch.tensor([[[0.5, 0.3, 0.2, 0.0], [0.0, 0.3, 0.2, 0.5], [0.0, 0.4, 0.5, 0.1]]])
    mask = torch.ones(1, 3)
    assert owner_of(gates, mask).item() == 1  # 1.0, the largest sum although never the largest of a token
    assert owner_of(gates, mask, top_k=1).item() == 0  # .5, .5 and .5 tie


def test_the_rule_is_the_accountings_rule() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(200, 7, 5, generator=generator)
    gates = torch.where(scores == scores.max(-1, keepdim=True).values, scores, 0)
    mask = (torch.rand(200, 7, generator=generator) < 0.7).long()
    mask[:, 0] = 1
    assert np.array_equal(owner_of(gates, mask).numpy(), owners_from_gates(gates.numpy(), mask.numpy()))


def test_gates_are_the_experts_the_router_really_used() -> None:
    model, records = tiny_classifier(expert_capacity=2).eval(), random_records(6)
    blocks, used = sparse_blocks(model), {}
    handles = [
        block.experts.register_forward_pre_hook(lambda module, args, layer=layer: used.update({layer: args[1:]}))
        for layer, block in blocks.items()
    ]
    gates = router_gates(model, records.input_ids, records.attention_mask)
    for handle in handles:
        handle.remove()
    dropped = 0
    for layer, (chosen, weights) in used.items():
        expected = (chosen[:, 0] * weights).reshape(6, 10, -1)
        assert torch.allclose(gates[layer], expected, atol=1e-7)
        dropped += int((expected.sum(-1) == 0).sum())
    assert dropped > 0  # the capacity was felt


def test_layers_are_keyed_by_their_real_number() -> None:
    model = tiny_classifier()
    assert sorted(sparse_blocks(model)) == [1, 3]
    assert isinstance(sparse_blocks(model)[3], switch.SwitchTransformersSparseMLP)


@pytest.mark.parametrize("top_k", [0, 4, -1])
def test_top_k_outside_the_experts_is_refused(top_k: int) -> None:
    with pytest.raises(ValueError, match="top_k"):
        owner_of(torch.rand(2, 3, 3), torch.ones(2, 3), top_k)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3, 3\).*\(2, 4\)"):
        owner_of(torch.rand(2, 3, 3), torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"\(2, 1, 3, 3\)"):
        owner_of(torch.rand(2, 3, 3), torch.ones(2, 1, 3, 3))

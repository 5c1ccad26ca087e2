"""What an adapter must keep and report of every family: outputs, routing, losses and roles."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    Qwen2MoeForTokenClassification,
)

from raptor_acct import RolePlan, SubsampledGaussian
from raptor_train.adapters import AdaptedModel, Lora, adapt, router_gates
from raptor_train.adapters.families import sparse_layers
from raptor_train.adapters.precision import InDouble
from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.configurations import configuration
from raptor_train.modeling import EncoderClassifier
from raptor_train.public import measure_routing
from raptor_train.records import Records
from raptor_train.roles import check_roles
from raptor_train.step import record_gradients
from raptor_train.tape import Tape, recording
from raptor_train.trainer import make_private

from .conftest import adapt as adapt_switch
from .conftest import random_records, randomise, tiny_classifier
from .family_models import DECODERS, EXPERTS, LAYER, TASKS, adapt_decoder, logits, records_for, tiny_decoder

EVERY_FAMILY = pytest.mark.parametrize("family", DECODERS)
BOTH_TASKS = pytest.mark.parametrize("task", TASKS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@BOTH_TASKS
@EVERY_FAMILY
def test_outputs_are_bit_identical_before_the_first_step(family: str, task: str, dtype: torch.dtype) -> None:
    model, records = tiny_decoder(family, task).to(dtype), records_for(task)
    model.set_experts_implementation("eager")
    before = logits(model, records)
    adapt(model, expert_layers=[LAYER])
    assert torch.equal(logits(model, records), before)


@BOTH_TASKS
@EVERY_FAMILY
def test_detaching_restores_the_model(family: str, task: str) -> None:
    model, records = tiny_decoder(family, task), records_for(task)
    model.get_input_embeddings().requires_grad_(False)
    before, names = logits(model, records), {name: p.requires_grad for name, p in model.named_parameters()}
    implementation = model.config._experts_implementation
    adapted = adapt(model, expert_layers=[LAYER])
    with torch.no_grad():
        for layer in adapted.expert.layers:
            layer.weight.normal_()
    assert not torch.equal(logits(model, records), before)
    assert model.config._experts_implementation == "eager"
    assert adapted.detach() is model
    assert model.config._experts_implementation == implementation
    assert torch.equal(logits(model, records), before)
    assert {name: p.requires_grad for name, p in model.named_parameters()} == names


@EVERY_FAMILY
def test_a_batch_of_records_gives_the_same_outputs_while_a_tape_is_set(family: str) -> None:
    adapted, records = adapt_decoder(family), records_for("classification")
    randomise(adapted)
    seen: list[Tensor] = []
    handle = adapted.model.score.register_forward_hook(lambda module, args, output: seen.append(output))
    adapted.losses(records)
    record_gradients(adapted.shared, adapted, records)
    handle.remove()
    assert torch.allclose(*seen, rtol=1e-5, atol=1e-6)


def test_rows_that_cannot_be_told_apart_by_record_are_refused() -> None:
    adapted, records = adapt_decoder("qwen2_moe"), records_for("classification", 4)
    for role in (adapted.shared, adapted.expert):
        with recording(role.trained_layers, Tape(3)), pytest.raises(ValueError, match="each of 3 records, got 40 rows"):
            adapted.losses(records)


def test_nothing_below_the_trained_experts_keeps_a_graph() -> None:
    adapted, records = adapt_decoder("deepseek_v2"), records_for("classification")
    seen: list[bool] = []
    for layer in adapted.model.base_model.layers:
        layer.mlp.register_forward_pre_hook(lambda module, args: seen.append(args[0].requires_grad))
    record_gradients(adapted.expert, adapted, records, others=adapted.shared.parameters)
    assert seen == [False, False, True]


def test_in_double_nothing_is_rounded_to_float32() -> None:
    double = torch.tensor([1 / 3], dtype=torch.float64)
    router = sparse_layers(tiny_decoder("mixtral").double())[0].gate
    assert router(torch.ones(2, 16, dtype=torch.float64))[1].dtype == torch.float32
    with InDouble():
        for found in (
            double.float(),
            double.to(torch.float32),
            double.type(torch.float32),
            double.to(dtype=torch.float),
        ):
            assert torch.equal(found, double)
        assert nn.functional.softmax(double, dim=0, dtype=torch.float32).dtype == torch.float64
        assert router(torch.ones(2, 16, dtype=torch.float64))[1].dtype == torch.float64
        assert torch.tensor([1]).float().dtype == torch.float32
    assert double.float().dtype == torch.float32


ROUTING = [
    ("olmoe", {}),
    ("olmoe", {"norm_topk_prob": True}),
    ("mixtral", {}),
    ("mixtral", {"top_k": 8}),
    ("qwen2_moe", {}),
    ("qwen3_moe", {"top_k": 8}),
    ("deepseek_v2", {}),
    ("deepseek_v2", {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "top_k": 4}),
    ("deepseek_v3", {}),
    ("deepseek_v3", {"n_group": 3, "topk_group": 2, "top_k": 4}),
    ("deepseek_v3", {"n_group": 3, "topk_group": 1, "top_k": 3, "norm_topk_prob": False}),
]


@pytest.mark.parametrize(("family", "settings"), ROUTING, ids=str)
def test_gates_are_what_the_router_gives_the_experts(family: str, settings: dict[str, Any]) -> None:
    model, records = tiny_decoder(family, **settings), random_records()
    used: dict[int, tuple[Tensor, Tensor]] = {}
    handles = [
        mlp.experts.register_forward_pre_hook(lambda module, args, i=i: used.update({i: args[1:]}))
        for i, mlp in sparse_layers(model).items()
    ]
    gates = router_gates(model, records.input_ids, records.attention_mask)
    for handle in handles:
        handle.remove()
    assert gates.keys() == used.keys()
    for layer, (chosen, weights) in used.items():
        expected = torch.zeros(len(chosen), EXPERTS).scatter(1, chosen, weights).unflatten(0, records.input_ids.shape)
        assert torch.equal(gates[layer] > 0, expected > 0)
        assert torch.allclose(gates[layer], expected, rtol=1e-6, atol=0)


def test_groups_matter_where_the_configuration_has_them() -> None:
    records = random_records()
    grouped = tiny_decoder("deepseek_v3", n_group=3, topk_group=1)
    plain = tiny_decoder("deepseek_v3", n_group=3, topk_group=3)
    first, second = (router_gates(m, records.input_ids, records.attention_mask)[LAYER] for m in (grouped, plain))
    assert not torch.equal(first > 0, second > 0)


@EVERY_FAMILY
def test_layers_are_keyed_by_their_real_number(family: str) -> None:
    sparse = [0, 1, 2] if family in ("olmoe", "mixtral") else [1, 2]
    model = tiny_decoder(family)
    assert list(measure_routing(model, random_records(20))) == sparse
    for wrong in ([3], [LAYER, LAYER], [], *([[0]] if sparse[0] else [])):
        with pytest.raises(ValueError, match=rf"sparse layers \[{', '.join(map(str, sparse))}\]"):
            adapt(model, expert_layers=wrong)
    assert all(p.requires_grad for p in model.parameters())


@EVERY_FAMILY
def test_classification_losses_are_those_of_transformers(family: str) -> None:
    adapted, records = adapt_decoder(family), records_for("classification")
    randomise(adapted)
    expected = nn.functional.cross_entropy(logits(adapted.model, records), records.labels, reduction="none")
    assert torch.allclose(adapted.losses(records), expected, rtol=1e-5)


@EVERY_FAMILY
def test_language_model_losses_are_those_of_transformers_on_each_record_alone(family: str) -> None:
    adapted, records = adapt_decoder(family, "language model"), records_for("language model")
    randomise(adapted)
    losses = adapted.losses(records)
    for i in range(len(records)):
        record = records.take(torch.tensor([i])).trimmed()
        if record.input_ids.shape[1] > 1:
            expected = adapted.model(input_ids=record.input_ids, labels=record.labels).loss
            assert torch.allclose(losses[i], expected, rtol=1e-5)


def test_a_record_without_a_predicted_token_has_no_loss_and_no_gradient() -> None:
    adapted = adapt_decoder("olmoe", "language model")
    one_token = Records.for_language_modelling(torch.tensor([[5, 0]]), torch.tensor([[1, 0]]))
    for records in (one_token, one_token.trimmed()):
        assert adapted.losses(records).tolist() == [0.0]
        rows = record_gradients(adapted.shared, adapted, records).rows
        assert all(not (r.left.mT @ r.right).any() for r in rows)


def test_padding_is_never_predicted_whatever_its_label() -> None:
    adapted, records = adapt_decoder("olmoe", "language model"), records_for("language model")
    labels = torch.where(records.attention_mask == 1, records.labels, 7)
    assert torch.equal(
        adapted.losses(Records(records.input_ids, records.attention_mask, labels)), adapted.losses(records)
    )


def test_a_real_token_that_equals_the_padding_id_counts_as_real() -> None:
    adapted = adapt_decoder("mixtral")
    randomise(adapted)
    ids, label = torch.tensor([[7, 9, 0]]), torch.tensor([1])
    loss = adapted.losses(Records(ids, torch.ones_like(ids), label))
    assert not torch.allclose(loss, adapted.losses(Records(ids, torch.tensor([[1, 1, 0]]), label)))


def test_labels_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="for_language_modelling"):
        adapt_decoder("mixtral", "language model").losses(records_for("classification"))
    for classifier in (adapt_decoder("mixtral"), adapt_switch()):
        with pytest.raises(ValueError, match="for a classifier, got token labels"):
            classifier.losses(records_for("language model"))


@BOTH_TASKS
@EVERY_FAMILY
def test_roles_hold_every_trainable_tensor_and_neither_routers_nor_the_language_head(family: str, task: str) -> None:
    adapted = adapt_decoder(family, task, tie_word_embeddings=task == "language model")
    check_roles(adapted.model, [adapted.shared, adapted.expert])
    names = [name for name, p in adapted.model.named_parameters() if p.requires_grad]
    shared_experts = [name for name in names if "shared_expert" in name]
    assert bool(shared_experts) == (family in ("qwen2_moe", "deepseek_v2", "deepseek_v3"))
    assert all(".down." in n or ".up." in n or n == "score.weight" for n in names)
    assert len(adapted.expert.parameters) == 4 * EXPERTS
    assert ("score.weight" in names) == (task == "classification")
    assert adapted.num_labels == (3 if task == "classification" else 50)


@pytest.mark.parametrize("family", ["olmoe", "deepseek_v3"])
def test_a_private_cycle_changes_both_roles_and_nothing_else(family: str, tmp_path: Path) -> None:
    adapted = adapt_decoder(family)
    before = {name: p.detach().clone() for name, p in adapted.model.named_parameters()}
    trained = {id(p) for p in (*adapted.shared.parameters, *adapted.expert.parameters)}
    stream = SubsampledGaussian(num_steps=1, sampling_probability=0.5, noise_multiplier=1.0)
    make_private(
        adapted,
        None,
        records_for("classification"),
        RolePlan(shared=stream, expert=stream),
        clip_shared=1.0,
        clip_expert=1.0,
        ledger_path=tmp_path / "ledger.jsonl",
        probe=records_for("classification", 3, seed=5),
    ).run()
    for name, parameter in adapted.model.named_parameters():
        assert torch.equal(before[name], parameter) == (id(parameter) not in trained), name


@EVERY_FAMILY
def test_routing_is_measured_on_any_family(family: str) -> None:
    stats = measure_routing(tiny_decoder(family, top_k=8), random_records(50), micro_batch_size=20)[LAYER]
    assert stats.num_experts == EXPERTS
    assert stats.num_records == 50


def test_a_model_that_is_not_known_is_told_what_an_adapter_needs() -> None:
    bert = BertModel(BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1))
    headless = tiny_decoder("olmoe").base_model
    other_head = Qwen2MoeForTokenClassification(tiny_decoder("qwen2_moe").config)
    for model in (bert, headless, other_head):
        for call in (lambda m: adapt(m, expert_layers=[0]), lambda m: measure_routing(m, random_records())):
            with pytest.raises(ValueError, match=r"(?s)Switch.*olmoe.*deepseek_v3.*routing rule.*per-record losses"):
                call(model)


def test_a_model_is_adapted_once() -> None:
    for model in (tiny_decoder("qwen2_moe"), tiny_classifier()):
        adapted = adapt(model, expert_layers=[1])
        with pytest.raises(ValueError, match="already adapted"):
            adapt(model, expert_layers=[1])
        adapt(adapted.detach(), expert_layers=[1])


def test_a_decoder_whose_layers_are_all_dense_is_refused() -> None:
    with pytest.raises(ValueError, match="no sparse layer"):
        adapt(tiny_decoder("qwen3_moe", mlp_only_layers=[0, 1, 2]), expert_layers=[0])


def test_a_copy_of_an_adapted_model_is_independent_of_it() -> None:
    adapted, records = adapt_decoder("deepseek_v3"), records_for("classification")
    before = adapted.losses(records)
    twin: AdaptedModel = copy.deepcopy(adapted)
    with torch.no_grad():
        for layer in (*twin.shared.layers, *twin.expert.layers):
            layer.weight.normal_()
        for parameter in twin.model.parameters():
            parameter.mul_(1.1)
    assert torch.equal(adapted.losses(records), before)
    assert not torch.allclose(twin.losses(records), before)


# Sums of the published weight files; DeepSeek-V3's hold the 58 x 256 routing biases in addition, which do not train.
PUBLISHED_SIZES = {
    "allenai/OLMoE-1B-7B-0924": 6_919_161_856,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V3": 671_026_419_200 - 58 * 256,
}


@pytest.mark.parametrize(("name", "size"), PUBLISHED_SIZES.items())
def test_full_configurations_have_the_published_sizes_and_can_be_adapted(name: str, size: int) -> None:
    config = configuration(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(p.numel() for p in model.parameters()) == size
    layer = getattr(config, "first_k_dense_replace", 0)
    rank = 2
    adapted = adapt(model, expert_layers=[layer], shared=Lora(rank=rank), expert=Lora(rank=rank))
    hidden, width = config.hidden_size, getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    fused = rank * (hidden + 2 * width), rank * (width + hidden)  # gate and up in one, down
    assert adapted.expert.num_parameters == adapted.num_experts * sum(fused)


def test_switch_base_8_has_the_papers_counts() -> None:
    with torch.device("meta"):
        model = EncoderClassifier(configuration("google/switch-base-8"), num_labels=2)
    assert sum(p.numel() for p in model.parameters()) == 307_847_810
    lora = Lora(rank=128)
    adapted = adapt(model, expert_layers=[1], shared=lora, expert=lora)
    assert isinstance(adapted, SwitchClassifier)
    assert adapted.shared.num_parameters == 9_438_722
    assert adapted.expert.num_parameters == 7_864_320

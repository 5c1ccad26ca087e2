"""Every decoder family: what is summed equals plain autograd on one record at a time (float64, relative 1e-12)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from raptor_train.adapters import DecoderModel
from raptor_train.adapters.families import sparse_layers
from raptor_train.baselines import everything
from raptor_train.clipping import CLIP_SLACK
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream, current_owners, sum_clipped

from .conftest import randomise
from .family_models import DECODERS, EXPERTS, LAYER, adapt_decoder, records_for

BOTH_STREAMS = pytest.mark.parametrize("role_name", ["shared", "expert"])
EVERY_FAMILY = pytest.mark.parametrize("family", DECODERS)
TOLERANCE = 1e-12


def exact(family: str, task: str = "classification", **changes: int) -> DecoderModel:
    adapted = adapt_decoder(family, task, **changes).double()
    randomise(adapted)
    return adapted


def stream_of(role: Role, clip_norm: float) -> Stream:
    return Stream(
        role=role, sampling_probability=0.5, noise_multiplier=1.0, num_steps=1, clip_norm=clip_norm, denominator=4.0
    )


def gradient_of(adapted: DecoderModel, record: Records, role: Role) -> list[Tensor]:
    """Autograd on one unpadded record; the owner comes from the weights and indices that the router itself returns."""
    routed: list[tuple[Tensor, Tensor]] = []
    router = sparse_layers(adapted.model)[adapted.expert_layers[0]].gate
    handle = router.register_forward_hook(lambda module, args, output: routed.append(output[1:]))
    loss = adapted.losses(record.trimmed()).sum()
    handle.remove()
    ((weights, experts),) = routed
    mass = torch.zeros(EXPERTS, dtype=weights.dtype).index_add_(0, experts.flatten(), weights.detach().flatten())
    owner = int(mass.argmax())
    reached = [layer.weight for layer in role.layers if not role.owned or layer.expert == owner]
    gradients = dict(zip(map(id, reached), torch.autograd.grad(loss, reached, allow_unused=True), strict=True))
    found = [gradients.get(id(p)) for p in role.parameters]
    return [torch.zeros_like(p) if g is None else g for p, g in zip(role.parameters, found, strict=True)]


def norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(t.square().sum()) for t in tensors))


def loop(adapted: DecoderModel, records: Records, role: Role) -> tuple[float, list[Tensor]]:
    """A clip norm that clips about half of the records, and the sum of the clipped gradients."""
    gradients = [gradient_of(adapted, records.take(torch.tensor([i])), role) for i in range(len(records))]
    norms = [norm(gradient) for gradient in gradients]
    clip_norm = sorted(norms)[len(norms) // 2]
    assert clip_norm > 0
    bound = clip_norm * (1 - CLIP_SLACK[torch.float64])
    factors = [min(1.0, bound / n) if n else 1.0 for n in norms]
    return clip_norm, [
        sum(f * g for f, g in zip(factors, column, strict=True)) for column in zip(*gradients, strict=True)
    ]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    scale = max(float(t.abs().max()) for t in expected)
    assert scale > 0
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).abs().max()) <= TOLERANCE * scale


@pytest.mark.parametrize(
    ("task", "top_k", "rank"),  # records have 10 tokens; every pair of settings occurs
    [("classification", 1, 2), ("language model", 1, 12), ("language model", 8, 2), ("classification", 8, 12)],
)
@BOTH_STREAMS
@EVERY_FAMILY
def test_clipped_sums_equal_a_one_record_autograd_loop(
    family: str, task: str, role_name: str, top_k: int, rank: int
) -> None:
    adapted, records = exact(family, task, rank=rank, top_k=top_k), records_for(task, 5)
    role = getattr(adapted, role_name)
    clip_norm, expected = loop(adapted, records, role)
    for size in (1, 3, len(records)):
        assert_equal(sum_clipped(stream_of(role, clip_norm), adapted, records, micro_batch_size=size), expected)


@pytest.mark.parametrize("family", ["qwen2_moe", "deepseek_v3"])
def test_without_owners_every_activated_expert_gets_the_gradient(family: str) -> None:
    adapted, records = exact(family, top_k=8), records_for("classification")
    role = everything(adapted)
    clip_norm, expected = loop(adapted, records, role)
    assert_equal(sum_clipped(stream_of(role, clip_norm), adapted, records), expected)


@BOTH_STREAMS
@EVERY_FAMILY
def test_removing_any_record_changes_the_sum_by_at_most_the_clip_norm(family: str, role_name: str) -> None:
    adapted, records = exact(family, top_k=8), records_for("classification", 5)
    stream = stream_of(getattr(adapted, role_name), 1e-3)
    whole = sum_clipped(stream, adapted, records)
    for i in range(len(records)):
        without = sum_clipped(stream, adapted, records.take(torch.arange(len(records)) != i))
        change = norm([a - b for a, b in zip(whole, without, strict=True)])
        assert 0.9 * stream.clip_norm < change <= stream.clip_norm


@EVERY_FAMILY
def test_one_expert_owns_everything_and_the_others_have_no_token(family: str) -> None:
    adapted, records = exact(family, top_k=1), records_for("classification")
    with torch.no_grad():
        sparse_layers(adapted.model)[LAYER].gate.weight.zero_()  # a tie in every token
    (gates,) = adapted.gates(records).values()
    assert (gates.flatten(0, 1) > 0).any(0).sum() == 1
    clip_norm, expected = loop(adapted, records, adapted.expert)
    found = sum_clipped(stream_of(adapted.expert, clip_norm), adapted, records)
    assert_equal(found, expected)
    owner = int(current_owners(adapted, records)[0])
    for layer, total in zip(adapted.expert.layers, found, strict=True):
        assert (layer.expert == owner) == bool(total.any())


@EVERY_FAMILY
def test_top_8_trains_the_owner_alone_although_other_experts_compute_too(family: str) -> None:
    adapted, records = exact(family, top_k=8), records_for("classification", 1)
    (gates,) = adapted.gates(records).values()
    assert ((gates > 0).sum(-1) == 8).all()
    sums = sum_clipped(stream_of(adapted.expert, 1.0), adapted, records)
    changed = {layer.expert for layer, total in zip(adapted.expert.layers, sums, strict=True) if total.any()}
    assert changed == set(current_owners(adapted, records).tolist())


@BOTH_STREAMS
@EVERY_FAMILY
def test_an_empty_batch_gives_zero(family: str, role_name: str) -> None:
    adapted, nobody = exact(family), torch.tensor([], dtype=torch.int64)
    role = getattr(adapted, role_name)
    sums = sum_clipped(stream_of(role, 1.0), adapted, records_for("classification").take(nobody))
    assert [total.shape for total in sums] == [p.shape for p in role.parameters]
    assert not any(total.any() for total in sums)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@BOTH_STREAMS
@EVERY_FAMILY
def test_a_record_whose_states_are_not_finite_contributes_nothing(family: str, role_name: str, value: float) -> None:
    adapted, records = exact(family), records_for("classification", 6)
    word = 1  # stands in no record but the third
    records.input_ids[2, 0] = word
    with torch.no_grad():
        adapted.model.get_input_embeddings().weight[word] = value
    assert not adapted.losses(records)[2].isfinite()
    stream = stream_of(getattr(adapted, role_name), 0.1)
    others = sum_clipped(stream, adapted, records.take(torch.arange(6) != 2))
    assert_equal(sum_clipped(stream, adapted, records), others)

"""Both clipped sums against a loop that differentiates one record at a time (float64, 1e-12)."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.baselines import everything
from raptor_train.clipping import CLIP_SLACK, RecordGradients, clip_weights, clipped_sums
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream, current_owners, sum_clipped
from raptor_train.tape import RecordedLinear, Rows, Tape, recording

from .conftest import EXPERTS, adapt, random_records, randomise


def stream_of(role: Role, clip_norm: float) -> Stream:
    return Stream(
        role=role, sampling_probability=0.5, noise_multiplier=1.0, num_steps=1, clip_norm=clip_norm, denominator=4.0
    )


def one_record_gradient(adapted: SwitchClassifier, record: Records, role: Role) -> list[Tensor]:
    """Plain autograd on one unpadded record; with owners only the owner's tensors keep their gradient."""
    gradients = torch.autograd.grad(adapted.losses(record.trimmed()).sum(), role.parameters, allow_unused=True)
    owner = int(current_owners(adapted, record.trimmed())) if role.owned else None
    tensors = [(p, layer.expert) for layer in role.layers for p in (layer.weight, layer.bias) if p is not None]
    experts = [expert for p, expert in tensors if p.requires_grad]
    return [
        torch.zeros_like(p) if g is None or (owner is not None and expert != owner) else g
        for p, g, expert in zip(role.parameters, gradients, experts, strict=True)
    ]


def loop_sum(adapted: SwitchClassifier, records: Records, role: Role, clip_norm: float) -> list[Tensor]:
    totals = [torch.zeros_like(p) for p in role.parameters]
    for i in range(len(records)):
        gradient = one_record_gradient(adapted, records.take(torch.tensor([i])), role)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradient))
        factor = min(1.0, clip_norm * (1 - CLIP_SLACK[torch.float64]) / norm) if norm else 1.0
        for total, g in zip(totals, gradient, strict=True):
            total += factor * g
    return totals


def assert_close(left: list[Tensor], right: list[Tensor], tolerance: float = 1e-12) -> None:
    scale = max(float(r.abs().max()) for r in right)
    assert scale > 0
    for a, b in zip(left, right, strict=True):
        assert float((a - b).abs().max()) <= tolerance * max(scale, 1.0)


@pytest.mark.parametrize("rank", [2, 12], ids=["rank<tokens", "rank>tokens"])
@pytest.mark.parametrize("micro_batch_size", [1, 3, 8, 100])
@pytest.mark.parametrize("role_name", ["shared", "expert", "all"])
def test_clipped_sums_equal_a_one_record_autograd_loop(role_name: str, micro_batch_size: int, rank: int) -> None:
    adapted, records = adapt(rank).double(), random_records(8)
    randomise(adapted)
    role = {"shared": adapted.shared, "expert": adapted.expert, "all": everything(adapted)}[role_name]
    norms = sorted(
        math.sqrt(
            sum(float(g.square().sum()) for g in one_record_gradient(adapted, records.take(torch.tensor([i])), role))
        )
        for i in range(8)
    )
    clip_norm = norms[4]  # clips about half of the records
    got = sum_clipped(stream_of(role, clip_norm), adapted, records, micro_batch_size=micro_batch_size)
    assert_close(got, loop_sum(adapted, records, role, clip_norm))


def test_experts_of_several_layers_are_clipped_together_in_a_monolithic_role() -> None:
    adapted, records = adapt(layers=(1, 3)).double(), random_records(6)
    randomise(adapted)
    role = everything(adapted)
    assert_close(sum_clipped(stream_of(role, 0.5), adapted, records), loop_sum(adapted, records, role, 0.5))


@pytest.mark.parametrize("role_name", ["shared", "expert"])
def test_removing_any_record_changes_the_sum_by_at_most_the_clip_norm(role_name: str) -> None:
    adapted, records = adapt().double(), random_records(8)
    randomise(adapted)
    role, clip_norm = getattr(adapted, role_name), 1e-3
    whole = sum_clipped(stream_of(role, clip_norm), adapted, records)
    for i in range(8):
        rest = torch.arange(8) != i
        without = sum_clipped(stream_of(role, clip_norm), adapted, records.take(rest))
        change = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(whole, without, strict=True)))
        assert 0.9 * clip_norm < change <= clip_norm


def test_a_record_changes_its_owners_parameters_only() -> None:
    adapted, records = adapt().double(), random_records(8)
    randomise(adapted)
    stream = stream_of(adapted.expert, 0.1)
    owners = current_owners(adapted, records)
    experts = [layer.expert for layer in adapted.expert.layers]
    whole = sum_clipped(stream, adapted, records, owners=owners)
    for i in range(8):
        rest = torch.arange(8) != i
        without = sum_clipped(stream, adapted, records.take(rest), owners=owners[rest], micro_batch_size=8)
        changed = {e for e, a, b in zip(experts, whole, without, strict=True) if float((a - b).norm()) > 1e-9}
        assert changed == {int(owners[i])}


def test_an_empty_batch_and_an_expert_without_records_give_zero() -> None:
    adapted, records = adapt(), random_records(8)
    stream = stream_of(adapted.expert, 1.0)
    assert all(not s.any() for s in sum_clipped(stream, adapted, records.take(torch.tensor([], dtype=torch.int64))))
    one_owner = torch.full((8,), 2)
    sums = sum_clipped(stream, adapted, records, owners=one_owner)
    for layer, total in zip(adapted.expert.layers, sums, strict=True):
        assert layer.expert == 2 or not total.any()
    assert {layer.expert for layer in adapted.expert.layers} == set(range(EXPERTS))


def test_a_record_with_a_non_finite_gradient_contributes_nothing() -> None:
    adapted, records = adapt().double(), random_records(4)
    randomise(adapted)
    plain = adapted.losses

    def poisoned(part: Records) -> Tensor:
        return plain(part) * torch.where(part.labels == 0, float("nan"), 1.0)

    labels = torch.tensor([1, 0, 2, 1])
    records = Records(records.input_ids, records.attention_mask, labels)
    for role in (adapted.shared, adapted.expert):
        adapted.losses = poisoned  # type: ignore[method-assign]
        with_nan = sum_clipped(stream_of(role, 1.0), adapted, records)
        adapted.losses = plain  # type: ignore[method-assign]
        without = sum_clipped(stream_of(role, 1.0), adapted, records.take(labels != 0))
        assert_close(with_nan, without)


def test_frozen_tensors_count_neither_in_the_norm_nor_in_the_sum() -> None:
    adapted, records = adapt().double(), random_records(4)
    randomise(adapted)
    for layer in adapted.expert.layers[::2]:
        layer.weight.requires_grad_(False)
    role = Role(name="expert", layers=tuple(x for x in adapted.expert.layers if x.weight.requires_grad), owned=True)
    assert_close(sum_clipped(stream_of(adapted.expert, 1e-3), adapted, records), loop_sum(adapted, records, role, 1e-3))


def test_gradients_of_parameters_stay_untouched_and_nothing_below_the_layer_keeps_a_graph() -> None:
    adapted, records = adapt(layers=(3,)), random_records(4)
    randomise(adapted)
    seen = []
    lower = adapted.model.encoder.encoder.block[2]
    handle = lower.register_forward_hook(lambda module, args, output: seen.append(output[0].requires_grad))
    sum_clipped(stream_of(adapted.expert, 1.0), adapted, records, others=adapted.shared.parameters)
    handle.remove()
    assert seen == [False, False]  # the pass for owners, then the one for gradients
    assert all(p.grad is None for p in (*adapted.shared.parameters, *adapted.expert.parameters))
    assert all(p.requires_grad for p in adapted.shared.parameters)


def test_clip_weights() -> None:
    norms = torch.tensor([0.0, 0.5, 2.0, float("inf"), float("nan")], dtype=torch.float64)
    expected = torch.tensor([1.0, 1.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    assert torch.allclose(clip_weights(norms, 1.0, torch.float64), expected)
    assert clip_weights(norms, math.inf, torch.float64).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


# (in, out, tokens): gradients formed; norms of gradients formed in passing; norms from Gram matrices; one wide layer
SHAPES = [(8, 4, 40), (64, 64, 20), (256, 128, 8), (256, 128, 40), (4096, 16, 20), (4096, 64, 4)]


def cancelling(
    width: int, out: int, tokens: int, generator: torch.Generator, *, left_over: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Tokens that nearly cancel."""
    direction = torch.randn(1, 1, out, generator=generator)
    sign = torch.tensor([1.0, -1.0]).repeat(tokens // 2).reshape(1, tokens, 1)
    token = 10 * torch.randn(1, 1, width, generator=generator)
    return direction * sign, token + left_over * torch.randn(1, tokens, width, generator=generator)


# What is left is as small as the rounding of what was there, in float32.
lost_in_rounding = partial(cancelling, left_over=1e-6)


def lossy(width: int, out: int, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Gradients whose every row is 1 and then squares just too small to be added to 1 in float32."""
    left, right = torch.zeros(1, tokens, out), torch.full((1, tokens, width), 2.44e-4)
    left[:, 0], right[:, :, :16] = 1.0, 1.0
    return left, right


@pytest.mark.parametrize("make", [cancelling, lost_in_rounding, lossy])
@pytest.mark.parametrize("clip_norm", [1.0, 1e-3])
@pytest.mark.parametrize(("width", "out", "tokens"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contributions_stay_within_the_clip_norm_whatever_the_rounding(
    dtype: torch.dtype, width: int, out: int, tokens: int, clip_norm: float, make: Callable[..., tuple[Tensor, Tensor]]
) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        left, right = make(width, out, tokens, generator)
        layer = RecordedLinear(width, out, bias=False, dtype=dtype)
        rows = Rows(layer, left.to(dtype), right.to(dtype), torch.tensor([0]))
        (total,) = clipped_sums([rows], 1, clip_norm, [layer.weight])
        assert float(total.double().norm()) <= clip_norm


@pytest.mark.parametrize("size", [16, 4096, 16384])
def test_a_float32_norm_is_never_below_the_exact_one(size: int) -> None:
    """Adding up 16384 squares in float32 may lose more than CLIP_SLACK allows for; the margin makes up for it."""
    _, right = lossy(size, 1, 1, torch.Generator())
    layer = RecordedLinear(size, 8, bias=False)
    rows = Rows(layer, torch.ones(1, 1, 8), right, torch.tensor([0]))
    (norm,) = RecordGradients(rows).squared_norms.sqrt().tolist()
    exact = math.sqrt(8 * sum(float(x) ** 2 for x in right[0, 0]))
    assert exact <= norm <= exact * (1 + 0.3 * size * torch.finfo(torch.float32).eps + 1e-6)


@pytest.mark.parametrize(("width", "out", "tokens"), SHAPES)
def test_every_form_of_a_gradient_gives_the_same_clipped_sum(width: int, out: int, tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(5, tokens, n, generator=generator, dtype=torch.float64) for n in (out, width))
    layer = RecordedLinear(width, out, bias=False, dtype=torch.float64)
    (total,) = clipped_sums([Rows(layer, left, right, torch.arange(5))], 5, 2.0, [layer.weight])
    gradients = left.mT @ right
    factors = (2.0 * (1 - CLIP_SLACK[torch.float64]) / gradients.norm(dim=(1, 2))).clamp(max=1)
    expected = (factors[:, None, None] * gradients).sum(0)
    assert float((total - expected).abs().max()) <= 1e-11 * float(expected.abs().max())


def test_a_tape_that_reduces_rows_at_once_gives_the_same_sums() -> None:
    adapted, records = adapt().double(), random_records(6)
    randomise(adapted)
    gradients: list[RecordGradients] = []
    tape = Tape(len(records), keep=lambda rows: gradients.append(RecordGradients(rows)))
    with recording(adapted.shared.trained_layers, tape):
        adapted.losses(records).sum().backward()
    assert tape.rows == []
    sums = clipped_sums(gradients, len(records), 0.5, adapted.shared.parameters)
    assert_close(sums, loop_sum(adapted, records, adapted.shared, 0.5))


@pytest.mark.parametrize("trained", ["weight", "bias"])
def test_only_the_tensor_that_trains_counts_and_no_gradient_is_left_behind(trained: str) -> None:
    adapted, records = adapt().double(), random_records(6)
    randomise(adapted)
    head = adapted.shared.layers[-1]
    frozen = head.bias if trained == "weight" else head.weight
    frozen.requires_grad_(False)
    role = Role(name="head", layers=(head,))
    assert_close(sum_clipped(stream_of(role, 0.01), adapted, records), loop_sum(adapted, records, role, 0.01))
    assert head.weight.grad is None
    assert head.bias.grad is None

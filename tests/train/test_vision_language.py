"""DeepSeek-VL2-Tiny from parts: images in the sequence, the checks of every family, and the published names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from raptor_acct import RolePlan, SubsampledGaussian
from raptor_train.adapters import AdaptedModel, Lora, adapt, router_gates
from raptor_train.adapters.families import sparse_layers
from raptor_train.adapters.vision_language import (
    DEEPSEEK_VL2_TINY,
    DeepseekVL2,
    DeepseekVL2Config,
    DeepseekVL2ForCausalLM,
    VisionLanguageModel,
)
from raptor_train.adapters.vision_language_weights import load_published, published_names
from raptor_train.independence import check_record_independence
from raptor_train.metrics import score
from raptor_train.owner import owner_of
from raptor_train.public import measure_routing
from raptor_train.records import IGNORED, Records
from raptor_train.roles import check_roles
from raptor_train.step import current_owners, record_gradients, sum_clipped
from raptor_train.trainer import make_private

from .conftest import randomise
from .family_models import EXPERTS, LAYER, TASKS, adapt_decoder, records_for, tiny_decoder
from .test_exactness import assert_equal, loop, norm, stream_of
from .test_family_weights import peft_deltas

FAMILY = "deepseek_vl_v2"
IMAGE = 50  # id of the image token
PER_IMAGE = 17  # 2 · (2 + 1) of the overview, a separator, 2 · (2 · 2 + 1) of a row of two tiles
TEXT_ONLY = 1  # the record without an image

BOTH_TASKS = pytest.mark.parametrize("task", TASKS)
BOTH_STREAMS = pytest.mark.parametrize("role_name", ["shared", "expert"])


def with_images(task: str, num_records: int = 5, seed: int = 0) -> Records:
    """Records of a first token, an image and text; one has no image, and pixels that no one may read."""
    text = records_for("classification", num_records, seed=seed)
    ids = torch.zeros(num_records, PER_IMAGE + text.input_ids.shape[1], dtype=torch.int64)
    mask = ids.clone()
    for i in range(num_records):
        tokens = text.input_ids[i, : int(text.attention_mask[i].sum())]
        if i != TEXT_ONLY:
            tokens = torch.cat([tokens[:1], torch.full((PER_IMAGE,), IMAGE), tokens[1:]])
        ids[i, : len(tokens)], mask[i, : len(tokens)] = tokens, 1
    pixels = torch.randn(num_records, 3, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    pixels[TEXT_ONLY] = math.nan
    if task == "language model":
        return Records.for_language_modelling(ids, mask, pixels)
    return Records(ids, mask, text.labels, pixels)


@torch.no_grad()
def logits(model: Any, records: Records) -> Tensor:
    found: Tensor = model(records.input_ids, records.attention_mask, records.pixel_values).logits
    return found


def exact(task: str, **changes: Any) -> VisionLanguageModel:
    adapted = adapt_decoder(FAMILY, task, **changes).double()
    assert isinstance(adapted, VisionLanguageModel)
    randomise(adapted)
    return adapted


# --- images ---


def test_records_keep_their_pixels() -> None:
    records = with_images("classification")
    pixels = records.pixel_values
    assert torch.equal(records.take(torch.tensor([3, 0])).pixel_values, pixels[[3, 0]])
    assert records.trimmed().pixel_values is pixels
    assert records.padded(2).pixel_values is pixels
    for positions, part in records.micro_batches(2):
        assert torch.equal(part.pixel_values.nan_to_num(), pixels[positions].nan_to_num())
    for wrong in (pixels[1:], pixels[0]):
        with pytest.raises(ValueError, match=r"expected pixel_values \(records=5, tiles, channels, height, width\)"):
            Records(records.input_ids, records.attention_mask, records.labels, wrong)


def test_the_projector_joins_the_values_of_four_neighbouring_patches() -> None:
    model = tiny_decoder(FAMILY)
    patches = torch.randn(2, 9, 8)
    grid = torch.zeros(2, 4, 4, 8)
    grid[:, :3, :3] = patches.reshape(2, 3, 3, 8)
    found = model.projector(patches)
    assert found.shape == (2, 2, 2, 16)
    for row in range(2):
        for column in range(2):
            four = [grid[:, 2 * row + i, 2 * column + j] for i in range(2) for j in range(2)]
            expected = model.projector.layers(torch.stack(four, dim=-1).flatten(1))  # channel first, then place
            assert torch.allclose(found[:, row, column], expected, atol=1e-6)


@torch.no_grad()
def test_an_image_is_read_overview_first_then_row_by_row_across_its_tiles() -> None:
    model = tiny_decoder(FAMILY, tile_grid=(2, 3))
    pixels = torch.randn(2, 7, 3, 6, 6)
    found = model.image_features(pixels)
    assert found.shape == (2, model.config.tokens_per_image, 16)
    for image, tokens in zip(pixels, found, strict=True):
        tiles = model.projector(model.vision(pixel_values=image).last_hidden_state)  # [7, 2, 2, 16]
        expected = []
        for row in range(2):
            expected += [*tiles[0, row], model.image_newline]
        expected.append(model.view_seperator)
        for tile_row in range(2):
            for row in range(2):
                for tile_column in range(3):
                    expected += [*tiles[1 + 3 * tile_row + tile_column, row]]
                expected.append(model.image_newline)
        assert torch.allclose(tokens, torch.stack(expected), atol=1e-6)


def test_features_take_the_places_of_image_tokens_and_only_those() -> None:
    model, records = tiny_decoder(FAMILY), with_images("classification")
    embedding = model.get_input_embeddings()
    plain = embedding(records.input_ids)
    with model.images(records.pixel_values):
        found = embedding(records.input_ids)
    assert torch.equal(embedding(records.input_ids), plain)
    places = records.input_ids == IMAGE
    assert torch.equal(found[~places], plain[~places])
    features = model.image_features(records.pixel_values[[0, 2, 3, 4]])
    assert torch.equal(found[places], features.flatten(0, 1))


def test_the_prediction_depends_on_the_own_image_and_on_no_other() -> None:
    model, records = tiny_decoder(FAMILY), with_images("classification")
    before = logits(model, records)
    assert before.isfinite().all()
    records.pixel_values[2] += 1.0
    changed = (logits(model, records) != before).any(1)
    assert changed.tolist() == [False, False, True, False, False]


def test_images_that_do_not_fit_the_tokens_are_refused() -> None:
    model, records = tiny_decoder(FAMILY), with_images("classification")
    short = records.input_ids.clone()
    short[0, 1] = 7
    for ids, pixels in (
        (records.input_ids, None),
        (records.input_ids, records.pixel_values[:, :2]),
        (short, records.pixel_values),
    ):
        with pytest.raises(ValueError, match=r"expected 17 image tokens \(id 50\) or none in every record"):
            model(ids, records.attention_mask, pixels)
    text = records.take(torch.tensor([TEXT_ONLY]))
    assert model(text.input_ids, text.attention_mask).logits.isfinite().all()


def test_image_tokens_are_never_predicted_whatever_their_label() -> None:
    adapted, records = exact("language model"), with_images("language model")
    assert (records.labels == IMAGE).any()
    labels = records.labels.masked_fill(records.input_ids == IMAGE, IGNORED)
    explicit = Records(records.input_ids, records.attention_mask, labels, records.pixel_values)
    assert torch.equal(adapted.losses(records), adapted.losses(explicit))
    shifted = logits(adapted.model, records)[:, :-1]
    expected = nn.functional.cross_entropy(shifted.mT, labels[:, 1:], ignore_index=IGNORED, reduction="none")
    expected = expected.sum(1) / (labels[:, 1:] != IGNORED).sum(1).clamp(min=1)
    assert torch.allclose(adapted.losses(records), expected, rtol=1e-6)  # the model's own forward rounds to float32


# --- what every family must keep ---


@BOTH_TASKS
def test_outputs_are_bit_identical_before_the_first_step_and_after_detaching(task: str) -> None:
    model, records = tiny_decoder(FAMILY, task), with_images(task)
    model.set_experts_implementation("eager")
    before = logits(model, records)
    adapted = adapt(model, expert_layers=[LAYER])
    assert isinstance(adapted, VisionLanguageModel)
    assert torch.equal(logits(model, records), before)
    randomise(adapted)
    assert not torch.equal(logits(model, records), before)
    if task == "classification":
        expected = nn.functional.cross_entropy(logits(model, records), records.labels, reduction="none")
        assert torch.allclose(adapted.losses(records), expected, rtol=1e-5)
    assert adapted.detach() is model
    if task == "language model":  # a classifier's head keeps what it learned
        assert torch.equal(logits(model, records), before)
    assert all(p.requires_grad for p in model.parameters())


@BOTH_TASKS
def test_the_roles_are_in_the_language_model(task: str) -> None:
    adapted = adapt_decoder(FAMILY, task)
    check_roles(adapted.model, [adapted.shared, adapted.expert])
    trained = {name for name, p in adapted.model.named_parameters() if p.requires_grad}
    assert all(name.startswith("model.layers.") or name == "score.weight" for name in trained)
    assert any(".shared_experts." in name for name in trained)
    assert ("score.weight" in trained) == (task == "classification")
    assert len(adapted.expert.parameters) == 4 * EXPERTS
    assert (adapted.num_labels, adapted.vocabulary_size) == (3 if task == "classification" else 51, 51)


@pytest.mark.parametrize(("task", "top_k", "rank"), [("classification", 1, 30), ("language model", 8, 2)])
@BOTH_STREAMS
def test_clipped_sums_equal_a_one_record_autograd_loop(task: str, role_name: str, top_k: int, rank: int) -> None:
    adapted, records = exact(task, top_k=top_k, rank=rank), with_images(task)
    role = getattr(adapted, role_name)
    clip_norm, expected = loop(adapted, records, role)
    for size in (1, 3):
        assert_equal(sum_clipped(stream_of(role, clip_norm), adapted, records, micro_batch_size=size), expected)


@BOTH_STREAMS
def test_removing_any_record_changes_the_sum_by_at_most_the_clip_norm(role_name: str) -> None:
    adapted, records = exact("classification", top_k=8), with_images("classification")
    stream = stream_of(getattr(adapted, role_name), 1e-3)
    whole = sum_clipped(stream, adapted, records)
    for i in range(len(records)):
        without = sum_clipped(stream, adapted, records.take(torch.arange(len(records)) != i))
        change = norm([a - b for a, b in zip(whole, without, strict=True)])
        assert 0.9 * stream.clip_norm < change <= stream.clip_norm


def test_gates_are_those_of_the_model_before_it_was_adapted() -> None:
    model, records = tiny_decoder(FAMILY), with_images("classification")
    gates = router_gates(model, records.input_ids, records.attention_mask, records.pixel_values)
    assert list(gates) == [1, 2]
    assert torch.equal(adapt(model, expert_layers=[LAYER]).gates(records)[LAYER], gates[LAYER])


def test_routing_and_scores_see_the_images() -> None:
    adapted, records = exact("classification"), with_images("classification", 20)
    layer_stats = measure_routing(adapt_decoder(FAMILY).detach().double(), records, micro_batch_size=8)[LAYER]
    owners = current_owners(adapt_decoder(FAMILY).double(), records)
    assert layer_stats.counts == tuple(owners.bincount(minlength=EXPERTS).tolist())
    assert score(adapted, records).nll == pytest.approx(adapted.losses(records).detach().numpy(), rel=1e-9)


def test_the_owner_is_decided_by_all_tokens_and_alone_gets_the_gradient() -> None:
    adapted, records = exact("classification", top_k=8), with_images("classification", 20)
    (gates,) = adapted.gates(records).values()
    assert ((gates > 0).sum(-1)[records.attention_mask == 1] == 8).all()
    owners = current_owners(adapted, records)
    assert torch.equal(owners, torch.where(records.attention_mask.unsqueeze(-1) == 1, gates, 0).sum(1).argmax(-1))
    text = records.attention_mask * (records.input_ids != IMAGE)
    assert not torch.equal(owners, owner_of(gates, text))  # image tokens count
    for i in range(3):
        record = records.take(torch.tensor([i]))
        sums = sum_clipped(stream_of(adapted.expert, 1.0), adapted, record)
        changed = {layer.expert for layer, total in zip(adapted.expert.layers, sums, strict=True) if total.any()}
        assert changed == {int(owners[i])}


def test_nothing_below_the_trained_experts_keeps_a_graph() -> None:
    adapted, records = exact("classification"), with_images("classification")
    seen: list[bool] = []
    for module in (adapted.model.projector, *(layer.mlp for layer in adapted.model.model.layers)):
        module.register_forward_pre_hook(lambda module, args: seen.append(args[0].requires_grad))
    record_gradients(adapted.expert, adapted, records, others=adapted.shared.parameters)
    assert seen == [False, False, False, True]


@BOTH_STREAMS
def test_a_record_whose_pixels_are_not_finite_contributes_nothing(role_name: str) -> None:
    adapted, records = exact("classification"), with_images("classification")
    records.pixel_values[2, 1, 0, 0, 0] = math.nan
    assert adapted.losses(records).isfinite().tolist() == [True, True, False, True, True]
    stream = stream_of(getattr(adapted, role_name), 0.1)
    others = sum_clipped(stream, adapted, records.take(torch.arange(5) != 2))
    assert_equal(sum_clipped(stream, adapted, records), others)


@BOTH_TASKS
def test_records_are_independent(task: str) -> None:
    report = check_record_independence(adapt_decoder(FAMILY, task), with_images(task, 3), batch_size=5)
    assert report.independent
    assert max(c.size for c in report.couplings if c.in_training) < 1e-13


def test_a_private_cycle_changes_both_roles_and_nothing_else(tmp_path: Path) -> None:
    adapted = adapt_decoder(FAMILY)
    before = {name: p.detach().clone() for name, p in adapted.model.named_parameters()}
    trained = {id(p) for p in (*adapted.shared.parameters, *adapted.expert.parameters)}
    stream = SubsampledGaussian(num_steps=1, sampling_probability=0.5, noise_multiplier=1.0)
    make_private(
        adapted,
        None,
        with_images("classification"),
        RolePlan(shared=stream, expert=stream),
        clip_shared=1.0,
        clip_expert=1.0,
        ledger_path=tmp_path / "ledger.jsonl",
        probe=with_images("classification", 3, seed=5),
    ).run()
    for name, parameter in adapted.model.named_parameters():
        assert torch.equal(before[name], parameter) == (id(parameter) not in trained), name


# --- weights ---


@BOTH_TASKS
def test_merged_weights_and_adapters_on_disk_hold_what_was_trained(task: str, tmp_path: Path) -> None:
    model, records = tiny_decoder(FAMILY, task), with_images(task)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapted = adapt(model, expert_layers=[LAYER], shared=Lora(rank=3, scale=0.7), expert=Lora(rank=2, scale=0.4))
    assert isinstance(adapted, VisionLanguageModel)
    randomise(adapted)
    trained, merged = logits(model, records), adapted.merged()
    merged.save_pretrained(tmp_path / "merged")
    reloaded = type(merged).from_pretrained(tmp_path / "merged").eval()
    assert torch.allclose(logits(reloaded, records), trained, rtol=1e-4, atol=1e-4)
    adapted.save_adapter(tmp_path / "adapter")
    deltas, after = peft_deltas(tmp_path / "adapter", EXPERTS), dict(merged.named_parameters())
    changed = {name for name, p in after.items() if not torch.equal(p, before[name])}
    assert changed == set(deltas) | ({"score.weight"} if task == "classification" else set())
    for name, delta in deltas.items():
        assert torch.allclose((after[name] - before[name]).double(), delta, rtol=1e-4, atol=1e-5)


def published(model: DeepseekVL2) -> dict[str, Tensor]:
    """The model's weights as DeepSeek's and timm's classes name them, written out part by part."""
    tensors = {
        "image_newline": model.image_newline,
        "view_seperator": model.view_seperator,
        "language.model.embed_tokens.weight": model.model.embed_tokens.weight,
        "language.model.norm.weight": model.model.norm.weight,
        "vision.pos_embed": model.vision.embeddings.position_embedding.weight[None],
        "vision.attn_pool.latent": torch.zeros(1, 1, 8),
        "vision.attn_pool.kv.weight": torch.zeros(16, 8),
    }

    def linear(name: str, module: Any) -> None:
        tensors[f"{name}.weight"] = module.weight
        if getattr(module, "bias", None) is not None:
            tensors[f"{name}.bias"] = module.bias

    linear("projector.layers.0", model.projector.layers[0])
    linear("projector.layers.2", model.projector.layers[2])
    linear("vision.patch_embed.proj", model.vision.embeddings.patch_embedding)
    linear("vision.norm", model.vision.post_layernorm)
    for i, block in enumerate(model.vision.encoder.layers):
        attention = block.self_attn
        for kind in ("weight", "bias"):
            parts = [getattr(p, kind) for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
            tensors[f"vision.blocks.{i}.attn.qkv.{kind}"] = torch.cat(parts)
        linear(f"vision.blocks.{i}.attn.proj", attention.out_proj)
        linear(f"vision.blocks.{i}.norm1", block.layer_norm1)
        linear(f"vision.blocks.{i}.norm2", block.layer_norm2)
        linear(f"vision.blocks.{i}.mlp.fc1", block.mlp.fc1)
        linear(f"vision.blocks.{i}.mlp.fc2", block.mlp.fc2)
    for i, layer in enumerate(model.model.layers):
        prefix = f"language.model.layers.{i}"
        linear(f"{prefix}.input_layernorm", layer.input_layernorm)
        linear(f"{prefix}.post_attention_layernorm", layer.post_attention_layernorm)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            linear(f"{prefix}.self_attn.{name}", getattr(layer.self_attn, name))
        sparse = i in sparse_layers(model)
        for name in ("gate_proj", "up_proj", "down_proj"):
            dense = layer.mlp.shared_experts if sparse else layer.mlp
            linear(f"{prefix}.mlp.{'shared_experts.' if sparse else ''}{name}", getattr(dense, name))
        if sparse:
            linear(f"{prefix}.mlp.gate", layer.mlp.gate)
            for e in range(EXPERTS):
                name = f"{prefix}.mlp.experts.{e}"
                tensors[f"{name}.gate_proj.weight"] = layer.mlp.experts.gate_up_proj[e, :8]
                tensors[f"{name}.up_proj.weight"] = layer.mlp.experts.gate_up_proj[e, 8:]
                tensors[f"{name}.down_proj.weight"] = layer.mlp.experts.down_proj[e]
    if hasattr(model, "lm_head"):
        linear("language.lm_head", model.lm_head)
    return {name: t.detach().clone().contiguous() for name, t in tensors.items()}


def write(tensors: dict[str, Tensor], folder: Path) -> Path:
    """In two files, as large checkpoints are."""
    names = sorted(tensors)
    for i, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, folder / f"model-0000{i + 1}-of-00002.safetensors")
    return folder


def blank(task: str) -> DeepseekVL2:
    model = tiny_decoder(FAMILY, task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    return model


def test_weights_are_loaded_by_their_published_names(tmp_path: Path) -> None:
    source, records = tiny_decoder(FAMILY, "language model"), with_images("language model")
    tensors, model = published(source), blank("language model")
    names = load_published(model, write(tensors, tmp_path))
    assert set(names.matched) | set(names.unused) == set(tensors)
    assert names.unused == ("vision.attn_pool.kv.weight", "vision.attn_pool.latent")
    assert (names.missing, names.unexpected) == ((), ())
    assert torch.equal(logits(model, records), logits(source, records))


def test_a_classifier_takes_all_but_the_language_head(tmp_path: Path) -> None:
    source, model = tiny_decoder(FAMILY, "language model"), blank("classification")
    names = load_published(model, write(published(source), tmp_path))
    assert "language.lm_head.weight" in names.unused
    assert names.missing == ()
    for name, parameter in model.named_parameters():
        expected = torch.full_like(parameter, 0.5) if name == "score.weight" else source.get_parameter(name)
        assert torch.equal(parameter, expected), name


def test_names_and_shapes_that_do_not_fit_are_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    tensors, model = published(tiny_decoder(FAMILY, "language model")), blank("language model")
    lost = "language.model.layers.2.mlp.experts.8.up_proj.weight"
    latent = "language.model.layers.0.self_attn.kv_b_proj.weight"  # of the larger variants
    write({name: t for name, t in tensors.items() if name != lost} | {latent: torch.zeros(2)}, tmp_path)
    names = published_names(model, tmp_path)
    assert (names.missing, names.unexpected) == ((lost,), (latent,))
    with pytest.raises(ValueError, match=f"1 missing: {lost}"):
        load_published(model, tmp_path)
    write(tensors | {latent: torch.zeros(2)}, tmp_path)
    with pytest.raises(ValueError, match=f"1 unexpected: {latent}"):
        load_published(model, tmp_path)
    write(tensors | {"vision.pos_embed": torch.zeros(1, 10, 8)}, tmp_path)
    with pytest.raises(ValueError, match=r"vision.pos_embed: \(1, 10, 8\) for \(1, 9, 8\)"):
        load_published(model, tmp_path)
    assert all((p == 0.5).all() for p in model.parameters())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="expected a folder with safetensors files"):
        load_published(model, tmp_path / "empty")


def test_the_full_configuration_has_the_published_size() -> None:
    config = DeepseekVL2Config(**DEEPSEEK_VL2_TINY)
    assert config.tokens_per_image == 421
    with torch.device("meta"):
        model = DeepseekVL2ForCausalLM(config)
    attention, expert, shared = 4 * 1280**2, 3 * 1280 * 896, 3 * 1280 * 1792
    layers = 12 * (attention + 2 * 1280) + 3 * 1280 * 6848 + 11 * (64 * (expert + 1280) + shared)
    language = 2 * 129280 * 1280 + layers + 1280
    block = 4 * (1152**2 + 1152) + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
    vision = 27 * block + 729 * 1152 + (3 * 14**2 + 1) * 1152 + 2 * 1152
    projector = (4 * 1152 + 1) * 1280 + (1280 + 1) * 1280 + 2 * 1280
    assert sum(p.numel() for p in model.parameters()) == language + vision + projector == 3_355_263_088
    adapted: AdaptedModel = adapt(model, expert_layers=[1], shared=Lora(rank=8), expert=Lora(rank=8))
    assert adapted.num_experts == 64
    assert adapted.shared.num_parameters == 8 * (12 * 4 * 2 * 1280 + 11 * 3 * (1280 + 1792))
    assert adapted.expert.num_parameters == 64 * 8 * (1280 + 2 * 896 + 896 + 1280)

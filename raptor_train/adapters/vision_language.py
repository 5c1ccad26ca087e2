"""DeepSeek-VL2-Tiny put together from parts that transformers has, and its adapter.

transformers has no DeepSeek-VL2. Its Tiny variant is a SigLIP-SO400M tower for tiles of 384² pixels
(``SiglipVisionModel``), a projector that merges 2×2 patches, and a DeepSeek language model with DeepSeek-V2's experts
but plain multi-head attention. ``DeepseekV2Model`` has latent attention only; ``DeepseekOcr2TextModel`` is the same
language model as Tiny's. The larger variants, with latent attention, are not covered.

**Checked** (tiny random configurations, records with and without an image): equal outputs before the first step,
exact clipped sums, owners, independence of records, weights on disk; the order of an image's tokens, and weights under
the published names (:mod:`raptor_train.adapters.vision_language_weights`), both as public descriptions have them; the
number of parameters of ``DEEPSEEK_VL2_TINY``. **Not checked**: the published weights and the published code were never
run here, so neither the names in a real checkpoint nor equal outputs; the id of the image token; accuracy on
ScienceQA. **Left out**: preparing images (resize, pad, mean and standard deviation 0.5, tiles), conversation
templates, generation. The published processor picks the grid of tiles by each image's shape; here one public grid
holds for all records, so that each image has equally many tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import DeepseekOcr2TextConfig, PreTrainedConfig, SiglipVisionConfig, SiglipVisionModel
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.modeling_outputs import CausalLMOutput, SequenceClassifierOutputWithPast
from transformers.models.deepseek_ocr2.modeling_deepseek_ocr2 import (
    DeepseekOcr2TextModel,
    DeepseekOcr2TextPreTrainedModel,
)

from raptor_train.adapters.decoder import DecoderModel
from raptor_train.records import IGNORED, Records

DEEPSEEK_VL2_TINY: dict[str, Any] = {  # arguments of DeepseekVL2Config
    "vocab_size": 129280,
    "hidden_size": 1280,
    "num_hidden_layers": 12,
    "num_attention_heads": 10,
    "num_key_value_heads": 10,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "intermediate_size": 6848,
    "moe_intermediate_size": 896,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "mlp_layer_types": ["dense"] + ["sparse"] * 11,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "vision_config": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 384,
        "patch_size": 14,
        "vision_use_head": False,
    },
}


class DeepseekVL2Config(DeepseekOcr2TextConfig):  # type: ignore[no-untyped-call]
    """The language model's configuration, and what images need.

    Attributes:
        vision_config: Of the SigLIP tower.
        image_token_id: Id of the token that stands where an image token's embedding goes. The default is what
            transformers has for DeepSeek-OCR-2, whose vocabulary has the same size: compare it with the tokenizer.
        tile_grid: Rows and columns of tiles into which every image is cut besides its overview; public.
    """

    model_type = "deepseek_vl_v2"
    base_config_key = ""
    sub_configs: ClassVar[dict[str, Any]] = {"vision_config": SiglipVisionConfig}

    vision_config: dict[str, Any] | PreTrainedConfig | None = None
    image_token_id: int = 128815
    tile_grid: list[int] | tuple[int, ...] = (1, 1)

    def __post_init__(self, **kwargs: Any) -> None:
        if not isinstance(self.vision_config, PreTrainedConfig):
            self.vision_config = SiglipVisionConfig(**(self.vision_config or {}))
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    @property
    def tokens_per_side(self) -> int:
        """Image tokens in one row of one tile."""
        vision: Any = self.vision_config
        patches: int = vision.image_size // vision.patch_size
        return (patches + 1) // 2

    @property
    def tokens_per_image(self) -> int:
        """Image tokens of a record: overview and tiles, with an end to every row, and a separator between them."""
        side, (rows, columns) = self.tokens_per_side, self.tile_grid
        return side * (side + 1) + 1 + rows * side * (columns * side + 1)


class Projector(nn.Module):
    """Brings 2×2 neighbouring patches into one token of the language model."""

    def __init__(self, width: int, hidden_size: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4 * width, hidden_size), nn.GELU(), nn.Linear(hidden_size, hidden_size))

    def forward(self, patches: Tensor) -> Tensor:
        """Return [tiles, rows, columns, hidden] of patches [tiles, side², width]; an odd side is filled with zeros."""
        side = math.isqrt(patches.shape[1])
        grid = patches.mT.reshape(len(patches), -1, side, side)
        grid = nn.functional.pad(grid, (0, side % 2, 0, side % 2))
        tokens: Tensor = self.layers(nn.functional.unfold(grid, 2, stride=2).mT)
        return tokens.reshape(len(patches), grid.shape[2] // 2, grid.shape[3] // 2, -1)


class DeepseekVL2(DeepseekOcr2TextPreTrainedModel):  # type: ignore[no-untyped-call]
    """The language model (``model``), the tower (``vision``) and the projector; a subclass adds the head."""

    config_class = DeepseekVL2Config
    config: DeepseekVL2Config

    def __init__(self, config: DeepseekVL2Config):
        DeepseekOcr2TextPreTrainedModel.__init__(self, config)
        vision: Any = config.vision_config
        self.model = DeepseekOcr2TextModel(config)
        self.vision = SiglipVisionModel(vision)
        self.projector = Projector(vision.hidden_size, config.hidden_size)
        self.image_newline = nn.Parameter(torch.randn(config.hidden_size) / config.hidden_size**0.5)
        self.view_seperator = nn.Parameter(torch.randn(config.hidden_size) / config.hidden_size**0.5)  # so published

    @contextmanager
    def images(self, pixel_values: Tensor | None) -> Iterator[None]:
        """Inside the block, image tokens are embedded as the images' features.

        Args:
            pixel_values: A row for each record of the calls inside: its overview, then its tiles row by row,
                [records, 1 + tiles, channels, height, width]. Rows of records without an image token are not read.
        """

        def embed(module: nn.Module, args: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
            return self._with_images(args[0], embedded, pixel_values)

        handle = self.get_input_embeddings().register_forward_hook(embed)
        try:
            yield
        finally:
            handle.remove()

    def image_features(self, pixel_values: Tensor) -> Tensor:
        """Features [images, tokens, hidden] of images [images, 1 + tiles, channels, height, width]."""
        tiles = self.vision(pixel_values=pixel_values.flatten(0, 1)).last_hidden_state
        tokens = self.projector(tiles).unflatten(0, pixel_values.shape[:2])
        rows, columns = self.config.tile_grid
        grid = tokens[:, 1:].unflatten(1, (rows, columns)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        separator = self.view_seperator.expand(len(tokens), 1, -1)
        return torch.cat([self._row_by_row(tokens[:, 0]), separator, self._row_by_row(grid)], dim=1)

    def _row_by_row(self, grid: Tensor) -> Tensor:
        """The tokens of [images, rows, columns, hidden] in reading order, every row with an end."""
        ends = self.image_newline.expand(*grid.shape[:2], 1, -1)
        return torch.cat([grid, ends], dim=2).flatten(1, 2)

    def _with_images(self, input_ids: Tensor, embedded: Tensor, pixel_values: Tensor | None) -> Tensor:
        places = input_ids == self.config.image_token_id
        with_image = places.any(1)
        if not with_image.any():
            return embedded
        counts, per_image = places.sum(1)[with_image], self.config.tokens_per_image
        tiles = 1 + math.prod(self.config.tile_grid)
        if pixel_values is None or pixel_values.shape[:2] != (len(input_ids), tiles) or (counts != per_image).any():
            raise ValueError(
                f"expected {per_image} image tokens (id {self.config.image_token_id}) or none in every record, and "
                f"pixel_values (records={len(input_ids)}, tiles={tiles}, channels, height, width), got "
                f"{sorted(set(counts.tolist()))} image tokens and "
                f"{None if pixel_values is None else tuple(pixel_values.shape)}"
            )
        features = self.image_features(pixel_values[with_image])
        return embedded.masked_scatter(places.unsqueeze(-1), features.to(embedded.dtype))


class DeepseekVL2ForCausalLM(DeepseekVL2):  # type: ignore[no-untyped-call]
    """With a language-model head."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012 (not a ClassVar there)

    def __init__(self, config: DeepseekVL2Config):
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> CausalLMOutput:
        """Return logits [records, tokens, vocabulary], and the loss of transformers if there are ``labels``."""
        with self.images(pixel_values):
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        logits = self.lm_head(hidden)
        loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size)
        return CausalLMOutput(loss=loss, logits=logits)


class DeepseekVL2ForSequenceClassification(GenericForSequenceClassification, DeepseekVL2):  # type: ignore[no-untyped-call]
    """With a linear head on the last token that is not padding."""

    def __init__(self, config: DeepseekVL2Config):
        DeepseekVL2.__init__(self, config)  # not the generic one: it would ask AutoModel for the language model
        self.num_labels = cast("int", config.num_labels)
        self.score = nn.Linear(config.hidden_size, self.num_labels, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        **settings: Any,
    ) -> SequenceClassifierOutputWithPast:
        """Return logits [records, classes], and what the generic class returns else."""
        with self.images(pixel_values):
            found: SequenceClassifierOutputWithPast = super().forward(input_ids, attention_mask, **settings)
        return found


class VisionLanguageModel(DecoderModel):
    """A DeepSeek-VL2 made ready for per-record clipping by role: as :class:`DecoderModel`, with each record's images.

    The roles are those of the language model. The tower, the projector and the two embeddings that lay an image out
    are frozen: theory.md §8 has LoRA on attention and experts, and the paper says no more of Figure 3. An image token
    is a token of its record like any other: its gates count for the owner, its rows for the gradient.
    """

    def losses(self, records: Records) -> Tensor:
        """Loss of every record on its own, [records]; image tokens are never predicted, whatever their label."""
        model = cast("DeepseekVL2", self.model)
        if records.token_labels:
            labels = records.labels.masked_fill(records.input_ids == model.config.image_token_id, IGNORED)
            records = replace(records, labels=labels)
        with model.images(records.pixel_values):
            return super().losses(records)

    def gates(self, records: Records) -> dict[int, Tensor]:
        """Gate weights of the trained sparse layers under the current weights, image tokens included."""
        with cast("DeepseekVL2", self.model).images(records.pixel_values):
            return super().gates(records)

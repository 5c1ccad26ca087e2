"""Weights of DeepSeek-VL2-Tiny from a folder of safetensors under their published names.

The published names are ``language.*`` (as DeepSeek's own classes have them, one tensor a matrix of every expert),
``vision.*`` (as timm has SigLIP, query, key and value in one tensor), ``projector.*``, ``image_newline`` and
``view_seperator``. They are taken from public conversions of the checkpoint, not from the checkpoint itself: a name
that is not as expected is an error that names it, never a weight left at random.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from raptor_train.adapters.vision_language import DeepseekVL2

# The tower's pooling head: the published model has it and does not use it.
_NEVER_USED = "vision.attn_pool."
_LANGUAGE_HEAD = "language.lm_head."
_VISION = (  # pattern of ours, published; where they differ
    (r"^vision\.embeddings\.patch_embedding\.", "vision.patch_embed.proj."),
    (r"^vision\.embeddings\.position_embedding\.weight$", "vision.pos_embed"),
    (r"^vision\.encoder\.layers\.", "vision.blocks."),
    (r"\.self_attn\.[qkv]_proj\.", ".attn.qkv."),
    (r"\.self_attn\.out_proj\.", ".attn.proj."),
    (r"\.layer_norm", ".norm"),
    (r"^vision\.post_layernorm\.", "vision.norm."),
)


@dataclass(frozen=True, kw_only=True)
class PublishedNames:
    """Published names, sorted.

    Attributes:
        matched: In the folder and in the model.
        missing: In the model only. A classification head was never published and is not counted.
        unexpected: In the folder only.
        unused: In the folder, and known to have no place in this model: the tower's pooling head, and a classifier's
            language-model head.
    """

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    unused: tuple[str, ...]


def published_names(model: DeepseekVL2, folder: str | Path) -> PublishedNames:
    """Compare the names in ``folder`` with those that ``model`` takes; reads no weight.

    Raises:
        ValueError: If the folder has no safetensors file.
    """
    found, places = set(_shapes(folder)), set(_places(model))
    known = (_NEVER_USED,) if hasattr(model, "lm_head") else (_NEVER_USED, _LANGUAGE_HEAD)
    unused = {name for name in found - places if name.startswith(known)}
    return PublishedNames(
        matched=tuple(sorted(found & places)),
        missing=tuple(sorted(places - found)),
        unexpected=tuple(sorted(found - places - unused)),
        unused=tuple(sorted(unused)),
    )


@torch.no_grad()
def load_published(model: DeepseekVL2, folder: str | Path) -> PublishedNames:
    """Copy the weights in ``folder`` into ``model``, in the precision of the model.

    Args:
        model: Not adapted; unchanged if there is an error.
        folder: Holds the safetensors files.

    Returns:
        Which names were matched and which were not needed.

    Raises:
        ValueError: Naming what is missing, unexpected, or of another shape than in the model.
    """
    names, places, shapes = published_names(model, folder), _places(model), _shapes(folder)
    wrong = [f"{n}: {shapes[n]} for {_shape(places[n])}" for n in names.matched if shapes[n] != _shape(places[n])]
    for what, found in (("missing", names.missing), ("unexpected", names.unexpected), ("of another shape", wrong)):
        if found:
            raise ValueError(
                f"expected the weights of this configuration of DeepSeek-VL2 in {folder}, got {len(found)} {what}: "
                + ", ".join(found[:10])
                + (", ..., see published_names" if len(found) > 10 else "")
            )
    for path in _files(folder):
        with safe_open(path, "pt") as file:
            for name in places.keys() & set(file.keys()):
                for place, part in zip(places[name], file.get_tensor(name).split(_lengths(places[name])), strict=True):
                    place.copy_(part)
    return names


def _places(model: DeepseekVL2) -> dict[str, list[Tensor]]:
    """For each published name the views of the model's tensors that it fills, one after the other along axis 0."""
    places: dict[str, list[Tensor]] = {}
    for name, parameter in sorted(model.named_parameters(), key=lambda named: _rank(named[0])):
        for published, view in _views(name, parameter.detach()):
            places.setdefault(published, []).append(view)
    return places


def _rank(name: str) -> int:
    """Orders query, key and value as the published tensors have them."""
    return next((i for i, letter in enumerate("qkv") if f".{letter}_proj." in name), 0)


def _views(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The published names that hold rows of one of the model's tensors, and these rows."""
    if name.startswith("vision."):
        for ours, published in _VISION:
            name = re.sub(ours, published, name)
        yield name, tensor.unsqueeze(0) if name == "vision.pos_embed" else tensor
    elif name.endswith(".mlp.experts.gate_up_proj"):
        for e, expert in enumerate(tensor):
            for matrix, rows in zip(("gate_proj", "up_proj"), expert.chunk(2), strict=True):
                yield f"language.{name.removesuffix('gate_up_proj')}{e}.{matrix}.weight", rows
    elif name.endswith(".mlp.experts.down_proj"):
        for e, expert in enumerate(tensor):
            yield f"language.{name.removesuffix('down_proj')}{e}.down_proj.weight", expert
    elif name.startswith(("model.", "lm_head.")):
        yield f"language.{name}", tensor
    elif not name.startswith("score."):
        yield name, tensor


def _files(folder: str | Path) -> list[Path]:
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ValueError(f"expected a folder with safetensors files, got {folder}")
    return files


def _shapes(folder: str | Path) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for path in _files(folder):
        with safe_open(path, "pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return shapes


def _lengths(views: list[Tensor]) -> list[int]:
    return [len(view) for view in views]


def _shape(views: list[Tensor]) -> tuple[int, ...]:
    return (sum(_lengths(views)), *views[0].shape[1:])

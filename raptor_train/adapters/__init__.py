"""One adapter for each model family: roles, per-record losses, and gates recomputed by our own code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from torch import Tensor, nn

from raptor_train.adapters import families, switch
from raptor_train.adapters.base import AdaptedModel, Lora
from raptor_train.adapters.decoder import DecoderModel
from raptor_train.adapters.vision_language import DeepseekVL2, VisionLanguageModel
from raptor_train.modeling import EncoderClassifier

_NEEDED = """expected a model of a known family, got {name}. Known are
  Switch: raptor_train.modeling.EncoderClassifier around transformers' Switch encoder;
  {decoders}: transformers' ...ForSequenceClassification or ...ForCausalLM
  (OLMoE classification: raptor_train.adapters.families.OlmoeForSequenceClassification;
  deepseek_vl_v2: raptor_train.adapters.vision_language).
Another decoder with `layers[i].mlp.gate` and fused `layers[i].mlp.experts` needs an entry in
raptor_train.adapters.families.FAMILIES: its routing rule and the name of its shared experts. Any other model needs a
class with what raptor_train.adapters.base.AdaptedModel lists: the layers of both roles, per-record losses, the sparse
layers by number, and gates by its routing rule"""


def adapt(
    model: nn.Module,
    *,
    expert_layers: Sequence[int],
    shared: Lora | None = None,
    expert: Lora | None = None,
    seed: int = 0,
) -> AdaptedModel:
    """Make a model of a known family ready for training by role; undone by ``detach()`` of what is returned.

    Args:
        model: The model; its layers are wrapped in place. Its outputs are the same, bit for bit, before the first
            step (of a decoder: the same as with ``model.set_experts_implementation("eager")``).
        expert_layers: Real numbers of the sparse layers whose experts are trained (RAPTOR: the one selected layer).
        shared: Adapters of the shared role.
        expert: Adapters of the expert role.
        seed: Seed of the adapters' initial weights (public).

    Raises:
        ValueError: If the family is not known (listing the known ones and what another one needs), a layer has no
            router, or the model is adapted already.
    """
    if isinstance(model, EncoderClassifier):
        return switch.SwitchClassifier(model, expert_layers=expert_layers, shared=shared, expert=expert, seed=seed)
    decoder = families.as_decoder(model)
    if decoder is None:
        raise _unknown(model)
    kind = VisionLanguageModel if isinstance(decoder, DeepseekVL2) else DecoderModel
    return kind(decoder, expert_layers=expert_layers, shared=shared, expert=expert, seed=seed)


def router_gates(
    model: nn.Module, input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor | None = None
) -> dict[int, Tensor]:
    """Gate weights [records, tokens, experts] of every sparse layer by its real number, of any known family.

    Args:
        model: The model, adapted or not.
        input_ids: Token ids [records, tokens].
        attention_mask: 1 for real tokens, [records, tokens].
        pixel_values: Images of a vision-language model's records.

    Raises:
        ValueError: If the family is not known.
    """
    if isinstance(model, EncoderClassifier):
        return switch.router_gates(model, input_ids, attention_mask)
    decoder = families.as_decoder(model)
    if decoder is None:
        raise _unknown(model)
    with decoder.images(pixel_values) if isinstance(decoder, DeepseekVL2) else nullcontext():
        return families.router_gates(decoder, input_ids, attention_mask)


def sparse_layers_of(model: nn.Module) -> tuple[int, ...]:
    """Real numbers of the sparse layers of any known family, lowest first.

    Raises:
        ValueError: If the family is not known, or the model has no sparse layer.
    """
    if isinstance(model, EncoderClassifier):
        return tuple(switch.sparse_blocks(model))
    decoder = families.as_decoder(model)
    if decoder is None:
        raise _unknown(model)
    return tuple(families.sparse_layers(decoder))


def _unknown(model: nn.Module) -> ValueError:
    return ValueError(_NEEDED.format(name=type(model).__name__, decoders=", ".join(families.FAMILIES)))

"""A tiny Switch classifier with random weights, and records of different lengths."""

import pytest
import torch
from transformers import SwitchTransformersConfig

from raptor_train.adapters.switch import Lora, SwitchClassifier
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records

EXPERTS = 4


def tiny_classifier(seed: int = 0, **changes: object) -> EncoderClassifier:
    config = SwitchTransformersConfig(
        vocab_size=50,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_heads=2,
        num_layers=4,
        num_sparse_encoder_layers=2,
        num_experts=EXPERTS,
        **changes,
    )
    torch.manual_seed(seed)
    return EncoderClassifier(config, num_labels=3)


def random_records(num_records: int = 8, num_tokens: int = 10, seed: int = 0) -> Records:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 50, (num_records, num_tokens), generator=generator)
    lengths = torch.randint(1, num_tokens + 1, (num_records,), generator=generator)
    lengths[0] = num_tokens
    mask = (torch.arange(num_tokens) < lengths[:, None]).long()
    labels = torch.randint(0, 3, (num_records,), generator=generator)
    return Records(ids * mask, mask, labels)


def randomise(adapted: SwitchClassifier, scale: float = 0.3, seed: int = 1) -> None:
    """Fill adapters and head: with their initial zeros most gradients vanish and a test sees nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (*adapted.shared.parameters, *adapted.expert.parameters):
            parameter.add_(torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator) * scale)


def adapt(rank: int = 3, layers: tuple[int, ...] = (1,), **changes: object) -> SwitchClassifier:
    lora = Lora(rank=rank, scale=0.7)
    return SwitchClassifier(tiny_classifier(**changes), expert_layers=layers, shared=lora, expert=lora)


@pytest.fixture
def adapted() -> SwitchClassifier:
    return adapt()


@pytest.fixture
def records() -> Records:
    return random_records()

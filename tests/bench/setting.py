"""What the bench trains: tiny models of every family in float64, and records known by their first token."""

from __future__ import annotations

from typing import cast

import torch
from transformers import SwitchTransformersConfig

from raptor_acct import RolePlan, SubsampledGaussian
from raptor_train.adapters.base import AdaptedModel, Lora
from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from tests.train.conftest import random_records, randomise
from tests.train.family_models import DECODERS, adapt_decoder

FAMILIES = ("switch", *DECODERS, "deepseek_vl_v2")  # the last one without images
STREAMS = ("shared", "expert")  # released in turn
NUM_RECORDS = 40
PUBLIC_RECORDS = 60  # the N of the denominators: not the length of the data
SIGMAS = {"shared": 0.8, "expert": 1.7}
_FIRST_TOKEN = 2


def model_of(family: str) -> AdaptedModel:
    """A random model whose adapters and head are not zero, the same at every call."""
    if family == "switch":
        adapted: AdaptedModel = _tiny_switch()
    else:
        adapted = adapt_decoder(family).double()
    randomise(cast("SwitchClassifier", adapted))
    return adapted


def _tiny_switch() -> SwitchClassifier:
    config = SwitchTransformersConfig(
        vocab_size=50,
        d_model=8,
        d_kv=4,
        d_ff=12,
        num_heads=2,
        num_layers=2,
        num_sparse_encoder_layers=1,
        num_experts=4,
    )
    torch.manual_seed(0)
    lora = Lora(rank=3, scale=0.7)
    model = EncoderClassifier(config, num_labels=3)
    return SwitchClassifier(model, expert_layers=(1,), shared=lora, expert=lora).double()


def records_at(indices: list[int]) -> Records:
    """Some of the bench's records."""
    records = random_records(NUM_RECORDS, seed=3)
    records.input_ids[:, 0] = torch.arange(NUM_RECORDS) + _FIRST_TOKEN
    return records.take(torch.tensor(indices, dtype=torch.int64))


def indices_of(records: Records) -> list[int]:
    """Which of the bench's records these are."""
    found: list[int] = (records.input_ids[:, 0] - _FIRST_TOKEN).tolist()
    return found


def plan_of(q: tuple[float, float], steps: int) -> RolePlan:
    shared, expert = (
        SubsampledGaussian(num_steps=steps, sampling_probability=p, noise_multiplier=SIGMAS[name])
        for name, p in zip(STREAMS, q, strict=True)
    )
    return RolePlan(shared=shared, expert=expert)

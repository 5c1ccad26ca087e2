"""One RAPTOR cycle against one global DP-LoRA step at the paper's scopes, on the real size of switch-base-8."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import SwitchTransformersConfig

from raptor_train.adapters.switch import Lora, SwitchClassifier
from raptor_train.baselines import everything
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream, current_owners, sum_clipped

RECORDS, TOKENS, LAYER, SPARSE = 8, 64, 11, (1, 3, 5, 7, 9, 11)
SEED = 0
PAPER = {"time": 4.51 / 4.07, "memory": 112 / 131}  # seconds and GB a step, RAPTOR over the global baseline
TRAINED = {"shared": 9_438_722, "expert": 7_864_320, "global": 14_157_314}  # parameters, theory.md §8

Step = Callable[[], None]


def steps(which: str) -> dict[str, Step]:
    """The named steps of "raptor" or "global": each forms the clipped sums of 8 records of 64 tokens."""
    torch.manual_seed(SEED)
    config = SwitchTransformersConfig(
        vocab_size=32128,
        d_model=768,
        d_kv=64,
        d_ff=3072,
        num_layers=12,
        num_heads=12,
        num_experts=8,
        num_sparse_encoder_layers=6,
        expert_capacity=64,
    )
    model = EncoderClassifier(config)
    nn.init.normal_(model.head.weight, std=0.02)
    ids = torch.randint(0, config.vocab_size, (RECORDS, TOKENS))
    records = Records(ids, torch.ones_like(ids), torch.randint(0, 2, (RECORDS,)))
    if which == "global":
        adapted = _adapted(model, SPARSE, rank=32)
        role = Role(name="global", layers=everything(adapted).layers)
        return {"global": _step(adapted, role, records)}
    adapted = _adapted(model, (LAYER,), rank=128)
    shared, expert = adapted.shared, adapted.expert
    owners = current_owners(adapted, records)
    shared_step = _step(adapted, shared, records, others=expert)
    fixed = _step(adapted, expert, records, others=shared, owners=owners)
    recomputed = _step(adapted, expert, records, others=shared)

    def cycle() -> None:
        shared_step()
        fixed()

    return {"cycle": cycle, "shared": shared_step, "expert": fixed, "expert, owners recomputed": recomputed}


def _adapted(model: EncoderClassifier, layers: tuple[int, ...], *, rank: int) -> SwitchClassifier:
    lora = Lora(rank=rank)
    adapted = SwitchClassifier(model, expert_layers=layers, shared=lora, expert=lora)
    with torch.no_grad():
        for layer in (*adapted.shared.layers, *adapted.expert.layers):
            layer.weight.normal_(std=0.02)
    return adapted


def _step(
    adapted: SwitchClassifier, role: Role, records: Records, *, others: Role | None = None, owners: Tensor | None = None
) -> Step:
    if role.num_parameters != TRAINED[role.name]:
        raise AssertionError(f"{role.name}: {role.num_parameters} parameters instead of {TRAINED[role.name]}")
    stream = Stream(
        role=role,
        sampling_probability=1.0,
        noise_multiplier=0.0,
        num_steps=1,
        clip_norm=1.0,
        denominator=1.0,
    )
    frozen = others.parameters if others else ()

    def step() -> None:
        sum_clipped(stream, adapted, records, others=frozen, owners=owners)

    return step

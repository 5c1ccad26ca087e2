"""The tools that clipping.py compares: each makes a step that leaves the role's (clipped) gradient sum.

All train the same low-rank adapters of the same model, on the same records, with the same loss; the weights are equal
tensor by tensor, so that the clipped sums can be compared.
"""

import copy
import importlib.util
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import SwitchTransformersConfig

from raptor_train.adapters.switch import Lora, SwitchClassifier
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream, current_owners, sum_clipped

SCALE, CLIP_NORM, LAYER = 2.0, 1.0, 3
SEED = 0

Step = Callable[[], list[Tensor]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained: a role's adapters of rank ``rank``; d 256, 6 layers, 8 experts, 64 records of 64 tokens."""

    role: str
    rank: int
    records: int = 64
    tokens: int = 64

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.role}-r{self.rank}"


SETTINGS = {s.name: s for s in (Setting(role=role, rank=rank) for role in ("shared", "expert") for rank in (16, 128))}


class Problem:
    """Model, records and owners of a setting; the adapters hold random values, as they do after a few steps."""

    def __init__(self, setting: Setting):
        torch.manual_seed(SEED)
        config = SwitchTransformersConfig(
            vocab_size=1000,
            d_model=256,
            d_kv=64,
            d_ff=512,
            num_layers=6,
            num_heads=4,
            num_experts=8,
            num_sparse_encoder_layers=3,
            expert_capacity=setting.tokens,
            dropout_rate=0.0,
            router_jitter_noise=0.0,
        )
        lora = Lora(rank=setting.rank, scale=SCALE)
        self.setting, plain = setting, EncoderClassifier(config)
        _spread(plain)
        self.adapted = SwitchClassifier(copy.deepcopy(plain), expert_layers=[LAYER], shared=lora, expert=lora)
        self.plain = plain
        ids = torch.randint(0, config.vocab_size, (setting.records, setting.tokens))
        self.records = Records(ids, torch.ones_like(ids), torch.randint(0, 2, (setting.records,)))
        self.owners = current_owners(self.adapted, self.records)
        self.role: Role = getattr(self.adapted, setting.role)
        other = self.adapted.expert if setting.role == "shared" else self.adapted.shared
        self.others = other.parameters
        for layer in self.role.layers:
            nn.init.normal_(layer.weight, std=0.02)

    def few(self, size: int) -> None:
        """Keep the first ``size`` records."""
        self.records, self.owners = self.records.take(torch.arange(size)), self.owners[:size]

    def two_linears(self) -> tuple[nn.Module, list[nn.Parameter]]:
        """The same model with peft's adapters, and their parameters in the role's order."""
        parts = r"SelfAttention\.(q|k|v|o)" if self.setting.role == "shared" else rf"block\.{LAYER}\..*\.(wi|wo)"
        return two_linears(
            self.plain, self.adapted.model, self.role.layers, parts, Lora(rank=self.setting.rank, scale=SCALE)
        )

    def losses(self, model: Callable[..., Tensor], records: Records) -> Tensor:
        """Cross-entropy of every record."""
        logits = model(records.input_ids, records.attention_mask)
        return nn.functional.cross_entropy(logits, records.labels, reduction="none")


def _spread(model: EncoderClassifier) -> None:
    """Let the tokens differ, and with them the owners: as transformers starts it, one expert owns every record."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("SelfAttention.o.weight", "wo.weight")):
                parameter.mul_(0.1)
    nn.init.normal_(model.head.weight, std=0.02)


def two_linears(
    plain: nn.Module, adapted: nn.Module, layers: Sequence[nn.Module], parts: str, lora: Lora
) -> tuple[nn.Module, list[nn.Parameter]]:
    """Two nn.Linear beside each frozen one, as peft has them, with the weights of an adapted model.

    Args:
        plain: The model before it was adapted; it is copied.
        adapted: The adapted model.
        layers: Those of its layers that train.
        parts: What the names of the linear layers to adapt end with, a regular expression.
        lora: Rank and scale of the adapters.

    Returns:
        The copy, and the parameters of its twins of ``layers``, in the same order.
    """
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=lora.rank, lora_alpha=int(lora.scale * lora.rank), target_modules=rf".*\.{parts}")
    model = inject_adapter_in_model(config, copy.deepcopy(plain)).requires_grad_(False)
    by_name, names = dict(model.named_modules()), {id(m): name for name, m in adapted.named_modules()}
    parameters: list[nn.Parameter] = []
    for layer in layers:
        twin = by_name[re.sub(r"(\.lora)?\.(down|up)$", _peft_name, names[id(layer)])]
        with torch.no_grad():
            for own, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
                parameters.append(theirs.copy_(own).requires_grad_(True))
    return model, parameters


def _peft_name(match: re.Match[str]) -> str:
    return {"down": ".lora_A.default", "up": ".lora_B.default"}[match[2]]


def non_private(problem: Problem) -> Step:
    """Plain autograd on peft's adapters: what every ratio is relative to."""
    model, parameters = problem.two_linears()
    model.eval()

    def step() -> list[Tensor]:
        for p in parameters:
            p.grad = None
        problem.losses(model, problem.records).sum().backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]

    return step


def non_private_merged(problem: Problem) -> Step:
    """Plain autograd through W + scale · up @ down: the faster way not to be private at a large rank."""
    parameters = problem.role.parameters
    for p in problem.others:
        p.requires_grad_(False)

    def step() -> list[Tensor]:
        for p in parameters:
            p.grad = None
        problem.adapted.losses(problem.records).sum().backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]

    return step


def raptor(problem: Problem) -> Step:
    """This library."""
    stream = Stream(
        role=problem.role,
        sampling_probability=1.0,
        noise_multiplier=0.0,
        num_steps=1,
        clip_norm=CLIP_NORM,
        denominator=1.0,
    )

    def step() -> list[Tensor]:
        owners, size = problem.owners if problem.role.owned else None, len(problem.records)
        return sum_clipped(
            stream, problem.adapted, problem.records, others=problem.others, owners=owners, micro_batch_size=size
        )

    return step


def opacus_hooks(problem: Problem) -> Step:
    """Opacus' per-sample gradients."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model, parameters = problem.two_linears()
    module = GradSampleModule(model.train(), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(parameters, 0.1),
        noise_multiplier=0.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=None,
        loss_reduction="sum",
    )

    def step() -> list[Tensor]:
        optimizer.zero_grad()
        with _quiet():
            problem.losses(module, problem.records).sum().backward()
        optimizer.clip_and_accumulate()
        return [p.summed_grad for p in parameters]

    return step


def opacus_ghost(problem: Problem) -> Step:
    """Opacus' ghost clipping: norms in one backward pass, the weighted sum in a second."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model, parameters = problem.two_linears()
    module = GradSampleModuleFastGradientClipping(model.train(), max_grad_norm=CLIP_NORM, loss_reduction="sum")
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(parameters, 0.1),
        noise_multiplier=0.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=None,
        loss_reduction="sum",
    )
    criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss(reduction="sum"), "sum")

    def step() -> list[Tensor]:
        optimizer.zero_grad()
        with _quiet():
            criterion(
                module(problem.records.input_ids, problem.records.attention_mask), problem.records.labels
            ).backward()
        optimizer.accumulate()
        return [p.summed_grad for p in parameters]

    return step


def record_loop(problem: Problem) -> Step:
    """One record at a time through peft's adapters: slow, and right by construction."""
    model, parameters = problem.two_linears()
    model.eval()
    experts = [layer.expert for layer in problem.role.layers for _ in layer.parameters()]

    def step() -> list[Tensor]:
        sums = [torch.zeros_like(p) for p in parameters]
        for i in range(len(problem.records)):
            loss = problem.losses(model, problem.records.take(torch.tensor([i])))
            gradients = torch.autograd.grad(loss.sum(), parameters, allow_unused=True)
            owner = int(problem.owners[i]) if problem.role.owned else None
            kept = [
                (total, g)
                for total, g, expert in zip(sums, gradients, experts, strict=True)
                if g is not None and expert == owner
            ]
            norm = torch.stack([g.norm() for _, g in kept]).norm()
            for total, g in kept:
                total += g * (CLIP_NORM / norm).clamp(max=1)
        return sums

    return step


def _quiet() -> warnings.catch_warnings:
    return warnings.catch_warnings(action="ignore")  # Opacus' backward hooks on a model whose input needs no gradient


@dataclass(frozen=True, kw_only=True)
class Tool:
    """How a tool is made, the package it needs, and whether it clips each record (else: not private)."""

    make: Callable[[Problem], Step]
    package: str = "torch"
    private: bool = True
    experts: bool = True  # whether it is right where a layer is called on gathered tokens

    @property
    def installed(self) -> bool:
        """Whether its package, and peft, are there."""
        return all(importlib.util.find_spec(package) is not None for package in (self.package, "peft"))


TOOLS = {
    "non-private": Tool(make=non_private, package="peft", private=False),
    "non-private-merged": Tool(make=non_private_merged, private=False),
    "raptor": Tool(make=raptor),
    "opacus-hooks": Tool(make=opacus_hooks, package="opacus", experts=False),
    "opacus-ghost": Tool(make=opacus_ghost, package="opacus", experts=False),
    "record-loop": Tool(make=record_loop, package="peft"),
}

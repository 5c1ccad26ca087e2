"""What removing one record does to the clipped sum of an expert's gradients: Opacus and RAPTOR side by side.

    pip install opacus peft matplotlib
    python benchmarks/opacus_moe.py

Model code calls experts on [tokens, d], and Opacus takes the first axis for the records: it clips every token by
itself. A record then adds to the sum up to its number of tokens times the clip norm, and the noise is too small by that
factor. Nothing warns. Both libraries clip the same adapters, with the same weights, on the same records in float64;
`change` is the largest L2 norm by which the sum moves when one record is removed, in clip norms: above 1 the privacy
guarantee does not hold.
"""

import copy
import importlib.metadata
import json
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _clipping_tools import two_linears
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from transformers import Qwen2MoeConfig, Qwen2MoeForSequenceClassification, SwitchTransformersConfig

from raptor_acct.report import table
from raptor_train.adapters import adapt
from raptor_train.adapters.base import AdaptedModel, Lora
from raptor_train.clipping import record_norms
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.step import Stream, current_owners, reduced_gradients, sum_clipped

FILE = Path(__file__).parent / "results" / "opacus_moe.json"
LORA = Lora(rank=8, scale=2.0)
VOCABULARY, RECORDS = 100, 6
CLIP_FACTORS = (1.0, 0.1, 0.01)  # of the median record's gradient norm


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, the layers that train, and records of ``tokens`` tokens."""

    name: str
    plain: nn.Module
    layer: int
    shared: bool  # whether the shared expert trains, else the one expert that gets the most tokens
    parts: str  # what the names of those layers end with
    tokens: int
    repeated: bool = False  # every record is one token over and over

    def records(self) -> Records:
        """Random records, the same in every run."""
        generator = torch.Generator().manual_seed(1)
        shape = (RECORDS, 1 if self.repeated else self.tokens)
        ids = torch.randint(2, VOCABULARY, shape, generator=generator).expand(RECORDS, self.tokens).contiguous()
        if self.repeated:
            ids[:] = ids[0, 0]
        return Records(ids, torch.ones_like(ids), torch.arange(RECORDS) % 2)


def cases() -> Iterator[Case]:
    """The worst case, where every token's gradient points the same way, and ordinary random ones."""
    wi_wo, projections = r"block\.1\..*\.(wi|wo)", r"layers\.0\.mlp\.shared_expert\.(gate|up|down)_proj"
    for repeated, tokens, name in ((True, 128, "one token 128 times"), (False, 32, "32 random tokens")):
        yield Case(
            name=f"Switch expert, {name}",
            plain=_switch(),
            layer=1,
            shared=False,
            parts=wi_wo,
            tokens=tokens,
            repeated=repeated,
        )
        yield Case(
            name=f"Qwen2-MoE shared expert, {name}",
            plain=_qwen2(),
            layer=0,
            shared=True,
            parts=projections,
            tokens=tokens,
            repeated=repeated,
        )


def _switch() -> EncoderClassifier:
    torch.manual_seed(0)
    config = SwitchTransformersConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_heads=2,
        num_layers=4,
        num_experts=4,
        num_sparse_encoder_layers=2,
        dropout_rate=0.0,
        router_jitter_noise=0.0,
    )
    model = EncoderClassifier(config)
    nn.init.normal_(model.head.weight, std=0.1)
    return model


def _qwen2() -> Qwen2MoeForSequenceClassification:
    torch.manual_seed(0)
    config = Qwen2MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        pad_token_id=0,
        num_labels=2,
    )
    config._experts_implementation = "eager"
    return Qwen2MoeForSequenceClassification(config)


def measure(case: Case) -> list[dict[str, Any]]:
    """One row a clip norm."""
    records, lora = case.records(), LORA
    adapted = adapt(copy.deepcopy(case.plain), expert_layers=[case.layer], shared=lora, expert=lora)
    role = _role(adapted, case, records)
    for layer in role.layers:
        nn.init.normal_(layer.weight, std=0.1)
    adapted = adapted.double()
    owner = current_owners(adapted, records) if role.owned else None
    norms = record_norms(reduced_gradients(role, adapted, records, owner=owner), len(records))
    twin, parameters = two_linears(case.plain, adapted.model, role.layers, case.parts, lora)
    rows = []
    for factor in CLIP_FACTORS:
        clip_norm = factor * statistics.median(norms.tolist())
        row = {"case": case.name, "clip_norm_over_median_norm": factor}
        row["opacus"] = _change(_opacus(twin.double(), parameters, clip_norm), records) / clip_norm
        row["raptor"] = _change(_raptor(adapted, role, clip_norm), records) / clip_norm
        rows.append(row)
    return rows


def _role(adapted: AdaptedModel, case: Case, records: Records) -> Role:
    if case.shared:
        names = {id(m): name for name, m in adapted.model.named_modules()}
        inside = f"layers.{case.layer}.mlp.shared_expert."
        return Role(name="shared expert", layers=tuple(x for x in adapted.shared.layers if inside in names[id(x)]))
    (gates,) = adapted.gates(records).values()
    busiest = int((gates > 0).sum((0, 1)).argmax())
    layers = tuple(layer for layer in adapted.expert.layers if layer.expert == busiest)
    return Role(name="one expert", layers=layers, owned=True)


def _raptor(adapted: AdaptedModel, role: Role, clip_norm: float) -> Callable[[Records], list[Tensor]]:
    stream = Stream(
        role=role,
        sampling_probability=1.0,
        noise_multiplier=0.0,
        num_steps=1,
        clip_norm=clip_norm,
        denominator=1.0,
    )
    return lambda records: sum_clipped(stream, adapted, records)


def _opacus(model: nn.Module, parameters: list[nn.Parameter], clip_norm: float) -> Callable[[Records], list[Tensor]]:
    def sums(records: Records) -> list[Tensor]:
        module = GradSampleModule(model.train(), loss_reduction="sum")
        optimizer = DPOptimizer(
            torch.optim.SGD(parameters, 0.1),
            noise_multiplier=0.0,
            max_grad_norm=clip_norm,
            expected_batch_size=None,
            loss_reduction="sum",
        )
        output = module(records.input_ids, records.attention_mask)
        logits = output if isinstance(output, Tensor) else output.logits
        with warnings.catch_warnings(action="ignore"):
            nn.functional.cross_entropy(logits, records.labels, reduction="sum").backward()
        optimizer.clip_and_accumulate()
        totals = [p.summed_grad for p in parameters]
        optimizer.zero_grad()
        module.to_standard_module()
        return totals

    return sums


def _change(sums: Callable[[Records], list[Tensor]], records: Records) -> float:
    """Largest L2 norm by which the sum moves when one record is removed."""
    everyone = sums(records)
    changes = []
    for i in range(len(records)):
        rest = sums(records.take(torch.arange(len(records)) != i))
        changes.append(torch.stack([(a - b).norm() for a, b in zip(everyone, rest, strict=True)]).norm())
    return float(max(changes))


def draw(rows: list[dict[str, Any]]) -> None:
    """Draw the changes beside the bound that both libraries claim."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    labels = [f"{row['case']}\nclip norm {row['clip_norm_over_median_norm']:g} × median norm" for row in rows]
    places = range(len(rows))
    for name, shift, color in (("opacus", -0.2, "0.6"), ("raptor", 0.2, "C3")):
        bars = axes.barh([p + shift for p in places], [row[name] for row in rows], 0.4, color=color)
        bars.set_label({"opacus": "Opacus", "raptor": "RAPTOR"}[name])
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=7)
    axes.set_yticks(list(places), labels, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlim=(0.5, 150))
    axes.set_xlabel("largest change of the clipped sum when one record is removed, in clip norms (allowed: 1)")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(FILE.with_suffix(".png"), dpi=130)


def main() -> None:
    """Measure, print and write all cases."""
    torch.set_num_threads(1)
    rows = [row for case in cases() for row in measure(case)]
    header = ["case", "clip norm / median norm", "Opacus: change / clip norm", "RAPTOR: change / clip norm"]
    cells = [
        [row["case"], f"{row['clip_norm_over_median_norm']:g}", f"{row['opacus']:.2f}", f"{row['raptor']:.4f}"]
        for row in rows
    ]
    print(table(header, cells))
    versions = {package: importlib.metadata.version(package) for package in ("torch", "opacus", "peft", "transformers")}
    document = {"command": "python benchmarks/opacus_moe.py", "versions": versions, "rows": rows}
    FILE.write_text(json.dumps(document, indent=1) + "\n")
    draw(rows)
    print(f"wrote {FILE} and its picture")


if __name__ == "__main__":
    main()

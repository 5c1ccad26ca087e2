"""A constant denominator is a step size under SGD, and only another epsilon under Adam (theory.md B7).

    python benchmarks/adam_denominator.py

Eight linear experts, records owned unevenly, trained by the trainer's own Poisson sampling, clipping and noise. All
runs see the same coins and the same noise; only the optimizer and what the noisy sums are divided by differ. Prints a
table and writes results/adam_denominator.json and .png, in half a minute.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raptor_acct import public_denominators
from raptor_train.noise import GaussianNoise
from raptor_train.records import Records
from raptor_train.roles import Role
from raptor_train.sampling import PoissonSampler, entropy_for, generator_from
from raptor_train.step import Stream, release
from raptor_train.tape import RecordedLinear

RESULTS = Path(__file__).parent / "results"
EXPERTS, FEATURES, RECORDS, STEPS = 8, 16, 4096, 150
Q, SIGMA, CLIP = 1 / 16, 1.0, 1.0  # B = 256 and B/E = 32
SHOWN_EVERY = 5
FLOOR = 1e-17

FASTER = "SGD, 8 × rate"  # compared with SGD at its own rate and D = B/E
Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
RULES = {"expected_owner": "B/E", "batch": "B", "public_share": "B π̂"}
OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    FASTER: lambda parameters: torch.optim.SGD(parameters, lr=8.0),
    "Adam, ε = 0": lambda parameters: torch.optim.Adam(parameters, lr=0.02, eps=0.0),
    "Adam, ε = 1e-8": lambda parameters: torch.optim.Adam(parameters, lr=0.02, eps=1e-8),
    "Adam, ε = 1e-2": lambda parameters: torch.optim.Adam(parameters, lr=0.02, eps=1e-2),
}


class LinearExperts:
    """What `raptor_train.step.release` asks of a model: a linear classifier for each expert, and its own records."""

    def __init__(self, features: Tensor, owners: Tensor):
        self.features, self.owners = features, owners
        self.layers = tuple(RecordedLinear(FEATURES, 2, dtype=torch.float64) for _ in range(EXPERTS))
        for expert, layer in enumerate(self.layers):
            layer.expert = expert
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def losses(self, records: Records) -> Tensor:
        """Cross-entropy of every record, [records]; a record's one token is its number."""
        numbers = records.input_ids[:, 0]
        logits = self.features.new_zeros(len(records), 2)
        for expert, layer in enumerate(self.layers):
            layer.record_of_row = (self.owners[numbers] == expert).nonzero()[:, 0]
            if len(layer.record_of_row):
                logits = logits.index_add(0, layer.record_of_row, layer(self.features[numbers[layer.record_of_row]]))
        return nn.functional.cross_entropy(logits, records.labels, reduction="none")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Features [records, features], owners [records], the records, and the public estimate π̂ [experts]."""

    features: Tensor
    owners: Tensor
    records: Records
    public: list[int]


def make_problem(seed: int) -> Problem:
    """Draw records of which expert e owns a share that falls as 1/(e + 1), and 500 public ones, counted from one."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, EXPERTS + 1)
    shares /= shares.sum()
    owners = rng.choice(EXPERTS, size=RECORDS, p=shares)
    features = rng.normal(size=(RECORDS, FEATURES))
    teachers = rng.normal(size=(EXPERTS, FEATURES))
    labels = (features * teachers[owners]).sum(axis=1) + rng.normal(size=RECORDS) > 0
    ids = torch.arange(RECORDS)[:, None]
    return Problem(
        features=torch.from_numpy(features),
        owners=torch.from_numpy(owners),
        records=Records(ids, torch.ones_like(ids), torch.from_numpy(labels).long()),
        public=(1 + rng.multinomial(500, shares)).tolist(),
    )


def train(problem: Problem, rule: str, make_optimizer: Optimizer) -> tuple[np.ndarray, float]:
    """Return the parameters after every step, [steps + 1, experts, parameters of one], and the last mean loss."""
    model = LinearExperts(problem.features, problem.owners)
    stream = Stream(
        role=Role(name="expert", layers=model.layers, owned=True),
        sampling_probability=Q,
        noise_multiplier=SIGMA,
        num_steps=STEPS,
        clip_norm=CLIP,
        denominator=1.0,  # the noisy sum itself; it is divided below, by expert
    )
    public = problem.public if rule == "public_share" else None
    denominators = public_denominators(rule, num_experts=EXPERTS, batch_size=Q * RECORDS, public=public).repeat(2)
    optimizer, path = make_optimizer(list(stream.parameters)), [_flat(stream)]
    sampler, noise = PoissonSampler(RECORDS, entropy_for(0, 0)), GaussianNoise(generator_from(entropy_for(0, 1)))
    for _ in range(STEPS):
        sums = release(
            stream, model, problem.records, sampler=sampler, noise=noise,
            charge=lambda: None, others=(), owners=problem.owners, micro_batch_size=RECORDS,
        )  # fmt: skip
        for parameter, total, denominator in zip(stream.parameters, sums, denominators, strict=True):
            parameter.grad = total / denominator
        optimizer.step()
        path.append(_flat(stream))
    with torch.no_grad():
        return np.stack(path), float(model.losses(problem.records).mean())


def _flat(stream: Stream) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in stream.parameters]).reshape(EXPERTS, -1).numpy()


def measure(problem: Problem) -> list[dict[str, Any]]:
    """Train with every optimizer and denominator, and compare each path with D = B/E's under the same optimizer."""
    runs = [(name, rule) for name in OPTIMIZERS for rule in RULES if name != FASTER or rule == "batch"]
    trained = {(name, rule): train(problem, rule, OPTIMIZERS[name]) for name, rule in runs}
    rows = []
    for (name, rule), (path, loss) in trained.items():
        reference, _ = trained["SGD" if name == FASTER else name, "expected_owner"]
        ratios = np.linalg.norm(path[1] - path[0], axis=1) / np.linalg.norm(reference[1] - reference[0], axis=1)
        differences = np.linalg.norm(path - reference, axis=(1, 2)) / np.linalg.norm(reference[-1] - reference[0])
        rows.append(
            {
                "optimizer": name,
                "denominator": RULES[rule],
                "first_step": [float(ratios.min()), float(ratios.max())],
                "difference": float(differences.max()),
                "loss": loss,
                "differences": differences[::SHOWN_EVERY].tolist(),
                "distances": np.linalg.norm(path - path[0], axis=(1, 2))[::SHOWN_EVERY].tolist(),
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'optimizer':16} {'D':5} {'first step, of B/E its own':>28} {'path off by':>12} {'loss':>7}")
    for row in rows:
        low, high = row["first_step"]
        ratio = f"{low:.6g}" if high - low < 1e-9 else f"{low:.6g} to {high:.6g}"
        print(f"{row['optimizer']:16} {row['denominator']:5} {ratio:>28} {row['difference']:12.2g} {row['loss']:7.4f}")


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw how far each run moves, and how far it is off the run that divides by B/E."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    steps = np.arange(0, STEPS + 1, SHOWN_EVERY)
    styles = {"B/E": "-", "B": "--", "B π̂": ":"}
    colors = {name: f"C{i}" for i, name in enumerate(OPTIMIZERS)}
    for axis, shown in zip(axes, ("SGD", "Adam, ε = 1e-8"), strict=False):
        for row in (row for row in rows if row["optimizer"] == shown):
            style = {"linestyle": styles[row["denominator"]], "linewidth": 2.4}
            axis.plot(steps, row["distances"], label=f"D = {row['denominator']}", **style)
        axis.set(title=f"{shown}: distance from the start", ylabel="‖θ - θ₀‖")
        axis.legend()
    for row in (row for row in rows if row["denominator"] != "B/E"):
        style = {"linestyle": styles[row["denominator"]], "color": colors[row["optimizer"]]}
        label = f"{row['optimizer']}; D = {row['denominator']}" + ("" if row["difference"] else " (exactly 0)")
        axes[2].plot(steps[1:], np.maximum(row["differences"][1:], FLOOR), label=label, **style)
    axes[2].set(title="off the run with D = B/E", yscale="log", ylim=(FLOOR / 3, 5))
    axes[2].set_ylabel(f"relative difference ({FLOOR:g} stands for less)")
    axes[2].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    for axis in axes:
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
    figure.savefig(file, dpi=130)


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    problem = make_problem(seed=0)
    rows = measure(problem)
    show(rows)
    setting = {"experts": EXPERTS, "records": RECORDS, "steps": STEPS, "q": Q, "sigma": SIGMA, "clip_norm": CLIP}
    document = {"setting": setting, "public_counts": problem.public, "shown_every": SHOWN_EVERY, "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "adam_denominator.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    draw(rows, RESULTS / "adam_denominator.png")


if __name__ == "__main__":
    main()

"""How much faster are two processes than one?

    python benchmarks/distributed_scaling.py

RAPTOR cycles of a small Switch classifier with random weights, started by torchrun with one and with two processes of
one thread each, in turns, so that other work on the machine meets both. Prints the times and writes
results/distributed_scaling.json, in a few minutes. Two processes need two free cores: the load is written down too, and
so is the processor time of the busier rank, which other work changes less; it leaves out waiting for the other rank.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import SwitchTransformersConfig

from raptor_acct import RolePlan, SubsampledGaussian
from raptor_train.adapters.switch import Lora, SwitchClassifier
from raptor_train.distributed import torchrun_group
from raptor_train.modeling import EncoderClassifier
from raptor_train.records import Records
from raptor_train.trainer import make_private

RESULTS = Path(__file__).parent / "results" / "distributed_scaling.json"
RECORDS, TOKENS, BATCH, MICRO_BATCH, CYCLES, ROUNDS = 2048, 64, 128, 32, 5, 4
WORLDS = (1, 2)


def make_model() -> SwitchClassifier:
    """Width 256, six blocks, eight experts; the setting of the speed benchmarks."""
    config = SwitchTransformersConfig(
        vocab_size=1000,
        d_model=256,
        d_kv=64,
        d_ff=512,
        num_heads=4,
        num_layers=6,
        num_sparse_encoder_layers=3,
        num_experts=8,
    )
    torch.manual_seed(0)
    lora = Lora(rank=16)
    return SwitchClassifier(EncoderClassifier(config), expert_layers=(3,), shared=lora, expert=lora)


def make_records(num_records: int, seed: int) -> Records:
    """Random tokens; lengths from half to all of TOKENS."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 1000, (num_records, TOKENS), generator=generator)
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (num_records, 1), generator=generator)
    mask = (torch.arange(TOKENS) < lengths).long()
    return Records(ids * mask, mask, torch.randint(0, 2, (num_records,), generator=generator))


def train(folder: Path) -> None:
    """One rank: train, and write the seconds and the processor's seconds of a cycle, the first left out."""
    torch.set_num_threads(1)
    stream = SubsampledGaussian(num_steps=CYCLES + 1, sampling_probability=BATCH / RECORDS, noise_multiplier=1.0)
    with torchrun_group() as group:
        trainer = make_private(
            make_model(),
            None,
            make_records(RECORDS, seed=0),
            RolePlan(shared=stream, expert=stream),
            clip_shared=1.0,
            clip_expert=1.0,
            ledger_path=folder / "ledger.jsonl",
            probe=make_records(2, seed=1),
            owners="recomputed",
            micro_batch_size=MICRO_BATCH,
            seed=0,
            group=group,
        )
        trainer.step()
        wall, processor = time.perf_counter(), time.process_time()
        for _ in trainer:
            pass
        seconds = [(time.perf_counter() - wall) / CYCLES, (time.process_time() - processor) / CYCLES]
        (folder / f"rank-{group.rank}.json").write_text(json.dumps(seconds))


def measure(world: int) -> tuple[float, float]:
    """Seconds a cycle with ``world`` processes, and processor's seconds of the busiest."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, __file__, folder], check=True, env=environment)
        ranks = [json.loads(path.read_text()) for path in Path(folder).glob("rank-*.json")]
        wall, processor = (max(column) for column in zip(*ranks, strict=True))
        return wall, processor


def main() -> None:
    """Measure all sizes in turns."""
    load_before = os.getloadavg()[0]
    seconds: dict[int, list[tuple[float, float]]] = {world: [] for world in WORLDS}
    for _ in range(ROUNDS):
        for world in WORLDS:
            seconds[world].append(measure(world))
    (wall_1, processor_1), (wall_2, processor_2) = (zip(*seconds[world], strict=True) for world in WORLDS)
    speedups = {
        "wall_best": min(wall_1) / min(wall_2),
        "wall_median_of_pairs": statistics.median(one / two for one, two in zip(wall_1, wall_2, strict=True)),
        "processor_best": min(processor_1) / min(processor_2),
    }
    result = {
        "setting": {
            "records": RECORDS,
            "tokens": TOKENS,
            "batch": BATCH,
            "micro_batch": MICRO_BATCH,
            "cycles": CYCLES,
            "threads_a_process": 1,
            "cores": os.cpu_count(),
            "load_before_and_after": [load_before, os.getloadavg()[0]],
            "torch": torch.__version__,
        },
        "seconds_and_processor_seconds_a_cycle": {str(world): times for world, times in seconds.items()},
        "speedup_of_two_processes": speedups,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    for world, times in seconds.items():
        shown = ", ".join(f"{wall:.2f} ({processor:.2f})" for wall, processor in times)
        print(f"{world} process(es), seconds a cycle (processor time of the busiest): {shown}")
    print("speed-up: " + ", ".join(f"{name} {value:.2f}" for name, value in speedups.items()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        main()

"""Going on after an interruption: what comes back, what never does, what stays spent, and what is refused."""

import json
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from raptor_acct import ledger
from raptor_acct.ledger import Ledger, LedgerDamaged
from raptor_train.adapters.switch import Lora, SwitchClassifier
from raptor_train.baselines import make_non_private
from raptor_train.checkpoint import Checkpoint
from raptor_train.distributed import ALONE, Group
from raptor_train.drift import OwnerDrift, owners_of
from raptor_train.independence import IndependenceReport
from raptor_train.loop import Trainer
from raptor_train.noise import GaussianNoise, Randomness

from .conftest import adapt, random_records, randomise, tiny_classifier
from .processes import finish, start, start_ranks
from .test_trainer import RecordedNoise, adam, plan_of, raptor, weights


@pytest.fixture(autouse=True)
def _records_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the check that other tests are about: it takes most of the time of a start."""
    report = IndependenceReport((), 0.0)
    monkeypatch.setattr("raptor_train.trainer.check_record_independence", lambda *args, **settings: report)


class KeptNoise(RecordedNoise):
    """Gaussian noise of which a copy is kept."""

    def __init__(self, source: GaussianNoise) -> None:
        super().__init__()
        self.source, self.drawn = source, list[Tensor]()

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        self.drawn.append(self.source(like, standard_deviation))
        return self.drawn[-1]


def run(folder: Path, adapted: SwitchClassifier | None = None, **changes: object) -> Trainer:
    """A run in a run folder, from the start or from where it is."""
    return raptor(folder, adapted, **{"checkpoints": folder / "checkpoints", **changes})


def charges(folder: Path) -> dict[str, int]:
    return {key[0]: m.num_steps for key, m in ledger.streams(folder / "ledger.jsonl").items()}


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
    ],
)
def test_weights_and_optimizer_come_back_bit_for_bit(
    tmp_path: Path, make: Callable[..., torch.optim.Optimizer]
) -> None:
    """Without noise and with every record in every sample, an interrupted run ends where a whole one does."""
    plan = plan_of(steps=4, q=1.0)

    def begin(folder: Path) -> tuple[SwitchClassifier, Trainer]:
        folder.mkdir(exist_ok=True)
        adapted = adapt()
        optimizer = make([*adapted.shared.parameters, *adapted.expert.parameters])
        return adapted, run(folder, adapted, optimizer=optimizer, plan=plan, noise=RecordedNoise())

    whole, trainer = begin(tmp_path / "whole")
    trainer.run()
    _, first = begin(tmp_path / "parts")
    first.step()
    first.step()
    first.save()
    parts, second = begin(tmp_path / "parts")
    assert second.cycle == 2
    assert list(second) == [3, 4]
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(parts), strict=True))


def test_learning_rates_come_back(tmp_path: Path) -> None:
    adapted = adapt()
    optimizer = adam(adapted)
    trainer = run(tmp_path, adapted, optimizer=optimizer)
    optimizer.param_groups[0]["lr"] = 0.123
    trainer.save()
    again = adapt()
    optimizer = adam(again)
    run(tmp_path, again, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.123


def test_neither_noise_nor_coins_are_drawn_twice_although_the_seed_is_the_same(tmp_path: Path) -> None:
    plan, records = plan_of(steps=6), random_records(200)
    drawn: list[Tensor] = []
    samples: list[tuple[int, ...]] = []

    def spy(sample: Callable[[float], Tensor], q: float) -> Tensor:
        samples.append(tuple(sample(q).tolist()))
        return torch.tensor(samples[-1])

    for _ in range(3):
        trainer = run(tmp_path, plan=plan, records=records, seed=11)
        noise = KeptNoise(trainer._noise)  # type: ignore[arg-type]
        trainer._noise = noise
        trainer._coins.sample = partial(spy, trainer._coins.sample)  # type: ignore[method-assign]
        trainer.step()
        trainer.step()
        trainer.save()
        drawn += noise.drawn
    assert charges(tmp_path) == {"shared": 6, "expert": 6}
    values = np.concatenate([d.numpy().ravel() for d in drawn])
    assert len(np.unique(values)) > 0.99 * values.size
    assert len(set(samples)) == len(samples) == 12


def test_fixed_owners_are_the_same_partition_after_training_has_moved_them(tmp_path: Path) -> None:
    records = random_records(60)
    adapted = adapt()
    trainer = run(tmp_path, adapted, records=records, plan=plan_of(steps=4), clip_shared=50.0)
    for _ in range(2):
        trainer.step()
    trainer.save()
    again = adapt()
    resumed = run(tmp_path, again, records=records, plan=plan_of(steps=4), clip_shared=50.0)
    assert resumed._owners is not None
    assert trainer._owners is not None
    assert torch.equal(resumed._owners, trainer._owners)
    assert not torch.equal(owners_of(again, records), trainer._owners)
    assert resumed.private_owner_drift() == trainer.private_owner_drift() > 0


def test_drift_is_the_share_of_records_with_another_owner_than_at_the_start(tmp_path: Path) -> None:
    adapted, records = adapt(), random_records(40)
    drift, before = OwnerDrift(adapted, records), owners_of(adapted, records)
    assert drift.share() == 0
    randomise(adapted, scale=3.0)
    moved = int((owners_of(adapted, records) != before).sum())
    assert moved > 0
    assert drift.share() == moved / 40
    recomputed = raptor(tmp_path, owners="recomputed")
    with pytest.raises(ValueError, match="owners='fixed'"):
        recomputed.private_owner_drift()


def test_charges_after_the_checkpoint_stand_and_their_updates_are_lost(tmp_path: Path) -> None:
    trainer = run(tmp_path, plan=plan_of(steps=5))
    trainer.step()
    trainer.save()
    trainer.step()
    trainer.step()  # never saved
    resumed = run(tmp_path, plan=plan_of(steps=5))
    assert resumed.cycle == 3
    resumed.run()
    assert charges(tmp_path) == {"shared": 5, "expert": 5}
    assert resumed.guarantee.epsilon(1e-5) == pytest.approx(plan_of(steps=5).guarantee().epsilon(1e-5), rel=1e-9)


def test_a_run_without_any_later_checkpoint_goes_on_from_its_start(tmp_path: Path) -> None:
    run(tmp_path, plan=plan_of(steps=3)).step()
    adapted = adapt()
    start_weights = weights(adapted)
    resumed = run(tmp_path, adapted, plan=plan_of(steps=3))
    assert resumed.cycle == 1
    assert all(torch.equal(a, b) for a, b in zip(start_weights, weights(adapted), strict=True))


def test_a_torn_last_line_is_charged(tmp_path: Path) -> None:
    trainer = run(tmp_path, plan=plan_of(steps=5))
    trainer.step()
    trainer.save()
    trainer.step()
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-20])  # in the middle of the second expert charge
    resumed = run(tmp_path, plan=plan_of(steps=5))
    assert charges(tmp_path)["expert"] == 2
    resumed.run()
    assert charges(tmp_path) == {"shared": 5, "expert": 5}


def test_a_run_that_is_over_stays_over(tmp_path: Path) -> None:
    run(tmp_path).run()
    before = (tmp_path / "ledger.jsonl").read_bytes()
    resumed = run(tmp_path)
    assert list(resumed) == []
    assert (tmp_path / "ledger.jsonl").read_bytes() == before


def test_a_loop_gives_the_numbers_of_complete_cycles(tmp_path: Path) -> None:
    trainer = raptor(tmp_path, plan=plan_of(steps=3))
    seen = [(cycle, trainer.cycle, charges(tmp_path)["expert"]) for cycle in trainer]
    assert seen == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]


def test_run_saves_every_so_often_and_at_the_end(tmp_path: Path) -> None:
    trainer = run(tmp_path, plan=plan_of(steps=5))
    saved: list[int] = []
    trainer.run(
        save_every=2, after_cycle=lambda: saved.append(Checkpoint.read(tmp_path / "checkpoints").charged["expert"])
    )
    assert saved == [0, 2, 2, 4, 5]


def test_a_run_without_a_folder_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoints=FOLDER"):
        raptor(tmp_path).save()


def test_only_safetensors_and_json_are_written_and_old_ones_go(tmp_path: Path) -> None:
    trainer = run(tmp_path, plan=plan_of(steps=3))
    for _ in trainer:
        trainer.save()
    files = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert [Path(name).suffix for name in files] == [".safetensors", ".json"]
    index = json.loads((tmp_path / "checkpoints" / "checkpoint.json").read_text())
    assert index["charged"] == {"shared": 3, "expert": 3}
    assert index["ledger_head"] == Ledger.verify(tmp_path / "ledger.jsonl").head


def test_a_non_private_run_goes_on_too(tmp_path: Path) -> None:
    def begin() -> tuple[SwitchClassifier, Trainer]:
        adapted = adapt()
        recipe = make_non_private(adapted, adam(adapted), random_records(8), sampling_probability=1.0, num_steps=4)
        trainer = Trainer(
            adapted,
            adam(adapted),
            random_records(8),
            recipe.streams,
            charges=None,
            randomness=Randomness.of(8, None),
            checkpoints=tmp_path / "checkpoints",
        )
        return adapted, trainer

    _, first = begin()
    first.step()
    first.save()
    adapted, second = begin()
    assert list(second) == [2, 3, 4]
    assert all(bool(w.isfinite().all()) for w in weights(adapted))
    assert math.isinf(second.streams[0].clip_norm)


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after one cycle."""
    folder = tmp_path_factory.mktemp("begun")
    run(folder).step()
    return folder


def frozen_weight_changed() -> SwitchClassifier:
    adapted = adapt()
    with torch.no_grad():
        adapted.model.encoder.encoder.block[1].layer[-1].mlp.router.classifier.weight[0, 0] += 1e-6
    return adapted


def trained_already() -> SwitchClassifier:
    adapted = adapt()
    randomise(adapted)
    return adapted


def other_scale() -> SwitchClassifier:
    lora = Lora(rank=3, scale=0.8)
    return SwitchClassifier(tiny_classifier(), expert_layers=(1,), shared=lora, expert=lora)


def other_rank() -> SwitchClassifier:
    return adapt(rank=2)


def other_layer() -> SwitchClassifier:
    return adapt(layers=(3,))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"plan": plan_of(sigmas=(1.5, 2.0))}, r"streams, shared, noise_multiplier: was 1.0, now 1.5"),
        ({"plan": plan_of(q=0.4)}, r"sampling_probability: was 0.5, now 0.4"),
        ({"plan": plan_of(steps=3)}, r"num_steps: was 2, now 3"),
        ({"clip_shared": 0.6}, r"streams, shared, clip_norm: was 0.5, now 0.6"),
        ({"clip_expert": 0.3}, r"streams, expert, clip_norm: was 0.25, now 0.3"),
        ({"num_records": 9}, r"denominators?: was \[?4.0.*now \[?4.5"),
        ({"records": random_records(9)}, r"records: was 8, now 9"),
        ({"owners": "recomputed"}, r"owners: was 'fixed', now 'recomputed'"),
        ({"adapted": frozen_weight_changed}, r"frozen weights: was"),
        ({"adapted": trained_already}, r"starting weights: was .*trained weights come from the checkpoint"),
        ({"adapted": other_scale}, r"adapter scales, .*: was 0.7, now 0.8.* and \d+ more"),
        ({"adapted": other_rank}, r"parameters, .*was 'torch.float32 \[3, 16\]', now 'torch.float32 \[2, 16\]'"),
        ({"adapted": other_layer}, r"parameters, .*block.1.*: was 'torch.float32 \[3, 16\]', now None"),
        ({"optimizer": torch.optim.SGD}, r"optimizer, class: was 'Adam', now 'SGD'"),
    ],
)
def test_another_run_is_refused_and_told_what_differs(begun: Path, changes: dict[str, object], match: str) -> None:
    before = (begun / "ledger.jsonl").read_bytes()
    make = changes.get("adapted", adapt)
    adapted = make()  # type: ignore[operator]
    changes = {**changes, "adapted": adapted}
    if "optimizer" in changes:
        changes["optimizer"] = torch.optim.SGD([*adapted.shared.parameters, *adapted.expert.parameters], lr=0.1)
    with pytest.raises(ValueError, match=match):
        run(begun, **changes)  # type: ignore[arg-type]
    assert (begun / "ledger.jsonl").read_bytes() == before


def test_a_ledger_that_does_not_continue_the_checkpoints_is_refused(tmp_path: Path) -> None:
    trainer = run(tmp_path, plan=plan_of(steps=4))
    trainer.step()
    path = tmp_path / "ledger.jsonl"
    early = path.read_bytes()
    trainer.step()
    trainer.save()
    late = path.read_bytes()

    def refuse(match: str) -> None:
        with pytest.raises(ValueError, match=match):
            run(tmp_path, plan=plan_of(steps=4))

    path.write_bytes(early)
    refuse("expected at least the 4 charges made before the checkpoint, got 2")
    path.unlink()
    refuse("put it back: without it nobody knows what was spent")
    other = Ledger(path)
    for stream, sigma, clip in [("expert", 2.0, 0.25), ("shared", 1.0, 0.5)] * 3:
        other.append(stream=stream, noise_multiplier=sigma, sampling_probability=0.5, clip_norm=clip)
    refuse("its first 4 charges are not those that the saved run made")
    path.write_bytes(late.replace(b'"clip_norm": 0.5', b'"clip_norm": 0.4', 1))
    with pytest.raises(LedgerDamaged):
        run(tmp_path, plan=plan_of(steps=4))
    path.write_bytes(late)
    Ledger.open(path).append(stream="shared", noise_multiplier=9.0, sampling_probability=0.5, clip_norm=0.5)
    refuse("expected charges of this plan's streams, got .*9.0")
    path.write_bytes(late)
    assert run(tmp_path, plan=plan_of(steps=4)).cycle == 2


def test_a_ledger_with_charges_is_not_taken_over_without_its_checkpoint(tmp_path: Path) -> None:
    run(tmp_path).step()
    (tmp_path / "checkpoints" / "checkpoint.json").unlink()
    with pytest.raises(ValueError, match="a new file"):
        run(tmp_path)
    (tmp_path / "ledger.jsonl").unlink()
    Ledger(tmp_path / "ledger.jsonl")  # as a run leaves it that dies before it has saved its start
    run(tmp_path).run()
    assert charges(tmp_path) == {"shared": 2, "expert": 2}


@pytest.mark.parametrize("damage", ["tensors", "no tensors", "index", "format"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    run(tmp_path).step()
    (tensors,) = (tmp_path / "checkpoints").glob("*.safetensors")
    index = tmp_path / "checkpoints" / "checkpoint.json"
    if damage == "tensors":
        tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x01")
    elif damage == "no tensors":
        tensors.unlink()
    elif damage == "index":
        index.write_bytes(index.read_bytes()[:-10])
    else:
        index.write_text(index.read_text().replace("raptor-checkpoint/1", "raptor-checkpoint/9"))
    with pytest.raises(ValueError, match="expected a whole raptor-checkpoint/1, got a damaged one"):
        run(tmp_path)


def test_an_optimizer_that_json_cannot_hold_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    adapted = adapt()
    rate = torch.tensor(0.01)
    optimizer = torch.optim.Adam([*adapted.shared.parameters, *adapted.expert.parameters], lr=rate, foreach=False)
    with pytest.raises(ValueError, match="optimizer settings that JSON can hold"):
        run(tmp_path, adapted, optimizer=optimizer)
    assert not ledger.streams(tmp_path / "ledger.jsonl")


# --- killed ---------------------------------------------------------------------------------------------------------

STEPS = 6
NOISE_STD = {"shared": 0.5, "expert": 0.75}  # clip norm times sigma: tells the streams apart


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class LoggedNoise(GaussianNoise):
    """Writes down, before it returns, that noise was drawn: from then on a release may have left the process."""

    def __init__(self, log: Path) -> None:
        super().__init__(np.random.default_rng())
        self._log = log
        log.touch()

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        with self._log.open("a") as log:
            log.write(f"{standard_deviation}\n")
        return super().__call__(like, standard_deviation)


def train_until_killed(folder: Path, log: Path, point: str = "") -> None:
    """Go on with the run in ``folder``; die at a point in the third cycle, or whenever the kill comes."""
    trainer = killable(folder, noise=LoggedNoise(log))
    (folder / "ready").touch()
    for cycle in trainer:
        trainer.save()
        if cycle == 2 and point:
            die_at(point, trainer, folder)


def killable(folder: Path, **changes: object) -> Trainer:
    return run(folder, plan=plan_of(steps=STEPS, sigmas=(1.0, 3.0)), seed=None, **changes)


def die_at(point: str, trainer: Trainer, folder: Path) -> None:
    assert trainer.ledger is not None
    append = trainer.ledger.append

    def append_and_die(**entry: object) -> None:
        if point == "before the charge":
            die()
        append(**entry)  # type: ignore[arg-type]
        if point == "torn charge":
            with (folder / "ledger.jsonl").open("r+b") as file:
                file.truncate(file.seek(0, os.SEEK_END) - 7)
        die()

    if point in ("before the charge", "after the charge", "torn charge"):
        trainer.ledger.append = append_and_die  # type: ignore[method-assign]
    elif point == "noise":
        trainer._noise = lambda like, standard_deviation: die()  # type: ignore[assignment, return-value]
    elif point == "optimizer":
        trainer._optimizer.step = die  # type: ignore[method-assign, assignment]
    else:
        replace = Path.replace

        def replace_and_die(self: Path, target: Path) -> Path:
            if point == "tensors written" and target.suffix == ".safetensors":
                die()
            if point == "index written" and target.suffix == ".json":
                die()
            if point == "index replaced" and target.suffix == ".json":
                replace(self, target)
                die()
            return replace(self, target)

        Path.replace = replace_and_die  # type: ignore[method-assign, assignment]


def started(logs: list[Path]) -> Counter[str]:
    """Releases of each stream whose noise was begun, in all processes together."""
    tensors = {"shared": len(adapt().shared.parameters), "expert": len(adapt().expert.parameters)}
    total: Counter[str] = Counter()
    for log in logs:
        drawn = Counter(float(line) for line in log.read_text().split())
        total.update({name: math.ceil(drawn[std] / tensors[name]) for name, std in NOISE_STD.items()})
    return total


def check_nothing_is_forgotten(folder: Path, logs: list[Path]) -> None:
    content = Ledger.verify(folder / "ledger.jsonl")
    charged = {key[0]: mechanism.num_steps for key, mechanism in content.streams().items()}
    assert all(charged.get(name, 0) >= count for name, count in started(logs).items())
    assert all(count <= STEPS for count in charged.values())


@pytest.mark.parametrize(
    "point",
    [
        "before the charge",
        "after the charge",
        "torn charge",
        "noise",
        "optimizer",
        "tensors written",
        "index written",
        "index replaced",
    ],
)
def test_killed_at_any_point_of_a_cycle_nothing_is_forgotten_and_the_plan_is_kept(tmp_path: Path, point: str) -> None:
    assert finish([start(train_until_killed, tmp_path, tmp_path / "0.log", point)]) == [-9]
    check_nothing_is_forgotten(tmp_path, [tmp_path / "0.log"])
    trainer = killable(tmp_path, noise=LoggedNoise(tmp_path / "1.log"))
    complete = 3 if "written" in point or "replaced" in point else 2
    assert trainer.cycle == complete
    trainer.run()
    check_nothing_is_forgotten(tmp_path, [tmp_path / "0.log", tmp_path / "1.log"])
    assert charges(tmp_path) == {"shared": STEPS, "expert": STEPS}


def kill_at_random(folder: Path, seed: int, *, longest: float) -> int:
    """Kill the run in ``folder`` again and again until it is complete; return how many kills hit it."""
    rng, logs, kills = random.Random(seed), list[Path](), 0
    while True:
        logs.append(folder / f"{len(logs)}.log")
        (folder / "ready").unlink(missing_ok=True)
        process = start(train_until_killed, folder, logs[-1])
        while not (folder / "ready").exists() and process.is_alive():
            time.sleep(0.002)
        process.join(rng.uniform(0, longest))
        process.kill()
        (code,) = finish([process])
        check_nothing_is_forgotten(folder, logs)
        if code == 0:
            assert charges(folder) == {"shared": STEPS, "expert": STEPS}
            return kills
        assert code == -9
        kills += 1


def test_killed_at_random_times_nothing_is_forgotten_and_the_plan_is_kept(tmp_path: Path) -> None:
    assert kill_at_random(tmp_path, seed=0, longest=0.15) > 0


# --- several processes ----------------------------------------------------------------------------------------------


def cycles_by(group: Group, folder: Path, cycles: int) -> None:
    adapted = adapt().double()
    randomise(adapted)
    trainer = run(folder, adapted, group=group, plan=plan_of(steps=4))
    for _ in range(cycles):
        trainer.step()
    trainer.save()
    if group.rank == 0:
        save_file({str(i): w for i, w in enumerate(weights(adapted))}, folder / "end.safetensors")


def test_a_run_of_two_processes_goes_on_in_one_or_three(tmp_path: Path) -> None:
    (tmp_path / "changing").mkdir()
    (tmp_path / "alone").mkdir()
    for world, cycles in ((2, 1), (1, 2), (3, 1)):
        assert finish(start_ranks(world, cycles_by, tmp_path / "changing", cycles)) == [0] * world
        cycles_by(ALONE, tmp_path / "alone", cycles)
    ends = [load_file(tmp_path / name / "end.safetensors") for name in ("changing", "alone")]
    assert all(charges(tmp_path / name) == {"shared": 4, "expert": 4} for name in ("changing", "alone"))
    for name, weight in ends[0].items():
        torch.testing.assert_close(weight, ends[1][name], rtol=1e-12, atol=1e-12)

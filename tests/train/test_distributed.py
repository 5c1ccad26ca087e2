"""Several processes: the same releases as one, one ledger, one noise, the same bits, and nobody waits for ever."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from raptor_acct import ledger
from raptor_train.adapters.switch import Lora, SwitchClassifier
from raptor_train.distributed import ALONE, Group, RankFailed, torchrun_group
from raptor_train.drift import owners_of
from raptor_train.loop import Trainer
from raptor_train.records import Records

from .conftest import random_records, randomise, tiny_classifier
from .processes import finish, start_ranks
from .test_trainer import RecordedNoise, plan_of, raptor, weights

STREAMS = ("shared", "expert")


def double_model() -> SwitchClassifier:
    lora = Lora(rank=3, scale=0.7)
    adapted = SwitchClassifier(tiny_classifier(), expert_layers=(1,), shared=lora, expert=lora).double()
    randomise(adapted)
    return adapted


def trained(group: Group, folder: Path, **changes: object) -> SwitchClassifier:
    adapted = double_model()
    # 0.8 records are expected in a sample of all ranks: most shares are empty
    arguments: dict[str, object] = {"plan": plan_of(steps=5, q=0.1), "group": group}
    trainer = raptor(folder, adapted, **{**arguments, **changes})
    trainer.run()
    return adapted


def train_both_ways(group: Group, folder: Path) -> None:
    for owners in ("fixed", "recomputed"):
        (folder / owners).mkdir(exist_ok=True)
        tensors = weights(trained(group, folder / owners, owners=owners))
        save_file({str(i): w for i, w in enumerate(tensors)}, folder / owners / f"{group.rank}.safetensors")


@pytest.mark.parametrize("world", [2, 3])
def test_the_same_releases_as_one_process_and_the_same_bits_on_all_ranks(tmp_path: Path, world: int) -> None:
    assert finish(start_ranks(world, train_both_ways, tmp_path)) == [0] * world
    for owners in ("fixed", "recomputed"):
        (tmp_path / f"one-{owners}").mkdir()
        one = weights(trained(ALONE, tmp_path / f"one-{owners}", owners=owners))
        ranks = [load_file(tmp_path / owners / f"{rank}.safetensors") for rank in range(world)]
        for i, weight in enumerate(one):
            torch.testing.assert_close(ranks[0][str(i)], weight, rtol=1e-12, atol=1e-12)
            assert all(torch.equal(rank[str(i)], ranks[0][str(i)]) for rank in ranks)
        ledgers = [(tmp_path / name / "ledger.jsonl").read_bytes() for name in (owners, f"one-{owners}")]
        assert ledgers[0] == ledgers[1]


def write_seen(group: Group, folder: Path) -> None:
    """One run with fresh entropy: which samples a rank saw, which share it clipped, how often it drew noise."""
    adapted, noise = double_model(), RecordedNoise()
    trainer = raptor(folder, adapted, plan=plan_of(steps=3, q=0.5), group=group, seed=None, noise=noise)
    samples: list[list[int]] = []
    sample = trainer._coins.sample

    def spy(q: float) -> Tensor:
        drawn = sample(q)
        samples.append(drawn.tolist())
        return drawn

    trainer._coins.sample = spy  # type: ignore[method-assign]
    trainer.run()
    seen = {"samples": samples, "noises": len(noise.stds), "ledger": trainer.ledger is not None}
    (folder / f"{group.rank}.json").write_text(json.dumps(seen))


def test_ranks_share_one_sample_one_noise_and_one_ledger(tmp_path: Path) -> None:
    assert finish(start_ranks(2, write_seen, tmp_path)) == [0, 0]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["samples"] == second["samples"]
    assert len({tuple(s) for s in first["samples"]}) > 1
    adapted = double_model()
    assert first["noises"] == 3 * (len(adapted.shared.parameters) + len(adapted.expert.parameters))
    assert second["noises"] == 0
    assert (first["ledger"], second["ledger"]) == (True, False)
    assert ledger.Ledger.verify(tmp_path / "ledger.jsonl").num_releases == 6


def use_the_primitives(group: Group) -> None:
    tensors = [torch.full((2, 3), 10.0**group.rank), torch.full((), group.rank + 1.0)]
    group.sum_(tensors)
    assert torch.equal(tensors[0], torch.full((2, 3), 111.0))
    assert tensors[1] == 6
    bits = [torch.full((4,), float("nan")) if group.rank == 0 else torch.zeros(4), torch.full((2,), group.rank + 0.1)]
    group.broadcast_(bits)
    assert bits[0].isnan().all()
    assert torch.equal(bits[1], torch.full((2,), 0.1))
    secret = 2**127 + 1
    assert group.from_first({"secret": secret + group.rank, "rank": group.rank}) == {"secret": secret, "rank": 0}
    group.check_same("answer", "42")
    with pytest.raises(ValueError if group.rank == 2 else RankFailed, match="rank 2"):
        group.check_same("answer", "43" if group.rank == 2 else "42")
    adapted, records = double_model(), random_records(11)
    assert torch.equal(owners_of(adapted, records, 2, group), owners_of(adapted, records))


def test_primitives() -> None:
    assert finish(start_ranks(3, use_the_primitives)) == [0, 0, 0]


def test_one_process_is_a_group_of_its_own() -> None:
    with torchrun_group() as group:
        assert (group.rank, group.world) == (0, 1)
        tensor = torch.ones(2)
        group.sum_([tensor])
        group.broadcast_([tensor])
        assert torch.equal(tensor, torch.ones(2))
        assert group.from_first(5) == 5
        with pytest.raises(KeyError), group.together():
            raise KeyError


# --- one rank fails -------------------------------------------------------------------------------------------------


class FailingModel(SwitchClassifier):
    """Fails, or dies, when it computes a loss and ``fails`` is set."""

    fails: str = ""

    def losses(self, records: Records) -> Tensor:
        if self.fails == "raise":
            raise MemoryError("no memory on this rank")
        if self.fails == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails == "sleep":
            time.sleep(60)
        return super().losses(records)


def step_and_fail(group: Group, folder: Path, rank: int, how: str) -> None:
    folder.mkdir(exist_ok=True)
    adapted = FailingModel(tiny_classifier(), expert_layers=(1,)).double()
    trainer = raptor(folder, adapted, plan=plan_of(steps=3, q=1.0), group=group)
    trainer.step()
    adapted.fails = how if group.rank == rank else ""
    try:
        trainer.step()
    except BaseException as error:
        (folder / f"{group.rank}.txt").write_text(f"{type(error).__name__}: {error}")
    if how == "raise":
        adapted.fails = ""
        trainer.run()


def raise_on_each(group: Group, folder: Path) -> None:
    for rank in range(group.world):
        step_and_fail(group, folder / f"run-{rank}", rank, "raise")


def test_an_exception_on_one_rank_stops_all_before_the_charge_and_the_run_can_go_on(tmp_path: Path) -> None:
    assert finish(start_ranks(2, raise_on_each, tmp_path)) == [0, 0]
    for rank in (0, 1):
        folder = tmp_path / f"run-{rank}"
        assert (folder / f"{rank}.txt").read_text() == "MemoryError: no memory on this rank"
        assert (folder / f"{1 - rank}.txt").read_text().startswith(f"RankFailed: stopped because rank {rank} failed")
        charged = {key[0]: m.num_steps for key, m in ledger.streams(folder / "ledger.jsonl").items()}
        assert charged == dict.fromkeys(STREAMS, 3)  # nobody has lost count


@pytest.mark.parametrize(("rank", "how", "code"), [(0, "die", -9), (1, "die", -9), (1, "sleep", None)])
def test_a_rank_that_dies_or_hangs_does_not_hang_the_others(tmp_path: Path, rank: int, how: str, code: int) -> None:
    started = time.monotonic()
    processes = start_ranks(2, step_and_fail, tmp_path, rank, how, timeout=4)
    (survivor,) = (processes[r] for r in range(2) if r != rank)
    survivor.join(30)
    assert survivor.exitcode is not None
    assert time.monotonic() - started < 20
    assert "Error" in (tmp_path / f"{1 - rank}.txt").read_text()
    assert finish([processes[rank]], seconds=0.5) == [code]
    survivor.close()
    assert ledger.Ledger.verify(tmp_path / "ledger.jsonl").num_releases == 2  # the step that failed was not charged


def fail_to_charge(group: Group, folder: Path) -> None:
    noise = RecordedNoise()
    trainer = raptor(folder, double_model(), group=group, noise=noise)
    if trainer.ledger is not None:
        trainer.ledger.append = full_disk  # type: ignore[method-assign]
    with pytest.raises(OSError if group.rank == 0 else RankFailed):
        trainer.step()
    assert not noise.stds
    with pytest.raises(ValueError, match="rank 0 alone" if group.rank else "nothing was released"):
        _ = trainer.guarantee


def full_disk(**kwargs: object) -> None:
    raise OSError("no space left on device")


def test_no_rank_sees_a_release_that_could_not_be_charged(tmp_path: Path) -> None:
    assert finish(start_ranks(2, fail_to_charge, tmp_path)) == [0, 0]


def differ(group: Group, folder: Path) -> None:
    changes: dict[str, dict[str, object]] = {
        "data": {"records": random_records(8, seed=group.rank)},
        "frozen weights": {"adapted": SwitchClassifier(tiny_classifier(seed=group.rank), expert_layers=(1,))},
        "streams": {"clip_shared": 0.5 + group.rank},
    }
    for what, change in changes.items():
        (folder / what).mkdir(exist_ok=True)
        with pytest.raises(ValueError if group.rank == 1 else RankFailed, match=what if group.rank == 1 else "rank 1"):
            raptor(folder / what, group=group, **change)  # type: ignore[arg-type]


def test_ranks_that_do_not_train_the_same_are_refused(tmp_path: Path) -> None:
    assert finish(start_ranks(2, differ, tmp_path)) == [0, 0]
    assert not any(ledger.streams(path) for path in tmp_path.glob("*/ledger.jsonl"))


def save_with_other_weights(group: Group, folder: Path) -> None:
    adapted = double_model()
    trainer: Trainer = raptor(folder, adapted, group=group, checkpoints=folder / "checkpoints")
    trainer.step()
    trainer.save()
    with torch.no_grad():
        adapted.shared.parameters[0][0] += group.rank * 1e-15
    with pytest.raises(ValueError if group.rank == 1 else RankFailed, match="weights" if group.rank else "rank 1"):
        trainer.save()


def test_weights_that_have_drifted_apart_by_a_bit_are_not_saved(tmp_path: Path) -> None:
    assert finish(start_ranks(2, save_with_other_weights, tmp_path)) == [0, 0]

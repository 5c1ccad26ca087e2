"""The runs that the checks look at, by name; each is made once for a system under test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from raptor_train.distributed import Group, RankFailed
from raptor_train.trainer import BudgetExceeded

from .recording import Recorder, Recording
from .reference import reference_of
from .setting import NUM_RECORDS

Scenario = Callable[[str, Path, Group], Recording]

BUSY = (0.3, 0.1)  # expected counts of records and of a record's samples are whole numbers
STEPS = 10
NEVER = (1e-9, 1e-9)
CRASH_STEPS = 3


def few(family: str) -> list[int]:
    """Five records; the first is longer than both clip norms, and its owner is that of another one but not of all."""
    reference = reference_of(family)
    owners, everyone = reference.owners, range(len(reference.owners))

    def excess(i: int) -> float:
        return min(reference.norms[s][i] / clip_norm for s, clip_norm in reference.clip_norms.items())

    first = max((i for i in everyone if owners.count(owners[i]) > 1), key=excess)
    alike = [i for i in everyone if owners[i] == owners[first] and i != first]
    others = [i for i in everyone if owners[i] != owners[first]]
    return [first, *alike[:1], *others[:3]]


REMOVED = (0, 2)  # places among the few
NOT_FINITE = 3
TOGETHER = {"micro_batch_size": 4, "owners": "recomputed"}


def _run_busy(**changes: Any) -> Scenario:
    """Enough steps for statistics on one family; the others differ from it in the model alone, and two show that."""
    return lambda family, folder, group: Recorder(
        family=family, folder=folder, group=group, q=BUSY, steps=STEPS if family == "switch" else 2, **changes
    ).run()


def _run(**changes: Any) -> Scenario:
    return lambda family, folder, group: Recorder(family=family, folder=folder, group=group, **changes).run()


def _run_few(leave_out: int | None = None, **changes: Any) -> Scenario:
    """All of the few records, or all but one, in every sample; one at a time through the model."""

    def scenario(family: str, folder: Path, group: Group) -> Recording:
        indices = [i for place, i in enumerate(few(family)) if place != leave_out]
        arguments: dict[str, Any] = {"settings": {"micro_batch_size": 1}, **changes}
        return Recorder(family=family, folder=folder, group=group, indices=indices, **arguments).run()

    return scenario


def _run_few_weighted(place: int, factor: float, **changes: Any) -> Scenario:
    def scenario(family: str, folder: Path, group: Group) -> Recording:
        return _run_few(weights={few(family)[place]: factor}, **changes)(family, folder, group)

    return scenario


def _resumed(**changes: Any) -> Scenario:
    """Two cycles, a checkpoint, and two more cycles of a trainer made anew."""

    def scenario(family: str, folder: Path, group: Group) -> Recording:
        recorder = Recorder(family=family, folder=folder, group=group, steps=4, **changes)
        recorder.settings = {"checkpoints": folder / "checkpoints"}
        for _ in range(2):
            trainer = recorder.start()
            trainer.step()
            trainer.step()
            trainer.save()
        return recorder.end()

    return scenario


class _CrashOnce:
    """No noise, and an interruption when the last cycle's last stream asks for some."""

    def __init__(self, calls: int):
        self.left = calls

    def __call__(self, like: Tensor, standard_deviation: float) -> Tensor:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return torch.zeros_like(like)


def _crash(family: str, folder: Path, group: Group) -> Recording:
    """A cycle, a checkpoint, a cycle, a crash in the noise of the third one's second release; then on to the end."""
    shared, expert = (len(reference_of(family).names(stream)) for stream in ("shared", "expert"))
    recorder = Recorder(family=family, folder=folder, group=group, steps=CRASH_STEPS, q=(0.5, 0.5))
    recorder.noise = _CrashOnce(CRASH_STEPS * shared + (CRASH_STEPS - 1) * expert + 2)
    recorder.settings = {"checkpoints": folder / "checkpoints"}
    trainer = recorder.start()
    trainer.step()
    trainer.save()
    try:
        for _ in range(CRASH_STEPS):
            trainer.step()
    except (KeyboardInterrupt, RankFailed):  # on rank 0, which draws the noise, and on the others
        trainer = recorder.start()
    for _ in range(CRASH_STEPS):
        try:
            trainer.step()
        except BudgetExceeded:
            break
    return recorder.end()


SCENARIOS: dict[str, Scenario] = {
    "busy": _run_busy(),
    "busy without the last": _run_busy(indices=range(NUM_RECORDS - 1)),
    "busy with noise": _run_busy(noise=None),
    "empty": _run(q=NEVER, steps=STEPS, noise=None, seed=None),
    "empty again": _run(q=NEVER, steps=1, noise=None, seed=None),
    "few": _run_few(),
    **{f"few without {place}": _run_few(leave_out=place) for place in REMOVED},
    "few together": _run_few(settings=TOGETHER),
    **{f"few together without {place}": _run_few(leave_out=place, settings=TOGETHER) for place in REMOVED},
    "few with ones": _run_few(noise=1.0),
    "few without 0 with ones": _run_few(leave_out=0, noise=1.0),
    "few with a silent record": _run_few_weighted(0, 0.0, noise=None),
    "few without the silent record": _run_few(leave_out=0, noise=None),
    "few with one not finite": _run_few_weighted(NOT_FINITE, float("nan"), settings=TOGETHER),
    "training": _run_few(noise=None, rate=0.1, settings=TOGETHER),
    "resumed": _resumed(q=BUSY),
    "resumed, empty": _resumed(q=NEVER, noise=None),
    "crash": _crash,
}

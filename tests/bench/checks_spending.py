"""Checks of what is charged, and of what is chosen before anything is: the ledger equals the releases, at any crash."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from raptor_train.inputs import Inputs, load_inputs
from raptor_train.records import Records
from raptor_train.resolve import resolve
from tests.train.run_tools import configured, tiny_settings

from .recording import Recording
from .scenarios import CRASH_STEPS
from .setting import SIGMAS, STREAMS, plan_of
from .system import System


def ledger_equals_releases(system: System) -> None:
    """One line for each release, in order, with the plan's numbers; together they are the plan."""
    for scenario in ("busy", "empty", "few"):
        recording = system.recording(scenario)
        expected = [_charge(system, recording, k) for k in range(len(recording.releases))]
        assert recording.charges == expected, f"{scenario}: the ledger does not hold the releases"
        plan = plan_of(recording.q, len(recording.releases) // 2)
        spent = {key[0]: mechanism for key, mechanism in recording.spent.items()}
        assert spent == {"shared": plan.shared, "expert": plan.expert}, f"{scenario}: the ledger is not the plan"


def _charge(system: System, recording: Recording, k: int) -> dict[str, Any]:
    stream = STREAMS[k % 2]
    return {
        "stream": stream,
        "noise_multiplier": SIGMAS[stream],
        "sampling_probability": recording.q[k % 2],
        "clip_norm": system.reference.clip_norms[stream],
    }


def charges_come_before_noise(system: System) -> None:
    """When noise is asked for, the ledger's file already holds the release."""
    for k, release in enumerate(system.recording("busy").releases):
        assert release.charged == k + 1, f"release {k}: {release.charged} charges when its noise was drawn"


def a_crash_stays_spent(system: System) -> None:
    """After a crash in a release's noise, a run from an old checkpoint spends its plan and draws no noise beyond."""
    recording = system.recording("crash")
    charged = Counter(charge["stream"] for charge in recording.charges)
    assert charged == dict.fromkeys(STREAMS, CRASH_STEPS), f"charged {charged}"
    first_tensor = {stream: len(system.reference.names(stream)) for stream in STREAMS}
    calls = Counter(std for release in recording.releases for _, std in release.noise)
    for stream in STREAMS:
        drawn = calls[system.noise_std(stream)] / first_tensor[stream]
        assert drawn <= CRASH_STEPS, f"{stream}: noise for {drawn} releases, {CRASH_STEPS} are charged"


def public_choices_ignore_private_rows(system: System) -> None:
    """Layer, clip norms, scales and shares are the same whatever the private records say."""
    with tempfile.TemporaryDirectory() as folder:
        config = configured(tiny_settings(Path(folder)), layer="entropy", denominator="public_share")
        inputs = load_inputs(config)
        assert resolve(config, inputs) == resolve(config, _with_other_rows(inputs)), "a choice depends on private rows"


def _with_other_rows(inputs: Inputs) -> Inputs:
    private = inputs.private
    ids = private.input_ids.flip(0)
    changed = Records(torch.where(ids > 2, 50 - ids + 1, ids), private.attention_mask.flip(0), 1 - private.labels)
    return dataclasses.replace(inputs, private=changed)

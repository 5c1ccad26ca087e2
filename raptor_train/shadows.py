"""Shadow models: the mechanism of a run, trained again and again on random halves of its records.

Every record is in every shadow model's data by a fair coin of its own, so that "with it" and "without it" are
neighbours that differ by adding or removing one record: what the ceiling of the guarantee speaks of (theory.md P6).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from raptor_acct import Guarantee, SubsampledGaussian
from raptor_acct.cli._output import SCHEMA
from raptor_train.config import RunConfig
from raptor_train.inputs import Inputs, fresh_model, load_inputs
from raptor_train.methods import adapted_for, calibrate, optimizer_for
from raptor_train.metrics import losses_by_class
from raptor_train.resolve import Echo, Resolved, resolve, silent
from raptor_train.run import trainer_for
from raptor_train.run_folder import write_json
from raptor_train.workers import tick


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """The shadow models of one method at one budget, and their folder.

    Everything in the folder but its settings is private: scores of private records by models that are not released.

    Attributes:
        folder: Where they are.
        config: The method.
        resolved: What it comes to for half the records.
        coin_seed: Seed of the coins that say who is in which model's data.
    """

    folder: Path
    config: RunConfig
    resolved: Resolved
    coin_seed: int

    @classmethod
    def begin(
        cls, folder: Path, config: RunConfig, inputs: Inputs, *, coin_seed: int = 0, echo: Echo = silent
    ) -> Shadows:
        """Choose what the method leaves open, once for all its shadow models, or read what was chosen before.

        Raises:
            ValueError: If the folder holds the shadow models of other settings, or something cannot be chosen.
        """
        config = config.located()
        asked = {"schema": SCHEMA, "config": config.to_dict(), "coin_seed": coin_seed}
        if (folder / _SETTINGS).exists():
            found = cls.read(folder)
            if {"schema": SCHEMA, "config": found.config.to_dict(), "coin_seed": found.coin_seed} != asked:
                raise ValueError(f"{folder} holds shadow models of other settings: choose another folder")
            return found
        half = replace(inputs, private=inputs.private.take(torch.arange(len(inputs.private) // 2)))
        resolved = resolve(config, half, echo=echo)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / _SETTINGS, {**asked, "resolved": resolved.to_dict()})
        return cls(folder=folder, config=config, resolved=resolved, coin_seed=coin_seed)

    @classmethod
    def read(cls, folder: Path) -> Shadows:
        """The shadow models that were begun in a folder."""
        content = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        return cls(
            folder=folder,
            config=RunConfig.from_dict(content["config"]),
            resolved=Resolved.from_dict(content["resolved"]),
            coin_seed=content["coin_seed"],
        )

    def members(self, model: int, num_records: int) -> npt.NDArray[np.bool_]:
        """Which records are in the data of one shadow model, [records]."""
        return fair_coins(self.coin_seed, model, num_records)

    def missing(self, num_models: int) -> list[int]:
        """Models that are not trained yet."""
        return [model for model in range(num_models) if not self._path(model).exists()]

    def train(self, model: int) -> None:
        """Train one shadow model with the whole mechanism, score every record and save the scores.

        Raises:
            ValueError: If the run could not begin.
            RuntimeError: If the ledger says that more was spent than the budget: a bug.
        """
        inputs = _inputs(self.folder)
        resolved = self.resolved
        members = self.members(model, len(inputs.private))
        adapted = adapted_for(
            self.config, fresh_model(self.config, resolved.label_names), layers=resolved.layers, scales=resolved.scales
        )
        with tempfile.TemporaryDirectory() as scratch:
            trainer = trainer_for(
                self.config,
                resolved,
                replace(inputs, private=inputs.private.take(torch.from_numpy(members))),
                adapted,
                optimizer_for(self.config, adapted),
                self._noise(),
                ledger_path=Path(scratch) / "ledger.jsonl",
            )
            trainer.run(after_cycle=tick)
            spent = float(trainer.guarantee.epsilon(resolved.delta)) if self.config.private else None
        if spent is not None and spent > self.config.privacy.eps:
            raise RuntimeError(f"a shadow model spent epsilon = {spent}, more than {self.config.privacy.eps}")
        losses = losses_by_class(adapted, inputs.private, micro_batch_size=self.config.training.micro_batch_size)
        partial = self._path(model).with_suffix(".partial")
        save_file({"losses": losses, "members": torch.from_numpy(members)}, partial, {"epsilon": json.dumps(spent)})
        partial.replace(self._path(model))

    def scores(self, num_models: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Losses of every record for every class, [models, records, classes], and who was a member, [models, records].

        Private.
        """
        losses, members = [], []
        for model in range(num_models):
            with safe_open(self._path(model), "np") as file:
                losses.append(file.get_tensor("losses"))
                members.append(file.get_tensor("members"))
        return np.stack(losses), np.stack(members)

    def guarantee(self) -> Guarantee | None:
        """What a whole run of the mechanism guarantees; None without privacy."""
        noise = self._noise()
        if noise is None:
            return None
        mechanism = noise if isinstance(noise, SubsampledGaussian) else noise.plan
        return mechanism.guarantee(self.config.privacy.adjacency)

    def to_dict(self) -> dict[str, Any]:
        """What is public about them, ready for JSON."""
        resolved = self.resolved
        found: Mapping[str, Any] = {
            "method": self.config.method,
            "epsilon": self.config.privacy.eps if self.config.private else None,
            "delta": resolved.delta if self.config.private else None,
            "adjacency": self.config.privacy.adjacency if self.config.private else None,
            "num_records": resolved.num_records,
            "steps": resolved.steps,
            "sampling_probability": resolved.sampling_probability,
            "layers": list(resolved.layers),
        }
        return dict(found)

    def _noise(self) -> Any:
        return calibrate(
            self.config,
            q=self.resolved.sampling_probability,
            steps=self.resolved.steps,
            delta=self.resolved.delta,
        )

    def _path(self, model: int) -> Path:
        return self.folder / f"shadow-{model:04d}.safetensors"


def fair_coins(seed: int, model: int, num_records: int) -> npt.NDArray[np.bool_]:
    """Which records are in the data of one shadow model, [records]."""
    coins: npt.NDArray[np.bool_] = np.random.default_rng([seed, model]).random(num_records) < 0.5
    return coins


def train_shadow(folder: Path, model: int) -> None:
    """Train one shadow model of a folder; what a worker process is given."""
    Shadows.read(folder).train(model)


_SETTINGS = "shadows.json"


@cache
def _inputs(folder: Path) -> Inputs:
    """The texts are read once in a process, not once a model."""
    return load_inputs(Shadows.read(folder).config)

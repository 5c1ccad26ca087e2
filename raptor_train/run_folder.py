"""A run's folder: config.json, ledger.jsonl, metrics.jsonl, checkpoints/, privacy.json, report.html and report.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raptor_acct._validate import shown
from raptor_acct.cli._output import SCHEMA
from raptor_train.config import RunConfig
from raptor_train.settings import leaves

_FREE = {  # change neither what is released nor what it costs
    "training.micro_batch_size",
    "training.save_every",
    "report_to",
    "report_not_private_loss",
    "data.count_duplicates",
}


class RunFolder:
    """The files of one run; nothing in them is pickled.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.ledger = self.path / "ledger.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.privacy = self.path / "privacy.json"
        self._config, self._metrics = self.path / "config.json", self.path / "metrics.jsonl"

    def begin(self, config: RunConfig, resolved: Mapping[str, Any]) -> None:
        """Write the configuration into the folder, before anything is spent.

        Args:
            config: What was asked for.
            resolved: What it comes to: layer, clip norms, noise, denominators. Public.
        """
        write_json(self._config, {"schema": SCHEMA, "config": config.to_dict(), "resolved": dict(resolved)})

    def make(self) -> None:
        """Make the folder; it may exist."""
        self.path.mkdir(parents=True, exist_ok=True)

    def drop_if_empty(self) -> None:
        """Take back a folder that was made for a run which then could not begin."""
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def resolved(self, config: RunConfig) -> dict[str, Any] | None:
        """What the run in this folder was resolved to; None if there is none yet.

        Raises:
            ValueError: If the folder holds a run of another configuration, saying what differs, or something else.
        """
        if not self._config.exists():
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise ValueError(f"expected a new or empty folder, or that of a run, got {self.path}")
            return None
        began, resolved = self.read()
        differing = list(_differences(began.to_dict(), config.to_dict()))
        if differing:
            raise ValueError(
                f"{self.path} holds a run of another configuration ({'; '.join(differing[:4])}): choose another folder"
            )
        return resolved

    def read(self) -> tuple[RunConfig, dict[str, Any]]:
        """The configuration of the run and what it was resolved to.

        Raises:
            ValueError: If the folder holds no run.
        """
        try:
            content = json.loads(self._config.read_text(encoding="utf-8"))
            return RunConfig.from_dict(content["config"]), dict(content["resolved"])
        except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"expected the folder of a run with config.json, got {self.path} ({error})") from None

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, allow_nan=False) + "\n")

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The whole lines of metrics.jsonl; one that a crash cut short is left out."""
        if not self._metrics.exists():
            return
        for line in self._metrics.read_text(encoding="utf-8").split("\n"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file in one move; NaN is refused."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, allow_nan=False, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, _ in leaves(RunConfig):
        if name not in _FREE and _at(was, name) != _at(now, name):
            yield f"{name} was {shown(_at(was, name))}, now {shown(_at(now, name))}"


def _at(settings: Mapping[str, Any], name: str) -> Any:
    for part in name.split("."):
        settings = settings[part]
    return settings

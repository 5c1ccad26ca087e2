"""Checkpoints: what a run needs to go on, as safetensors and JSON; nothing is pickled, no random state is kept.

The ledger, not the checkpoint, says what was spent: a release that was charged after the last checkpoint is lost to the
model and still paid for. A checkpoint only pins the ledger that it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from raptor_acct._validate import shown
from raptor_acct.ledger import Ledger
from raptor_acct.ledger_file import LedgerContent, digest
from raptor_train.adapters.base import AdaptedModel
from raptor_train.step import OneBatch, Stream

FORMAT = "raptor-checkpoint/1"
_INDEX, _TENSORS = "checkpoint.json", "checkpoint-{}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A run after some of its releases. As public as the model: after noise, unless the run was not private.

    Attributes:
        identity: What must be the same when the run goes on, see :func:`identity_of`.
        charged: Releases of each stream at the time.
        ledger_head: Hash of the ledger's last line at the time, None in a run without a ledger.
        optimizer: The settings of the optimizer's groups, and of its state whatever is no tensor.
        tensors: Trained parameters ("weights.NAME") and the optimizer's state ("optimizer.INDEX.KEY").
    """

    identity: dict[str, Any]
    charged: dict[str, int]
    ledger_head: str | None
    optimizer: dict[str, Any]
    tensors: dict[str, Tensor]

    @staticmethod
    def is_in(folder: str | Path) -> bool:
        """Whether the folder holds a checkpoint."""
        return (Path(folder) / _INDEX).is_file()

    @classmethod
    def of(
        cls,
        adapted: AdaptedModel,
        optimizer: torch.optim.Optimizer,
        *,
        identity: dict[str, Any],
        charged: dict[str, int],
        ledger_head: str | None,
    ) -> Checkpoint:
        """A checkpoint of the model and its optimizer as they are now."""
        whole = optimizer.state_dict()
        tensors = {f"weights.{name}": tensor for name, tensor in trained_weights(adapted).items()}
        plain: dict[str, dict[str, Any]] = {}
        for index, entries in whole["state"].items():
            for key, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{key}"] = value
                else:
                    plain.setdefault(str(index), {})[key] = value
        return cls(
            identity=identity,
            charged=charged,
            ledger_head=ledger_head,
            optimizer={"groups": whole["param_groups"], "state": plain},
            tensors=tensors,
        )

    def restore(self, adapted: AdaptedModel, optimizer: torch.optim.Optimizer) -> None:
        """Give the model and the optimizer what they had, the optimizer's settings (learning rates) too."""
        state = {int(index): dict(entries) for index, entries in self.optimizer["state"].items()}
        for name, tensor in self.tensors.items():
            kind, _, place = name.partition(".")
            if kind == "optimizer":
                index, _, key = place.partition(".")
                state.setdefault(int(index), {})[key] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": self.optimizer["groups"]})
        for name, weight in trained_weights(adapted).items():
            weight.copy_(self.tensors[f"weights.{name}"])

    def write(self, folder: str | Path) -> None:
        """Replace the folder's checkpoint, in one move: a crash at any point leaves the old one or the new one.

        Raises:
            ValueError: If the optimizer has a setting that JSON cannot hold.
        """
        folder = Path(folder)
        folder.mkdir(exist_ok=True)
        data = safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in self.tensors.items()})
        sha256 = hashlib.sha256(data).hexdigest()
        index = {"format": FORMAT, "sha256": sha256} | {k: v for k, v in vars(self).items() if k != "tensors"}
        try:
            text = json.dumps(index, indent=1, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected optimizer settings that JSON can hold, numbers not tensors: {error}") from None
        _replace(folder / _TENSORS.format(sha256), data)
        _replace(folder / _INDEX, text.encode())  # from here on, the new one counts
        for old in folder.glob(_TENSORS.format("*") + "*"):
            if sha256 not in old.name:
                old.unlink()

    @classmethod
    def read(cls, folder: str | Path) -> Checkpoint:
        """Read the folder's checkpoint.

        Raises:
            ValueError: If it is damaged, or of another format.
        """
        path = Path(folder) / _INDEX
        try:
            index = json.loads(path.read_text())
            known, sha256 = index.pop("format"), index.pop("sha256")
            data = (Path(folder) / _TENSORS.format(sha256)).read_bytes()
            if known != FORMAT or hashlib.sha256(data).hexdigest() != sha256:
                raise ValueError(f"format {known}, or tensors with another hash")
            return cls(**index, tensors=safetensors.torch.load(data))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise ValueError(f"{path}: expected a whole {FORMAT}, got a damaged one ({error})") from error


def identity_of(
    adapted: AdaptedModel,
    optimizer: torch.optim.Optimizer,
    streams: Sequence[Stream | OneBatch],
    *,
    num_records: int,
    owners: str,
) -> dict[str, Any]:
    """What a run must keep when it goes on, as plain numbers and texts; to be called before the first step.

    The records themselves leave no trace in it: it is public.

    Args:
        adapted: The model with its starting weights; the owners that are fixed depend on them.
        optimizer: Its class and the order of its parameters count, its settings do not.
        streams: Plan, clip norms, denominators and roles.
        num_records: Length of the data set.
        owners: How owners are found.
    """
    names = {id(p): name for name, p in adapted.model.named_parameters() if p.requires_grad}
    state = adapted.model.state_dict(keep_vars=True)
    scales = {name: getattr(module, "scale", None) for name, module in adapted.model.named_modules()}
    return {
        "streams": {stream.role.name: _settings(stream, names) for stream in streams},
        "records": num_records,
        "owners": owners,
        "model": type(adapted.model).__name__,
        "adapter scales": {name: scale for name, scale in scales.items() if isinstance(scale, int | float)},
        "frozen weights": digest_of({k: t for k, t in state.items() if id(t) not in names}),
        "starting weights": digest_of(trained_weights(adapted)),
        "optimizer": {
            "class": type(optimizer).__name__,
            "groups": [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups],
        },
    }


def check_identity(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that a run goes on as it began.

    Raises:
        ValueError: Saying what differs.
    """
    found = list(_differences(saved, json.loads(json.dumps(now))))  # as it reads when it was saved: tuples are lists
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise ValueError(
            f"expected the run to go on as it began, but these differ: {'; '.join(found[:5])}{more}. Give the same "
            "settings, records and starting model (trained weights come from the checkpoint), or begin a new run"
        )


def check_ledger_continues(saved: Checkpoint, ledger_path: Path) -> None:
    """Check that a ledger holds the charges that a checkpoint pins; later ones may follow.

    Raises:
        LedgerDamaged: If the ledger's own chain is broken.
        ValueError: If charges are missing, or are not those that the run made.
    """
    pinned, ledger = sum(saved.charged.values()), Ledger.verify(ledger_path)
    if ledger.num_releases < pinned:
        raise ValueError(
            f"{ledger_path}: expected at least the {pinned} charges made before the checkpoint, got "
            f"{ledger.num_releases}; put the run's own ledger back"
        )
    if digest(ledger_path.read_bytes().split(b"\n")[pinned]) != saved.ledger_head:  # line 0 names the format
        raise ValueError(f"{ledger_path}: its first {pinned} charges are not those that the saved run made")


def charged_releases(ledger: LedgerContent, streams: Iterable[Stream | OneBatch]) -> dict[str, int]:
    """Releases that the ledger charges to each stream.

    Raises:
        ValueError: If it charges anything that the streams do not release.
    """
    streams = list(streams)
    counts = {stream.role.name: 0 for stream in streams}
    planned = {(s.role.name, s.noise_multiplier, s.sampling_probability, s.clip_norm) for s in streams}
    for part in ledger.segments:
        if (part.stream, part.noise_multiplier, part.sampling_probability, part.clip_norm) not in planned:
            raise ValueError(f"{ledger.name}: expected charges of this plan's streams, got {asdict(part)}")
        counts[part.stream] += part.num_releases
    return counts


def trained_weights(adapted: AdaptedModel) -> dict[str, Tensor]:
    """The model's trainable parameters by name, as tensors that share their memory."""
    return {name: p.detach() for name, p in adapted.model.named_parameters() if p.requires_grad}


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and every bit."""
    total = hashlib.sha256()
    for name, tensor in tensors.items():
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _settings(stream: Stream | OneBatch, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "noise_multiplier": stream.noise_multiplier,
        "sampling_probability": stream.sampling_probability,
        "num_steps": stream.num_steps,
        "noise": list(stream.noise_stds) if stream.noise_multiplier else None,
        "clip_norm": stream.clip_norm if math.isfinite(stream.clip_norm) else None,
        "denominators": [d if math.isfinite(d) else None for d in stream.denominators],
        "owned": stream.role.owned,
        "parameters": {names[id(p)]: f"{p.dtype} {list(p.shape)}" for p in stream.parameters},
    }


def _differences(saved: object, now: object, where: str = "") -> Iterable[str]:
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        for key in {**saved, **now}:
            yield from _differences(saved.get(key), now.get(key), f"{where}, {key}" if where else key)
    elif saved != now:
        yield f"{where}: was {shown(saved)}, now {shown(now)}"


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all, and stays after a power cut."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

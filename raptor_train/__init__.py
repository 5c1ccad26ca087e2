"""RAPTOR's trainer: two streams in turn, exact per-record clipping by role, every release in a ledger.

Names are loaded when first used, so that ``raptor-train --help`` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from raptor_acct._version import __version__

if TYPE_CHECKING:
    from raptor_train.adapters import adapt
    from raptor_train.adapters.base import Lora
    from raptor_train.adapters.decoder import DecoderModel
    from raptor_train.adapters.switch import SwitchClassifier
    from raptor_train.baselines import make_monolithic, make_non_private
    from raptor_train.distributed import RankFailed, torchrun_group
    from raptor_train.drift import OwnerDrift
    from raptor_train.independence import IndependenceReport, RecordsCoupled, check_record_independence
    from raptor_train.loop import BudgetExceeded, Trainer
    from raptor_train.owner import owner_of
    from raptor_train.records import Records
    from raptor_train.trainer import make_private

_HOME = {
    "BudgetExceeded": "loop",
    "DecoderModel": "adapters.decoder",
    "IndependenceReport": "independence",
    "Lora": "adapters.base",
    "OwnerDrift": "drift",
    "RankFailed": "distributed",
    "Records": "records",
    "RecordsCoupled": "independence",
    "SwitchClassifier": "adapters.switch",
    "Trainer": "loop",
    "adapt": "adapters",
    "check_record_independence": "independence",
    "make_monolithic": "baselines",
    "make_non_private": "baselines",
    "make_private": "trainer",
    "owner_of": "owner",
    "torchrun_group": "distributed",
}

__all__ = [
    "BudgetExceeded",
    "DecoderModel",
    "IndependenceReport",
    "Lora",
    "OwnerDrift",
    "RankFailed",
    "Records",
    "RecordsCoupled",
    "SwitchClassifier",
    "Trainer",
    "__version__",
    "adapt",
    "check_record_independence",
    "make_monolithic",
    "make_non_private",
    "make_private",
    "owner_of",
    "torchrun_group",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'raptor_train' has no attribute '{name}'")
    return getattr(importlib.import_module(f"raptor_train.{_HOME[name]}"), name)

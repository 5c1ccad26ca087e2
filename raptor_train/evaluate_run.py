"""Evaluate the model of a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from raptor_train.inputs import load_test
from raptor_train.metrics import score
from raptor_train.run import load_run


def evaluate_run(folder: str | Path, *, changes: Mapping[str, Any], public_data: bool) -> dict[str, Any]:
    """Score the model of a run.

    Args:
        folder: The run folder.
        changes: Settings of the data that differ from the run's: test, text_column, label_column.
        public_data: Whether the records are public.

    Returns:
        Means with 95 % intervals, and whether the evaluated data is public, ready for JSON.

    Raises:
        ValueError: If there is no run, or nothing to evaluate on.
    """
    config, resolved, adapted = load_run(folder)
    if public_data and "test" not in changes:
        raise ValueError("expected --test FILE with --public-data: the run's own held-out records are private")
    config = replace(config, data=replace(config.data, **changes))
    records = load_test(config, resolved.label_names)
    data = "public" if public_data else "private, held out: not covered by the guarantee"
    found = score(adapted, records, micro_batch_size=config.training.micro_batch_size)
    return {"folder": str(folder), "data": data, "public_data": public_data, **found.to_dict()}

"""One run from a configuration to a trained model in a folder, which goes on by itself after an interruption."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from raptor_train.config import RunConfig
from raptor_train.distributed import ALONE, Group
from raptor_train.metrics import score
from raptor_train.privacy_file import guarantee, plan_table, privacy_of
from raptor_train.resolve import Echo, silent
from raptor_train.run import Run, prepare
from raptor_train.run_folder import write_json
from raptor_train.run_report import write_run_report

_SHOWN_RECORDS = 256  # of which a private loss is the mean, if it is asked for
_MOST_LINES = 20  # lines with an epsilon in metrics.jsonl: each is an accounting of its own


def fit(
    config: RunConfig,
    folder: str | Path,
    *,
    echo: Echo = silent,
    progress: bool = False,
    show_private_loss: bool = False,
    group: Group = ALONE,
) -> dict[str, Any]:
    """Train as a configuration says, or go on with the run of the same configuration in ``folder``.

    Args:
        config: What to do.
        folder: The run folder; new, empty, or that of the same run.
        echo: Where words go.
        progress: Show a bar.
        show_private_loss: Show and log losses of private records. They are not covered by the guarantee.
        group: The processes that share the work.

    Returns:
        What the run came to, ready for JSON: privacy, and the score on held-out records where there are any.

    Raises:
        ValueError: Naming what is wrong, before anything is spent.
        RecordsCoupled: If a record's gradient depends on anything but the record.

    **Guarantee.** What privacy.json says, for the model, the checkpoints and metrics.jsonl up to its lines marked
    "not_private"; the score on held-out records is not covered.
    """
    run = prepare(config, folder, echo=echo, group=group)
    if run.writes:
        echo(plan_table(run))
        write_json(run.folder.privacy, privacy_of(run))
    _train(run, progress=progress, show_private_loss=show_private_loss)
    return _finish(run) if run.writes else {}


def _train(run: Run, *, progress: bool, show_private_loss: bool) -> None:
    trainer, every = run.trainer, run.config.training.save_every
    log_every = max(1, trainer.num_cycles // _MOST_LINES)
    started = time.perf_counter()
    # A private loss is no release of the plan: the bar has its place, and shows it only to who asks.
    bar = tqdm(
        total=trainer.num_cycles,
        initial=trainer.cycle,
        desc="training",
        unit="cycle",
        disable=not progress or not run.writes,
        postfix="loss not shown (private)",
    )
    with bar:
        for cycle in trainer:
            last = cycle == trainer.num_cycles
            if cycle % every == 0 or last:
                trainer.save()
            if cycle % log_every == 0 or last:
                entry: dict[str, Any] = {"cycle": cycle, "seconds": time.perf_counter() - started}
                if run.drift is not None:
                    entry["public_owner_drift"] = run.drift.share()
                if run.writes:
                    _log(run, entry, bar, show_private_loss)
            bar.update()


def _log(run: Run, entry: dict[str, Any], bar: Any, show_private_loss: bool) -> None:
    if run.config.private:
        entry["epsilon"] = float(guarantee(run).epsilon(run.resolved.delta))
    run.folder.log(entry)
    if show_private_loss:
        few = run.inputs.private.take(torch.arange(min(_SHOWN_RECORDS, len(run.inputs.private))))
        loss = score(run.adapted, few, micro_batch_size=run.config.training.micro_batch_size).mean_nll
        run.folder.log({"cycle": entry["cycle"], "private_loss": loss, "not_private": True})
        bar.set_postfix_str(f"loss {loss:.3f} (NOT PRIVATE)")


def _finish(run: Run) -> dict[str, Any]:
    """Score, privacy.json and the report; the run may have been finished before."""
    result: dict[str, Any] = {"method": run.config.method, "folder": str(run.folder.path), "cycles": run.trainer.cycle}
    if run.inputs.test is not None:
        found = score(run.adapted, run.inputs.test, micro_batch_size=run.config.training.micro_batch_size).to_dict()
        result["evaluation"] = {"data": "private, held out: not covered by the guarantee", **found}
        run.folder.log({"cycle": run.trainer.cycle, "evaluation": result["evaluation"]})
    privacy = privacy_of(run)
    write_json(run.folder.privacy, privacy)
    write_run_report(run.folder.path)
    return {**result, "privacy": privacy}

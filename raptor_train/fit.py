"""One run from a configuration to a trained model in a folder, which goes on by itself after an interruption."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from raptor_train.config import RunConfig
from raptor_train.distributed import ALONE, Group
from raptor_train.metrics import score
from raptor_train.privacy_file import guarantee, plan_table, privacy_of
from raptor_train.records import Records
from raptor_train.reporting import Reports, reporting_callbacks
from raptor_train.resolve import Echo, silent
from raptor_train.run import Run, prepare
from raptor_train.run_folder import write_json
from raptor_train.run_report import write_run_report

_SCORED_RECORDS = 256  # of which a loss is the mean, public or, if it is asked for, private
_MOST_LINES = 20  # lines with an epsilon in metrics.jsonl: each is an accounting of its own


def fit(
    config: RunConfig,
    folder: str | Path,
    *,
    echo: Echo = silent,
    progress: bool = False,
    show_private_loss: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    group: Group = ALONE,
) -> dict[str, Any]:
    """Train as a configuration says, or go on with the run of the same configuration in ``folder``.

    Args:
        config: What to do.
        folder: The run folder; new, empty, or that of the same run.
        echo: Where words go.
        progress: Show a bar.
        show_private_loss: Show and log losses of private records. They are not covered by the guarantee.
        callbacks: Who gets the values that ``report_to`` sends, besides the services that it names.
        group: The processes that share the work.

    Returns:
        What the run came to, ready for JSON: privacy, and the score on held-out records where there are any.

    Raises:
        ValueError: Naming what is wrong, before anything is spent.
        RecordsCoupled: If a record's gradient depends on anything but the record.

    **Guarantee.** What privacy.json says, for the model, the checkpoints, metrics.jsonl up to its lines marked
    "not_private", and what is reported up to the names that begin with NOT_PRIVATE; the score on held-out records is
    not covered, and neither is the time that a cycle takes: it depends on how many records were sampled.
    """
    with group.together():
        if config.report_to and show_private_loss and not config.report_not_private_loss:
            raise ValueError(
                "expected show_private_loss or report_to, got both: some services record the terminal; with "
                "report_not_private_loss the loss is reported, marked as not private"
            )
        services = [*reporting_callbacks(config.report_to), *callbacks] if group.rank == 0 else []
    run = prepare(config, folder, echo=echo, group=group)
    if run.writes:
        echo(plan_table(run))
        write_json(run.folder.privacy, privacy_of(run))
    if run.trainer.cycle < run.trainer.num_cycles:
        reports = Reports(
            services,
            folder=run.folder.path,
            settings=run.config.to_dict(),
            num_cycles=run.trainer.num_cycles,
            private=config.private,
        )
        with group.together():
            reports.begin(run.trainer.cycle)
        try:
            _train(run, reports, progress=progress, show_private_loss=show_private_loss)
        finally:
            reports.end()
    return _finish(run) if run.writes else {}


def _train(run: Run, reports: Reports, *, progress: bool, show_private_loss: bool) -> None:
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
                    _log(run, entry, reports, bar if show_private_loss else None)
            bar.update()


def _log(run: Run, entry: dict[str, Any], reports: Reports, bar: Any) -> None:
    """Write the values of a cycle to metrics.jsonl, and report them; a loss of private records is for who asks."""
    public, not_private = {"cycle": entry["cycle"], **_learning_rates(run)}, {}
    if run.config.private:
        public["epsilon"] = entry["epsilon"] = float(guarantee(run).epsilon(run.resolved.delta))
    of_weights = {name: entry[name] for name in ("public_owner_drift",) if name in entry}
    if reports.wanted:
        of_weights |= _public_scores(run)
    run.folder.log(entry)
    if bar is not None or run.config.report_not_private_loss:
        loss = _score_of_few(run, run.inputs.private)["nll"]
        run.folder.log({"cycle": entry["cycle"], "private_loss": loss, "not_private": True})
        if bar is not None:
            bar.set_postfix_str(f"loss {loss:.3f} (NOT PRIVATE)")
        if run.config.report_not_private_loss:
            not_private["loss"] = loss
    reports.send(entry["cycle"], public=public, of_weights=of_weights, not_private=not_private)


def _learning_rates(run: Run) -> dict[str, float]:
    """The optimizer's rates: the only one there is, or one for each group."""
    rates = {group["name"]: float(group["lr"]) for group in run.optimizer.param_groups}
    if len(set(rates.values())) == 1:
        return {"learning_rate": next(iter(rates.values()))}
    return {f"learning_rate_{name}": rate for name, rate in rates.items()}


def _public_scores(run: Run) -> dict[str, float]:
    """Loss and accuracy on public records of the task, in the names by which callbacks know a validation's."""
    public = run.inputs.public
    if public is None or not public.labelled or len(public.records) < 2:
        return {}
    found = _score_of_few(run, public.records)
    return {f"eval_public_{name}": found[name] for name in ("nll", "accuracy") if name in found}


def _score_of_few(run: Run, records: Records) -> dict[str, Any]:
    few = records.take(torch.arange(min(_SCORED_RECORDS, len(records))))
    return score(run.adapted, few, micro_batch_size=run.config.training.micro_batch_size).to_dict()


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

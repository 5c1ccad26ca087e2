"""Membership inference on shadow models, beside the ceiling of each mechanism (paper, Table 3; theory.md P6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raptor_acct import Guarantee
from raptor_acct._validate import whole
from raptor_acct.audit import Roc, confidence_logits, lira, loss_attack, roc, tpr_ceiling
from raptor_acct.audit.lira import Variance
from raptor_acct.audit.roc import TABLE_FPRS
from raptor_acct.cli._output import SCHEMA
from raptor_train.compare import variant
from raptor_train.config import RunConfig
from raptor_train.inputs import load_inputs
from raptor_train.resolve import Echo, silent
from raptor_train.run_folder import write_json
from raptor_train.settings import with_changes
from raptor_train.shadows import Shadows, fair_coins, train_shadow
from raptor_train.workers import run_jobs

FloatArray = npt.NDArray[np.float64]
ENOUGH_FOR_EACH_RECORD = 64  # shadow models, from which on LiRA fits a variance for each record (Carlini et al. 2022)
NOT_COVERED = (
    "Scores, curves and this table are computed from private records without noise: as private as the records. "
    "Intervals treat the (model, record) pairs as independent; those of one model or one record are only nearly so."
)


def attack(
    config: RunConfig,
    folder: str | Path,
    *,
    methods: Sequence[str],
    budgets: Sequence[float],
    num_models: int = 64,
    workers: int = 1,
    shard: tuple[int, int] = (0, 1),
    coin_seed: int = 0,
    echo: Echo = silent,
    progress: bool = False,
) -> dict[str, Any] | None:
    """Train the shadow models that are missing, attack each with the others as shadows, and write the tables and plots.

    Args:
        config: Data, model and settings that all methods share.
        folder: Where the models' scores and the results go; models that are there are not trained again.
        methods: Names of methods and ablations, see :mod:`raptor_train.compare`.
        budgets: ε of each private method; a method without a guarantee is trained once.
        num_models: Shadow models of each method and budget.
        workers: Processes that train side by side here.
        shard: (i, k): train only every k-th model, from the i-th; so that k machines or jobs share the work, in any
            order. The results are written by a call for which no model is missing.
        coin_seed: Seed of the coins that say who is in which model's data.
        echo: Where words go.
        progress: Show a bar.

    Returns:
        The results, ready for JSON; None if other shards' models are still missing.

    Raises:
        ValueError: If settings are wrong, or there are too few models.
    """
    whole("num_models", num_models, low=4)
    whole("workers", workers)
    folder, inputs = Path(folder), load_inputs(config)
    _check_enough(num_models, len(inputs.private), coin_seed)
    groups = {
        name: Shadows.begin(folder / name, settings, inputs, coin_seed=coin_seed, echo=echo)
        for name, settings in _settings(config, methods, budgets).items()
    }
    jobs = {
        f"{name}-{model}": partial(train_shadow, shadows.folder, model)
        for name, shadows in groups.items()
        for model in shadows.missing(num_models)
        if model % shard[1] == shard[0]
    }
    steps = sum(groups[job.rsplit("-", 1)[0]].resolved.steps for job in jobs)
    run_jobs(jobs, steps=steps, workers=workers, progress=progress)
    if missing := sum(len(shadows.missing(num_models)) for shadows in groups.values()):
        echo(f"{missing} shadow models of other shards are missing; the last one to finish writes the results")
        return None
    labels = None if inputs.private.token_labels else inputs.private.labels.numpy()
    attacked = {name: measure(shadows, labels, num_models) for name, shadows in groups.items()}
    results = {
        "schema": SCHEMA,
        "num_models": num_models,
        "num_records": len(inputs.private),
        "not_covered": NOT_COVERED,
        "attacked": {name: result for name, (result, _) in attacked.items()},
    }
    write_json(folder / "attack.json", results)
    _plot(folder, groups, {name: curve for name, (_, curve) in attacked.items()}, budgets)
    return results


def measure(shadows: Shadows, labels: npt.NDArray[np.int64] | None, num_models: int) -> tuple[dict[str, Any], Roc]:
    """Attack every model with the others as shadow models, and put all (model, record) pairs into one curve.

    Args:
        shadows: The models.
        labels: The records' classes, [records]; None for a language model.
        num_models: How many models there are.

    Returns:
        The result, ready for JSON, and the curve of online LiRA. Private.
    """
    losses, members = shadows.scores(num_models)
    if labels is None:
        likelihood = confidence = -losses[:, :, 0]
    else:  # minus the losses of all classes are log-probabilities, and so are logits
        likelihood = np.stack([loss_attack(-each, labels) for each in losses])
        confidence = np.stack([confidence_logits(-each, labels) for each in losses])
    ratios = leave_one_out(confidence, members)
    guarantee = shadows.guarantee()
    curves = {"loss": roc(likelihood.ravel(), members.ravel()), "lira": roc(ratios.ravel(), members.ravel())}
    result = shadows.to_dict() | {
        "attacks": {name: _attacked(curve, guarantee) for name, curve in curves.items()},
        "tpr_ceilings": None if guarantee is None else {str(f): float(tpr_ceiling(guarantee, f)) for f in TABLE_FPRS},
        "variance": _variance(num_models),
    }
    if labels is not None:
        correct = losses.argmin(axis=2) == labels
        result["accuracy"] = {"members": float(correct[members].mean()), "others": float(correct[~members].mean())}
    return result, curves["lira"]


def leave_one_out(scores: FloatArray, members: npt.NDArray[np.bool_]) -> FloatArray:
    """LiRA of every model with all others as its shadow models, [models, records].

    Args:
        scores: Of every record by every model, [models, records].
        members: Who was in whose data, [models, records].

    Raises:
        ValueError: If a record has too few models with it or without it.
    """
    others = ~np.eye(len(scores), dtype=bool)
    variance = _variance(len(scores))
    return np.stack([lira(scores[i], scores[o], members[o], variance=variance) for i, o in enumerate(others)])


ATTACK_HEADER = [
    "trained",
    "accuracy, %",
    "loss AUC",
    "LiRA AUC",
    *(f"TPR at {100 * fpr:g} % FPR (95 %), ceiling" for fpr in TABLE_FPRS),
]


def attack_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """The layout of the paper's Table 3: utility beside what the attacks get, and what any attack could."""
    rows = []
    for name, result in results["attacked"].items():
        points, ceilings = result["attacks"]["lira"]["points"], result["tpr_ceilings"]
        cells = [
            f"{100 * point['tpr']:.2f} ({100 * point['tpr_interval'][0]:.2f}-{100 * point['tpr_interval'][1]:.2f}), "
            + ("none" if ceilings is None else f"{100 * ceilings[str(point['fpr_target'])]:.2f}")
            for point in points
        ]
        accuracy = f"{100 * result['accuracy']['others']:.1f}" if "accuracy" in result else "-"
        aucs = [f"{result['attacks'][which]['auc']:.3f}" for which in ("loss", "lira")]
        rows.append([name, accuracy, *aucs, *cells])
    return rows


def _settings(config: RunConfig, methods: Sequence[str], budgets: Sequence[float]) -> dict[str, RunConfig]:
    """The configuration of each group of shadow models, by the name of its folder."""
    if not methods or not budgets:
        raise ValueError("expected at least one method and one budget, got none")
    found = {}
    for method in methods:
        settings = variant(config, method)
        for eps in budgets if settings.private else budgets[:1]:
            name = f"{method}-eps{eps:g}" if settings.private else method
            found[name] = RunConfig.from_dict(with_changes(settings.to_dict(), {"privacy.eps": eps}))
    return found


def _check_enough(num_models: int, num_records: int, coin_seed: int) -> None:
    """Check before training that every record will be on both sides often enough, whichever model is attacked."""
    members = np.stack([fair_coins(coin_seed, model, num_records) for model in range(num_models)])
    least = 3 if _variance(num_models) == "per_example" else 2
    fewest = int(np.minimum(members.sum(axis=0), (~members).sum(axis=0)).min())
    if fewest < least:
        raise ValueError(
            f"expected every record in and out of the data of at least {least} models, got {fewest} with "
            f"num_models={num_models}: train more"
        )


def _variance(num_models: int) -> Variance:
    return "per_example" if num_models >= ENOUGH_FOR_EACH_RECORD else "global"


def _attacked(curve: Roc, guarantee: Guarantee | None) -> dict[str, Any]:
    points = curve.table()
    return {
        "auc": curve.auc,
        "auc_standard_error": curve.auc_standard_error,
        "points": [point.to_dict() for point in points],
        "exceeds_ceiling": None if guarantee is None else [point.exceeds(guarantee) for point in points],
    }


def _plot(
    folder: Path, groups: Mapping[str, Shadows], curves: Mapping[str, Roc], budgets: Sequence[float]
) -> list[Path]:
    """One log-log ROC for each budget, the methods without a guarantee in all of them."""
    from raptor_acct.plots import attack_roc

    paths = []
    for eps in budgets:
        chosen = {n: s for n, s in groups.items() if not s.config.private or s.config.privacy.eps == eps}
        ceilings = {n: g for n, s in chosen.items() if (g := s.guarantee()) is not None}
        plot = attack_roc({n: curves[n] for n in chosen}, ceilings=ceilings)
        paths += [folder / f"attack-eps{eps:g}.png"]
        plot.save(paths[-1])
    return paths

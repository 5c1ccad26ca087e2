"""Shadow models are trained with the whole mechanism, once each, and attacked without looking at their own coins."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from raptor_acct.audit import confidence_logits, lira, roc
from raptor_train.attack import attack, attack_rows, leave_one_out
from raptor_train.cli import main
from raptor_train.config import RunConfig
from raptor_train.inputs import load_inputs
from raptor_train.shadows import Shadows

from .run_tools import configured, tiny_settings

MODELS = 16


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return configured(tiny_settings(tmp_path_factory.mktemp("tiny")), training__batch_size=30, training__steps=2)


@pytest.fixture(scope="module")
def attacked(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("attack") / "out"
    settings: dict[str, Any] = {"methods": ["non_private_lora", "raptor"], "budgets": [2.0], "num_models": MODELS}
    said: list[str] = []
    assert attack(config, folder, **settings, shard=(1, 2), echo=said.append) is None
    assert "16 shadow models of other shards are missing" in said[-1]
    results = attack(config, folder, **settings, shard=(0, 2))
    assert results is not None
    return folder, results


def test_the_folder_holds_scores_results_and_a_plot(attacked: tuple[Path, dict[str, Any]]) -> None:
    folder, results = attacked
    assert json.loads((folder / "attack.json").read_text()) == json.loads(json.dumps(results))
    assert (folder / "attack-eps2.png").stat().st_size > 10_000
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"non_private_lora", "raptor-eps2"}
    assert list(results["attacked"]) == ["non_private_lora", "raptor-eps2"]
    assert [row[0] for row in attack_rows(results)] == ["non_private_lora", "raptor-eps2"]


def test_every_model_spends_at_most_its_budget_and_the_ceiling_is_of_that_mechanism(
    attacked: tuple[Path, dict[str, Any]],
) -> None:
    folder, results = attacked
    for path in (folder / "raptor-eps2").glob("*.safetensors"):
        with safe_open(path, "np") as file:
            assert 1.99 < float(file.metadata()["epsilon"]) <= 2.0
    found = results["attacked"]["raptor-eps2"]
    guarantee = Shadows.read(folder / "raptor-eps2").guarantee()
    assert guarantee is not None
    assert found["tpr_ceilings"]["0.1"] == 1 - guarantee.fnr(0.1).lower
    assert 0.1 < found["tpr_ceilings"]["0.1"] < 1
    assert results["attacked"]["non_private_lora"]["tpr_ceilings"] is None


def test_records_are_members_by_coins_of_their_own(attacked: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = attacked
    shadows = Shadows.read(folder / "raptor-eps2")
    _, members = shadows.scores(MODELS)
    assert members.shape == (MODELS, 60)
    assert np.array_equal(members[3], shadows.members(3, 60))
    assert abs(members.mean() - 0.5) < 5 * 0.5 / np.sqrt(members.size)
    assert len(set(members.sum(axis=1).tolist())) > 1  # not halves of a fixed size: those would be swaps, not removals


def test_scores_are_log_probabilities_of_models_that_fit_their_members(
    config: RunConfig, attacked: tuple[Path, dict[str, Any]]
) -> None:
    folder, _ = attacked
    losses, members = Shadows.read(folder / "non_private_lora").scores(MODELS)
    assert losses.shape == (MODELS, 60, 2)
    assert np.allclose(np.exp(-losses).sum(axis=2), 1, atol=1e-5)  # log-probabilities of all classes
    labels = load_inputs(config).private.labels.numpy()
    own = losses[:, np.arange(60), labels]
    assert own[members].mean() < own[~members].mean()  # they fit what they were trained on


def test_what_is_missing_is_trained_again_and_nothing_else(
    config: RunConfig, attacked: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = shutil.copytree(attacked[0], tmp_path / "copy")
    files = sorted(folder.glob("raptor-eps2/*.safetensors"))
    before = {path: path.stat().st_mtime_ns for path in files}
    files[5].unlink()
    results = attack(config, folder, methods=["non_private_lora", "raptor"], budgets=[2.0], num_models=MODELS)
    assert results is not None
    changed = [path for path in files if path.stat().st_mtime_ns != before[path]]
    assert changed == [files[5]]


def test_other_settings_in_the_same_folder_are_refused(
    config: RunConfig, attacked: tuple[Path, dict[str, Any]]
) -> None:
    folder, _ = attacked
    inputs = load_inputs(config)
    with pytest.raises(ValueError, match="other settings"):
        Shadows.begin(folder / "raptor-eps2", config, inputs)
    with pytest.raises(ValueError, match="other settings"):
        Shadows.begin(folder / "raptor-eps2", Shadows.read(folder / "raptor-eps2").config, inputs, coin_seed=1)


def test_too_few_models_are_refused_before_any_is_trained(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_models=4: train more"):
        attack(config, tmp_path, methods=["raptor"], budgets=[2.0], num_models=4)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_no_model_is_its_own_shadow(attacked: tuple[Path, dict[str, Any]], config: RunConfig) -> None:
    folder, results = attacked
    losses, members = Shadows.read(folder / "raptor-eps2").scores(MODELS)
    labels = load_inputs(config).private.labels.numpy()
    scores = np.stack([confidence_logits(-each, labels) for each in losses])
    ratios = leave_one_out(scores, members)
    assert np.array_equal(
        ratios[7], lira(scores[7], np.delete(scores, 7, 0), np.delete(members, 7, 0), variance="global")
    )
    assert results["attacked"]["raptor-eps2"]["attacks"]["lira"]["auc"] == roc(ratios.ravel(), members.ravel()).auc


@pytest.mark.parametrize(("leak", "low", "high"), [(0.0, 0.47, 0.53), (1.0, 0.7, 0.8)])
def test_a_planted_leak_is_found_and_none_is_invented(leak: float, low: float, high: float) -> None:
    generator = np.random.default_rng(0)
    members = generator.random((64, 300)) < 0.5
    scores = generator.normal(size=300) + generator.normal(size=members.shape) + leak * members
    assert low < roc(leave_one_out(scores, members).ravel(), members.ravel()).auc < high


def test_the_command(config: RunConfig, attacked: tuple[Path, dict[str, Any]], capsys: Any, tmp_path: Path) -> None:
    folder, _ = attacked
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config.to_dict()))
    arguments = ["attack", "--config", str(path), "--methods", "non_private_lora,raptor", "--budgets", "2"]
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--models", str(MODELS), "--workers", "1", "--out", str(folder)])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "LiRA AUC" in out
    assert "as private as the records" in out
    for bad in (["--shard", "2/2"], ["--budgets", "x"], ["--models", "4"], ["--methods", "none"]):
        with pytest.raises(SystemExit) as stop:
            main([*arguments, "--models", "8", "--out", str(tmp_path / "new"), *bad])
        assert stop.value.code == 2
        assert capsys.readouterr().err.startswith("error: ")

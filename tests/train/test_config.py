"""Configurations: what is refused, with which words, and that YAML, flags and Python mean the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from raptor_train.config import METHODS, RunConfig
from raptor_train.settings import leaves


def test_every_setting_has_words_and_survives_json() -> None:
    assert all(words for _, words in leaves(RunConfig))
    config = RunConfig.from_dict({"privacy": {"eps": 3}, "layer": 2, "data": {"overlap": "drop"}})
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_yaml_and_changes_by_dotted_name(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("method: raptor\nprivacy: {eps: 3, delta: 1e-5}\nexpert: {rank: 4}\n")
    config = RunConfig.from_yaml(file, {"privacy.eps": "1", "training.epochs": "2.5"})
    assert (config.privacy.eps, config.privacy.delta, config.training.epochs) == (1.0, 1e-5, 2.5)
    assert (config.expert.rank, config.expert.scale) == (4, "public")  # a section given in part keeps its other values


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"privacy": {"epsilon": 1}}, "privacy.epsilon"),
        ({"training": {"batchsize": 2}}, "did you mean training.batch_size"),
        ({"metod": "raptor"}, "did you mean method"),
        ({"privacy": 3}, "expected privacy to be settings by name"),
        ({"privacy": {"eps": 0}}, "expected eps in"),
        ({"privacy": {"eps": "many"}}, "expected privacy.eps to be a number"),
        ({"privacy": {"adjacency": "remove"}}, "'add_remove' or 'replace_one'"),
        ({"shared": {"rank": 2.5}}, "expected shared.rank to be a whole number"),
        ({"model": {"random_weights": "yes"}}, "true or false"),
        ({"layer": "middle"}, "'entropy' or 'first' or 'last' or a whole number"),
        ({"method": "magic"}, "expected method to be one of"),
        ({"training": {"steps": 3, "epochs": 1}}, "epochs or steps"),
        ({"training": {"steps": True}}, "expected training.steps"),
        ({"denominator": "realized"}, "is private"),
        ({"denominator": "realised"}, "public constant"),
        ({"denominator": "share"}, "expected_owner"),
        ({"method": "monolithic", "denominator": "batch"}, "only with method='raptor'"),
        ({"method": "shared_only", "batches": "one"}, "only with method='raptor'"),
        ({"clip_scope": "full_model", "batches": "one"}, "one batch already"),
        ({"batches": "one", "privacy": {"composition": "basic"}}, "(P4)"),
        ({"clip_norm": 1.0}, "shared.clip_norm, expert.clip_norm"),
        ({"method": "monolithic", "shared": {"clip_norm": 1}}, "uses (clip_norm)"),
        ({"method": "non_private_lora", "clip_norm": 1}, "uses (none)"),
        ({"shared": {"scale": "public"}}, "shared.scale"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        RunConfig.from_dict(settings)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", ["- a\n- b\n", "a: [", "privacy: 3"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match="expected"):
        RunConfig.from_yaml(file)


def test_which_clip_norms_each_method_uses() -> None:
    def used(**settings: str) -> tuple[bool, tuple[str, ...]]:
        config = RunConfig.from_dict(settings)
        return config.one_clip_norm, config.clipped_roles

    assert used(method="raptor") == (False, ("shared", "expert"))
    assert used(method="raptor", clip_scope="full_model") == (True, ())
    assert used(method="raptor", batches="one") == (False, ("shared", "expert"))
    for method in METHODS:
        one, roles = used(method=method)
        assert one + bool(roles) == (not method.startswith("non_private")), method


def test_paths_become_absolute_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    config = RunConfig.from_dict({"model": {"name": "model"}, "data": {"train": "train.tsv"}}).located()
    assert (config.model.name, config.data.train) == (str(tmp_path / "model"), str(tmp_path / "train.tsv"))
    assert RunConfig().located() == RunConfig()

"""Counts of repeated private texts: private themselves, so shown to who asks and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raptor_train.config import RunConfig
from raptor_train.inputs import load_inputs
from raptor_train.run import prepare
from raptor_train.tables import Table, repeats

from .run_tools import configured, tiny_settings


def test_a_text_that_stands_three_times_is_repeated_twice() -> None:
    texts = ("one film", "two", "One  Film", "three", "one film ")
    assert repeats(Table(name="a", texts=tuple((text,) for text in texts))) == [2, 4]
    pairs = (("a", "b"), ("b", "a"), ("a", "B"))
    assert repeats(Table(name="a", texts=pairs)) == [2]


def test_counts_are_shown_only_on_request_and_stay_out_of_every_file(tmp_path: Path) -> None:
    settings: dict[str, Any] = tiny_settings(tmp_path)
    train, test = (Path(settings["data"][name]) for name in ("train", "test"))
    lines = train.read_text().splitlines()
    train.write_text("\n".join([*lines, *lines[1:8]]) + "\n")
    test.write_text("\n".join([*test.read_text().splitlines(), lines[3], lines[4]]) + "\n")
    words: list[str] = []
    changes = {"method": "non_private_lora", "layer": "first", "data__public": None, "expert__scale": 1.0}
    prepare(configured(settings, **changes), tmp_path / "silent", echo=words.append)
    assert not any("repeat" in line for line in words)
    config = configured(settings, **changes, data__count_duplicates="true")
    prepare(config, tmp_path / "run", echo=words.append)
    (shown,) = [line for line in words if "repeat" in line]
    assert shown.startswith("NOT PRIVATE")
    assert "7 of 67 private records" in shown
    assert "2 of 32 held-out texts" in shown
    for path in (tmp_path / "run").rglob("*.json*"):
        assert "held-out" not in path.read_text()
    assert load_inputs(config).private is not None  # nowhere to show them: not counted


def test_text_of_a_flag_may_be_true_or_false() -> None:
    for text, value in (("true", True), ("false", False)):
        assert RunConfig.from_dict({"data": {"count_duplicates": text}}).data.count_duplicates is value
    with pytest.raises(ValueError, match="to be true or false"):
        RunConfig.from_dict({"data": {"count_duplicates": "maybe"}})

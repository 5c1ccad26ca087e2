"""The commands of raptor-train, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from raptor_acct.routing_file import read_routing
from raptor_train.cli import main
from raptor_train.config import RunConfig
from raptor_train.settings import leaves

from .run_tools import tiny_settings


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tiny_settings(folder)))
    return str(path)


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    run(*arguments, "--json")
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert content["schema"] == 1
    assert content["command"] == arguments[0]
    return content


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_fit_then_evaluate_then_report(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    result = printed(capsys, "fit", "--config", file, "--eps", "3", "--method", "head_only", "--out", out)
    assert 2.99 < result["privacy"]["epsilon_spent"]["upper"] <= 3.0
    evaluated = printed(capsys, "evaluate", out)
    assert evaluated["nll"] == result["evaluation"]["nll"]
    assert not evaluated["public_data"]
    assert len(printed(capsys, "report", out)["files"]) == 2
    run("evaluate", out)
    assert "private, held out" in capsys.readouterr().out


def test_fit_in_words(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "--config", file, "--out", str(tmp_path / "run"), "--steps", "2")
    out, err = capsys.readouterr()
    for words in ("clip norm of shared: from public", "eps alone", "add_remove", "spent: epsilon <= ", "report.html"):
        assert words in out
    assert "loss not shown (private)" in err


def test_every_setting_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "--help")
    words = capsys.readouterr().out
    flags = {word.rstrip(",") for word in words.split() if word.startswith("--")}
    assert len(flags) >= len(list(leaves(RunConfig)))
    assert {"--model", "--data", "--shared-rank", "--expert-clip-norm", "--eps", "--replay-seed"} <= flags


def test_routing_writes_a_file_that_raptor_acct_reads(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("routing.json", "routing.csv"):
        out = tmp_path / name
        found = printed(capsys, "routing", "--config", file, "--out", str(out))
        layers = read_routing(out).layers
        assert set(layers) == {1, 3}
        assert all(sum(stats.counts or ()) == found["records"] == 40 for stats in layers.values())
        assert found["selected"] == max(layers, key=lambda layer: layers[layer].normalized_entropy)
    run("routing", "--config", file)
    assert "40 public records" in capsys.readouterr().out


def test_norms_proposes_what_fit_uses(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proposed = printed(capsys, "norms", "--config", file)
    assert [clip["role"] for clip in proposed["clips"]] == ["shared", "expert"]
    used = printed(capsys, "fit", "--config", file, "--out", str(tmp_path / "run"))
    assert used["privacy"]["clip_norms"] == proposed["clips"]
    wider = printed(capsys, "norms", "--config", file, "--clip-quantile", "0.95")
    assert wider["clips"][0]["clip_norm"] > proposed["clips"][0]["clip_norm"]


def test_compare(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "runs")
    found = printed(capsys, "compare", "--config", file, "--methods", "head_only", "--seeds", "0,1", "--out", out)
    assert found["methods"][0]["seeds"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--eps", "0"], "expected eps in"),
        (["--eps", "much"], "privacy.eps"),
        (["--layer", "9"], "sparse layers [1, 3]"),
        (["--denominator", "realized"], "is private"),
        (["--method", "monolithic", "--denominator", "batch"], "only with method='raptor'"),
        (["--public", "nowhere.tsv"], "nowhere.tsv"),
        (["--epps", "1"], "--eps"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_made(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    out = tmp_path / "run"
    assert words in refused(capsys, "fit", "--config", file, "--out", str(out), *arguments)
    assert not out.exists()


def test_commands_on_folders_without_a_run_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("evaluate", "report"):
        assert "folder of a run" in refused(capsys, command, str(tmp_path))

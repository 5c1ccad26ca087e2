"""A run folder from beginning to end: what it holds, going on after an interruption, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from raptor_acct.ledger import Ledger
from raptor_train.adapters.switch import SwitchClassifier
from raptor_train.compare import compare as run_compare
from raptor_train.compare import comparison_rows
from raptor_train.evaluate_run import evaluate_run
from raptor_train.fit import fit
from raptor_train.independence import RecordsCoupled
from raptor_train.inputs import load_inputs
from raptor_train.loop import Trainer
from raptor_train.metrics import Score, score
from raptor_train.records import Records
from raptor_train.resolve import Resolved, resolve
from raptor_train.run import load_run, prepare
from raptor_train.run_folder import RunFolder
from raptor_train.run_report import write_run_report

from .conftest import random_records
from .family_models import adapt_decoder, records_for, tiny_decoder
from .run_tools import configured, tiny_settings, write_texts, write_tokenizer


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_settings(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def finished(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    folder, words = tmp_path_factory.mktemp("runs") / "raptor", list[str]()
    result = fit(configured(settings), folder, echo=words.append)
    return folder, result, "\n".join(words)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_folder_holds_what_is_promised_and_its_numbers_agree(finished: tuple[Path, dict[str, Any], str]) -> None:
    folder, result, words = finished
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "checkpoints",
        "privacy.json",
        "report.html",
        "report.md",
    }
    privacy = json.loads((folder / "privacy.json").read_text())
    assert result["privacy"] == privacy
    spent = Ledger.replay(folder / "ledger.jsonl").epsilon(1e-3)
    assert privacy["epsilon_spent"] == {"lower": spent.lower, "upper": spent.upper}
    assert privacy["epsilon_spent"]["upper"] == pytest.approx(privacy["epsilon_planned"]["upper"], rel=1e-9)
    assert privacy["adjacency"] == "add_remove"
    assert {clip["source"] for clip in privacy["clip_norms"]} == {"public"}
    assert all(clip["share_clipped"] == pytest.approx(0.2) for clip in privacy["clip_norms"])
    for column in ("parameters", "clip norm", "sigma", "denominator", "eps alone", "epsilon <="):
        assert column in words
    for page in ("report.md", "report.html"):
        assert f"{100 * result['evaluation']['accuracy']:.1f}" in (folder / page).read_text()


def test_metrics_hold_nothing_private_unless_asked(
    finished: tuple[Path, dict[str, Any], str], settings: dict[str, Any], tmp_path: Path
) -> None:
    folder, _, _ = finished
    cycles = [line for line in lines(folder / "metrics.jsonl") if "evaluation" not in line]
    assert [line["cycle"] for line in cycles] == [1, 2, 3]
    assert all(set(line) == {"cycle", "seconds", "epsilon", "public_owner_drift"} for line in cycles)
    shown = fit(configured(settings, method="head_only"), tmp_path / "shown", show_private_loss=True)
    losses = [line for line in lines(tmp_path / "shown" / "metrics.jsonl") if "private_loss" in line]
    assert len(losses) == 3
    assert all(line["not_private"] for line in losses)
    assert any("not_private" in words for words in shown["privacy"]["not_covered"])


def interrupted(after: int) -> Callable[[Trainer], None]:
    original, count = Trainer.save, [0]

    def save(self: Trainer) -> None:
        count[0] += 1
        if count[0] > after:
            raise KeyboardInterrupt
        original(self)

    return save


@pytest.mark.parametrize("method", ["raptor", "non_private_lora"])
def test_an_interrupted_run_goes_on_and_never_spends_more(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    config, folder = configured(settings, method=method), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", interrupted(after=2))  # the start and the first cycle
        with pytest.raises(KeyboardInterrupt):
            fit(config, folder)
    chosen = (folder / "config.json").read_text()
    result = fit(config, folder)
    assert (folder / "config.json").read_text() == chosen
    assert result["cycles"] == 3
    if method == "raptor":
        assert Ledger.verify(folder / "ledger.jsonl").num_releases == 6
        assert result["privacy"]["epsilon_spent"]["upper"] <= 8.0
    again = fit(config, folder)  # finished: nothing is released any more
    assert again["evaluation"] == result["evaluation"]


def test_another_configuration_or_a_foreign_folder_is_refused(
    finished: tuple[Path, dict[str, Any], str], settings: dict[str, Any], tmp_path: Path
) -> None:
    folder, _, _ = finished
    ledger = (folder / "ledger.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"privacy.eps was 8.0, now 1.0"):
        fit(configured(settings, privacy__eps=1), folder)
    assert (folder / "ledger.jsonl").read_bytes() == ledger
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="new or empty folder"):
        fit(configured(settings), tmp_path)
    assert fit(configured(settings, training__micro_batch_size=7), folder)["cycles"] == 3  # of no influence


def test_what_is_wrong_is_said_before_a_folder_is_made(settings: dict[str, Any], tmp_path: Path) -> None:
    for changes, words in (
        ({"data__train": "nowhere.tsv"}, "nowhere.tsv"),
        ({"data__public": None}, "--public FILE"),
        ({"layer": 2}, r"sparse layers \[1, 3\]"),
        ({"training__batch_size": 61}, "60 private records"),
        ({"model__name": "nowhere"}, "nowhere"),
        ({"method": "expert_only"}, "vanish"),
        ({"model__objective": "language_model"}, "classification"),
    ):
        with pytest.raises((ValueError, OSError), match=words):
            fit(configured(settings, **changes), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_public_records_of_one_class_give_no_clip_norm(settings: dict[str, Any], tmp_path: Path) -> None:
    public = tmp_path / "public.tsv"
    public.write_text("sentence\tlabel\n" + "".join(f"w1 w2 w{i}\t1\n" for i in range(3, 20)))
    with pytest.raises(ValueError, match="at least two classes"):
        fit(configured(settings, data__public=str(public)), tmp_path / "run")


@pytest.mark.parametrize(
    ("family", "task"), [("mixtral", "classification"), ("deepseek_v2", "classification"), ("olmoe", "language model")]
)
def test_models_of_the_decoder_families_from_a_folder(
    settings: dict[str, Any], tmp_path: Path, family: str, task: str
) -> None:
    model = tiny_decoder(family, task, num_labels=2)
    model.save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    changes: dict[str, Any] = {"model__name": str(tmp_path / "model"), "model__random_weights": False}
    if task == "language model":
        for name in ("train", "test", "public"):
            rows = Path(settings["data"][name]).read_text().splitlines()[1:]
            (tmp_path / f"{name}.txt").write_text("\n".join(row.partition("\t")[0] for row in rows))
            changes[f"data__{name}"] = str(tmp_path / f"{name}.txt")
        changes |= {"model__objective": "language_model", "data__task": None}
    result = fit(configured(settings, **changes), tmp_path / "run")
    assert ("accuracy" in result["evaluation"]) == (task == "classification")
    assert evaluate_run(tmp_path / "run", changes={}, public_data=False)["nll"] == result["evaluation"]["nll"]
    _, _, adapted = load_run(tmp_path / "run")
    trained = {name for name, p in adapted.model.named_parameters() if p.requires_grad}
    start = model.state_dict()
    for name, tensor in adapted.model.state_dict().items():
        if name in start and name not in trained:
            assert torch.equal(tensor, start[name]), name


def test_coupled_records_are_refused_and_no_folder_stays(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SwitchClassifier.losses
    monkeypatch.setattr(SwitchClassifier, "losses", lambda self, records: original(self, records) / len(records))
    with pytest.raises(RecordsCoupled):
        fit(configured(settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resolved_settings_survive_the_file(settings: dict[str, Any], tmp_path: Path) -> None:
    config = configured(settings, denominator="shrinkage")
    resolved = resolve(config, load_inputs(config))
    assert resolved.moments is not None
    assert sum(resolved.shares or ()) == pytest.approx(1)
    assert min(resolved.shares or ()) > 0
    folder = RunFolder(tmp_path / "run")
    folder.make()
    folder.begin(config, resolved.to_dict())
    assert Resolved.from_dict(folder.resolved(config) or {}) == resolved


def test_clip_norms_and_scales_given_as_numbers_measure_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    config = configured(
        settings, shared__clip_norm=2, expert__clip_norm=1, expert__scale=3, layer="last", data__public=None
    )
    run = prepare(config, tmp_path / "run")
    assert run.resolved.clip_norms == {"shared": 2.0, "expert": 1.0}
    assert run.resolved.scales == {"shared": 1.0, "expert": 3.0}
    assert run.resolved.layers == (3,)
    assert {clip.source for clip in run.resolved.clips} == {"configuration"}
    assert Ledger.verify(tmp_path / "run" / "ledger.jsonl").num_releases == 0


def test_replace_one_neighbours_cost_more_noise_and_are_named(settings: dict[str, Any], tmp_path: Path) -> None:
    config = configured(settings, privacy__adjacency="replace_one", method="head_only")
    result = fit(config, tmp_path / "run")
    spent = Ledger.replay(tmp_path / "run" / "ledger.jsonl", adjacency="replace_one").epsilon(1e-3)
    assert result["privacy"]["epsilon_spent"]["upper"] == pytest.approx(spent.upper)
    assert result["privacy"]["adjacency"] == "replace_one"
    assert 7.9 < spent.upper <= 8.0
    assert Ledger.replay(tmp_path / "run" / "ledger.jsonl").epsilon(1e-3).upper < 7.9


def test_the_saved_model_is_the_trained_one(
    finished: tuple[Path, dict[str, Any], str], settings: dict[str, Any]
) -> None:
    folder, result, _ = finished
    assert evaluate_run(folder, changes={}, public_data=False)["nll"] == result["evaluation"]["nll"]
    _, _, adapted = load_run(folder)
    (file,) = (folder / "checkpoints").glob("*.safetensors")
    with safe_open(file, "pt") as saved:
        assert torch.equal(saved.get_tensor("weights.head.bias"), adapted.shared.layers[-1].bias)
    assert bool(adapted.shared.layers[-1].bias.any())


def test_evaluate_says_whether_the_data_is_public(finished: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    folder, _, _ = finished
    assert "private" in evaluate_run(folder, changes={}, public_data=False)["data"]
    other = write_texts(tmp_path / "other.tsv", 25, seed=7)
    result = evaluate_run(folder, changes={"test": str(other)}, public_data=True)
    assert (result["data"], result["records"]) == ("public", 25)
    with pytest.raises(ValueError, match="--test FILE with --public-data"):
        evaluate_run(folder, changes={}, public_data=True)
    with pytest.raises(ValueError, match="folder of a run"):
        evaluate_run(tmp_path, changes={}, public_data=False)


def test_a_score_is_that_of_the_models_own_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    run = prepare(configured(settings, method="head_only", layer="first"), tmp_path / "run")
    run.trainer.run()
    assert run.inputs.test is not None
    found = score(run.adapted, run.inputs.test, micro_batch_size=7)
    with torch.no_grad():
        logits = run.adapted.model(run.inputs.test.input_ids, run.inputs.test.attention_mask)
    wanted = torch.nn.functional.cross_entropy(logits, run.inputs.test.labels, reduction="none")
    assert found.nll == pytest.approx(wanted.numpy(), rel=1e-5)
    assert found.correct is not None
    assert found.correct.tolist() == (logits.argmax(1) == run.inputs.test.labels).tolist()


def test_scores_of_language_models_and_intervals() -> None:
    adapted = adapt_decoder("mixtral", "language model")
    found = score(adapted, records_for("language model"))
    assert set(found.to_dict()) == {"records", "nll", "nll_95"}
    low, high = found.nll_interval()
    assert low < found.mean_nll < high
    values = torch.arange(100).double().numpy()
    low, high = Score(nll=values).nll_interval()
    assert high - low == pytest.approx(2 * 1.959964 * values.std(ddof=1) / 10)
    with pytest.raises(ValueError, match="at least 2 records"):
        score(adapted, Records(*(getattr(random_records(1), f) for f in ("input_ids", "attention_mask", "labels"))))


def test_comparison_of_methods_and_seeds(settings: dict[str, Any], tmp_path: Path) -> None:
    names = ["head_only", "non_private_lora", "full_model_clip"]
    results = run_compare(configured(settings), names, [0, 1], tmp_path / "c")
    assert [entry["method"] for entry in results["methods"]] == names
    head, free, ablation = results["methods"]
    assert 7.9 < ablation["epsilon"] <= 8.0
    assert head["seeds"] == 2
    assert 7.9 < head["epsilon"] <= 8.0
    assert free["epsilon"] is None
    accuracies = [run["evaluation"]["accuracy"] for run in results["runs"][:2]]
    assert head["accuracy"] == pytest.approx(sum(accuracies) / 2)
    assert [row[0] for row in comparison_rows(results)] == names
    assert json.loads((tmp_path / "c" / "comparison.json").read_text()) == json.loads(json.dumps(results))
    assert (tmp_path / "c" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="expected methods among"):
        run_compare(configured(settings), ["magic"], [0], tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_the_report_is_made_again_from_the_files(finished: tuple[Path, dict[str, Any], str]) -> None:
    folder, _, _ = finished
    before = (folder / "report.md").read_text()
    (folder / "report.md").unlink()
    assert write_run_report(folder) == [folder / "report.md", folder / "report.html"]
    assert (folder / "report.md").read_text() == before

"""The demo in small: every part runs, the pages hold its numbers, and what it says it spent is what it spent."""

import json
from pathlib import Path

import pytest
import torch

from raptor_acct.ledger import replay
from raptor_train.cli import main
from raptor_train.demo.run import run_demo, verdict
from raptor_train.demo.settings import Settings
from raptor_train.demo.texts import Texts, load_texts
from raptor_train.evaluation import Evaluation, evaluate, train_head
from raptor_train.modeling import load_demo_model
from raptor_train.public import measure_routing
from raptor_train.report import write_report

SMALL = Settings(
    eps=3,
    batch_size=64,
    cycles=2,
    one_stream_steps=2,
    rehearsal_cycles=2,
    num_public=300,
    num_rehearsal=100,
    num_private=300,
    num_test=200,
)


@pytest.fixture(scope="module")
def texts() -> Texts:
    return load_texts(max_length=SMALL.max_length)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder, words = tmp_path_factory.mktemp("demo") / "run", list[str]()
    write_report(run_demo(SMALL, folder, words.append, progress=False, workers=1), folder)
    return folder, "\n".join(words)


def test_the_words_tell_all_four_parts(run_folder: tuple[Path, str]) -> None:
    _, words = run_folder
    for part in (
        "1. Which sparse layer?",
        "2. How much noise?",
        "3. Training.",
        "4. Result",
        "RAPTOR minus monolithic",
    ):
        assert part in words
    assert "basic" in words
    assert "joint" in words


def test_the_run_folder_holds_everything_and_its_numbers_agree(run_folder: tuple[Path, str]) -> None:
    folder, _ = run_folder
    results = json.loads((folder / "results.json").read_text())
    privacy = json.loads((folder / "privacy.json").read_text())
    spent = results["runs"]["raptor"]["epsilon_spent"]
    assert replay(folder / "ledger.jsonl").epsilon(results["delta"]) == pytest.approx(spent, rel=1e-12)
    assert 2.99 < spent <= 3.0
    for one_stream in ("monolithic", "head"):
        assert 2.99 < results["runs"][one_stream]["epsilon_spent"] <= 3.0
    assert privacy["epsilon_spent"]["raptor"] == spent
    assert results["runs"]["non_private"]["epsilon_spent"] is None
    assert results["runs"]["start"]["accuracy"] == pytest.approx(0.5, abs=0.1)
    assert (results["records"]["private"], results["records"]["test"]) == (300, 200)
    for page in ("report.md", "report.html"):
        text = (folder / page).read_text()
        assert f"{100 * results['runs']['raptor']['accuracy']:.1f}" in text
        assert "no guarantee" in text
    for plot in ("routing.png", "accuracy.png"):
        assert (folder / plot).read_bytes().startswith(b"\x89PNG")


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["demo", *arguments])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def test_an_existing_run_folder_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path) in refused(["--out", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("--eps", "0", "eps"), ("--eps", "nan", "eps"), ("--eps", "abc", "eps"), ("--rho", "1", "rho")],
)
def test_bad_options_are_refused_in_one_line_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, named: str
) -> None:
    assert named in refused([option, value, "--out", str(tmp_path / "run")], capsys)
    assert not (tmp_path / "run").exists()


def test_the_shipped_models_routing_is_not_trivial(texts: Texts) -> None:
    statistics = measure_routing(load_demo_model(), texts.public.take(torch.arange(1500)))
    entropies = [s.normalized_entropy for s in statistics.values()]
    assert len(entropies) >= 3
    assert max(entropies) - min(entropies) > 0.1
    best = max(statistics.values(), key=lambda s: s.normalized_entropy)
    assert min(best.counts or ()) > 0  # every expert owns public records there
    private = measure_routing(load_demo_model(), texts.private.take(torch.arange(1500)))
    assert sum(p > 0 for p in private[best.layer].probabilities) >= best.num_experts - 1


def test_public_private_and_test_texts_are_apart_and_balanced(texts: Texts) -> None:
    assert len(texts.test) == 1500
    assert 6500 < len(texts.private) < 7100
    rows = {tuple(r) for r in texts.private.input_ids.tolist()}
    assert sum(tuple(r) in rows for r in texts.test.input_ids.tolist()) <= 15  # alike only after cutting to 48 tokens
    assert float(texts.test.labels.float().mean()) == pytest.approx(0.5, abs=0.01)


def test_a_head_on_public_labels_beats_chance_on_public_text(texts: Texts) -> None:
    model = load_demo_model()
    train_head(model, texts.public.take(torch.arange(3000)))
    held_out = evaluate(model, texts.public.take(torch.arange(3000, 5000)))
    assert held_out.interval()[0] > 0.55


def test_paired_differences_and_verdicts() -> None:
    right, wrong = torch.ones(100, dtype=torch.bool).numpy(), torch.zeros(100, dtype=torch.bool).numpy()
    better, worse = Evaluation(correct=right, nll=0.1), Evaluation(correct=wrong, nll=1.0)
    assert better.minus(worse) == (1.0, 1.0, 1.0)
    low, high = better.interval()
    assert 0.95 < low < 1.0 == high
    assert "RAPTOR wins" in verdict(better.minus(worse))
    assert "monolithic DP wins" in verdict(worse.minus(better))
    assert "no difference" in verdict((-0.01, 0.0, 0.01))

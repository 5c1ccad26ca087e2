"""The command audit and the ROC plot: what they show is the library's; bad input ends in one line."""

import json
from pathlib import Path

import attack_scores
import numpy as np
import pytest
from click.testing import CliRunner

from raptor_acct import SubsampledGaussian
from raptor_acct.audit import canary_lower_bound, roc, tpr_ceiling, trials_lower_bound
from raptor_acct.audit.scores_file import parse_scores
from raptor_acct.cli import main
from raptor_acct.cli.audit import audit as command
from raptor_acct.plots import attack_roc

RNG = np.random.default_rng(0)
MEMBERS = RNG.random(600) < 0.5
SCORES = RNG.normal(1.5 * MEMBERS)
TEXT = "score,member\n" + "".join(
    f"{score!r},{member:d}\n" for score, member in zip(SCORES.tolist(), MEMBERS, strict=True)
)
PLAN = ["--sigma-shared", "0.9", "--sigma-expert", "2", "--q", "0.5,0.1", "--steps", "3,20"]


def run(*args, text=TEXT):
    return CliRunner().invoke(command, ["-", *args], input=text)


def test_table_of_an_attack_with_ceilings():
    result = run(*PLAN, "--fpr", "0.01,0.2")
    assert result.exit_code == 0
    curve = roc(SCORES, MEMBERS)
    assert f"AUC {curve.auc:.4f}, standard error {curve.auc_standard_error:.4f}" in result.output
    rows = [line.split() for line in result.output.splitlines() if line.startswith("0.")]
    for row, point in zip(rows, curve.table([0.01, 0.2]), strict=True):
        low, high = point.tpr_interval
        assert row[:4] == [f"{point.fpr_target:g}", f"{point.fpr:.4g}", f"{point.tpr:.4g}", f"{low:.4g}..{high:.4g}"]
        assert float(row[4]) >= point.fpr_target
        assert row[5] in ("yes", "no")
    assert "epsilon" not in result.output  # records of one run prove nothing about it


@pytest.mark.parametrize(("game", "bound"), [("one_run", canary_lower_bound), ("trials", trials_lower_bound)])
def test_json_has_the_bounds_of_the_game(game, bound):
    data = json.loads(run("--game", game, "--delta", "1e-5", "--json", "--adjacency", "replace_one").stdout)
    assert data["leakage"] == bound(SCORES, MEMBERS, delta=1e-5, adjacency="replace_one").to_dict()
    assert (data["schema"], data["command"], data["guarantee"]) == (1, "audit", None)
    assert data["points"] == [point.to_dict() | {"fpr_interval": list(point.fpr_interval), "tpr_interval": list(
        point.tpr_interval)} for point in roc(SCORES, MEMBERS).table()]  # fmt: skip


def test_bounds_in_words():
    found = canary_lower_bound(SCORES, MEMBERS, delta=1e-5, guesses=[60, 120], confidence=0.9)
    args = ("--game", "one_run", "--delta", "1e-5", "--guesses", "60,120", "--confidence", "0.9")
    shown = run(*args).output
    assert (
        f"600 counted, {found.num_guesses} guessed, {found.num_correct} right, {600 - found.num_guesses} abst" in shown
    )
    assert "at confidence 0.9: epsilon at delta 1e-05 is at least" in shown
    told = float(shown.split("is at least ")[1].split(",")[0])
    assert found.epsilon - 1e-4 <= told <= found.epsilon
    assert "refutes the guarantee's epsilon of" in run(*args, "--sigma-expert", "50", "--q", "1", "--steps", "1").output
    assert run(*args, "--sigma-expert", "50", "--q", "1", "--steps", "1").output.rstrip().endswith("yes")


def test_plot_of_the_command(tmp_path):
    picture = tmp_path / "roc.png"
    assert run("--plot", str(picture), *PLAN).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_plot_shows_what_was_measured_and_the_ceiling():
    plan = SubsampledGaussian(num_steps=1, sampling_probability=1.0, noise_multiplier=1.0).guarantee()
    curve = roc(SCORES, MEMBERS)
    plot = attack_roc({"loss": curve}, ceilings={"loss": plan}, confidence=0.9)
    numbers = json.loads(json.dumps(plot.numbers, allow_nan=False))
    points = numbers["curves"]["loss"]["points"]
    assert [point["false_positives"] for point in points[:20]] == list(range(20))  # every step where they are wide
    assert points[-1]["fpr"] == 1
    assert points[30]["tpr"] == curve.tpr_at_fpr(points[30]["fpr_target"]).tpr
    ceiling = numbers["ceilings"]["loss"]
    assert ceiling["tpr"][20] == tpr_ceiling(plan, ceiling["fpr"][20])
    (axes,) = plot.figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [line.get_label() for line in axes.get_lines()][:2] == [f"loss, AUC {curve.auc:.3f}", "loss, ceiling"]
    assert len(axes.collections) == 1


def test_the_plot_refuses_more_than_it_has_colours_for():
    curve = roc(SCORES, MEMBERS)
    with pytest.raises(ValueError, match="expected 1 to 7 curves and ceilings"):
        attack_roc({str(i): curve for i in range(8)})
    with pytest.raises(ValueError, match="expected 1 to 7 curves and ceilings"):
        attack_roc({})


def test_files():
    scores, members = parse_scores(b"id,member,score\n7,1,2e3\n\n8,0,-1\n")
    assert (scores.tolist(), members.tolist()) == ([2000.0, -1.0], [True, False])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected CSV with the columns score,member, got []"),
        ("score\n1\n", "got ['score']"),
        ("score,member\n1,1\nx,0\n", "line 2: expected a number in each of score and member"),
        ("score,member\n1\n", "line 1: expected a number"),
        ("score,member\n1,2\n", "expected members to hold only 1 (member) and 0"),
        ("score,member\nnan,1\n", "expected scores to be finite"),
        ("score,member\n", "expected scores to be real numbers in 1 dimensions, at least one"),
        ("score,member\n1,1\n2,1\n", "expected members and non-members, got 2 members among 2 records"),
        (b"\xff\xfe", "expected CSV in UTF-8"),
    ],
)
def test_bad_files_end_in_one_line(text, message):
    result = run(text=text)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--game", "one_run"], "expected --delta, at which epsilon is bounded"),
        (["--q", "0.1"], "expected --q, --steps and at least one of --sigma-shared and --sigma-expert"),
        (["--sigma-shared", "1", "--q", "1,1", "--steps", "1"], "expected q in (0, 1]"),
        (["--sigma-shared", "-1", "--q", "1", "--steps", "1"], "expected sigma in [0.01, 1e8]"),
        (["--fpr", "2"], "expected fpr in [0, 1], got fpr=2"),
        (["--confidence", "1"], "expected confidence in (0, 1), got confidence=1.0"),
        (["--game", "one_run", "--delta", "0.1", "--guesses", "0.5"], "expected guesses to be a whole number"),
        (["--plot", "roc.what"], "what"),
    ],
)
def test_bad_options_end_in_one_line(args, message):
    result = run(*args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_through_the_program(tmp_path, capsys):
    file = tmp_path / "scores.csv"
    file.write_text(TEXT)
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(file), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["num_members"] == int(MEMBERS.sum())


def test_the_committed_benchmark_is_the_published_attack():
    kept = json.loads((Path(attack_scores.__file__).parent / "results" / "attack_scores.json").read_text())
    assert round(kept["attacks"]["undefended"]["auc"], 4) == 0.8526
    assert kept["attacks"]["undefended"]["points"][0]["false_positives"] == 1  # its TPR at 0.1 % rests on one record


def test_the_benchmark_runs(tmp_path, monkeypatch, capsys):
    output = RNG.dirichlet(np.ones(3), size=200)
    np.savez(
        tmp_path / "p.npz", target_member=np.arange(200) % 2, target_tc_output=output, target_defense_output=output
    )
    monkeypatch.setattr(attack_scores, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["attack_scores.py", str(tmp_path / "p.npz")])
    attack_scores.main()
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "attack_scores.json").read_text())
    assert shown["attacks"]["undefended"]["auc"] == roc(output.max(axis=1), np.arange(200) % 2).auc

"""benchmarks/paper_tables.py: its verdicts, the parameters it derives, and that a wrong digit is flagged."""

import json

import _paper as paper
import paper_tables
import pytest
from paper_tables import Check


def verdict(printed, recomputed):
    return Check(table="0", row="row", what="what", printed=printed, recomputed=recomputed).verdict


def flagged(checks):
    return [(check.row, check.what) for check in checks if check.verdict == "DISAGREES"]


@pytest.mark.parametrize(
    ("printed", "low", "high"),
    [("0.641", 0.6405, 0.6415), ("-1.361e-6", -1.3615e-6, -1.3605e-6), ("100.00", 99.995, 100.005), ("0", 0.0, 0.0)],
)
def test_interval_of_a_printed_number(printed, low, high):
    assert paper.interval(printed) == pytest.approx((low, high), rel=1e-15, abs=0)


@pytest.mark.parametrize(
    ("printed", "recomputed", "expected"),
    [
        ("0.5", (0.4, 0.44), "DISAGREES"),
        ("0.5", (0.4, 0.46), "agrees"),
        ("0.5", (0.54, 0.6), "agrees"),
        ("0.5", (0.56, 0.6), "DISAGREES"),
        ("0.5", (0.0, 1.0), "agrees"),
        ("5", (5.0, 5.0), "agrees"),
        ("5", (5.1, 5.2), "DISAGREES"),
        (None, (0.0, 1.0), "cannot tell"),
        ("0.5", None, "cannot tell"),
    ],
)
def test_verdict(printed, recomputed, expected):
    assert verdict(printed, recomputed) == expected


def test_what_the_tables_say():
    """Only the hours of Table 11 disagree; every other digit, and each attack's ceiling, holds."""
    checks = paper_tables.all_checks()
    assert {check.table for check in checks if check.verdict == "DISAGREES"} == {"11"}
    assert all(what.startswith("GPU-hours") for _, what in flagged(checks))
    assert (paper.RAPTOR, f"GPU-hours, steps of '{paper.FULL}'") in flagged(checks)
    assert {check.table for check in checks if check.verdict == "cannot tell"} == {"1", "3"}
    assert sum(check.table == "3" and check.verdict == "agrees" for check in checks) == 32
    assert f"{len(flagged(checks))} DISAGREES" in paper_tables.report(checks)


def test_a_misread_deficit_is_flagged():
    """0.736 is the deficit of block 11; read into the row of block 5 it contradicts that row's 0.641."""
    entropy, _, chi2 = paper.TABLE_7["MNLI", 5]
    misread = {**paper.TABLE_7, ("MNLI", 5): (entropy, paper.TABLE_7["MNLI", 11][1], chi2)}
    assert flagged(paper_tables.routing(misread)) == [("MNLI, block 5", "log E - H from H/log E")]


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (("0.682", "0.660", "2.262"), ["χ² by R2, sharp"]),
        (("0.682", "0.660", "9.262"), ["χ² by R1", "χ² by R2, sharp"]),
        (("0.628", "0.660", "1.262"), ["log E - H from H/log E", "block by H/log E"]),
    ],
)
def test_a_wrong_digit_of_table_7_is_flagged(cells, what):
    assert [found for _, found in flagged(paper_tables.routing({**paper.TABLE_7, ("MNLI", 7): cells}))] == what


@pytest.mark.parametrize(
    ("name", "key", "wrong", "checks", "expected"),
    [
        ("TABLE_9", ("SST-2", "selected"), (1, "0.434", "0.972"), "collapsed_and_selected", "CV by R2, sharp"),
        ("TABLE_9", ("MNLI", "selected"), (7, "1.132", "0.682"), "collapsed_and_selected", "χ² = CV²"),
        ("TABLE_10", "shared", ("9438722", "2.175e-4", "2.035e-5"), "sensitivities", "λ₊ = max(0, ΔL) / millions"),
        ("TABLE_10", "experts", ("7864230", "-1.361e-6", "0"), "sensitivities", "parameters"),
        ("TABLE_11", paper.RAPTOR, ("17.30", "5.26", "4.51", "1.65"), "footprint", "% of parameters"),
        ("TABLE_6", ("1", paper.RAPTOR), ("92.90", "78.24", "83.30", "84.08"), "accuracies", "accuracy on MNLI, twice"),
        (
            "TABLE_6",
            ("1", paper.RAPTOR),
            ("92.09", "78.42", "83.30", "84.08"),
            "accuracies",
            "accuracy on SST-2, twice",
        ),
    ],
)
def test_a_wrong_digit_elsewhere_is_flagged(monkeypatch, name, key, wrong, checks, expected):
    before = flagged(getattr(paper_tables, checks)())
    monkeypatch.setitem(getattr(paper, name), key, wrong)
    after = flagged(getattr(paper_tables, checks)())
    assert expected in [what for row, what in after if (row, what) not in before]


def test_an_attack_above_its_ceiling_is_flagged(monkeypatch):
    """2.5 per thousand is below what (1, δ) allows and above what the schedule's whole profile does."""
    monkeypatch.setattr(
        paper, "TABLE_3", {("1", paper.RAPTOR): ("83.30", {"loss": ("0.57", "0.25"), "LiRA": ("0.74", "0.28")})}
    )
    found = [
        (row.split(", ")[-1], what.split(" ")[0], what.split(", ", 1)[1])
        for row, what in flagged(paper_tables.attacks())
    ]
    assert found == [
        ("loss", "AUC", "profile"),
        ("loss", "TPR", "profile"),
        ("LiRA", "AUC", "(ε, δ)"),
        ("LiRA", "AUC", "profile"),
        ("LiRA", "TPR", "(ε, δ)"),
        ("LiRA", "TPR", "profile"),
    ]


def test_parameters_follow_from_the_model():
    assert paper_tables.trainable_parameters() == {
        paper.FULL: 307_847_810,
        "RAPTOR, shared": 9_438_722,
        "RAPTOR, experts": 7_864_320,
        paper.LORA: 14_157_314,
    }


def test_auc_ceiling_is_above_the_best_attack():
    """For N(0, 1) against N(μ, 1) the best attack has AUC Φ(μ/√2)."""
    from scipy.stats import norm

    from raptor_acct import SubsampledGaussian

    guarantee = SubsampledGaussian(num_steps=1, sampling_probability=1.0, noise_multiplier=1.0).guarantee()
    exact = norm.cdf(1 / 2**0.5)
    assert exact <= paper_tables.auc_ceiling(guarantee) <= exact + 4e-3


def test_program_writes_what_it_prints(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(paper_tables, "all_checks", lambda: list(paper_tables.routing()))
    paper_tables.main(["--json", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert (tmp_path / "paper_tables.json").read_text() == printed
    document = json.loads(printed)
    assert document["summary"] == {"agrees": 20, "DISAGREES": 0, "cannot tell": 0}
    assert document["checks"][0]["verdict"] == "agrees"
    paper_tables.main(["--out", str(tmp_path)])
    assert "20 agrees, 0 DISAGREES, 0 cannot tell; 20 checks" in capsys.readouterr().out

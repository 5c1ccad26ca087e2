"""Plots: each is drawn and written, shows the library's own numbers; the commands say what is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
import theory_plots
from click.testing import CliRunner

from raptor_acct import RoutingStats, calibrate_sigmas, entropy_curve, hand_back_slack, mse, optimal_rho
from raptor_acct.cli import cli, main
from raptor_acct.plots import (
    Attack,
    RoutingPoint,
    denominator_errors,
    entropy_cv,
    entropy_growth,
    noise_against_rho,
    optimal_split,
    points_of,
    roc_ceilings,
)

DELTA, Q, STEPS = 1e-5, 0.01, 400
SETTING = {
    "batch_size": 1000,
    "sampling_probability": 0.01,
    "clip_norm": 1.0,
    "noise_multiplier": 2.0,
    "num_parameters": 10_000,
    "mean_norm": 0.5,
    "second_moment": 1.0,
}
LAYERS = {1: RoutingStats.from_counts([97, 1, 1, 1], layer=1), 3: RoutingStats.from_counts([26, 25, 25, 24], layer=3)}


@pytest.fixture
def written(tmp_path):
    """Write a plot as PNG and PDF, check both, and return its numbers as JSON gives them back."""

    def write(plot):
        for suffix, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
            plot.save(tmp_path / f"plot.{suffix}")
            assert (tmp_path / f"plot.{suffix}").read_bytes().startswith(magic)
        return json.loads(json.dumps(plot.numbers, allow_nan=False))

    return write


def lines_of(plot):
    return [[line.get_label() for line in axes.get_lines()] for axes in plot.figure.axes]


def test_noise_against_rho(written):
    plot = noise_against_rho([1.0, 4.0], DELTA, Q, STEPS, rhos=[0.3, 0.9])
    numbers = written(plot)
    basic = calibrate_sigmas(4.0, DELTA, 0.9, Q, STEPS)
    curve = numbers["curves"][1]
    assert (curve["eps"], curve["basic"]["sigma_expert"][1]) == (4.0, basic.sigma_expert)
    assert curve["shared"]["sigma_expert"][1] == hand_back_slack(basic, "shared").sigma_expert
    assert [len(lines) for lines in lines_of(plot)] == [6, 6]
    drawn = plot.figure.axes[1].get_lines()[2]  # the experts' panel: all slack to the experts
    assert list(drawn.get_ydata()) == numbers["curves"][0]["shared"]["sigma_expert"]


def test_entropy_cv(written):
    groups = {"layers": points_of(LAYERS), "others": [RoutingPoint(8, 0.9, 0.6), RoutingPoint(4, 0.5, 1.0)]}
    plot = entropy_cv(groups)
    numbers = written(plot)
    assert list(numbers["regions"]) == ["4", "8"]
    assert [len(lines) for lines in lines_of(plot)] == [2, 1]
    assert numbers["points"]["layers"][0]["cv"] == LAYERS[1].cv
    region = numbers["regions"]["4"]
    for stats in LAYERS.values():
        low, high = (
            np.interp(stats.normalized_entropy, region["normalized_entropy"], region[k]) for k in ("low", "high")
        )
        assert low - 1e-3 <= stats.cv <= high + 1e-3
    assert region["high"][0] == pytest.approx(3**0.5)
    assert region["low"][-1] == region["high"][-1] == 0
    assert {text.get_text() for text in plot.figure.axes[0].texts} >= {"1", "3"}


def test_roc_ceilings(written):
    guarantee = calibrate_sigmas(1.0, DELTA, 0.9, Q, STEPS).plan.guarantee()
    attacks = [Attack("known", 1.0, guarantee, 0.001, 0.0015), Attack("open", None, None, 0.001, 0.03)]
    numbers = written(roc_ceilings({1.0: guarantee}, DELTA, attacks=attacks))
    profile, one_point = (np.array(numbers["tpr"]["1"][name]) for name in ("profile", "one_point"))
    fprs = np.array(numbers["fpr"])
    assert (fprs - 1e-12 <= profile).all()
    assert (profile <= one_point + 1e-9).all()
    assert numbers["attacks"][0]["profile_ceiling"] == 1 - guarantee.fnr(0.001).lower
    assert numbers["attacks"][0]["one_point_ceiling"] == pytest.approx(np.e * 0.001 + DELTA)
    assert "profile_ceiling" not in numbers["attacks"][1]
    assert len(lines_of(roc_ceilings({1.0: guarantee}, DELTA))) == 1


def test_one_point_ceiling_is_that_of_the_whole_region():
    """At FPR 1/2 the bound e^ε FPR + δ is above 1; swapping the answers bounds the rate below it."""
    guarantee = calibrate_sigmas(1.0, DELTA, 0.9, Q, STEPS).plan.guarantee()
    numbers = roc_ceilings({1.0: guarantee}, DELTA, attacks=[Attack("half", 1.0, guarantee, 0.5, 0.5)]).numbers
    assert numbers["attacks"][0]["one_point_ceiling"] == pytest.approx(1 - (0.5 - DELTA) / np.e)


def test_denominator_errors(written):
    family = [RoutingStats.from_counts(counts) for counts in ([25, 25, 25, 25], [70, 15, 10, 5])]
    numbers = written(denominator_errors(family, SETTING, title="Error"))
    assert numbers["cv"] == [stats.cv for stats in family]
    for rule, parts in numbers["curves"].items():
        public = family[1] if rule in ("public_share", "shrinkage") else None
        assert {part: values[1] for part, values in parts.items()} == mse(
            family[1], rule, public=public, **SETTING
        ).mean
    totals = {rule: parts["total"][1] for rule, parts in numbers["curves"].items()}
    assert min(totals, key=totals.get) == "shrinkage"


def test_entropy_growth(written):
    curves = {f"layer {layer}": entropy_curve(stats, [5, 20, 100], resamples=50) for layer, stats in LAYERS.items()}
    plot = entropy_growth({"one": curves, "two": {"again": curves["layer 1"]}})
    numbers = written(plot)
    assert numbers["one"]["layer 3"] == json.loads(json.dumps(curves["layer 3"].to_dict()))
    assert len(plot.figure.axes) == 2
    assert max(plot.figure.axes[0].get_lines()[3].get_ydata()) <= 1


def test_optimal_split(written):
    numbers = written(optimal_split([0.5, 1.0, 729.0], chosen=0.9))
    assert numbers["basic"] == [optimal_rho(ratio, 1.0) for ratio in (0.5, 1.0, 729.0)]
    assert numbers["joint"][1] == 0.5
    assert numbers["basic"][2] == pytest.approx(0.9)


@pytest.mark.parametrize("eps", [[], [1.0, 1.0], [float(i) for i in range(1, 9)]])
def test_colours_run_out(eps):
    with pytest.raises(ValueError, match="expected 1 to 7 different values of eps"):
        noise_against_rho(eps, DELTA, Q, STEPS)


def test_no_point_no_plot():
    with pytest.raises(ValueError, match="expected at least one point, got none"):
        entropy_cv({"layers": []})


# The commands


def run(*args, text=None):
    return CliRunner().invoke(cli, ["plot", *args], input=text)


SIZE = ("--q", "0.01", "--steps", "400", "--delta", "1e-5")


def test_plot_sigmas(tmp_path):
    out = tmp_path / "noise.png"
    result = run("sigmas", "--eps", "1", *SIZE, "--out", str(out))
    assert (result.exit_code, result.output) == (0, f"written: {out}\n")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_plot_roc_from_the_size_of_the_run(tmp_path):
    out = str(tmp_path / "roc.svg")
    size = ("--records", "10000", "--batch-size", "100", "--epochs", "4", "--rho", "0.5")
    data = json.loads(run("roc", "--eps", "1,4", *size, "--out", out, "--json").stdout)
    assert (data["schema"], data["command"], data["file"]) == (1, "plot roc", out)
    assert data["delta"] == 10000**-1.1
    assert list(data["tpr"]) == ["1", "4"]
    guarantee = calibrate_sigmas(4.0, 10000**-1.1, 0.5, 0.01, 400).plan.guarantee()
    assert data["tpr"]["4"]["profile"][0] == 1 - guarantee.fnr(data["fpr"][0]).lower


def test_plot_routing(tmp_path):
    text = json.dumps({"layers": {"1": {"counts": [97, 1, 1, 1]}}, "source": "reviews", "unit": "tokens"})
    out = str(tmp_path / "routing.png")
    data = json.loads(run("routing", "-", "--out", out, "--json", text=text).stdout)
    assert (data["source"], data["unit"]) == ("reviews", "tokens")
    assert data["points"]["reviews (tokens)"][0]["cv"] == LAYERS[1].cv


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sigmas", "--eps", "much", *SIZE], "expected eps to be a number"),
        (["sigmas", "--eps", "-1", *SIZE], "eps"),
        (["roc", "--eps", "1", "--q", "0.1", "--steps", "10"], "expected --delta, or --records"),
        (["roc", "--eps", "1", "--delta", "1e-5", "--q", "0.1"], "expected either --q and --steps"),
        (["sigmas", "--eps", "1,1", *SIZE], "different values of eps"),
        (["routing", "none.csv"], "none.csv"),
        (["roc", "--eps", "1", *SIZE, "--out", "picture.txt"], "txt"),
        (["roc", "--eps", "1", *SIZE, "--out", "no/such/folder.png"], "folder.png"),
    ],
)
def test_bad_input_ends_in_one_line(args, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plot", *args])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("name", ["sigmas", "roc", "routing"])
def test_help(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "--out" in result.output
    assert "--json" in result.output


def test_matplotlib_is_imported_only_to_draw():
    code = """
        import sys, raptor_acct, raptor_acct.plots
        from click.testing import CliRunner
        from raptor_acct.cli import cli
        assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
        assert CliRunner().invoke(cli, ["plot", "sigmas", "--help"]).exit_code == 0
        assert "matplotlib" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", "if 1:" + code], check=True)


def test_without_matplotlib_the_error_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'raptor-moe-dp\[plots\]'"):
        optimal_split([1.0])
    result = run("routing", "-", "--out", str(tmp_path / "a.png"), text='{"layers": {"1": {"counts": [3, 1]}}}')
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "pip install 'raptor-moe-dp[plots]'" in result.stderr


# The benchmark's program


@pytest.mark.parametrize("name", ["entropy_cv", "rho_lambda", "bias_variance", "roc"])
def test_the_program_writes_both_files(name, tmp_path):
    theory_plots.main([name, "--out", str(tmp_path / "new")])
    assert (tmp_path / "new" / f"theory_{name}.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "new" / f"theory_{name}.json").read_text())
    assert document["command"] == f"python benchmarks/theory_plots.py {name}"
    assert document["seed"] == 0


def test_the_program_reads_real_routing(tmp_path):
    """The files' formats, on files of the test's own."""
    import gzip

    from _theory_data import deepseek_records, token_counts

    (tmp_path / "routing").mkdir()
    rows = [f"org/Model{kind},web,top1,7,{e},{c}" for kind in ("", "-SFT") for e, c in enumerate((30, 10))]
    with gzip.open(tmp_path / "routing" / "olmoe_mixtral_expert_counts.csv.gz", "wt") as file:
        file.write("\n".join(["model,domain,selection,layer,expert,count", *rows]) + "\n")
    with gzip.open(tmp_path / "routing" / "esft_intent_layer13_records.txt.gz", "wt") as file:
        file.write("5\t9\t5\t9\t\t0.3\t0.4\t0.3\t0.1\n9\t63\t\t0.2\t0.9\n")
    ((label, (point,)),) = token_counts(tmp_path).items()
    assert (label, point.cv) == ("Model, tokens, top1", 0.5)
    counts = deepseek_records(tmp_path).counts
    assert (counts[5], counts[63], sum(counts)) == (1, 1, 2)

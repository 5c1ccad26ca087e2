"""The command mse: the denominators side by side, JSON, standard input, one-line errors with exit status 2."""

import json

import pytest
from click.testing import CliRunner

from raptor_acct.cli import main
from raptor_acct.cli.mse import mse as command
from raptor_acct.denominators import RULES
from raptor_acct.mse import mse

LAYERS = {1: [97, 1, 1, 1], 3: [26, 25, 25, 24]}
TEXT = json.dumps({"layers": {str(n): {"counts": c} for n, c in LAYERS.items()}, "source": "public reviews"})
OPTIONS = ["--batch-size", "1000", "--q", "0.01", "--sigma-expert", "2", "--num-parameters", "500"]
SETTING = {
    "batch_size": 1000,
    "sampling_probability": 0.01,
    "noise_multiplier": 2,
    "num_parameters": 500,
    "clip_norm": 0.5,
    "mean_norm": 0.2,
    "second_moment": 0.1,
}
MOMENTS = ["--clip-norm", "0.5", "--mean-norm", "0.2", "--second-moment", "0.1"]


def run(*args, text=None):
    return CliRunner().invoke(command, [args[0], *OPTIONS, *args[1:]], input=text)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "routing.json"
    path.write_text(TEXT)
    return str(path)


def test_table_has_every_denominator_of_every_layer(file):
    result = run(file, "--public", file, *MOMENTS)
    assert result.exit_code == 0
    assert "source: public reviews" in result.output
    lines = [line for line in result.output.splitlines() if line[:1].isdigit()]
    assert len({len(line) for line in lines}) == 1
    expected = [(layer, rule) for layer in LAYERS for rule in RULES]
    for line, (layer, rule) in zip(lines, expected, strict=True):
        error = mse(LAYERS[layer], rule, public=LAYERS[layer], **SETTING)
        assert line.startswith(f"{layer} ")
        assert line.split()[1] == rule
        assert line.split()[-4:] == [f"{error.mean[part]:.4g}" for part in ("bias2", "sampling", "noise", "total")]
    assert lines[0].split()[2] == "250"
    assert lines[2].split()[2] == "10..970"


def test_json(file):
    data = json.loads(run(file, "--json", "--public", file, *MOMENTS).stdout)
    assert (data["schema"], data["command"], data["source"], data["unit"]) == (1, "mse", "public reviews", "records")
    for layer, counts in LAYERS.items():
        expected = {rule: mse(counts, rule, public=counts, **SETTING).to_dict() for rule in RULES}
        assert data["layers"][str(layer)] == expected


def test_without_a_public_file_only_the_rules_that_need_none(file):
    data = json.loads(run(file, "--json", *MOMENTS).stdout)
    assert list(data["layers"]["1"]) == ["expected_owner", "batch"]


def test_the_worst_moments_are_the_default(file):
    data = json.loads(run(file, "--json", "--clip-norm", "0.5").stdout)
    expected = mse(LAYERS[1], "batch", **SETTING | {"mean_norm": 0.5, "second_moment": 0.25})
    assert data["layers"]["1"]["batch"] == expected.to_dict()


def test_an_expert_no_public_record_reaches(file, tmp_path):
    public = tmp_path / "public.json"
    public.write_text(TEXT.replace("97, 1, 1, 1", "97, 0, 1, 1"))
    refused = run(file, "--public", str(public))
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "got 0 for expert 1; smooth the public counts" in refused.stderr
    shown = run(file, "--public", str(public), "--denominator", "shrinkage", "--denominator", "batch")
    assert [line.split()[1] for line in shown.output.splitlines() if line[:1].isdigit()] == ["shrinkage", "batch"] * 2
    assert "..inf" in shown.output
    data = json.loads(run(file, "--public", str(public), "--denominator", "shrinkage", "--json").stdout)
    assert data["layers"]["1"]["shrinkage"]["denominators"][1] is None


def test_standard_input(file):
    assert run("-", text=TEXT).output == run(file).output
    assert run(file, "--public", "-", text=TEXT).output == run(file, "--public", file).output


def test_where():
    split = "domain,layer,expert,count\nlaw,1,0,3\nlaw,1,1,1\nart,1,0,0\nart,1,1,5\n"
    assert "source: domain=law" in run("-", "--where", "domain=law", text=split).output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--denominator", "realized"], "whatever the noise multiplier"),
        (["--denominator", "mean"], "expected denominator to be one of 'expected_owner', 'batch', 'public_share'"),
        (["--denominator", "shrinkage"], "for this one give public="),
        (["--q", "1.3"], "expected sampling_probability in (0, 1], got sampling_probability=1.3"),
        (["--mean-norm", "2"], "expected mean_norm**2 <= second_moment"),
        (["--second-moment", "2"], "expected second_moment <= clip_norm**2"),
        (["--clip-norm", "1e200"], "expected clip_norm in (0, 1e30]"),
        (["--batch-size", "nan"], "expected batch_size in (0, inf), got batch_size=nan"),
        (["--num-parameters", "0"], "expected num_parameters in [1, 1e18]"),
        (["--public", "none.csv"], "none.csv"),
    ],
)
def test_bad_options_end_in_one_line(args, message, file):
    result = run(file, *args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_a_layer_missing_in_the_public_file_is_named(file, tmp_path):
    public = tmp_path / "public.json"
    public.write_text(json.dumps({"layers": {"3": {"counts": [1, 1, 1, 1]}}}))
    result = run(file, "--public", str(public))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "expected layer 1 in the public file" in result.stderr


def test_through_the_program(file, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["mse", file, *OPTIONS, "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["command"] == "mse"
    with pytest.raises(SystemExit) as ended:
        main(["mse", file])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)

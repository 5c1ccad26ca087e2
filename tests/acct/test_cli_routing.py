"""The commands routing, select and bias: tables, JSON, standard input, one-line errors with exit status 2."""

import json

import pytest
from click.testing import CliRunner

from raptor_acct.bias import bias_bound
from raptor_acct.cli import main
from raptor_acct.cli.routing import bias, routing, select
from raptor_acct.routing import RoutingStats
from raptor_acct.selection import select_layer

LAYERS = {1: [97, 1, 1, 1], 3: [26, 25, 25, 24]}
TEXT = json.dumps({"layers": {str(n): {"counts": c} for n, c in LAYERS.items()}, "source": "public reviews"})
SPLIT = "domain,part,layer,expert,count\nlaw,a,1,0,3\nlaw,a,1,1,1\nart,a,1,0,0\nart,a,1,1,5\n"
COMMANDS = {"routing": routing, "select": select, "bias": bias}


def run(command, *args, text=None):
    return CliRunner().invoke(command, list(args), input=text)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "routing.json"
    path.write_text(TEXT)
    return str(path)


def test_routing_table(file):
    result = run(routing, file)
    assert result.exit_code == 0
    assert "source: public reviews" in result.output
    rows = [line.split() for line in result.output.splitlines()[-2:]]
    stats = RoutingStats.from_counts(LAYERS[3])
    assert rows[1][:3] == ["3", "4", "100"]
    assert rows[1][4] == f"{stats.normalized_entropy:.4f}"
    assert rows[0][5] == f"{RoutingStats.from_counts(LAYERS[1]).cv:.4g}"


def test_routing_json(file):
    data = json.loads(run(routing, file, "--json").stdout)
    assert (data["schema"], data["command"], data["unit"], list(data["layers"])) == (
        1,
        "routing",
        "records",
        ["1", "3"],
    )
    assert RoutingStats.from_dict(data["layers"]["3"]) == RoutingStats.from_counts(LAYERS[3], layer=3)


def test_select(file):
    result = run(select, file)
    assert result.exit_code == 0
    assert "selected layer: 3" in result.output
    assert "\ncertified: " in result.output
    data = json.loads(run(select, file, "--json").stdout)
    assert {key: data[key] for key in select_layer(LAYERS).to_dict()} == select_layer(LAYERS).to_dict()


def test_select_says_what_entropy_leaves_open():
    layers = {"1": {"counts": [2, 2, 2, 2, 0, 0, 0, 0]}, "3": {"counts": [7, 1, 1, 1, 1, 1, 1, 1]}}
    result = run(select, "-", text=json.dumps({"layers": layers}))
    assert "selected layer: 3" in result.output
    assert "not certified: entropy alone leaves open whether layers 1 have a smaller CV" in result.output
    assert "smallest measured CV: layer 1" in result.output


def test_bias(file):
    result = run(bias, file, "--clip-norm", "0.5", "--batch-size", "1000")
    assert result.exit_code == 0
    rms = bias_bound(LAYERS, clip_norm=0.5)[1].rms
    row = next(line.split() for line in result.output.splitlines() if line.startswith("1 "))
    assert row[1] == f"{rms:.4g}"
    assert row[-1] == "250"


def test_bias_json(file):
    args = (file, "--json", "--denominator", "batch", "--clip-norm", "2", "--batch-size", "8")
    data = json.loads(run(bias, *args).stdout)
    expected = bias_bound(LAYERS, clip_norm=2, denominator="batch", batch_size=8)
    assert data["layers"] == {str(layer): bound.to_dict() for layer, bound in expected.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_standard_input(name, file):
    assert run(COMMANDS[name], "-", text=TEXT).output == run(COMMANDS[name], file).output


@pytest.mark.parametrize("name", COMMANDS)
def test_where(name):
    command = COMMANDS[name]
    assert run(command, "-", "--where", "domain=law", text=SPLIT).exit_code == 0
    both = run(command, "-", "--where", "domain=law,part=a", "--json", text=SPLIT)
    repeated = run(command, "-", "--where", "domain=law", "--where", "part=a", "--json", text=SPLIT)
    assert both.output == repeated.output
    assert json.loads(both.stdout)["source"] == "domain=law, part=a"


@pytest.mark.parametrize("name", COMMANDS)
def test_another_unit_is_said(name):
    text = json.dumps({"layers": {"1": {"counts": [3, 1]}}, "unit": "tokens"})
    assert "unit: tokens; the theory is about records" in run(COMMANDS[name], "-", text=text).output
    assert json.loads(run(COMMANDS[name], "-", "--json", text=text).stdout)["unit"] == "tokens"
    assert "unit" not in run(COMMANDS[name], "-", text=TEXT).output.replace("in units", "")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got an empty file"),
        ("hello", "expected JSON, or CSV"),
        (SPLIT, "--where 'domain=law'"),
        ('{"layers": {"1": {"counts": [1, 2]}, "1": {"counts": [1, 2]}}}', "'1' twice"),
        ('{"layers": {"1": {"counts": [0, 0]}}}', "at least one record"),
        ('{"layers": {"1": {"counts": [3]}}}', "at least 2 experts"),
        ('{"layers": {"1": {"probabilities": [0.5, 0.4]}}}', "sum to 1"),
    ],
)
def test_bad_files_end_in_one_line(name, text, message):
    result = run(COMMANDS[name], "-", text=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: standard input: ")
    assert message in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_missing_file(name, json_flag, tmp_path):
    result = run(COMMANDS[name], str(tmp_path / "none.csv"), *json_flag)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "none.csv" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--clip-norm", "0"], "expected clip_norm in (0, 1e30], got clip_norm=0.0"),
        (["--clip-norm", "nan"], "got clip_norm=nan"),
        (["--batch-size", "-5"], "expected batch_size in (0, inf), got batch_size=-5.0"),
        (["--denominator", "realized"], "whatever the noise multiplier"),
        (["--denominator", "shrinkage"], "expected denominator to be one of 'expected_owner', 'batch'"),
        (["--where", "layer"], "expected every --where as column=value"),
        (["--where", "layer=3"], "expected a CSV file with --where, got JSON"),
    ],
)
def test_bad_options_end_in_one_line(args, message, file):
    result = run(bias, file, *args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_file(name):
    result = run(COMMANDS[name], "--help")
    assert result.exit_code == 0
    assert "FILE" in result.output
    assert "--where" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_through_the_program(name, file, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, file, "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["command"] == name


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["bias", "-", "--clip-norm", "much"], "'much' is not a valid float"),
        (["select"], "Missing argument 'FILE'"),
        (["routing", "none.csv"], "none.csv"),
    ],
)
def test_the_program_refuses_in_one_line(args, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(args)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert message in err

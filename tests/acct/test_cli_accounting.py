"""The commands calibrate and epsilon: what they print, and one line for bad input."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from raptor_acct import __version__
from raptor_acct.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, out, err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    result: dict[str, Any] = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert result["schema"] == 1
    return result


def test_calibrate_by_the_size_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("calibrate", "--eps", "1", "--records", "67349", "--batch-size", "1000", "--epochs", "20")
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert "epsilon <= 1 (add_remove) at delta = 4.885e-06" in out
    assert out.count("1347 steps") == 2
    header, _, *rows = out.splitlines()[-6:]
    assert "epsilon (add_remove)" in header
    assert [row.split("  ")[0] for row in rows] == [
        "basic",
        "joint, keep ratio",
        "joint, keep shared",
        "joint, keep expert",
    ]
    shared, expert, eps = (float(x) for x in re.split(r" {2,}", rows[2])[1:])
    # Exact, from theory P3, and rounded up.
    assert 2.57316138 <= shared < 2.57316138 * 1.0002
    assert 4.39100230 <= expert < 4.39100230 * 1.0002
    assert eps == 1.0


def test_calibrate_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(
        capsys, "calibrate", "--eps", "2", "--delta", "1e-6", "--rho", "0.5", "--q", "0.1,1", "--steps", "20,3",
        "--adjacency", "replace_one",
    )  # fmt: skip
    basic, *joint = result["calibrations"]
    assert [c["keep"] for c in joint] == ["ratio", "shared", "expert"]
    assert {c["adjacency"] for c in result["calibrations"]} == {"replace_one"}
    assert basic["epsilon"] < min(c["epsilon"] for c in joint) <= 2
    assert basic["plan"]["shared"]["num_steps"] == 20
    assert basic["plan"]["expert"]["sampling_probability"] == 1


def test_epsilon_of_two_streams(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("epsilon", "--sigma-shared", "1", "--sigma-expert", "3", "--q", "0.02", "--steps", "100")
    result = run_json(capsys, *arguments, "--delta", "1e-5")
    assert result["epsilon"] < result["epsilon_shared"] + result["epsilon_expert"]
    code, out, _ = run(capsys, *arguments, "--delta", "1e-5")
    assert code == 0
    printed = float(out.splitlines()[2].split()[-1])
    assert 0 <= printed - result["epsilon"] < 1e-6
    assert "epsilon (add_remove)" in out


@pytest.mark.parametrize("role", ["shared", "expert"])
def test_epsilon_of_one_stream(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("epsilon", f"--sigma-{role}", "1", "--q", "0.01", "--steps", "1000", "--delta", "1e-5")
    assert run_json(capsys, *arguments)["epsilon"] == pytest.approx(1.8282, rel=2e-4)
    assert f"{role} stream alone" in run(capsys, *arguments)[1]


BAD = {
    "": "Missing command",
    "nope": "No such command 'nope'",
    "calibrate --nope": "No such option",
    "calibrate --eps x": "not a valid float",
    "calibrate --q 0.1 --steps 10": "Missing option '--eps'",
    "calibrate --eps 1 --q 0.1 --steps 10": "expected --delta",
    "calibrate --eps 1 --delta 1e-5": "expected either --q and --steps",
    "calibrate --eps 1 --records 10 --epochs 1": "expected either --q",
    "calibrate --eps 1 --records 10 --batch-size 1 --epochs 1 --q 1 --steps 1": "expected either --q",
    "calibrate --eps 1 --records 10 --batch-size 11 --epochs 1": "expected batch-size in [1, records]",
    "calibrate --eps 1 --records 10 --batch-size 0 --epochs 1": "expected batch-size",
    "calibrate --eps 1 --records 10 --batch-size 1 --epochs nan": "expected epochs",
    "calibrate --eps 1e-5 --delta 1 --q 0.1 --steps 10": "did you swap eps and delta?",
    "calibrate --eps 1 --delta 1e-5 --q 0.1 --steps 2.5": "steps=2.5",
    "calibrate --eps 1 --delta 1e-5 --q 0.1 --steps ten": "expected steps",
    "calibrate --eps 1 --delta 1e-5 --q 0.1,1,1 --steps 9": "a pair (shared, expert)",
    "calibrate --eps 1 --records 10 --batch-size 1 --epochs 1e308": "expected epochs in (0, 1e9]",
    f"calibrate --eps 1 --records {10**400} --batch-size 1 --epochs 1": "expected records",
    f"calibrate --eps 1 --delta 1e-5 --q 0.1 --steps {10**400}": "expected steps",
    "epsilon --sigma-shared 1e-200 --q 1 --steps 1 --delta 1e-5": "expected sigma_shared in [0.01, 1e8]",
    "epsilon --sigma-expert 1e200 --q 0.1 --steps 1 --delta 1e-5": "expected sigma_expert in [0.01, 1e8]",
    "epsilon --q 0.1 --steps 10 --delta 1e-5": "expected --sigma-shared",
    "epsilon --sigma-expert 1 --q 0.1,1 --steps 10 --delta 1e-5": "expected q to be one number",
    "epsilon --sigma-expert 1 --q 0.1 --steps 10 --delta 1e-15": "[1e-10, 1)",
    "epsilon --sigma-expert 1 --q 0.1 --steps 10 --delta 2": "expected delta in (0, 1)",
}


@pytest.mark.parametrize(("line", "message"), BAD.items())
def test_bad_input_is_one_line_and_status_2(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"raptor-acct, version {__version__}\n", "")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in ("calibrate", "epsilon", "routing", "select", "bias"):
        assert command in out


FRESH = """
import importlib.abc, sys, time
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "matplotlib", "dp_accounting"}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
started = time.process_time()
import raptor_acct, raptor_acct.cli
print(time.process_time() - started)
"""


def test_import_needs_nothing_heavy_and_takes_no_time() -> None:
    started = [subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True) for _ in range(2)]
    assert [done.stderr for done in started] == ["", ""]
    assert min(float(done.stdout) for done in started) < 0.8

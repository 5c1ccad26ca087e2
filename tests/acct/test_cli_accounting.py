"""The commands calibrate, epsilon and ledger: what they print, and one line for bad input."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raptor_acct import Ledger, __version__
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
    # Exact, from theory P3; printed to six decimals, rounded up.
    assert 2.57316138 <= shared < 2.57316138 + 2e-6
    assert expert == pytest.approx(4.39100230, abs=2e-6)
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
    printed = float(out.splitlines()[2].split()[-2])
    assert 0 <= printed - result["epsilon"] < 1e-6
    assert "epsilon (add_remove)" in out


@pytest.mark.parametrize("role", ["shared", "expert"])
def test_epsilon_of_one_stream(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("epsilon", f"--sigma-{role}", "1", "--q", "0.01", "--steps", "1000", "--delta", "1e-5")
    assert run_json(capsys, *arguments)["epsilon"] == pytest.approx(1.8282, rel=2e-4)
    assert f"{role} stream alone" in run(capsys, *arguments)[1]


SEGMENTS = """noise_multiplier,sampling_probability,num_steps
1.0,0.01,600
2.0,0.02,100
1.0,0.01,400
"""


def test_epsilon_of_segments(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "segments.csv"
    path.write_text(SEGMENTS)
    arguments = ("epsilon", "--delta", "1e-5", "--segments")
    result = run_json(capsys, *arguments, str(path))
    assert [stream["num_steps"] for stream in result["streams"]] == [1000, 100]
    alone = run_json(capsys, "epsilon", "--sigma-shared", "1", "--q", "0.01", "--steps", "1000", "--delta", "1e-5")
    assert alone["epsilon"] < result["epsilon"] < alone["epsilon"] + 0.1
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(SEGMENTS.encode())))
    code, out, _ = run(capsys, *arguments, "-")
    assert code == 0
    assert "3 segments, 1100 releases" in out


def test_epsilon_with_a_referee(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        "epsilon",
        "--sigma-shared",
        "1.5",
        "--sigma-expert",
        "3",
        "--q",
        "0.1,1",
        "--steps",
        "20,2",
        "--referee",
    )
    result = run_json(capsys, *arguments, "--delta", "1e-5", "--interval", "0.001")
    assert result["referee"]["engine"] == "dp_accounting.pld.PLDAccountant"
    assert result["referee"]["interval"] == 0.001
    both, shared, expert = result["referee"]["checks"]
    assert both["epsilon"] == result["epsilon"]
    for check in (both, shared, expert):
        assert check["verdict"] in {"agree", "within"}
        assert check["referee_epsilon"] == pytest.approx(check["epsilon"], rel=5e-4)
        assert abs(check["relative_difference"]) < 5e-4
    code, out, _ = run(capsys, *arguments, "--delta", "1e-5")
    header, _, *rows = out.splitlines()
    assert code == 0
    assert header.split()[-3:] == ["referee", "relative", "difference"]
    assert re.split(r" {2,}", rows[0])[0] == "both streams together"
    assert "dp_accounting.pld.PLDAccountant, pessimistic, interval 0.0001" in out
    assert out.count("the engines agree") == 3


def filled_ledger(path: Path) -> Path:
    ledger = Ledger(path)
    for sigma in (1.0, 1.0, 0.9):
        ledger.append(stream="shared", noise_multiplier=sigma, sampling_probability=0.01, clip_norm=0.5)
        ledger.append(stream="expert", noise_multiplier=2.0, sampling_probability=0.02, clip_norm=1.0)
    return path


def test_ledger(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = filled_ledger(tmp_path / "ledger.jsonl")
    code, out, err = run(capsys, "ledger", str(path))
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[2:5]] == [
        ["shared", "2", "1", "0.01", "0.5"],
        ["expert", "3", "2", "0.02", "1"],
        ["shared", "1", "0.9", "0.01", "0.5"],
    ]
    assert "6 releases" in out
    assert "epsilon" not in out
    spent = Ledger.replay(path, adjacency="replace_one").epsilon(1e-6)
    arguments = ("ledger", str(path), "--delta", "1e-6", "--adjacency", "replace_one")
    result = run_json(capsys, *arguments)
    assert (result["epsilon"], result["delta"], result["adjacency"]) == (spent, 1e-6, "replace_one")
    assert (result["num_releases"], result["last_line_cut_short"], len(result["segments"])) == (6, False, 3)
    assert "epsilon (replace_one) at delta = 1e-06: " in run(capsys, *arguments)[1]


def test_a_torn_ledger_is_said_to_be_torn(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    path = filled_ledger(tmp_path / "ledger.jsonl")
    whole = Ledger.replay(path).epsilon(1e-5)
    path.write_bytes(path.read_bytes()[:-9])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    result = run_json(capsys, "ledger", "-", "--delta", "1e-5")
    assert (result["file"], result["last_line_cut_short"], result["num_releases"]) == ("standard input", True, 5)
    assert result["epsilon"] == whole  # what is left of the line tells which release it was
    assert "the last line was cut short" in run(capsys, "ledger", str(path))[1]


def test_an_empty_ledger_has_spent_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.jsonl")
    assert run_json(capsys, "ledger", str(tmp_path / "ledger.jsonl"), "--delta", "1e-5")["epsilon"] == 0


def test_a_damaged_ledger_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = filled_ledger(tmp_path / "ledger.jsonl")
    path.write_text(path.read_text().replace('"noise_multiplier": 0.9', '"noise_multiplier": 9.0'))
    code, out, err = run(capsys, "ledger", str(path), "--delta", "1e-5")
    assert (code, out) == (2, "")
    assert "line 7 is damaged" in err
    assert err.count("\n") == 1


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
    "epsilon --sigma-expert 1 --q 0.1 --steps 10 --delta 1e-31": "expected delta in [1e-30, 1)",
    "epsilon --sigma-expert 1 --q 0.1 --steps 10 --delta 2": "expected delta in [1e-30, 1)",
    "epsilon --sigma-expert 1 --q 0.1 --delta 1e-5": "expected --q and --steps, or --segments",
    "epsilon --segments nowhere.csv --q 1 --delta 1e-5": "expected --segments alone",
    "epsilon --segments nowhere.csv --delta 1e-5": "nowhere.csv",
    "epsilon --sigma-expert 1 --q 1 --steps 1 --delta 1e-5 --referee --interval 0": "expected interval in [1e-6, 1]",
    "ledger": "Missing argument 'FILE'",
    "ledger nowhere.jsonl": "nowhere.jsonl",
    "ledger pyproject.toml": "pyproject.toml: line 1 is damaged",
    "ledger nowhere.jsonl --delta 0": "expected delta in (0, 1)",
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
    for command in ("calibrate", "epsilon", "ledger", "routing", "select", "bias"):
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
    assert min(float(done.stdout) for done in started) < 0.5

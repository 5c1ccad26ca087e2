"""What is reported to tensorboard and the like: public values through transformers' callbacks, and nothing else."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from raptor_acct.ledger import Ledger
from raptor_train.config import RunConfig
from raptor_train.fit import fit
from raptor_train.reporting import NOT_PRIVATE, Reports, reporting_callbacks

from .run_tools import configured, tiny_settings

PUBLIC = {"cycle", "learning_rate", "epsilon", "public_owner_drift", "eval_public_nll", "eval_public_accuracy"}


class Recorder(TrainerCallback):
    """Keeps all that a callback can see."""

    def __init__(self, fails_at: str = "") -> None:
        self.events: list[str] = []
        self.logs: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any]] = []
        self._fails_at = fails_at

    def _keep(self, event: str, args: Any, state: Any, **kwargs: Any) -> None:
        self.events.append(event)
        self.seen.append({"settings": args.to_dict(), "step": state.global_step, "of": state.max_steps, **kwargs})
        if event == self._fails_at:
            raise ConnectionError("the service went away")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._keep("begin", args, state, **kwargs)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(logs)
        self._keep("log", args, state, **kwargs)
        control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._keep("end", args, state, **kwargs)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tiny_settings(tmp_path_factory.mktemp("tiny")) | {"layer": "first"}


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_public_values_are_reported_and_nothing_else(settings: dict[str, Any], tmp_path: Path) -> None:
    recorder = Recorder()
    fit(configured(settings), tmp_path / "run", callbacks=[recorder])
    assert recorder.events == ["begin", "log", "log", "log", "end"]  # its wish to stop is none of the plan
    assert all(set(logs) == PUBLIC for logs in recorder.logs)
    assert [seen["step"] for seen in recorder.seen] == [0, 1, 2, 3, 3]
    assert {seen["of"] for seen in recorder.seen} == {3}
    assert all(seen["model"] is None and set(seen) == {"settings", "step", "of", "model"} for seen in recorder.seen)
    assert recorder.seen[0]["settings"]["privacy.delta"] == 1e-3
    lines = [line for line in metrics(tmp_path / "run") if "seconds" in line]
    for name in ("epsilon", "public_owner_drift"):
        assert [logs[name] for logs in recorder.logs] == [line[name] for line in lines]
    assert recorder.logs[-1]["epsilon"] == Ledger.replay(tmp_path / "run" / "ledger.jsonl").epsilon(1e-3).upper
    assert {logs["learning_rate"] for logs in recorder.logs} == {0.01}
    assert all(0 < logs["eval_public_nll"] < 5 and 0 <= logs["eval_public_accuracy"] <= 1 for logs in recorder.logs)


def test_a_private_loss_is_reported_only_to_who_asks_by_a_name_that_says_so(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr("raptor_train.fit.reporting_callbacks", lambda names: [recorder] if names else [])
    config = configured(settings, method="head_only", report_to="tensorboard", report_not_private_loss=True)
    result = fit(config, tmp_path / "run")
    private = [line["private_loss"] for line in metrics(tmp_path / "run") if line.get("not_private")]
    assert [logs["NOT_PRIVATE_loss"] for logs in recorder.logs] == private
    assert len(private) == 3
    assert all(set(logs) == {*PUBLIC, "NOT_PRIVATE_loss"} - {"public_owner_drift"} for logs in recorder.logs)
    assert any("not_private" in words for words in result["privacy"]["not_covered"])
    with pytest.raises(ValueError, match="expected show_private_loss or report_to"):
        fit(configured(settings, report_to="tensorboard"), tmp_path / "other", show_private_loss=True)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="expected report_to to name a service"):
        RunConfig(report_not_private_loss=True)


def test_without_a_guarantee_all_that_depends_on_the_weights_is_marked(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    recorder = Recorder()
    fit(configured(settings, method="non_private_lora"), tmp_path / "run", callbacks=[recorder])
    marked = {NOT_PRIVATE + name for name in ("eval_public_nll", "eval_public_accuracy")}
    assert all(set(logs) == {"cycle", "learning_rate", *marked} for logs in recorder.logs)


def test_unknown_and_missing_services_are_refused_before_anything_is_spent(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"expected report_to .* got tensorbord is not supported.*wandb"):
        fit(configured(settings, report_to="tensorbord"), tmp_path / "run")
    missing = next(name for name in ("clearml", "swanlab", "dvclive") if find_spec(name) is None)
    with pytest.raises(ValueError, match=f"installed, got '{missing}'"):
        fit(configured(settings, report_to=[missing]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConnectionError):  # for example, nobody is logged in
        fit(configured(settings, method="head_only"), tmp_path / "run", callbacks=[Recorder(fails_at="begin")])
    assert Ledger.verify(tmp_path / "run" / "ledger.jsonl").num_releases == 0


def test_services_are_named_by_a_list_or_by_a_text_with_commas() -> None:
    wanted = ("tensorboard", "wandb")
    for given in (["tensorboard", "wandb"], wanted, "tensorboard, wandb"):
        assert RunConfig.from_dict({"report_to": given}).report_to == wanted
    for wrong in (3, "tensorboard,", [1], ""):
        with pytest.raises(ValueError, match="expected report_to to be names with commas between"):
            RunConfig.from_dict({"report_to": wrong})


def test_a_service_that_goes_away_stops_no_training(tmp_path: Path) -> None:
    lost, kept = Recorder(fails_at="log"), Recorder()
    reports = Reports([lost, kept], folder=tmp_path, settings={"a": {"b": 1}}, num_cycles=2, private=True)
    reports.begin(0)
    with pytest.warns(UserWarning, match="Recorder failed and gets no more values: the service went away"):
        reports.send(1, public={"cycle": 1}, of_weights={}, not_private={})
    reports.send(2, public={"cycle": 2}, of_weights={}, not_private={})
    reports.end()
    assert (lost.events, kept.events) == (["begin", "log"], ["begin", "log", "log", "end"])
    assert kept.seen[0]["settings"] == {"a.b": 1}


_WRITER = """
import json, pathlib
class SummaryWriter:
    def __init__(self, log_dir):
        self.path = pathlib.Path(log_dir)
        self.path.mkdir(parents=True)
    def add_text(self, name, text, step=None):
        (self.path / name).write_text(text)
    def add_scalar(self, name, value, step):
        with (self.path / "scalars").open("a") as file:
            file.write(json.dumps([name, value, step]) + "\\n")
    def flush(self): ...
    def close(self): (self.path / "closed").touch()
"""


@pytest.mark.skipif(find_spec("tensorboard") is not None, reason="the real one would be taken in place of the stand-in")
def test_transformers_own_tensorboard_callback_writes_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback is the library's; only the writer behind it, which need not be installed, is a stand-in."""
    (tmp_path / "packages" / "tensorboardX").mkdir(parents=True)
    (tmp_path / "packages" / "tensorboardX" / "__init__.py").write_text(_WRITER)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    (callback,) = reporting_callbacks(["tensorboard", "tensorboard"])
    reports = Reports([callback], folder=tmp_path / "run", settings={"layer": 1}, num_cycles=4, private=False)
    reports.begin(0)
    reports.send(3, public={"epsilon": 0.5}, of_weights={"eval_public_nll": 1.0}, not_private={"loss": 2.0})
    reports.end()
    (folder,) = (tmp_path / "run" / "runs").iterdir()
    scalars = [json.loads(line) for line in (folder / "scalars").read_text().splitlines()]
    names = ["train/epsilon", "train/NOT_PRIVATE_eval_public_nll", "train/NOT_PRIVATE_loss"]
    assert scalars == [[name, value, 3] for name, value in zip(names, [0.5, 1.0, 2.0], strict=True)]
    assert json.loads((folder / "args").read_text()) == {"layer": 1}
    assert (folder / "closed").exists()

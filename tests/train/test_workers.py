"""Runs side by side: results in order, errors passed on, and no worker outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from raptor_train.workers import run_jobs

PROGRAM = """
import sys
from functools import partial
from tests.train.test_workers import say_and_sleep
from raptor_train.workers import run_jobs

if __name__ == "__main__":
    run_jobs({str(i): partial(say_and_sleep, sys.argv[1]) for i in range(8)}, steps=1, workers=2, progress=False)
"""


def say_and_sleep(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)


def fail(text: str) -> None:
    raise ValueError(text)


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: object, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs_and_errors_are_raised(workers: int) -> None:
    jobs = {"b": partial(divmod, 7, 2), "a": partial(divmod, 9, 4)}
    assert list(run_jobs(jobs, steps=2, workers=workers, progress=False).items()) == [("b", (3, 1)), ("a", (2, 1))]
    with pytest.raises(ValueError, match="planted"):
        run_jobs({"x": partial(fail, "planted")}, steps=1, workers=workers, progress=False)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_no_worker_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    workers = tmp_path / "workers"
    workers.mkdir()
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    parent = subprocess.Popen([sys.executable, str(program), str(workers)], env=environment, cwd=root)
    try:
        assert until(lambda: len(list(workers.iterdir())) == 2)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert until(lambda: not any(running(int(path.name)) for path in workers.iterdir()), seconds=20)

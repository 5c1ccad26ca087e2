"""Two real processes that record runs together, one scenario after the other: starting them takes the most time."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from raptor_train.distributed import Group
from tests.train.processes import finish, start_ranks

from .mutants import MUTANTS
from .recording import Recording
from .reference import reference_of, take_reference
from .scenarios import SCENARIOS
from .system import System

WORLD = 2
PATIENCE = 120.0  # seconds


class Pair:
    """Use as a context: the processes end with the block."""

    def __enter__(self) -> Pair:
        pipes = [multiprocessing.Pipe() for _ in range(WORLD)]
        self._ends = [here for here, _ in pipes]
        self._knows: set[str] = set()
        self._processes = start_ranks(WORLD, _serve, [there for _, there in pipes], timeout=PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in self._ends:
            _send(end, None)
        codes = finish(self._processes)
        assert codes == [0] * WORLD or error is not None, f"ranks ended with {codes}"

    def system(self, family: str = "switch", *, mutant: str | None = None) -> System:
        """The trainer on both processes, with a bug or without."""
        return System(family, lambda scenario: self._record(mutant, family, scenario))

    def _record(self, mutant: str | None, family: str, scenario: str) -> Sequence[Recording]:
        with TemporaryDirectory() as folder:
            reference = None if family in self._knows else reference_of(family)
            self._knows.add(family)
            for end in self._ends:
                _send(end, (mutant, family, scenario, folder, reference))
            answers = [_answer(end) for end in self._ends]
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers


def _answer(end: Connection) -> Recording:
    if not end.poll(PATIENCE):
        raise TimeoutError(f"a rank did not answer in {PATIENCE} s")
    answer: Recording = _receive(end)
    return answer


def _send(end: Connection, what: object) -> None:
    end.send_bytes(pickle.dumps(what))  # send() would leave every tensor in shared memory, a file each


def _receive(end: Connection) -> Any:
    return pickle.loads(end.recv_bytes())


def _serve(group: Group, ends: list[Connection]) -> None:
    """Record what is asked for, on one rank, until there is nothing more to record."""
    end = ends[group.rank]
    while (job := _receive(end)) is not None:
        mutant, family, scenario, folder, reference = job
        if reference is not None:
            take_reference(family, reference)
        with MUTANTS[mutant].planted() if mutant else nullcontext():
            try:
                answer: object = SCENARIOS[scenario](family, Path(folder) / "run", group)
            except Exception as error:
                answer = error
        _send(end, answer)

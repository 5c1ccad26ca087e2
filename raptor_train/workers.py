"""Runs side by side: one process of one thread each, one progress bar for all."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import Synchronized
from threading import Thread
from typing import TypeVar

import torch
from tqdm import tqdm

Result = TypeVar("Result")

_ticks: Synchronized[int] | None = None  # of this worker process


def run_jobs(
    jobs: Mapping[str, Callable[[], Result]], *, steps: int, workers: int, progress: bool
) -> dict[str, Result]:
    """Run ``jobs`` in ``workers`` processes and return their results in the order of ``jobs``.

    Two processes of one thread each are faster than one of two threads on models this small, and do not slow to a
    crawl when the machine has other work.

    Args:
        jobs: Picklable functions without arguments; each calls :func:`tick` once a step.
        steps: Steps of all jobs together, for the bar.
        workers: Processes; with 1 the jobs run one after the other in this process, without a bar.
        progress: Show the bar.

    Raises:
        Exception: What a job raised; the jobs that have not started are then dropped.
    """
    if workers == 1:
        return {name: job() for name, job in jobs.items()}
    context = multiprocessing.get_context("spawn")
    ticks = context.Value("q", 0)
    with (
        ProcessPoolExecutor(workers, context, initializer=_start, initargs=(ticks,)) as pool,
        tqdm(total=steps, desc=f"training {len(jobs)} models", unit="step", disable=not progress) as bar,
    ):
        futures: dict[str, Future[Result]] = {name: pool.submit(job) for name, job in jobs.items()}
        pending = set(futures.values())
        while pending:
            done, pending = wait(pending, timeout=0.5)
            bar.update(ticks.value - bar.n)
            if any(future.exception() for future in done):
                pool.shutdown(wait=False, cancel_futures=True)
                break
        return {name: future.result() for name, future in futures.items()}


def tick() -> None:
    """Count one step of the job that runs in this process."""
    if _ticks is not None:
        with _ticks.get_lock():
            _ticks.value += 1


def _start(ticks: Synchronized[int]) -> None:
    global _ticks
    _ticks = ticks
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for its next job for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

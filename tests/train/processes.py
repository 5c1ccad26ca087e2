"""Real processes for tests. A server imports torch once and forks clean children, so that one starts in no time."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

import torch

from raptor_train.distributed import Group, torchrun_group

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, __name__.replace("processes", "test_trainer")])


def start(function: Callable[..., None], *args: object) -> ForkServerProcess:
    """Run ``function`` in a process of its own, one thread."""
    process = _context.Process(target=_quietly, args=(function, args))
    process.start()
    return process


def start_ranks(
    world: int, function: Callable[..., None], *args: object, timeout: float = 30
) -> list[ForkServerProcess]:
    """Start ``function(group, *args)`` on every rank of a group, as ``torchrun`` does."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    return [start(_as_rank, rank, world, port, timeout, function, args) for rank in range(world)]


def finish(processes: list[ForkServerProcess], seconds: float = 60) -> list[int | None]:
    """Wait, and return the exit codes; one that hangs is killed and has the code None."""
    codes = []
    for process in processes:
        process.join(seconds)
        codes.append(process.exitcode)
        process.kill()
        process.join()
        process.close()
    return codes


def _quietly(function: Callable[..., None], args: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    try:
        function(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _as_rank(
    rank: int, world: int, port: int, timeout: float, function: Callable[..., None], args: tuple[object, ...]
) -> None:
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test",
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }
    group: Group
    with torchrun_group(timeout_seconds=timeout) as group:
        function(group, *args)

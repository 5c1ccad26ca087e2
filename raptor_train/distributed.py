"""Several processes that train as one: each clips its share of one sample; there is one ledger and one noise.

Started by ``torchrun``, with gloo on CPUs and nccl on GPUs:

    with torchrun_group() as group:
        trainer = make_private(..., group=group)
        trainer.run()
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class RankFailed(RuntimeError):
    """Another process of the group raised an exception; its own output says which."""


class Group:
    """The processes that train one model together; by default this process alone.

    Every process ("rank") must call the same methods in the same order. Whatever can fail on one rank alone stands in
    a :meth:`together` block, so that no rank waits for one that has given up.

    Args:
        control: Channel between the CPUs of all ranks of torch's default process group; None for one process.

    Attributes:
        rank: Number of this process, from 0.
        world: Number of processes.
    """

    def __init__(self, control: dist.ProcessGroup | None = None):
        self._control = control
        self.rank = 0 if control is None else dist.get_rank()
        self.world = 1 if control is None else dist.get_world_size()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block of which no rank goes on unless all have finished it; no other method may be called inside.

        Raises:
            RankFailed: On the ranks whose block went well, if that of another one raised.
        """
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # the others may be gone: this rank's own error is the one to see
                self._failed(True)
            raise
        if failed := self._failed(False):
            raise RankFailed(f"stopped because rank {', '.join(map(str, failed))} failed; its own output says why")

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type, of the same shapes on all ranks, by their sums over the ranks."""
        if self._control is not None:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            dist.all_reduce(flat, op=dist.ReduceOp.SUM, group=self._channel(flat))
            _unflatten(flat, tensors)

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type, of the same shapes on all ranks, by those of rank 0, bit for bit."""
        if self._control is not None:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            dist.broadcast(flat, src=0, group=self._channel(flat))
            _unflatten(flat, tensors)

    def from_first(self, value: Any) -> Any:
        """Return rank 0's value, anything that JSON can hold, on every rank."""
        if self._control is None:
            return value
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        size = torch.tensor([len(data)])
        self.broadcast_([size])
        if self.rank:
            data = torch.empty(int(size), dtype=torch.uint8)
        self.broadcast_([data])
        return json.loads(bytes(data.tolist()))

    def check_same(self, what: str, digest: str) -> None:
        """Check that every rank has the same.

        Args:
            what: Name of it, for the message.
            digest: A hash of it.

        Raises:
            ValueError: On the ranks that differ from rank 0.
            RankFailed: On the others.
        """
        first = self.from_first(digest)
        with self.together():
            if digest != first:
                raise ValueError(f"expected the same {what} on every rank, got others on rank {self.rank} than on 0")

    def _failed(self, failed: bool) -> list[int]:
        """Tell the other ranks whether this one failed, and return those that did."""
        if self._control is None:
            return []
        flags = torch.zeros(self.world, dtype=torch.int64)
        flags[self.rank] = failed
        dist.all_reduce(flags, group=self._control)
        ranks: list[int] = flags.nonzero().flatten().tolist()
        return ranks

    def _channel(self, tensor: Tensor) -> dist.ProcessGroup | None:
        return self._control if tensor.device.type == "cpu" else None  # None: torch's default group


ALONE = Group()


@contextmanager
def torchrun_group(*, timeout_seconds: float = 1800) -> Iterator[Group]:
    """The group of the processes that ``torchrun`` started; this process alone without ``torchrun``.

    Args:
        timeout_seconds: How long a rank waits for another that neither answers nor dies, before it raises.
    """
    if not dist.is_torchelastic_launched():
        yield ALONE
        return
    timeout = timedelta(seconds=timeout_seconds)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timeout)
    try:
        yield Group(dist.new_group(backend="gloo", timeout=timeout))
    finally:
        dist.destroy_process_group()


def _unflatten(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))

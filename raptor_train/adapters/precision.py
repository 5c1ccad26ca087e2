"""Float64 without islands: model code casts norms, routers and rotary embeddings to float32 on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class InDouble(TorchFunctionMode):
    """Keeps float64 tensors in float64 where the code inside the block asks for float32.

    Rounding to float32 is a step function: two runs that differ by 1e-16 before it can differ by 1e-7 behind it, and
    a check that records are independent to 1e-12 would then report rounding as a coupling.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call ``func``, with float64 in place of float32 if its first argument is a float64 tensor."""
        kwargs = kwargs or {}
        asks = func is Tensor.float or any(a is torch.float32 for a in (*args, *kwargs.values()))
        if not (asks and args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64):
            return func(*args, **kwargs)
        if func is Tensor.float:
            return args[0]
        return func(*map(_widened, args), **{name: _widened(value) for name, value in kwargs.items()})


def _widened(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value

"""What may couple records, each of which can be switched off on a twin: the coupling then vanishes, or it is another.

Which parts a model has is read off its modules and configurations. Whether one of them couples records is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from raptor_train.adapters.base import AdaptedModel
from raptor_train.records import IGNORED, Records

_ROUTING = "expert-choice routing"

Off = Callable[[AdaptedModel], AbstractContextManager[object]]


@dataclass(frozen=True, eq=False)
class Suspect:
    """A part that may couple records.

    Attributes:
        name: What it is called.
        fix: What removes it for good.
        off: Switches it off inside a block.
        scale: What the losses of a batch are multiplied by meanwhile.
    """

    name: str
    fix: str
    off: Off | None = None
    scale: Callable[[Records], int] = lambda batch: 1


def suspects_of(adapted: AdaptedModel) -> list[Suspect]:
    """The parts of a model that may couple records, those that explain more than one kind of coupling last."""
    found = [
        Suspect(name, fix, partial(_all_set, pattern=pattern, value=value))
        for name, fix, pattern, value in _NUMBERS
        if any(number > 0 for _, _, number in _numbers(adapted, pattern))
    ]
    modules = list(adapted.model.modules())
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in modules):
        fix = "put a layer, group or RMS norm in the place of batch norm"
        found.append(Suspect("batch norm", fix, _without_batch_norm))
    if any(module.training for module in modules):
        found.append(Suspect("training mode", "model.eval()", _in_evaluation_mode))
    found.append(Suspect(_ROUTING, "route each token by its own scores alone", _routed_alone))
    return found


def find_causes(
    vanishes: Callable[[Sequence[Suspect]], bool], suspects: Sequence[Suspect], likely: Sequence[Suspect] = ()
) -> tuple[Suspect, ...]:
    """Find parts without which a coupling is gone, none of which can be left out.

    Args:
        vanishes: Whether the coupling is gone while these are switched off.
        suspects: What may be switched off together.
        likely: The causes of another coupling, tried first.

    Returns:
        The causes; empty if it is there without all of them too.
    """
    if likely and vanishes(likely):
        return tuple(likely)
    # Without the routers' switch first: it is the only one that can couple records, where a model hides its padding.
    plain = [one for one in suspects if one.name != _ROUTING]
    for group in (plain, suspects) if len(plain) < len(suspects) else (plain,):
        for mean in ((), *((one,) for one in MEAN_LOSSES)):
            causes = (*group, *mean)
            if causes and vanishes(causes):
                return _fewest(vanishes, causes)
    return ()


def _fewest(vanishes: Callable[[Sequence[Suspect]], bool], causes: tuple[Suspect, ...]) -> tuple[Suspect, ...]:
    """Switch parts on again, one after the other, where the coupling does not come back: these are no causes."""
    for suspect in reversed(causes):
        fewer = tuple(one for one in causes if one is not suspect)
        if fewer and suspect not in MEAN_LOSSES and vanishes(fewer):
            causes = fewer
    return causes


@contextmanager
def without(adapted: AdaptedModel, suspects: Sequence[Suspect]) -> Iterator[None]:
    """Switch parts off inside the block."""
    with ExitStack() as stack:
        for suspect in suspects:
            if suspect.off is not None:
                stack.enter_context(suspect.off(adapted))
        yield


# Name, fix, pattern of the names of numbers in modules and configurations, and the value that switches the part off.
_NUMBERS = (
    ("dropout", "model.eval()", re.compile("drop"), 0.0),
    ("router jitter", "model.eval()", re.compile("jitter"), 0.0),
    (
        "auxiliary loss",
        "leave it out: output_router_logits=False, or a coefficient of 0",
        re.compile(r"(aux|_z|balanc)\w*loss"),
        0.0,
    ),
    (
        "expert capacity",
        "pad on the right, count capacity within a record, or make it as large as the longest text",
        re.compile("capacity"),
        2.0**40,
    ),
)


def _numbers(adapted: AdaptedModel, pattern: re.Pattern[str]) -> Iterator[tuple[object, str, float]]:
    """Numbers in the model's modules and configurations, and in the adapter, whose names match."""
    modules = list(adapted.model.modules())
    configs = {id(c): c for module in modules if (c := vars(module).get("config")) is not None}
    for owner in chain([adapted], modules, configs.values()):
        for name, value in list(vars(owner).items()):
            is_rate = name == "p" and isinstance(owner, nn.modules.dropout._DropoutNd)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and pattern.search("dropout" if is_rate else name):
                yield owner, name, value


@contextmanager
def _all_set(adapted: AdaptedModel, pattern: re.Pattern[str], value: float) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, number in list(_numbers(adapted, pattern)):
            stack.enter_context(_patched(owner, name, type(number)(value)))
        yield


@contextmanager
def _without_batch_norm(adapted: AdaptedModel) -> Iterator[None]:
    with ExitStack() as stack:
        for module in adapted.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                stack.enter_context(_patched(module, "forward", lambda x: x))
        yield


@contextmanager
def _in_evaluation_mode(adapted: AdaptedModel) -> Iterator[None]:
    with ExitStack() as stack:
        for module in adapted.model.modules():
            stack.enter_context(_patched(module, "training", False))
        yield


@contextmanager
def _routed_alone(adapted: AdaptedModel) -> Iterator[None]:
    """Let every router see the real tokens of one record at a time, also where owners are found."""
    batch: list[Records] = []  # what is in the model now
    losses, gates = adapted.losses, adapted.gates

    def losses_of(records: Records) -> Tensor:
        batch[:] = [records]
        return losses(records)

    def gates_of(records: Records) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for i, real in enumerate(records.attention_mask == 1):
            batch[:] = [_real_tokens(records, i)]
            for layer, part in gates(batch[0]).items():
                whole = found.setdefault(layer, part.new_zeros(*records.input_ids.shape, part.shape[-1]))
                whole[i, real] = part[0]
        return found

    with ExitStack() as stack:
        stack.enter_context(_patched(adapted, "losses", losses_of))
        stack.enter_context(_patched(adapted, "gates", gates_of))
        for path, module in adapted.model.named_modules():
            if path.rpartition(".")[2] in ("router", "gate"):  # their names in all families
                forward = partial(_record_by_record, module.forward, batch)
                stack.enter_context(_patched(module, "forward", forward))
        yield


def _real_tokens(records: Records, i: int) -> Records:
    """Record ``i`` without its padding, on whichever side that is."""
    one, real = records.take(torch.tensor([i])), records.attention_mask[i] == 1
    fields = ("input_ids", "attention_mask", *(("labels",) if records.token_labels else ()))
    return replace(one, **{name: getattr(one, name)[:, real] for name in fields})


def _record_by_record(route: Callable[[Tensor], Any], batch: Sequence[Records], hidden: Tensor) -> Any:
    """What ``route`` returns for each record's real tokens on their own; zeros at padding."""
    real = batch[0].attention_mask == 1  # [records, tokens]
    rows, by_record = hidden.reshape(*real.shape, -1), hidden.dim() == 3
    whole: list[Tensor] = []
    for i, mask in enumerate(real):
        parts = route(rows[i : i + 1, mask] if by_record else rows[i, mask])
        whole = whole or [part.new_zeros(*real.shape, part.shape[-1]) for part in parts]
        for total, part in zip(whole, parts, strict=True):
            total[i, mask] = part.reshape(-1, part.shape[-1])
    return tuple(total if parts[0].dim() == 3 else total.flatten(0, 1) for total in whole)


def _num_predicted(records: Records) -> int:
    """Tokens that a language model predicts in all records together; real tokens, for a classifier."""
    if records.token_labels:
        return int((records.labels[:, 1:] != IGNORED).sum())
    return int(records.attention_mask.sum())


# The loss multiplied by what a mean over the batch divides by. Only one of them can be right, so they are kept apart.
MEAN_LOSSES = tuple(
    Suspect("batch-mean loss", "return one loss for each record from losses(), not their mean", scale=scale)
    for scale in (len, _num_predicted)
)


@contextmanager
def _patched(owner: object, name: str, value: object) -> Iterator[None]:
    """Give an object an attribute of its own inside the block."""
    own = vars(owner)
    before = own.get(name, _patched)  # itself: no value
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _patched:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

"""What must hold before the first step, checked before anything is spent (theory.md §7)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from raptor_train.adapters.base import AdaptedModel
from raptor_train.clipping import CLIP_SLACK
from raptor_train.records import IGNORED, Records
from raptor_train.roles import Role, check_roles


def check_before_training(adapted: AdaptedModel, roles: Sequence[Role], optimizer: torch.optim.Optimizer) -> None:
    """Check the model's mode, its roles and the optimizer's parameters.

    Raises:
        ValueError: Naming what is wrong and what to change.
    """
    check_mode(adapted)
    check_precision(adapted)
    check_roles(adapted.model, roles)
    kinds = {p.dtype for role in roles for p in role.parameters}
    if len(kinds) != 1 or not kinds <= set(CLIP_SLACK):
        raise ValueError(
            f"expected trainable tensors all in float32 or all in float64, got {', '.join(map(str, kinds))}: "
            "call model.float() before adapting; norms and sums need that precision"
        )
    check_optimizer(roles, optimizer)


def check_mode(adapted: AdaptedModel) -> None:
    """Check that the model is in evaluation mode."""
    if any(module.training for module in adapted.model.modules()):
        raise ValueError("the model is in training mode: dropout and router jitter change owners; call model.eval()")


def check_precision(adapted: AdaptedModel) -> None:
    """Check that the forward pass keeps records apart to float32.

    In lower precision a record's own result depends on its batch, through the kernel that the batch's shape selects:
    the clip norm would still bound each gradient, but no longer what a record changes in the others'.
    """
    kinds = {p.dtype for p in adapted.model.parameters()} - set(CLIP_SLACK)
    if kinds:
        raise ValueError(
            f"expected a model in float32 or float64, got {', '.join(map(str, kinds))}: call model.float() before "
            "adapting; in lower precision a record's gradient depends on its batch"
        )
    device = next(adapted.model.parameters()).device.type
    if torch.is_autocast_enabled(device):
        raise ValueError(
            "autocast is on: train outside of it; in lower precision a record's gradient depends on its batch"
        )
    if torch.get_float32_matmul_precision() != "highest":
        raise ValueError(
            "expected torch.set_float32_matmul_precision('highest'), got "
            f"'{torch.get_float32_matmul_precision()}': a record's gradient would depend on its batch"
        )


def check_optimizer(roles: Sequence[Role], optimizer: torch.optim.Optimizer) -> None:
    """Check that the optimizer holds exactly the roles' parameters and can step without a closure."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS evaluates the loss several times a step, which is not private; use Adam, AdamW or SGD")
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trained = {id(p) for role in roles for p in role.parameters}
    if held != trained:
        raise ValueError(
            "the optimizer's parameters are not the model's trainable ones "
            f"({len(held - trained)} foreign, {len(trained - held)} missing): build it after adapting or moving the "
            "model, from role.parameters"
        )


def check_records(adapted: AdaptedModel, records: Records, *, name: str) -> None:
    """Check that there are records, padded on the right, with tokens and labels that the model has."""
    if not isinstance(records, Records):
        raise ValueError(
            f"expected {name} as raptor_train.Records, got {type(records).__name__}: the trainer draws Poisson batches "
            "itself; a loader's shuffled batches of fixed size would not have the accounted privacy"
        )
    if not len(records):
        raise ValueError(f"expected at least one record in {name}, got none")
    mask = records.attention_mask.long()
    if not bool(((mask == 0) | (mask == 1)).all()) or bool((mask.diff(dim=1) > 0).any()):
        raise ValueError(f"expected masks of 1s then 0s in {name}: pad on the right (left padding changes the routing)")
    if not bool(mask[:, 0].all()):
        raise ValueError(f"some of the {name} have no token; drop them")
    predicted = records.labels[records.labels != IGNORED] if records.token_labels else records.labels
    for field, tensor, size in (
        ("labels", predicted, adapted.num_labels),
        ("input_ids", records.input_ids, adapted.vocabulary_size),
    ):
        if tensor.dtype != torch.int64:
            raise ValueError(f"expected {field} of {name} as int64, got {tensor.dtype}: call .long()")
        if bool(((tensor < 0) | (tensor >= size)).any()):
            raise ValueError(f"expected {field} of {name} in 0..{size - 1}, got others")

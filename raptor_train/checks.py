"""What must hold before the first step, checked before anything is spent (theory.md §7)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from raptor_train.adapters.base import AdaptedModel
from raptor_train.records import Records
from raptor_train.roles import Role, check_roles


def check_before_training(
    adapted: AdaptedModel, roles: Sequence[Role], optimizer: torch.optim.Optimizer, records: Records
) -> None:
    """Check the model's mode and roles, the optimizer's parameters and the records.

    Raises:
        ValueError: Naming what is wrong and what to change.
    """
    if adapted.model.training:
        raise ValueError("the model is in training mode: dropout and router jitter change owners; call model.eval()")
    check_roles(adapted.model, roles)
    check_optimizer(roles, optimizer)
    check_records(adapted, records)


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


def check_records(adapted: AdaptedModel, records: Records) -> None:
    """Check that there are records, padded on the right, with labels the head has."""
    if not len(records):
        raise ValueError("expected at least one private record, got none")
    mask = records.attention_mask
    if not bool(((mask == 0) | (mask == 1)).all()) or bool((mask.diff(dim=1) > 0).any()):
        raise ValueError(
            "expected an attention mask of 1s then 0s: pad on the right (left padding changes the routing)"
        )
    if not bool(mask[:, 0].all()):
        raise ValueError(f"{int((mask[:, 0] == 0).sum())} records have no token; drop them")
    low, high = int(records.labels.min()), int(records.labels.max())
    if low < 0 or high >= adapted.num_labels:
        raise ValueError(f"expected labels in 0..{adapted.num_labels - 1}, got labels from {low} to {high}")

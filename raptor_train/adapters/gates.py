"""Gate weights of each decoder family, computed by our own code from what its router reads.

Every rule takes the router's input [rows, hidden] and the router itself, and returns the gates [rows, experts]: the
weight with which an expert's output counts, 0 for every expert that is not activated. The tuples which the routers
return changed their meaning between releases of transformers; their weights and settings did not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

GateRule = Callable[[Tensor, Any], Tensor]


def softmax_top_k(hidden: Tensor, router: Any) -> Tensor:
    """OLMoE, Qwen2-MoE and Qwen3-MoE: softmax, then top-k, normalised where the configuration says so."""
    logits = nn.functional.linear(hidden, router.weight)
    top = logits.softmax(-1, dtype=torch.float32).topk(router.top_k, dim=-1)
    weights = _normalised(top.values) if router.norm_topk_prob else top.values
    return _spread(weights.to(logits.dtype), top.indices, router)


def normalised_top_k(hidden: Tensor, router: Any) -> Tensor:
    """Mixtral: softmax, then top-k, always normalised."""
    logits = nn.functional.linear(hidden, router.weight)
    top = logits.float().softmax(-1).topk(router.top_k, dim=-1)
    return _spread(_normalised(top.values), top.indices, router)


def deepseek_v2(hidden: Tensor, router: Any) -> Tensor:
    """DeepSeek-V2: softmax, within the best groups if the configuration says so, then top-k, scaled."""
    scores = nn.functional.linear(hidden.float(), router.weight.float()).softmax(-1)
    if router.topk_method == "group_limited_greedy":
        best = _by_group(scores, router).amax(-1)
        scores = scores.masked_fill(~_in_groups(best, router), 0.0)
    top = scores.topk(router.top_k, dim=-1)
    return _spread(top.values * router.routed_scaling_factor, top.indices, router)


def deepseek_v3(hidden: Tensor, router: Any) -> Tensor:
    """DeepSeek-V3: sigmoid; a bias counts in the choice of groups and experts, but not in the weights; scaled."""
    scores = nn.functional.linear(hidden.float(), router.weight.float()).sigmoid()
    preference = scores + router.e_score_correction_bias
    best = _by_group(preference, router).topk(2, dim=-1).values.sum(-1)
    preference = preference.masked_fill(~_in_groups(best, router), float("-inf"))
    chosen = preference.topk(router.top_k, dim=-1).indices
    weights = scores.gather(-1, chosen)
    if router.norm_topk_prob:
        weights = _normalised(weights, 1e-20)
    return _spread(weights * router.routed_scaling_factor, chosen, router)


def _normalised(weights: Tensor, extra: float = 0.0) -> Tensor:
    return weights / (weights.sum(-1, keepdim=True) + extra)


def _spread(weights: Tensor, experts: Tensor, router: Any) -> Tensor:
    """Bring the weights [rows, k] of the activated experts into [rows, experts]."""
    return weights.new_zeros(len(weights), router.num_experts).scatter(-1, experts, weights)


def _by_group(scores: Tensor, router: Any) -> Tensor:
    return scores.reshape(len(scores), router.num_group, -1)  # [rows, groups, experts of a group]


def _in_groups(group_scores: Tensor, router: Any) -> Tensor:
    """Whether an expert lies in one of its token's best groups, [rows, experts]."""
    best = group_scores.topk(router.topk_group, dim=-1).indices
    chosen = torch.zeros_like(group_scores, dtype=torch.bool).scatter(-1, best, True)
    return chosen.repeat_interleave(router.num_experts // router.num_group, dim=-1)

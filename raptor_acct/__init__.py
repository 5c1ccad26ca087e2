"""Accounting, theory and diagnostics of RAPTOR: differentially private fine-tuning of Mixture-of-Experts models."""

from typing import TYPE_CHECKING, Any

from raptor_acct import audit
from raptor_acct._version import __version__
from raptor_acct.adjacency import Adjacency
from raptor_acct.bias import BiasBound, bias_bound
from raptor_acct.bound import Bound
from raptor_acct.budget import optimal_rho
from raptor_acct.calibration import (
    Calibration,
    Spent,
    calibrate_sigma,
    calibrate_sigmas,
    default_delta,
    hand_back_slack,
    privacy_spent,
)
from raptor_acct.composition import parallel_across_experts, sequential_across_streams
from raptor_acct.confidence import RoutingConfidence
from raptor_acct.denominators import public_denominators
from raptor_acct.diagnostics import ExpertSNR, expert_snr, role_mismatch, sensitivity_lambda
from raptor_acct.guarantee import Guarantee
from raptor_acct.ledger import Ledger, LedgerDamaged
from raptor_acct.limits import calibrate_sigma_to_tpr, max_sampling_probability, max_steps
from raptor_acct.mechanisms import IndependentStreams, Mechanism, RolePlan, SubsampledGaussian, same_batch
from raptor_acct.mse import MeanSquaredError, mse
from raptor_acct.routing import RoutingStats, stats_by_layer
from raptor_acct.selection import LayerSelection, select_layer
from raptor_acct.shift import ShiftBound, shift_bound
from raptor_acct.stability import (
    EntropyCurve,
    SelectionStability,
    entropy_curve,
    smallest_stable_sample,
    smallest_stable_sample_of_counts,
)
from raptor_acct.step_accountant import StepAccountant

if TYPE_CHECKING:
    from raptor_acct.event_accountant import EventAccountant
else:  # hidden from type checkers, which would take every other name for an attribute too

    def __getattr__(name: str) -> Any:
        """Import ``EventAccountant`` when it is first asked for: it needs dp_accounting, which takes seconds."""
        if name == "EventAccountant":
            from raptor_acct.event_accountant import EventAccountant

            return EventAccountant
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Adjacency",
    "BiasBound",
    "Bound",
    "Calibration",
    "EntropyCurve",
    "EventAccountant",
    "ExpertSNR",
    "Guarantee",
    "IndependentStreams",
    "LayerSelection",
    "Ledger",
    "LedgerDamaged",
    "MeanSquaredError",
    "Mechanism",
    "RolePlan",
    "RoutingConfidence",
    "RoutingStats",
    "SelectionStability",
    "ShiftBound",
    "Spent",
    "StepAccountant",
    "SubsampledGaussian",
    "__version__",
    "audit",
    "bias_bound",
    "calibrate_sigma",
    "calibrate_sigma_to_tpr",
    "calibrate_sigmas",
    "default_delta",
    "entropy_curve",
    "expert_snr",
    "hand_back_slack",
    "max_sampling_probability",
    "max_steps",
    "mse",
    "optimal_rho",
    "parallel_across_experts",
    "privacy_spent",
    "public_denominators",
    "role_mismatch",
    "same_batch",
    "select_layer",
    "sensitivity_lambda",
    "sequential_across_streams",
    "shift_bound",
    "smallest_stable_sample",
    "smallest_stable_sample_of_counts",
    "stats_by_layer",
]

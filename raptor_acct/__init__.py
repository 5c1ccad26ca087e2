"""Accounting, theory and diagnostics of RAPTOR: differentially private fine-tuning of Mixture-of-Experts models."""

from typing import TYPE_CHECKING, Any

from raptor_acct._version import __version__
from raptor_acct.adjacency import Adjacency
from raptor_acct.bound import Bound
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
from raptor_acct.denominators import BiasBound, bias_bound
from raptor_acct.guarantee import Guarantee
from raptor_acct.ledger import Ledger, LedgerDamaged
from raptor_acct.limits import calibrate_sigma_to_tpr, max_sampling_probability, max_steps
from raptor_acct.mechanisms import IndependentStreams, Mechanism, RolePlan, SubsampledGaussian
from raptor_acct.routing import RoutingStats
from raptor_acct.selection import LayerSelection, select_layer
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
    "EventAccountant",
    "Guarantee",
    "IndependentStreams",
    "LayerSelection",
    "Ledger",
    "LedgerDamaged",
    "Mechanism",
    "RolePlan",
    "RoutingStats",
    "Spent",
    "StepAccountant",
    "SubsampledGaussian",
    "__version__",
    "bias_bound",
    "calibrate_sigma",
    "calibrate_sigma_to_tpr",
    "calibrate_sigmas",
    "default_delta",
    "hand_back_slack",
    "max_sampling_probability",
    "max_steps",
    "parallel_across_experts",
    "privacy_spent",
    "select_layer",
    "sequential_across_streams",
]

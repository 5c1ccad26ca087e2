"""Accounting, theory and diagnostics of RAPTOR: differentially private fine-tuning of Mixture-of-Experts models."""

from raptor_acct._version import __version__
from raptor_acct.adjacency import Adjacency
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
from raptor_acct.mechanisms import IndependentStreams, Mechanism, RolePlan, SubsampledGaussian
from raptor_acct.routing import RoutingStats
from raptor_acct.selection import LayerSelection, select_layer

__all__ = [
    "Adjacency",
    "BiasBound",
    "Calibration",
    "Guarantee",
    "IndependentStreams",
    "LayerSelection",
    "Ledger",
    "LedgerDamaged",
    "Mechanism",
    "RolePlan",
    "RoutingStats",
    "Spent",
    "SubsampledGaussian",
    "__version__",
    "bias_bound",
    "calibrate_sigma",
    "calibrate_sigmas",
    "default_delta",
    "hand_back_slack",
    "parallel_across_experts",
    "privacy_spent",
    "select_layer",
    "sequential_across_streams",
]

"""Attacks on a trained model and audits of its privacy: what was measured, beside what is possible at all.

Numpy in, numpy out. Everything here is as private as the records it is made from.

>>> from raptor_acct import SubsampledGaussian
>>> from raptor_acct.audit import roc, tpr_ceiling
>>> scores, members = [2.1, 1.9, 0.4, 1.2, 0.3, -0.5], [1, 1, 1, 0, 0, 0]
>>> point = roc(scores, members).tpr_at_fpr(0.1)
>>> plan = SubsampledGaussian(num_steps=1000, sampling_probability=0.01, noise_multiplier=1.0).guarantee()
>>> round(point.tpr, 3), [round(end, 3) for end in point.tpr_interval], round(tpr_ceiling(plan, 0.1), 3)
(0.667, [0.094, 0.992], 0.194)
"""

from raptor_acct.audit.attacks import confidence_logits, loss_attack
from raptor_acct.audit.binomial import clopper_pearson
from raptor_acct.audit.canaries import canary_lower_bound
from raptor_acct.audit.ceiling import tpr_ceiling
from raptor_acct.audit.leakage import Leakage
from raptor_acct.audit.lira import lira
from raptor_acct.audit.one_run import one_run_epsilon, one_run_mu, one_run_p_value, one_run_refutes
from raptor_acct.audit.roc import OperatingPoint, Roc, roc
from raptor_acct.audit.trials import trials_lower_bound

__all__ = [
    "Leakage",
    "OperatingPoint",
    "Roc",
    "canary_lower_bound",
    "clopper_pearson",
    "confidence_logits",
    "lira",
    "loss_attack",
    "one_run_epsilon",
    "one_run_mu",
    "one_run_p_value",
    "one_run_refutes",
    "roc",
    "tpr_ceiling",
    "trials_lower_bound",
]

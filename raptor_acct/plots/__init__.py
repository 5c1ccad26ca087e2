"""Pictures of the theory, each with the numbers it shows; drawing needs matplotlib, imported only when a plot is made.

>>> from raptor_acct.plots import optimal_split
>>> plot = optimal_split([1.0, 8.0])
>>> [round(share, 3) for share in plot.numbers["basic"]]
[0.5, 0.667]
"""

from raptor_acct.plots._canvas import Plot
from raptor_acct.plots.attack_roc import attack_roc
from raptor_acct.plots.entropy_cv import RoutingPoint, entropy_cv, points_of
from raptor_acct.plots.error import denominator_errors
from raptor_acct.plots.growth import entropy_growth
from raptor_acct.plots.roc import Attack, roc_ceilings
from raptor_acct.plots.sigmas import noise_against_rho
from raptor_acct.plots.split import optimal_split

__all__ = [
    "Attack",
    "Plot",
    "RoutingPoint",
    "attack_roc",
    "denominator_errors",
    "entropy_cv",
    "entropy_growth",
    "noise_against_rho",
    "optimal_split",
    "points_of",
    "roc_ceilings",
]

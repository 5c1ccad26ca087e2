"""The tools that accounting.py compares, each behind the same two functions, with the options it is run with.

`calibrate(eps, delta, q, steps)` returns a noise multiplier, `epsilon(streams, delta, about)` an upper bound on epsilon
of independent streams, each `(noise_multiplier, sampling_probability, steps)`; `about` is the size of the answer, for
tools whose tolerance is absolute. All account for Poisson sampling and for adding or removing a record. Imports are
inside the functions, so that a tool that is not installed is known only when it is called.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

Stream = tuple[float, float, int]
Streams = Sequence[Stream]

RISKCAL_RANGE = (0.05, 100.0)  # its own default for a target (eps, delta)
# How far above the least noise PLD may be, relatively, and the intervals tried, in deviations of one step's loss.
MATCHED = {"pld-1e-4": (1e-4, (0.03, 0.01)), "pld-1e-6": (1e-6, (0.003, 0.001))}
_MATCHED_TOL = 1e-7  # of sigma
_PRV_MOST_NOISE = 1e7


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool with its options.

    Attributes:
        package: Its name in the package index.
        options: What is called, with which options, for the record.
        calibrate: (eps, delta, q, steps) to a noise multiplier.
        epsilon: (streams, delta, about) to an upper bound on epsilon.
    """

    package: str
    options: str
    calibrate: Callable[[float, float, float, int], float]
    epsilon: Callable[[Streams, float, float], float]


def raptor_calibrate(eps: float, delta: float, q: float, steps: int) -> float:
    """RAPTOR's own search."""
    from raptor_acct import calibrate_sigma

    return calibrate_sigma(eps, delta, q, steps)


def raptor_calibrate_joint(eps: float, delta: float, rho: float, q: float, steps: int) -> float:
    """The noise of the shared stream of a joint plan that keeps the ratio of the basic split."""
    from raptor_acct import calibrate_sigmas

    return calibrate_sigmas(eps, delta, rho, q, steps, composition="joint", keep="ratio").sigma_shared


def raptor_epsilon(streams: Streams, delta: float, about: float = 0.0) -> float:
    """Epsilon of the composition; where the engine certifies a bracket, the answer carries `lower` and `upper`."""
    from raptor_acct import SubsampledGaussian, sequential_across_streams

    parts = [SubsampledGaussian(num_steps=t, sampling_probability=q, noise_multiplier=s) for s, q, t in streams]
    return sequential_across_streams(parts).guarantee().epsilon(delta)


def _event(streams: Streams) -> object:
    from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    events = [SelfComposedDpEvent(PoissonSampledDpEvent(q, GaussianDpEvent(s)), t) for s, q, t in streams]
    return events[0] if len(events) == 1 else ComposedDpEvent(events)


def _pld_accountant(interval: float) -> object:
    from dp_accounting.pld import PLDAccountant

    return PLDAccountant(value_discretization_interval=interval)


def _rdp_accountant() -> object:
    from dp_accounting.rdp import RdpAccountant

    return RdpAccountant()


def dp_accounting_calibrate(
    eps: float, delta: float, q: float, steps: int, *, accountant: Callable[[], object], **options: object
) -> float:
    """Google's search, over any of its accountants."""
    from dp_accounting import calibrate_dp_mechanism

    return calibrate_dp_mechanism(accountant, lambda sigma: _event([(sigma, q, steps)]), eps, delta, **options)


def dp_accounting_epsilon(
    streams: Streams, delta: float, about: float = 0.0, *, accountant: Callable[[], object]
) -> float:
    """One evaluation by any of its accountants."""
    return accountant().compose(_event(streams)).get_epsilon(delta)


def pld_matched(interval: float, sigma: float = 1.0) -> Tool:
    """Google's PLD at a chosen interval; the search starts from a bracket around the answer, which helps it."""
    from dp_accounting import ExplicitBracketInterval

    accountant = partial(_pld_accountant, interval)
    bracket = ExplicitBracketInterval(sigma / 2, 2 * sigma)
    tol = _MATCHED_TOL * sigma
    return Tool(
        package="dp-accounting",
        options=f"value_discretization_interval={interval:g}",
        calibrate=partial(dp_accounting_calibrate, accountant=accountant, bracket_interval=bracket, tol=tol),
        epsilon=partial(dp_accounting_epsilon, accountant=accountant),
    )


def opacus_calibrate(eps: float, delta: float, q: float, steps: int, *, accountant: str, tight: bool = False) -> float:
    """Opacus' search, as shipped or with tolerances that follow the target."""
    from opacus.accountants.utils import get_noise_multiplier

    options = {"epsilon_tolerance": 1e-4 * eps, "eps_error": 1e-3 * eps} if tight else {}
    return get_noise_multiplier(
        target_epsilon=eps, target_delta=delta, sample_rate=q, steps=steps, accountant=accountant, **options
    )


def opacus_epsilon(streams: Streams, delta: float, about: float, *, accountant: str, tight: bool = False) -> float:
    """Epsilon of a history of steps."""
    from opacus.accountants import create_accountant

    tool = create_accountant(mechanism=accountant)
    tool.history = list(streams)
    return tool.get_epsilon(delta=delta, **({"eps_error": 1e-3 * about} if tight else {}))


def prv_calibrate(eps: float, delta: float, q: float, steps: int) -> float:
    """The search that prv-accountant ships."""
    from prv_accountant.dpsgd import find_noise_multiplier

    return find_noise_multiplier(sampling_probability=q, num_steps=steps, target_epsilon=eps, target_delta=delta)


def prv_calibrate_tight(eps: float, delta: float, q: float, steps: int) -> float:
    """Brent's method on its upper bound, with an error that follows the target; ends on the safe side."""
    from scipy.optimize import brentq

    def excess(sigma: float) -> float:
        try:
            return min(prv_epsilon([(sigma, q, steps)], delta, eps, tight=True) / eps - 1, 1e3)
        except (OverflowError, RuntimeError):  # as its own search does where the noise is far too small
            return 1e3

    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > _PRV_MOST_NOISE:
            raise RuntimeError(f"no noise below {_PRV_MOST_NOISE:g} meets the target")
    low = high / 2
    while excess(low) <= 0:
        high, low = low, low / 2
    sigma = brentq(excess, low, high, xtol=1e-6 * low, rtol=1e-6)
    while excess(sigma) > 0:
        sigma *= 1 + 1e-6
    return sigma


def prv_epsilon(streams: Streams, delta: float, about: float, *, tight: bool = False) -> float:
    """The upper end of its bracket."""
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    prvs = [PoissonSubsampledGaussianMechanism(noise_multiplier=s, sampling_probability=q) for s, q, _ in streams]
    steps = [t for _, _, t in streams]
    error = 0.01 * about if tight else 0.05
    tool = PRVAccountant(prvs=prvs, max_self_compositions=steps, eps_error=error, delta_error=delta / 1000)
    return tool.compute_epsilon(delta, steps)[2]


def riskcal_calibrate(eps: float, delta: float, q: float, steps: int) -> float:
    """Its calibration for DP-SGD to a target (eps, delta)."""
    from riskcal import calibration

    low, high = RISKCAL_RANGE
    return calibration.calibrate_parameter(
        calibration.create_dpsgd_epsilon_evaluator(q, steps, delta),
        calibration.CalibrationTarget(kind="epsilon_delta", epsilon=eps, delta=delta),
        calibration.CalibrationConfig(increasing=False, param_min=low, param_max=high),
    ).parameter_value


def riskcal_epsilon(streams: Streams, delta: float, about: float = 0.0) -> float:
    """Epsilon by its accountant, which connects the dots."""
    from riskcal.accountants import CTDAccountant

    tool = CTDAccountant()
    tool.history = list(streams)
    return tool.get_epsilon(delta=delta)


def _opacus(accountant: str, tight: bool) -> Tool:
    tolerance = "1e-4 eps" if tight else 0.01
    error = "orders: DEFAULT_ALPHAS" if accountant == "rdp" else f"eps_error={'1e-3 eps' if tight else 0.01}"
    return Tool(
        package="opacus",
        options=f"get_noise_multiplier(accountant={accountant!r}, epsilon_tolerance={tolerance}, {error}); "
        f"{accountant.upper()}Accountant.get_epsilon({error})" + ("" if tight else "; all defaults"),
        calibrate=partial(opacus_calibrate, accountant=accountant, tight=tight),
        epsilon=partial(opacus_epsilon, accountant=accountant, tight=tight),
    )


def _dp_accounting(accountant: Callable[[], object], options: str) -> Tool:
    return Tool(
        package="dp-accounting",
        options=options,
        calibrate=partial(dp_accounting_calibrate, accountant=accountant),
        epsilon=partial(dp_accounting_epsilon, accountant=accountant),
    )


def _matched_options(name: str) -> str:
    wanted, ladder = MATCHED[name]
    return (
        f"as pld, with the first interval of {ladder} standard deviations of one step's loss whose noise is within "
        f"{wanted:g} of the least; tol={_MATCHED_TOL:g} sigma, bracket (sigma/2, 2 sigma) around the known answer, "
        "both in its favour. Time is that of the interval chosen, without finding it; two streams get the first one"
    )


TOOLS = {
    "raptor": Tool(
        package="raptor-moe-dp",
        options="calibrate_sigma, calibrate_sigmas(composition='joint', keep='ratio'), guarantee().epsilon; no options",
        calibrate=raptor_calibrate,
        epsilon=raptor_epsilon,
    ),
    "pld": _dp_accounting(
        partial(_pld_accountant, 1e-4),
        "calibrate_dp_mechanism (tol=1e-6, default bracket) and get_epsilon with PLDAccountant: "
        "value_discretization_interval=1e-4; all defaults",
    ),
    **{name: _dp_accounting(partial(_pld_accountant, 1e-4), _matched_options(name)) for name in MATCHED},
    "rdp": _dp_accounting(_rdp_accountant, "calibrate_dp_mechanism and get_epsilon with RdpAccountant; all defaults"),
    "opacus-prv": _opacus("prv", tight=False),
    "opacus-prv-tight": _opacus("prv", tight=True),
    "opacus-rdp": _opacus("rdp", tight=False),
    "opacus-rdp-tight": _opacus("rdp", tight=True),
    "prv": Tool(
        package="prv-accountant",
        options="dpsgd.find_noise_multiplier with its defaults (eps_error=0.1, mu_max=100); upper bound of "
        "PRVAccountant.compute_epsilon, eps_error=0.05 (what that search uses), delta_error=delta/1000",
        calibrate=prv_calibrate,
        epsilon=prv_epsilon,
    ),
    "prv-tight": Tool(
        package="prv-accountant",
        options="brentq on the noise (relative tolerance 1e-6) with the upper bound of PRVAccountant.compute_epsilon, "
        "eps_error=0.01 eps, delta_error=delta/1000",
        calibrate=prv_calibrate_tight,
        epsilon=partial(prv_epsilon, tight=True),
    ),
    "riskcal": Tool(
        package="riskcal",
        options="calibration.calibrate_parameter over create_dpsgd_epsilon_evaluator (grid_step=1e-4), tolerance "
        f"1e-3 in epsilon and in the noise, range {RISKCAL_RANGE}; "
        "CTDAccountant.get_epsilon (grid_step=1e-4); all defaults",
        calibrate=riskcal_calibrate,
        epsilon=riskcal_epsilon,
    ),
}


def one_step_spread(sigma: float, q: float) -> float:
    """About the standard deviation of one step's privacy loss: the scale of a grid that resolves it."""
    return min(q * math.sqrt(math.expm1(min(sigma**-2, 600.0))), 1 / sigma)

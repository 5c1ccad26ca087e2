"""The search for the least noise that meets a target, over any one-parameter family of mechanisms."""

import math
from collections.abc import Callable

from raptor_acct._search import safe_root
from raptor_acct.accountants import GaussianProfile, central_mu, merged, saddle_log_delta
from raptor_acct.accountants._one_step import Direction
from raptor_acct.adjacency import Adjacency
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import Mechanism

SMALLEST_NOISE, LARGEST_NOISE = 0.02, 1e7
LOWEST_LOG_NOISE, HIGHEST_LOG_NOISE = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
_WIDTH = 3e-7  # of log noise: how far above the least noise the answer may lie

Family = Callable[[float], Mechanism]


def least_noise(
    family: Family, eps: float, delta: float, adjacency: Adjacency, *, names: tuple[str, str]
) -> tuple[float, Guarantee]:
    """Return the least noise x for which ``family(x)`` is certified (eps, delta)-private.

    Args:
        family: A mechanism for each noise; more noise is more private.
        eps: The target.
        delta: The target.
        adjacency: Which data sets count as neighbours.
        names: What the messages call the stream and its delta.

    Returns:
        A noise about 3e-7 (relatively) above the least one that the accountant certifies, on its safe side; and what
        it guarantees.

    Raises:
        ValueError: If the target is outside what the accountant can certify; the message names the bound.
    """
    stream, delta_name = names
    latest: dict[float, Guarantee] = {}

    def guarantee(log_noise: float) -> Guarantee:
        if log_noise not in latest:
            latest.clear()
            latest[log_noise] = family(math.exp(log_noise)).guarantee(adjacency)
        return latest[log_noise]

    def search(start: float, slope: float, *, leading: bool) -> float:
        return safe_root(
            lambda log_noise: guarantee(log_noise).excess(eps, delta, leading=leading),
            start,
            low=LOWEST_LOG_NOISE,
            high=HIGHEST_LOG_NOISE,
            width=_WIDTH,
            below=f"{stream} meets {target} below the smallest noise multiplier supported, {SMALLEST_NOISE:g}: "
            "choose a smaller eps or delta",
            above=f"{stream} cannot meet {target} below the largest noise multiplier supported, {LARGEST_NOISE:g}: "
            "choose a larger eps or delta",
            slope=slope,
        )

    target = f"eps={eps:g} and {delta_name}={delta:g}"
    log_noise = search(*_start(family, eps, delta, adjacency), leading=True)
    if guarantee(log_noise).excess(eps, delta) > 0:  # rarely, the other direction is the worse one
        log_noise = search(log_noise, 0.0, leading=False)
    return math.exp(log_noise), guarantee(log_noise)


def _start(family: Family, eps: float, delta: float, adjacency: Adjacency) -> tuple[float, float]:
    """Return about the log noise wanted and the slope of log delta there, by the saddle point if it applies."""
    start, slope = _central_limit(family, eps, delta, adjacency)
    direction: Direction = "replace" if adjacency == "replace_one" else "remove"
    points: list[tuple[float, float]] = []

    def excess(log_noise: float) -> float:
        log_delta = saddle_log_delta(merged(family(math.exp(log_noise)).streams), direction, eps, delta)
        if math.isnan(log_delta):
            raise ValueError
        points.append((log_noise, log_delta - math.log(delta)))
        return points[-1][1]

    try:
        found = safe_root(excess, start, low=start - 1, high=start + 1, width=1e-5, below="", above="", slope=slope)
    except ValueError:
        return start, slope
    (x, value), (y, other) = sorted(points, key=lambda point: abs(point[0] - found))[:2]
    return found, (value - other) / (x - y)


def _central_limit(family: Family, eps: float, delta: float, adjacency: Adjacency) -> tuple[float, float]:
    """Return the log noise by the central limit theorem (Bu et al. 2020), and the slope of log delta there: guesses."""
    wanted = _gaussian_mu(eps, delta) / (2 if adjacency == "replace_one" else 1)

    def excess(log_noise: float) -> float:
        return math.log(central_mu(merged(family(math.exp(log_noise)).streams)) / wanted)

    try:
        found = safe_root(excess, 0.0, low=LOWEST_LOG_NOISE, high=HIGHEST_LOG_NOISE, width=1e-3, below="", above="")
    except ValueError:
        return 0.0, 0.0
    nearby = GaussianProfile(mu=wanted * math.exp(excess(found + 1e-3) - excess(found)))
    slope = (math.log(nearby.delta(eps)) - math.log(GaussianProfile(mu=wanted).delta(eps))) / 1e-3
    return found, slope


def _gaussian_mu(eps: float, delta: float) -> float:
    """Return about the mu at which a Gaussian mechanism is (eps, delta)-private."""
    log_inverse = safe_root(
        lambda x: math.log(GaussianProfile(mu=math.exp(-x)).delta(eps) / delta),
        math.log((math.sqrt(-2 * math.log(delta)) + 1) / eps),
        low=-20.0,
        high=30.0,
        width=1e-3,
        below="",
        above="",
    )
    return math.exp(-log_inverse)

"""The search for the least noise that meets a target, over any one-parameter family of mechanisms."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from raptor_acct._search import safe_root
from raptor_acct.accountants import GaussianProfile, central_mu, guessed_log_delta, merged
from raptor_acct.accountants._one_step import Direction
from raptor_acct.adjacency import Adjacency
from raptor_acct.guarantee import Guarantee
from raptor_acct.mechanisms import Mechanism

SMALLEST_NOISE, LARGEST_NOISE = 0.02, 1e7
LOWEST_LOG_NOISE, HIGHEST_LOG_NOISE = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
_WIDTH = 3e-7  # of log noise: how far above the least noise the answer may lie
_APART = 1e-6  # of log noise: two guesses this far apart tell the slope
_REACH = 3.0  # of log noise: how far from the central limit theorem's the guess may lie

Family = Callable[[float], Mechanism]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a search is asked for, in the words of its messages.

    Attributes:
        stream: What gets the noise.
        eps: What its epsilon is called.
        delta: What its delta is called.
        fix: The arguments that make its target easier to meet if they are made larger.
    """

    stream: str
    eps: str = "eps"
    delta: str = "delta"
    fix: str = "eps or delta"


def least_noise(
    family: Family, eps: float, delta: float, adjacency: Adjacency, *, asked: Asked, ratio: float = 1.0
) -> tuple[float, Guarantee]:
    """Return the least noise x for which ``family(x)`` is certified (eps, delta)-private.

    Args:
        family: A mechanism for each noise; more noise is more private.
        eps: The target.
        delta: The target.
        adjacency: Which data sets count as neighbours.
        asked: For the messages.
        ratio: ``family(x)`` has a stream with noise ``ratio * x``, which has to stay within what is supported, too.

    Returns:
        A noise about 3e-7 (relatively) above the least one that the accountant certifies, on its safe side; and what
        it guarantees.

    Raises:
        ValueError: If the target is outside what the accountant can certify; the message names the bound.
    """
    low = LOWEST_LOG_NOISE - min(0.0, math.log(ratio))
    high = HIGHEST_LOG_NOISE - max(0.0, math.log(ratio))
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
            low=low,
            high=high,
            width=_WIDTH,
            below=f"{asked.stream} meets {target} below the smallest noise multiplier supported, {SMALLEST_NOISE:g}: "
            f"choose a smaller {asked.fix}",
            above=f"{asked.stream} cannot meet {target} below the largest noise multiplier supported, "
            f"{LARGEST_NOISE:g}: choose a larger {asked.fix}",
            slope=slope,
        )

    target = f"{asked.eps}={eps:g} and {asked.delta}={delta:g}"
    log_noise = search(*_start(family, (low, high), eps, delta, adjacency), leading=True)
    if guarantee(log_noise).excess(eps, delta) > 0:  # rarely, the other direction is the worse one
        log_noise = search(log_noise, 0.0, leading=False)
    return math.exp(log_noise), guarantee(log_noise)


def _start(
    family: Family, span: tuple[float, float], eps: float, delta: float, adjacency: Adjacency
) -> tuple[float, float]:
    """Return about the log noise wanted and the slope of log delta there, by guesses that may fail."""
    start, slope = _central_limit(family, span, eps, delta, adjacency)
    direction: Direction = "replace" if adjacency == "replace_one" else "remove"
    points: list[tuple[float, float]] = []

    def excess(log_noise: float) -> float:
        log_delta = guessed_log_delta(merged(family(math.exp(log_noise)).streams), direction, eps, delta)
        if math.isnan(log_delta):
            raise ValueError
        points.append((log_noise, log_delta - math.log(delta)))
        return points[-1][1]

    low, high = max(span[0], start - _REACH), min(span[1], start + _REACH)
    try:
        found = safe_root(excess, start, low=low, high=high, width=1e-5, below="", above="", slope=slope)
    except ValueError:
        return start, slope
    x, value = min(points, key=lambda point: abs(point[0] - found))
    apart = [point for point in points if abs(point[0] - x) > _APART]
    if not apart:
        return found, slope
    y, other = min(apart, key=lambda point: abs(point[0] - x))
    return found, (value - other) / (x - y)


def _central_limit(
    family: Family, span: tuple[float, float], eps: float, delta: float, adjacency: Adjacency
) -> tuple[float, float]:
    """Return the log noise by the central limit theorem (Bu et al. 2020), and the slope of log delta there: guesses."""
    low, high = span

    def excess(log_noise: float) -> float:
        return math.log(central_mu(merged(family(math.exp(log_noise)).streams)) / wanted)

    try:
        wanted = _gaussian_mu(eps, delta) / (2 if adjacency == "replace_one" else 1)
        found = safe_root(excess, 0.0, low=low, high=high, width=1e-3, below="", above="")
    except ValueError:
        return min(max(low, 0.0), high), 0.0
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

"""The search for the least noise that meets a target, over any one-parameter family of mechanisms."""

import math
from collections.abc import Callable

from raptor_acct._search import safe_root
from raptor_acct.accountants import GaussianProfile
from raptor_acct.adjacency import Adjacency
from raptor_acct.mechanisms import Mechanism

SMALLEST_NOISE, LARGEST_NOISE = 0.02, 1e7
_WIDTH = 5e-7  # of log noise: how far above the least noise the answer may lie
_MARGIN = 1e-9  # of delta: more than the last digits that rounding may cost

Family = Callable[[float], Mechanism]


def least_noise(family: Family, eps: float, delta: float, adjacency: Adjacency, *, names: tuple[str, str]) -> float:
    """Return the least noise x for which ``family(x)`` is certified (eps, delta)-private.

    Args:
        family: A mechanism for each noise; more noise is more private.
        eps: The target.
        delta: The target.
        adjacency: Which data sets count as neighbours.
        names: What the messages call the stream and its delta.

    Returns:
        A noise at most 5e-7 (relatively) above the least one that the accountant certifies, on its safe side.

    Raises:
        ValueError: If the target is outside what the accountant can certify; the message names the bound.
    """
    stream, delta_name = names

    def excess(log_noise: float) -> float:
        guarantee = family(math.exp(log_noise)).guarantee(adjacency)
        if delta < guarantee.smallest_delta:
            raise ValueError(
                f"expected {delta_name} >= {guarantee.smallest_delta:.3g}, the smallest delta that can be certified "
                f"for {stream}, got {delta:.4g}"
            )
        return math.log(guarantee.delta(eps) / delta) + _MARGIN

    target = f"eps={eps:g} and {delta_name}={delta:g}"
    log_noise = safe_root(
        excess,
        math.log(_central_limit(family, eps, delta, adjacency)),
        low=math.log(SMALLEST_NOISE),
        high=math.log(LARGEST_NOISE),
        width=_WIDTH,
        below=f"{stream} meets {target} below the smallest noise multiplier supported, {SMALLEST_NOISE:g}: "
        "choose a smaller eps or delta",
        above=f"{stream} cannot meet {target} below the largest noise multiplier supported, {LARGEST_NOISE:g}: "
        "choose a larger eps or delta",
    )
    return math.exp(log_noise)


def _central_limit(family: Family, eps: float, delta: float, adjacency: Adjacency) -> float:
    """Return the noise by the central limit theorem for many steps (Bu et al. 2020): a guess to start from."""
    wanted = _gaussian_mu(eps, delta) / (2 if adjacency == "replace_one" else 1)
    low, high = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _mu(family(math.exp(middle))) > wanted else (low, middle)
    found = math.exp((low + high) / 2)
    return found if 1.01 * SMALLEST_NOISE < found < 0.99 * LARGEST_NOISE else 1.0


def _mu(mechanism: Mechanism) -> float:
    square = 0.0
    for stream in mechanism.streams:
        inverse = stream.noise_multiplier**-2
        one = inverse if stream.sampling_probability == 1 else math.expm1(min(inverse, 600.0))
        square += stream.num_steps * stream.sampling_probability**2 * one
    return math.sqrt(square)


def _gaussian_mu(eps: float, delta: float) -> float:
    """Return the mu at which a Gaussian mechanism is (eps, delta)-private."""
    low, high = -30.0, math.log(4 * (math.sqrt(eps) + math.sqrt(-math.log(delta)) + 1) * (1 + 1 / (1 - delta)))
    for _ in range(50):
        middle = (low + high) / 2
        unsafe = GaussianProfile(mu=math.exp(middle)).delta(eps) > delta
        low, high = (low, middle) if unsafe else (middle, high)
    return math.exp((low + high) / 2)

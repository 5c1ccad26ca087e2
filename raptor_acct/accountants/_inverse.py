"""Epsilon from delta: the inverse of a certified privacy profile, certified as well."""

import math

from raptor_acct._search import safe_root
from raptor_acct.accountants._stream import Profile
from raptor_acct.bound import Bound

SMALLEST_EPS, LARGEST_EPS = 1e-12, 1e12
_WIDTH = 1e-10  # of log epsilon
_HALVINGS = 3  # of what is left of the lower end's uncertainty


def epsilon_of(profile: Profile, delta: float, guess: float) -> Bound:
    """Return the least epsilon at which a profile certifies ``delta``, and one at which it certifies more.

    Args:
        profile: The profile.
        delta: The delta, in (0, 1).
        guess: Where to start.

    Raises:
        ValueError: If no epsilon up to 1e12 is certified.
    """
    upper = math.exp(
        safe_root(
            lambda log_eps: profile.excess(math.exp(log_eps), delta),
            math.log(max(guess, SMALLEST_EPS)),
            low=math.log(SMALLEST_EPS),
            high=math.log(LARGEST_EPS),
            width=_WIDTH,
            below=None,
            above=f"expected a larger delta or more noise, got delta={delta:g}: no epsilon up to {LARGEST_EPS:g} is "
            "certified",
        )
    )
    if upper <= 1.01 * SMALLEST_EPS:
        upper = 0.0 if profile.excess(0.0, delta) <= 0 else SMALLEST_EPS
        return Bound(0.0, upper, safe="upper", method=profile.delta(upper, delta).method)
    step, short = _WIDTH, 0.0
    while step < 1 and profile.delta(upper * math.exp(-step)).lower < delta:
        short, step = step, 4 * step
    for _ in range(_HALVINGS if _WIDTH < step < 1 else 0):
        middle = (short + step) / 2
        certified = profile.delta(upper * math.exp(-middle)).lower >= delta
        short, step = (short, middle) if certified else (middle, step)
    lower = upper * math.exp(-step) if step < 1 else 0.0
    return Bound(lower, upper, safe="upper", method=profile.delta(upper).method)

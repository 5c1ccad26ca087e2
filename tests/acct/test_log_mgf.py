"""The sums behind the contour integral, against the same sums with more digits."""

import math

import mpmath
import numpy as np
import pytest

from raptor_acct.accountants._log_mgf import Steps, _log_mean_exp
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._step_loss import StepLoss
from raptor_acct.accountants._tilted_loss import ROUNDING


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(
    ("sigma", "q", "c", "spacing", "count"),
    [(1.0, 0.01, 5.0, 0.05, 2), (0.3, 0.2, 0.5, 0.4, 3), (5.0, 1e-6, 20.0, 0.003, 101), (0.8, 1e-3, 3.0, 0.2, 1500)],
)
def test_turning_by_doubling_loses_no_more_than_its_bound(
    direction: Direction, sigma: float, q: float, c: float, spacing: float, count: int
) -> None:
    steps = Steps(StepLoss(np.array([sigma]), np.array([q]), direction, 1e-15))
    log_mgf = steps.table(np.array([0.99 * c, c]))[0][:, 1:]
    loss = steps.tilted(c, log_mgf, spacing * count, 28.0)
    (found,) = loss.on_grid(spacing, count, loss.share)
    share, centred = (np.asarray(x[0], np.longdouble) for x in (loss.share, loss.centred))
    t = spacing * np.arange(count, dtype=np.longdouble)
    half = np.outer(t, centred) / 2
    exact = (2j * np.sin(half) * np.cos(half) - 2 * np.sin(half) ** 2) @ share
    allowed = 2 * ROUNDING * float((share * np.abs(centred)).sum()) * t
    for sums in (found[0], loss.ratio(np.asarray(t, float))[0]):
        assert sums[0] == 0
        assert (np.abs(sums - exact)[1:] < allowed[1:]).all()


@pytest.mark.parametrize("beyond", [(), (-80.0, 3.0), (-900.0, 850.0), (-900.0, 1700.0)])
def test_the_log_of_a_mean_is_exact_however_small_or_large_and_wherever_the_mass_is(beyond: tuple[float, ...]) -> None:
    """Beside a mean that is next to 1, one in the same array that may be beyond any float does not matter."""
    exponents = [[1e-14, -3e-13, 2e-12], [-40.0, -41.0, -39.0], [0.3, -0.2, 4.0]]
    log_weights = np.log([0.5, 0.25, 0.25])
    if beyond:
        exponents = [[*row, 0.0] for row in exponents] + [[0.0, 0.0, 0.0, beyond[1]]]
        log_weights = np.append(log_weights, beyond[0])
    found = _log_mean_exp(np.array(exponents), log_weights, 3)
    with mpmath.workdps(60):
        weights = [mpmath.mpf(w) for w in np.exp(log_weights[:3])] + [mpmath.exp(w) for w in log_weights[3:]]
        for row, log_mean in zip(exponents, found, strict=True):
            exact = mpmath.log1p(mpmath.fsum(w * mpmath.expm1(x) for w, x in zip(weights, row, strict=True)))
            assert float(log_mean) == pytest.approx(float(exact), rel=1e-13, abs=1e-25)
    assert math.isfinite(float(found.max()))

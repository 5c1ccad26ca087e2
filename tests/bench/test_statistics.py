"""The statistical tests themselves: their false-alarm rate, and their power at the sizes that the bench has."""

import numpy as np
import pytest
from scipy import stats

from . import checks_noise
from .scenarios import BUSY, STEPS
from .setting import NUM_RECORDS, STREAMS
from .statistics import (
    ALPHA,
    correlation_p_value,
    count_p_value,
    dispersion_p_value,
    require,
    scale_p_value,
    scale_power,
)
from .system import System

NUM_TESTS = 4  # scale and law in two streams share ALPHA


def test_noise_that_is_10_percent_off_is_rejected_almost_surely_at_the_benchs_sizes() -> None:
    system = System()
    drawn = checks_noise.drawn_noise(system, "empty")
    for k in range(len(STREAMS)):
        size = checks_noise.together(drawn[k::2]).size
        assert min(scale_power(size, ratio, ALPHA / NUM_TESTS) for ratio in (0.9, 1.1)) > 0.999
    size = checks_noise.noise_of_experts_without_records(system).size
    assert min(scale_power(size, ratio) for ratio in (0.85, 1.15)) > 0.999


@pytest.mark.parametrize(("n", "ratio"), [(50, 1.3), (300, 0.9), (300, 1.0)])
def test_the_power_is_the_share_of_rejections(n: int, ratio: float) -> None:
    rng, level, repeats = np.random.default_rng(0), 0.05, 4000
    rejected = sum(scale_p_value(rng.standard_normal(n) * ratio) < level for _ in range(repeats))
    assert stats.binomtest(rejected, repeats, scale_power(n, ratio, level)).pvalue > ALPHA
    assert scale_power(n, 1.0, level) == pytest.approx(level)


def test_correlation_p_values_are_uniform() -> None:
    rng = np.random.default_rng(0)
    p_values = [correlation_p_value(*rng.standard_normal((2, 20))) for _ in range(2000)]
    assert stats.kstest(p_values, "uniform").pvalue > ALPHA
    same = rng.standard_normal(50)
    assert correlation_p_value(same, same) < ALPHA


def test_dispersion_p_values_are_those_of_all_outcomes() -> None:
    """Two counts of two coins each, q = 1/2: squared distances to 1 add up to 0, 1 or 2 with odds 1 : 2 : 1."""
    assert [dispersion_p_value(c, 2, 0.5) for c in ([1, 1], [0, 1], [0, 2])] == pytest.approx([0.5, 1, 0.5])


def test_samples_of_fixed_size_or_drawn_once_an_epoch_are_rejected_at_the_benchs_sizes() -> None:
    q = BUSY[0]
    fixed = [round(q * NUM_RECORDS)] * STEPS
    assert dispersion_p_value(fixed, NUM_RECORDS, q) < ALPHA / 6
    once = [round(q * STEPS)] * NUM_RECORDS
    assert dispersion_p_value(once, STEPS, q) < ALPHA / 6


def test_several_tests_share_the_false_alarm_rate() -> None:
    require({"a": ALPHA / 2, "b": 1.0})
    with pytest.raises(AssertionError, match="'a'"):
        require({"a": ALPHA * 0.49, "b": 1.0})
    with pytest.raises(AssertionError):
        require({"a": float("nan")})
    assert count_p_value(5, 10, 0.5) == 1

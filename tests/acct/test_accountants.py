"""The accountants against exact values and a slow twin: never below, and close."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from raptor_acct import SubsampledGaussian
from raptor_acct.accountants import GaussianProfile, gaussian_profile, pld_profile, privacy_profile
from raptor_acct.accountants._one_step import Direction, OneStep


def stream(sigma: float, q: float, steps: int) -> SubsampledGaussian:
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)


# Exact values, add/remove, from contour inversion checked at 30 digits.
EXACT = {
    "q=.9 sigma=.3": ([stream(0.3, 0.9, 100)], 1e-5, 634.655842, 2e-4),
    "sigma=1e4": ([stream(1e4, 0.01, 1000)], 1e-6, 4.6373473e-05, 2e-4),
    "S1 eps 1": (
        [stream(2.57316138477651, 1000 / 67349, 1347), stream(18.707194486585536, 1000 / 67349, 1347)],
        4.8846756719704545e-06,
        0.8702200172105693,
        1e-4,
    ),
    "S1 eps 4": (
        [stream(0.9935909575513991, 1000 / 67349, 1347), stream(5.239955456840617, 1000 / 67349, 1347)],
        4.8846756719704545e-06,
        3.489748203855667,
        1e-4,
    ),
    "S1 eps 8": (
        [stream(0.7411256468407997, 1000 / 67349, 1347), stream(2.842543426703, 1000 / 67349, 1347)],
        4.8846756719704545e-06,
        6.971837117046966,
        1e-4,
    ),
    # A million steps: the allowance for rounding is of the order of delta itself.
    "S3": ([stream(0.887860507, 1e-4, 10**6), stream(5.1946046954, 1e-4, 10**6)], 1e-9, 0.8871041803, 0.08),
    "S3 expert alone": ([stream(5.1946046954, 1e-4, 10**6)], 5e-10, 0.1, 0.08),
    "S4": (
        [stream(62.01708874991347, 0.02, 1500), stream(474.53630207405837, 0.02, 1500)],
        1e-6,
        0.04321447812153143,
        1e-4,
    ),
    "S4 expert alone": ([stream(474.53630207405837, 0.02, 1500)], 5e-7, 0.005, 1e-4),
}


@pytest.mark.parametrize(("streams", "delta", "exact", "excess"), EXACT.values(), ids=EXACT)
def test_pld_is_just_above_the_exact_epsilon(
    streams: list[SubsampledGaussian], delta: float, exact: float, excess: float
) -> None:
    # The last printed digit of the exact value is worth up to 1e-8 of it.
    assert exact * (1 - 2e-8) <= pld_profile(streams, "add_remove").epsilon(delta) <= exact * (1 + excess)


def test_gaussian_agrees_with_the_exact_epsilon() -> None:
    assert gaussian_profile([stream(10, 1, 100)], "add_remove").epsilon(1e-6) == pytest.approx(4.8865541175, rel=1e-10)


@pytest.mark.parametrize(
    ("streams", "delta"),
    [
        ([stream(4, 3.3e-4, 10_000)], 1.1e-18),
        ([stream(2, 0.01, 10_000)], 1e-13),  # an untilted FFT answers 3.92699, the truth is 3.93931
        ([stream(2, 1e-4, 10_000_000)], 1e-9),
    ],
)
def test_delta_that_drowns_in_rounding_is_refused_by_name(streams: list[SubsampledGaussian], delta: float) -> None:
    profile = pld_profile(streams, "add_remove")
    assert profile.smallest_delta > delta
    with pytest.raises(ValueError, match=rf"expected delta in \[{profile.smallest_delta:.3g}, 1\), got delta="):
        profile.epsilon(delta)


def exact_delta(eps: float, streams: Sequence[SubsampledGaussian], direction: Direction) -> float:
    """Contour inversion: delta = 1/π ∫ Re exp(K(s) - s eps) / (s (s+1)) dt on s = c + it, losses of streams add."""
    nodes = []
    for one in streams:
        sigma, q = one.noise_multiplier, one.sampling_probability
        step = OneStep(noise_multiplier=sigma, sampling_probability=q, direction=direction)
        x = np.arange(-12 * sigma - 12, 12 * sigma + 12, sigma / 12)
        centre = np.exp(-0.5 * (x / sigma) ** 2)
        aside = np.exp(-0.5 * ((x + 1) / sigma) ** 2)
        density = centre if direction == "add" else (1 - q) * centre + q * aside
        nodes.append((one.num_steps, density / density.sum(), step.loss(x)))

    def exponent(s: complex) -> complex:
        return sum(n * np.log(weight @ np.exp(s * loss)) for n, weight, loss in nodes) - s * eps

    def height(log_c: float) -> float:
        c = math.exp(log_c)
        return float(exponent(c).real - math.log(c) - math.log1p(c))

    c = math.exp(minimize_scalar(height, bounds=(-5, 8), method="bounded").x)
    curvature = sum(n * (weight @ loss**2 - (weight @ loss) ** 2) for n, weight, loss in nodes)
    t, width = np.linspace(0, 12 / math.sqrt(curvature), 1500, retstep=True)
    values = [np.exp(exponent(s)) / (s * (s + 1)) for s in c + 1j * t]
    assert abs(values[-1]) < 1e-5 * abs(values[0])
    return float((np.sum(np.real(values)) - np.real(values[0]) / 2) * width / math.pi)


TWIN = {
    "many small steps": [stream(2.0, 0.01, 2000)],
    "ten thousand": [stream(2.0, 0.01, 10_000)],
    "few large steps": [stream(3.0, 0.5, 20)],
    "two roles": [stream(1.2, 0.02, 500), stream(6.0, 0.05, 300)],
    "nearly no sampling": [stream(8.0, 0.9, 60)],
}


@pytest.mark.parametrize("streams", TWIN.values(), ids=TWIN)
@pytest.mark.parametrize("delta", [1.001e-10, 1e-8, 1e-5, 1e-2])
def test_pld_is_above_a_contour_integral(streams: list[SubsampledGaussian], delta: float) -> None:
    eps = pld_profile(streams, "add_remove").epsilon(delta)
    worst = max(exact_delta(eps, streams, "remove"), exact_delta(eps, streams, "add"))
    slightly_less = max(exact_delta(eps * 0.998, streams, "remove"), exact_delta(eps * 0.998, streams, "add"))
    assert worst <= delta * (1 + 1e-9) < slightly_less


@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_pld_is_above_a_contour_integral_for_replace_one(delta: float) -> None:
    streams = [stream(3.0, 0.05, 400), stream(9.0, 0.1, 100)]
    eps = pld_profile(streams, "replace_one").epsilon(delta)
    assert exact_delta(eps, streams, "replace") <= delta < exact_delta(eps * 0.998, streams, "replace")


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_pld_agrees_with_the_closed_form_without_sampling(adjacency: str) -> None:
    streams = [stream(30.0, 1.0, 100), stream(7.0, 1.0, 3)]
    for delta in (1e-9, 1e-5, 1e-2):
        closed = gaussian_profile(streams, adjacency).epsilon(delta)  # type: ignore[arg-type]
        assert closed <= pld_profile(streams, adjacency).epsilon(delta) <= closed * 1.0005  # type: ignore[arg-type]


def test_gaussian_profile_is_the_textbook_formula() -> None:
    mu, eps = 1.3, 0.7
    textbook = ndtr(mu / 2 - eps / mu) - math.exp(eps) * ndtr(-mu / 2 - eps / mu)
    assert GaussianProfile(mu=mu).delta(eps) == pytest.approx(textbook, rel=1e-12)
    assert GaussianProfile(mu=mu).delta(eps) >= textbook


@pytest.mark.parametrize("delta", [1e-30, 1e-20, 1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 10.0, 100.0])
def test_gaussian_epsilon_and_delta_are_inverse_down_to_tiny_deltas(mu: float, delta: float) -> None:
    profile = GaussianProfile(mu=mu)
    eps = profile.epsilon(delta)
    assert profile.delta(eps) <= delta
    assert eps == 0 or profile.delta(eps * (1 - 1e-6)) > delta


def test_gaussian_delta_of_1e_minus_32_by_extended_precision() -> None:
    # mpmath, 40 digits: delta of mu = 1 at eps = 12.
    assert GaussianProfile(mu=1.0).delta(12.0) == pytest.approx(5.2084420689504656739e-32, rel=1e-10)


def test_gaussian_refuses_what_it_does_not_cover() -> None:
    with pytest.raises(ValueError, match="sampling_probability=1"):
        gaussian_profile([stream(1, 0.5, 1)], "add_remove")
    with pytest.raises(ValueError, match=r"expected delta in \[1e-30, 1\)"):
        GaussianProfile(mu=1.0).epsilon(1e-31)


def test_closed_form_is_chosen_only_without_sampling() -> None:
    assert isinstance(privacy_profile([stream(1, 1, 1), stream(2, 1, 5)], "add_remove"), GaussianProfile)
    assert not isinstance(privacy_profile([stream(1, 1, 1), stream(2, 0.5, 5)], "add_remove"), GaussianProfile)


def test_splitting_a_stream_changes_nothing() -> None:
    whole = pld_profile([stream(2.0, 0.02, 1000)], "add_remove")
    halves = pld_profile([stream(2.0, 0.02, 400), stream(2.0, 0.02, 600)], "add_remove")
    # Different enough not to be merged before the convolution:
    nearly = pld_profile([stream(2.0, 0.02, 400), stream(2.0, 0.02 * (1 + 1e-12), 600)], "add_remove")
    assert halves.epsilon(1e-6) == whole.epsilon(1e-6)
    assert nearly.epsilon(1e-6) == pytest.approx(whole.epsilon(1e-6), rel=1e-6)


def test_a_hundred_million_steps_stay_within_memory() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    tracemalloc.start()
    eps = pld_profile([stream(300.0, 0.01, 10**8)], "add_remove").delta(1.8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < eps < 1e-5
    assert peak < 1e9

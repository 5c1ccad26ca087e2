"""The tilted PLD: its bracket holds the truth, by every reference there is, and is narrow."""

import json
import math
import tracemalloc
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._tilted_lattice import Pmf
from raptor_acct.accountants.tilted_pld import _compose, tilted_pld

Streams = list[tuple[float, float, int]]
DIRECTIONS: tuple[Direction, ...] = ("remove", "add", "replace")
CASES = Path(__file__).parents[3] / "shared" / "cases" / "accounting.json"  # beside the repository, where there is one


def bracket(streams: Streams, direction: Direction, eps: float, size: int = 1 << 17) -> tuple[float, float]:
    low, high = tilted_pld(streams, direction, eps, size=size).delta(eps)
    assert 0 <= low <= high <= 1
    assert high > 0
    return low, high


def check(streams: Streams, direction: Direction, eps: float, exact: float, width: float, size: int = 1 << 17) -> None:
    """The bracket holds ``exact``, known to 1e-9, and its relative width is at most ``width``."""
    low, high = bracket(streams, direction, eps, size)
    assert low * (1 - 1e-9) <= exact <= high * (1 + 1e-9)
    assert high - low <= width * high


# Streams, direction, eps; delta by :func:`contour`, but in 40 digits of mpmath; and how wide the bracket may be.
CONTOUR: list[tuple[Streams, Direction, float, float, float]] = [
    ([(1.0, 0.01, 1000)], "remove", 2.0, 2.665571924761791e-06, 1e-4),
    ([(1.0, 0.01, 1000)], "add", 0.5, 0.023931934158368688, 4e-6),
    ([(3.0, 0.05, 400), (9.0, 0.1, 100)], "replace", 2.5, 0.0001056458785138598, 1e-5),
    ([(2.0, 0.01, 10_000)], "remove", 6.2, 7.91025239010891e-30, 1e-3),
    ([(3.0, 0.3, 30)], "add", 1.5, 0.0005911980647747989, 3e-7),
    ([(10_000.0, 0.01, 1000)], "remove", 4.6e-05, 1.0269168288429934e-06, 1e-5),
]


@pytest.mark.parametrize(("streams", "direction", "eps", "exact", "width"), CONTOUR)
def test_holds_a_contour_integral_in_extended_precision(
    streams: Streams, direction: Direction, eps: float, exact: float, width: float
) -> None:
    check(streams, direction, eps, exact, width)


def contour(streams: Streams, direction: Direction, eps: float) -> float:
    """delta = 1/π ∫ Re exp(K(s) - s eps) / (s (s+1)) dt on s = c + it, for many steps, none of them large."""
    nodes = []
    for sigma, q, count in streams:
        y = np.arange(-12 - 1 / sigma, 12 + 1 / sigma, 0.05)
        toward, away = (1 - q + q * np.exp(side * y / sigma - 0.5 / sigma**2) for side in (-1, 1))
        upper = np.ones(len(y)) if direction == "add" else toward
        mass = np.exp(-(y**2) / 2) * upper
        nodes.append((count, mass / mass.sum(), np.log(upper if direction == "remove" else upper / away)))

    def exponent(s: complex) -> complex:
        return complex(sum(n * np.log(mass @ np.exp(s * loss)) for n, mass, loss in nodes) - s * eps)

    scale = sum(n * float(mass @ loss**2) for n, mass, loss in nodes) ** -0.5
    c = min(scale * np.geomspace(0.02, 20, 300), key=lambda c: exponent(c).real - math.log(c) - math.log1p(c))
    t, step = np.linspace(0, 11 * scale, 1200, retstep=True)
    values = np.array([(np.exp(exponent(s)) / (s * (s + 1))).real for s in c + 1j * t])
    return float((values.sum() - values[0] / 2) * step / math.pi)


@pytest.mark.parametrize(("streams", "direction", "eps", "exact"), [point[:4] for point in CONTOUR])
def test_contour_values(streams: Streams, direction: Direction, eps: float, exact: float) -> None:
    assert contour(streams, direction, eps) == pytest.approx(exact, rel=1e-7)


def one_step(sigma: float, q: float, direction: Direction, eps: float) -> float:
    """The closed form of one step's delta, at eps of either sign, in 60 digits."""
    mu, q, e = 1 / mp.mpf(sigma), mp.mpf(q), mp.exp(mp.mpf(eps))
    # The coordinate y (in σ) at which the likelihood ratio is e^eps; it falls with y.
    if direction == "remove":
        ratio = (e - 1 + q) / q
        y = -mp.log(ratio) / mu - mu / 2 if ratio > 0 else mp.inf
    elif direction == "add":
        ratio = (1 / e - 1 + q) / q
        y = mp.log(ratio) / mu + mu / 2 if ratio > 0 else -mp.inf
    else:
        y = -(mp.asinh(mp.exp(mu**2 / 2) * (1 - q) / q * mp.sinh(mp.mpf(eps) / 2)) + mp.mpf(eps) / 2) / mu
    upper = mp.ncdf(y) if direction == "add" else (1 - q) * mp.ncdf(y) + q * mp.ncdf(y + mu)
    lower = mp.ncdf(y) if direction == "remove" else (1 - q) * mp.ncdf(y) + q * mp.ncdf(y - mu)
    return float(upper - e * lower)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.3), (0.05, 0.3), (3.0, 1 - 1e-9), (1e6, 1e-3), (0.7, 1e-8)])
@pytest.mark.parametrize("deviations", [0.1, 3.0, 9.0])
def test_one_step_agrees_with_its_closed_form(direction: Direction, sigma: float, q: float, deviations: float) -> None:
    with mp.workdps(60):  # type: ignore[no-untyped-call]
        size = mp.log(1 + mp.mpf(q) * (mp.exp((deviations + mp.mpf(0.5) / sigma) / mp.mpf(sigma)) - 1))
        eps = float(size if direction != "add" else min(size, -mp.log(1 - mp.mpf(q)) / 2))
        exact = one_step(sigma, q, direction, eps)
    check([(sigma, q, 1)], direction, eps, exact, 1e-2 if q < 1e-7 else 1e-5, size=1 << 15)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("eps", [0.05, 0.6])
def test_two_steps_agree_with_quadrature(direction: Direction, eps: float) -> None:
    """delta of two steps = ∫ P(dl) delta_1(eps - l)."""
    (sigma, q), second = (0.9, 0.2), (1.4, 0.6)

    def integrand(y: float) -> float:
        toward, away = (1 - q + q * math.exp(side * y / sigma - 0.5 / sigma**2) for side in (-1, 1))
        upper, lower = (1 if direction == "add" else toward), (1 if direction == "remove" else away)
        density = upper * math.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
        return density * one_step(*second, direction, eps - math.log(upper / lower))

    with mp.workdps(20):  # type: ignore[no-untyped-call]
        exact = sum(quad(integrand, a, a + 2, epsabs=1e-13, epsrel=1e-10)[0] for a in range(-12, 10, 2))
    check([(sigma, q, 1), (*second, 1)], direction, eps, exact, 3e-6, size=1 << 15)


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not part of the repository")
def test_holds_the_shared_cases() -> None:
    cases = json.loads(CASES.read_text())
    plans = [([(row["sigma"], row["q"], row["steps"])], row["epsilon"], row["delta"]) for row in cases["one_stream"]]
    plans[0] = (*plans[0][:2], 1.0997518e-18)  # printed as 1.1e-18; this by extended precision
    for row in cases["two_streams"]:
        q = float(Fraction(row["q"]))
        streams = [(row[key], q, row["steps"]) for key in ("sigma_shared", "sigma_expert")]
        plans.append((streams, row["joint_epsilon"], row["delta"]))
    for streams, eps, delta in plans:
        brackets = [tilted_pld(streams, direction, eps, size=1 << 15) for direction in ("remove", "add")]
        printed = 1e-9 * max(eps, 1e-2) if eps > 1e-3 else 1e-12
        assert max(one.delta(eps + printed)[0] for one in brackets) <= delta
        assert max(one.delta(eps - printed)[1] for one in brackets) >= delta


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "interval", "eps"),
    [(0.5, 1e-6, 1000, 1e-4, 0.02), (2.0, 1e-3, 30, 1e-5, 0.004), (0.08, 0.25, 5, 1e-2, 300.0)],
)
def test_dp_accounting_is_just_above(sigma: float, q: float, steps: int, interval: float, eps: float) -> None:
    theirs = from_gaussian_mechanism(sigma, sampling_prob=q, value_discretization_interval=interval).self_compose(steps)
    ours = [bracket([(sigma, q, steps)], direction, eps) for direction in ("remove", "add")]
    assert max(low for low, _ in ours) * (1 - 1e-9) <= theirs.get_delta_for_epsilon(eps)
    assert theirs.get_delta_for_epsilon(eps) <= max(high for _, high in ours) * 1.01


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_unsampled_steps_are_gaussian(direction: Direction) -> None:
    mu = 1.5 * (2 if direction == "replace" else 1)
    for eps, digits in ((0.5, 1e-7), (20.0, 5e-7)):
        exact = float(mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu))
        check([(2.0, 1.0, 9)], direction, eps, exact, digits)


@pytest.mark.parametrize("steps", [1, 7, 1000, 10**6, 10**8])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_rounding_stays_within_its_allowance(steps: int, spread: float) -> None:
    """Against the same cyclic power in extended precision, by repeated squaring."""
    size = 512
    weights = np.exp(-0.5 * (np.arange(-20, 21) / (spread * 3 / math.sqrt(steps) + 0.2)) ** 2)
    weights /= weights.sum()
    plan = SimpleNamespace(step=1.0, low=0.0)
    composed = _compose([Pmf(first=-20.0, weights=weights, log_norm=0.0, count=steps)], plan, size)  # type: ignore[arg-type]
    exact = np.zeros(size, np.longdouble)
    exact[:41] = weights
    exact = np.roll(exact, -20)
    index = (np.arange(size)[:, None] - np.arange(size)) % size
    power, square, left = np.zeros(size, np.longdouble), exact, steps
    power[0] = 1
    while left:
        if left % 2:
            power = square[index] @ power
        square, left = square[index] @ square, left // 2
    measured = float(np.abs(np.roll(composed.weights, round(composed.start)) - power).max())
    assert measured <= composed.error / 4
    assert composed.error < 1e-9 * max(1, steps / 1e4) * float(power.max())


plans = st.lists(
    st.tuples(
        st.floats(math.log(0.05), math.log(1e6)).map(math.exp),
        st.one_of(
            st.just(1.0), st.floats(-8, 0).map(lambda x: 10.0**x), st.floats(-8, -0.3).map(lambda x: 1 - 10.0**x)
        ),
        st.floats(0, 8).map(lambda x: int(10**x)),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=20, deadline=None)
@given(plans, st.sampled_from(DIRECTIONS), st.floats(-6, 3), st.floats(0.3, 3))
def test_any_plan_gives_a_bracket_that_overlaps_a_finer_one(
    streams: Streams, direction: Direction, log_eps: float, factor: float
) -> None:
    near = 10.0**log_eps
    eps = min(1e3, near * factor)
    low, high = tilted_pld(streams, direction, near, size=1 << 11).delta(eps)
    finer_low, finer_high = tilted_pld(streams, direction, eps, size=1 << 13).delta(eps)
    assert 0 <= low <= high <= 1
    assert 0 <= finer_low <= finer_high <= 1
    assert finer_low <= high
    assert low <= finer_high


def test_is_tight_where_it_is_the_engine_of_choice() -> None:
    for streams, eps, width in [
        ([(1.0, 1e-8, 10**4)], 1e-6, 1e-3),
        ([(0.5, 1e-6, 10**5)], 0.012, 3e-3),
        ([(1.0, 0.01, 1000)], 2.0, 1e-4),
        ([(1.0, 0.1, 10)], 3.0, 1e-6),
    ]:
        low, high = bracket(streams, "remove", eps)
        assert high - low <= width * high, streams


def test_memory() -> None:
    tracemalloc.start()
    for size, most in ((1 << 17, 100e6), (1 << 18, 150e6)):
        tracemalloc.reset_peak()
        bracket([(1.0, 0.3, 3)], "add", 1.0, size)
        assert tracemalloc.get_traced_memory()[1] < most
    tracemalloc.stop()


def test_a_hopeless_plan_is_answered_honestly() -> None:
    low, high = bracket([(0.05, 0.5, 10**8)], "remove", 1.0)
    assert high == 1.0
    assert low >= 0

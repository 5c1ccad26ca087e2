"""The contour integral: its brackets hold the exact delta, wherever they are asked for, and are narrow."""

import math
import tracemalloc

import numpy as np
import pytest
from mpmath import mpf

from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants.contour import Chernoff, Contour, contour
from raptor_acct.accountants.tilted_pld import tilted_pld
from tests.acct.exact import EXACT, exact_delta

Streams = list[tuple[float, float, int]]
DIRECTIONS: tuple[Direction, ...] = ("remove", "add", "replace")
# Two separate humps in the tilted loss: terms cancel, or nothing but Chernoff's bound is left.
HUMPS = {"two kinds, remove", "seldom and large, remove", "q 1-1e-9, replace"}


def bracket(streams: Streams, direction: Direction, near: float, expected: float, eps: float) -> tuple[float, float]:
    """Return what the integral made for ``near`` certifies at ``eps``: nothing where it has no answer."""
    evaluation = contour(streams, direction, near, expected)
    return evaluation.delta(eps) if evaluation else (0.0, 1.0)


@pytest.mark.parametrize("name", ["tiny delta, remove", "plain, add", "with a plain stream, replace", "20 steps, add"])
def test_the_constants_are_what_the_slow_twin_gives(name: str) -> None:
    streams, direction, eps, c, period, delta = EXACT[name]
    assert abs(exact_delta(streams, direction, eps, c, period) / mpf(delta) - 1) < 1e-15
    # Another line and other nodes, which share no error with the first.
    assert abs(exact_delta(streams, direction, eps, 0.9 * c, 1.2 * period) / mpf(delta) - 1) < 1e-15


@pytest.mark.parametrize(("streams", "direction", "eps", "c", "period", "delta"), EXACT.values(), ids=EXACT)
def test_brackets_hold_the_exact_delta(
    streams: Streams, direction: Direction, eps: float, c: float, period: float, delta: str
) -> None:
    exact, narrow = mpf(delta), 0
    # Made for another epsilon or with a wrong guess at delta, the bracket may be wide but must hold.
    for near, guess in ((1.0, 1.0), (1.004, 1.0), (0.99, 1.0), (1.0, 1e-4), (1.0, 300.0)):
        expected = min(1.0, float(exact) * guess)
        lower, upper = bracket(streams, direction, eps * near, expected, eps)
        assert 0 <= lower <= exact <= upper <= 1, (near, guess)
        narrow += upper - lower <= 1e-6 * exact
    name = next(name for name, row in EXACT.items() if row[5] == delta)
    assert narrow >= 3 or name in HUMPS


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("log_error", [-18.0, -12.0, -6.0])
def test_the_bracket_holds_however_many_steps_multiply_its_rounding(direction: Direction, log_error: float) -> None:
    """With T steps of noise sqrt(T) and q = 1/2 little changes but the rounding; the two brackets must agree."""
    few, many = 10**3, 10 ** round(-log_error / 2)
    # Refining the steps changes delta by O(1/T): an extrapolation in 1/T is good to O(1/T²).
    eps = 1.0
    brackets = [
        contour([(0.5 * math.sqrt(steps), 0.5, steps)], direction, eps, 1e-3).delta(eps)
        for steps in (few, 2 * few, 4 * few, many)
    ]
    first, second, third = (sum(bracket) / 2 for bracket in brackets[:3])
    limit = (8 * third - 6 * second + first) / 3  # removes 1/T and 1/T²
    if many > 10**6:
        assert brackets[3][0] == pytest.approx(limit, rel=1e-8)
    assert all(lower <= upper <= lower * (1 + 1e-7) for lower, upper in brackets)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_delta_falls_with_eps_and_one_evaluation_is_valid_at_all(direction: Direction) -> None:
    evaluation = contour([(1.0, 0.01, 1000)], direction, 1.0, 1e-5)
    before = 1.0
    for eps in (0.0, 1e-9, 0.3, 0.9, 1.0, 1.1, 3.0, 30.0):
        lower, upper = evaluation.delta(eps)
        fresh = contour([(1.0, 0.01, 1000)], direction, eps, 1e-5).delta(eps)
        assert max(lower, fresh[0]) <= min(upper, fresh[1])
        assert fresh[0] <= before
        before = fresh[1]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_many_different_segments_are_the_one_that_they_nearly_are(direction: Direction) -> None:
    """More than one block of streams; the noise differs by too little to be seen in delta."""
    segments = [(2.0 * (1 + 1e-13 * i), 0.02, 20) for i in range(300)]
    tracemalloc.start()
    together = contour(segments, direction, 1.0, 1e-5).delta(1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    alone = contour([(2.0, 0.02, 6000)], direction, 1.0, 1e-5).delta(1.0)
    assert peak < 4e8
    assert together == pytest.approx(alone, rel=1e-8)
    assert together[1] - together[0] < 1e-8 * together[0]


def test_streams_of_every_kind_at_once() -> None:
    """Composition is at least as revealing as each of its parts, and at most as their basic composition."""
    rng = np.random.default_rng(5)
    streams = [(float(3 * 4**x), float(10 ** -(2 + 2 * y)), int(10 ** (3 * z))) for x, y, z in rng.random((300, 3))]
    lower, upper = contour(streams, "remove", 0.5, 1e-6).delta(0.5)
    assert upper - lower < 1e-8 * upper
    for i in range(0, 300, 60):
        assert contour(streams[i : i + 60], "remove", 0.5, 1e-12).delta(0.5)[0] <= upper


@pytest.mark.parametrize(
    ("stream", "eps"), [((0.383, 0.01, 1000), 0.0), ((0.7, 0.037, 2573), 1.0), ((0.5, 0.3, 400), 100.0)]
)
def test_a_delta_next_to_one_is_as_exact(stream: tuple[float, float, int], eps: float) -> None:
    """Far below the median loss Chernoff's bound is flat, and the lattice agrees."""
    lower, upper = contour([stream], "remove", eps, 0.9).delta(eps)
    assert 0.8 < lower <= upper < lower + 1e-10
    low, high = tilted_pld([stream], "remove", eps, size=1 << 16).delta(eps)
    assert max(low, lower) <= min(high, upper)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_far_below_what_is_asked_for_a_bound_is_left(direction: Direction) -> None:
    evaluation = contour([(5.0, 0.01, 100)], direction, 50.0, 1e-36)
    lower, upper = evaluation.delta(50.0)
    assert isinstance(evaluation, Chernoff)
    assert 0 == lower < upper < 1e-30


def test_the_kind_of_evaluation_that_is_promised() -> None:
    assert isinstance(contour([(1.0, 0.01, 1000)], "remove", 1.0, 1e-5), Contour)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-3, 1e3, 1e12])
@pytest.mark.parametrize(
    "stream", [(1.0, 0.01, 1000), (0.05, 0.5, 1000), (1e7, 1e-9, 10**9), (1e7, 1e-9, 1), (0.05, 1e-8, 10**6)]
)
def test_no_corner_warns_overflows_or_needs_a_large_array(
    direction: Direction, eps: float, stream: tuple[float, float, int]
) -> None:
    tracemalloc.start()
    lower, upper = bracket([stream], direction, eps, 1e-9, eps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 <= lower <= upper <= 1
    assert peak < 2e8


def test_a_sampled_record_beyond_any_float_of_noise_is_counted() -> None:
    """Where noise is this small, the normal density of what sampling does is below every float."""
    for q, steps, delta in ((1e-9, 10**9, -math.expm1(-1.0)), (1e-6, 10**3, -math.expm1(-1e-3))):
        assert contour([(0.02, q, steps)], "remove", 0.0, 0.5).delta(0.0)[1] >= delta * (1 - 1e-6)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "eps", "delta"),
    [
        (0.4224, 4.422e-5, 1_048_483, 8.0, 3.8e-8),
        (0.5879, 9.144e-5, 486_295, 1.6, 6.8e-7),
        (0.62, 1.3e-4, 60_000, 0.7, 1e-5),
    ],
)
def test_few_large_losses_are_resolved_with_few_nodes(
    sigma: float, q: float, steps: int, eps: float, delta: float
) -> None:
    evaluation = contour([(sigma, q, steps)], "remove", eps, delta)
    assert isinstance(evaluation, Contour)
    assert len(evaluation.kernel) < 1000
    lower, upper = evaluation.delta(eps)
    assert upper - lower < 1e-7 * upper

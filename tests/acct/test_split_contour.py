"""Delta in two parts: against one step's closed form, the other engines, and where nothing else has an answer."""

import time

import pytest
from mpmath import mpf

from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants.contour import contour
from raptor_acct.accountants.split_contour import SplitContour, split_contour
from raptor_acct.accountants.tilted_pld import tilted_pld
from tests.acct.exact import one_step

Streams = list[tuple[float, float, int]]


@pytest.mark.parametrize("direction", ["remove", "replace"])
@pytest.mark.parametrize(
    ("sigma", "q", "eps"), [(0.4, 1e-4, 1.0), (0.7, 1e-4, 0.2), (0.35, 3e-3, 6.0), (0.6, 3e-3, 2.0), (0.5, 1e-7, 3.0)]
)
def test_one_step_by_its_closed_form(sigma: float, q: float, eps: float, direction: Direction) -> None:
    exact = one_step(sigma, q, direction, mpf(eps))
    lower, upper = split_contour([(sigma, q, 1)], direction, eps, float(exact)).delta(eps)
    assert lower <= exact <= upper
    assert upper - lower <= 1e-8 * exact


SELDOM: list[tuple[Streams, float]] = [
    ([(0.4138, 1e-4, 100), (0.5298, 1e-4, 100)], 1.0),
    ([(0.4406, 1.58e-5, 73_417)], 3.21),
    ([(0.4923, 1.44e-7, 114_583_333)], 0.829),
    ([(0.4055, 1e-7, 10**6), (30.0, 1.0, 10)], 1.5),
]


@pytest.mark.parametrize("direction", ["remove", "replace"])
@pytest.mark.parametrize(("streams", "eps"), SELDOM, ids=str)
def test_seldom_sampled_streams_are_resolved_and_the_lattice_agrees(
    streams: Streams, eps: float, direction: Direction
) -> None:
    low, high = tilted_pld(streams, direction, eps, size=1 << 14).delta(eps)
    lower, upper = split_contour(streams, direction, eps, high).delta(eps)
    assert max(low, lower) <= min(high, upper)
    assert 0 < upper - lower <= 1e-8 * upper


@pytest.mark.parametrize("expected", [1e-4, 1e-10])
def test_both_parts_matter_and_add_up_to_the_whole(expected: float) -> None:
    """Here losses just below epsilon add up to a third of delta; the guess of delta changes no truth."""
    streams, eps = [(1.249934297964078, 0.0009650832109101824, 3759)], 0.3263885646857991
    low, high = contour(streams, "remove", eps, 2.3e-10).delta(eps)
    split = split_contour(streams, "remove", eps, expected)
    assert isinstance(split, SplitContour)
    assert split.small.delta(eps)[0] > 0.3 * high
    lower, upper = split.delta(eps)
    assert max(low, lower) <= min(high, upper)
    assert upper - lower < 1e-5 * upper


def test_where_nothing_is_resolved_the_bound_holds() -> None:
    streams: Streams = [(0.1969, 9e-6, 1), (0.2217, 9e-6, 1)]
    low, _ = tilted_pld(streams, "remove", 1.0, size=1 << 14).delta(1.0)
    lower, upper = split_contour(streams, "remove", 1.0, 1e-5).delta(1.0)
    assert lower <= upper < 1e-4
    assert upper >= low


def test_it_does_not_take_long() -> None:
    started = time.process_time()
    split_contour([(0.4138, 1e-4, 100), (0.5298, 1e-4, 100)], "remove", 1.0, 1e-5)
    assert time.process_time() - started < 0.5

"""Delta by the size of the losses: against one step in closed form, other engines, and where nothing else answers."""

import time

import pytest
from mpmath import mpf

from raptor_acct.accountants._line import Plan
from raptor_acct.accountants._log_mgf import Steps
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._small_losses import small_losses
from raptor_acct.accountants.contour import contour
from raptor_acct.accountants.split_contour import split_contour
from raptor_acct.accountants.tilted_pld import tilted_pld
from tests.acct.exact import one_step

Streams = list[tuple[float, float, int]]


@pytest.mark.parametrize("direction", ["remove", "replace"])
@pytest.mark.parametrize(
    ("sigma", "q", "eps"), [(0.4, 1e-4, 1.0), (0.7, 1e-4, 0.2), (0.35, 3e-3, 6.0), (0.6, 3e-3, 2.0), (0.5, 1e-7, 3.0)]
)
def test_one_step_by_its_closed_form(sigma: float, q: float, eps: float, direction: Direction) -> None:
    exact = one_step(sigma, q, direction, mpf(eps))
    split = split_contour([(sigma, q, 1)], direction, eps, float(exact))
    assert split is not None
    lower, upper = split.delta(eps)
    assert lower <= exact <= upper
    assert upper - lower <= 1e-8 * exact


SELDOM: list[tuple[Streams, float]] = [
    ([(0.4138, 1e-4, 100), (0.5298, 1e-4, 100)], 1.0),
    ([(0.4406, 1.58e-5, 73_417)], 3.21),
    ([(0.4923, 1.44e-7, 114_583_333)], 0.829),
    ([(0.4055, 1e-7, 10**6), (30.0, 1.0, 10)], 1.5),
    # small targets: losses of very different sizes count
    ([(0.46, 1.15e-7, 296_197)], 0.154),
    ([(0.397, 1.34e-8, 3210)], 0.0143),
    ([(0.354, 1.04e-8, 32_750_534)], 0.0376),
    ([(0.368, 1.33e-5, 9499)], 0.0394),
    ([(0.444, 1.58e-6, 1_354_046), (0.6, 1.58e-6, 1_354_046)], 0.151),
    # and the many small ones as well
    ([(0.846, 8.36e-6, 90_507)], 0.0269),
    ([(0.72, 2.24e-5, 1_431_767)], 0.479),
    ([(0.784, 7.13e-7, 44_516_855)], 0.044),
]


@pytest.mark.parametrize("direction", ["remove", "replace"])
@pytest.mark.parametrize(("streams", "eps"), SELDOM, ids=str)
def test_seldom_sampled_streams_are_resolved_and_the_lattice_agrees(
    streams: Streams, eps: float, direction: Direction
) -> None:
    low, high = tilted_pld(streams, direction, eps, size=1 << 14).delta(eps)
    split = split_contour(streams, direction, eps, high)
    assert split is not None
    lower, upper = split.delta(eps)
    assert max(low, lower) <= min(high, upper)
    assert 0 < upper - lower <= 1e-6 * upper
    assert split.outside + split.twice <= 1e-7 * high


@pytest.mark.parametrize("expected", [1e-4, 1e-10])
def test_both_parts_matter_and_add_up_to_the_whole(expected: float) -> None:
    """Here losses just below epsilon add up to a third of delta; the guess of delta changes no truth."""
    streams, eps = [(1.249934297964078, 0.0009650832109101824, 3759)], 0.3263885646857991
    low, high = contour(streams, "remove", eps, 2.3e-10).delta(eps)
    split = split_contour(streams, "remove", eps, expected)
    assert split is not None
    assert split.small.delta(eps)[0] > 0.3 * high
    lower, upper = split.delta(eps)
    assert max(low, lower) <= min(high, upper)
    assert upper - lower < 1e-5 * upper


def test_where_nothing_is_resolved_there_is_no_answer_and_soon() -> None:
    started = time.process_time()
    assert split_contour([(0.512, 2.77e-5, 2220)], "replace", 2.02e-5, 0.00432) is None
    assert time.process_time() - started < 0.5


def test_a_delta_next_to_all_mass_that_can_leak_is_resolved() -> None:
    streams: Streams = [(0.1969, 9e-6, 1), (0.2217, 9e-6, 1)]
    low, high = tilted_pld(streams, "remove", 1.0, size=1 << 18).delta(1.0)
    split = split_contour(streams, "remove", 1.0, high)
    assert split is not None
    lower, upper = split.delta(1.0)
    assert max(low, lower) <= min(high, upper)
    assert upper - lower < 1e-6 * upper < 1.8e-11


@pytest.mark.parametrize("direction", ["remove", "replace"])
@pytest.mark.parametrize(("sigma", "q", "eps"), [(0.4, 1e-4, 0.3), (0.7, 1e-4, 0.02), (0.6, 3e-3, 1.0)])
@pytest.mark.parametrize("steps", [1, 40])
def test_what_small_losses_leave_is_bounded(
    sigma: float, q: float, eps: float, steps: int, direction: Direction
) -> None:
    """Against the lattice of all losses: without the large ones, delta is less; with none left out, it is no less."""
    streams = [(sigma, q, steps)]
    low, _ = tilted_pld(streams, direction, eps, size=1 << 14).delta(eps)
    least = 1.0
    for loss in (1e-2 * eps, eps / 4, eps / 2, 20.0):
        plan = Plan(streams, direction, low, lambda step, loss=loss: Steps(step, step.rises_above(loss)))
        bounds = [small_losses(plan, eps, allowed).delta(eps) for allowed in (1e-20, 1e-6 * low)]
        assert all(lower == 0 for lower, _ in bounds)
        least = min(upper for _, upper in bounds)
        if loss < eps:
            assert least < 0.5 * low
    assert least >= low


def test_it_does_not_take_long() -> None:
    started = time.process_time()
    split_contour([(0.4138, 1e-4, 100), (0.5298, 1e-4, 100)], "remove", 1.0, 1e-5)
    assert time.process_time() - started < 0.5

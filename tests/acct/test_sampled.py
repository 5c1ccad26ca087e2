"""Profiles of sampled streams: against exact points, two other engines, and what any profile has to satisfy."""

import itertools
import math
import time
import tracemalloc
from collections.abc import Sequence

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mpmath import mpf

from raptor_acct import SubsampledGaussian
from raptor_acct.accountants import GaussianProfile, Profile, SampledProfile, gaussian_profile, privacy_profile
from raptor_acct.accountants._one_step import Direction
from raptor_acct.accountants._stream import Stream
from raptor_acct.accountants.contour import contour
from raptor_acct.accountants.tilted_pld import tilted_pld
from raptor_acct.adjacency import ADJACENCIES, Adjacency
from raptor_acct.bound import Bound
from tests.acct.exact import EXACT, one_step, two_steps

Streams = list[tuple[float, float, int]]
SEEN_BY: dict[Adjacency, tuple[Direction, ...]] = {"add_remove": ("remove", "add"), "replace_one": ("replace",)}
fuzz = settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def stream(sigma: float, q: float, steps: int) -> SubsampledGaussian:
    return SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)


def profile(*streams: tuple[float, float, int], adjacency: Adjacency = "add_remove") -> Profile:
    return privacy_profile([stream(*one) for one in streams], adjacency)


def bracket(streams: Streams, direction: Direction, eps: float, expected: float) -> tuple[float, float]:
    """Return what the contour integral certifies: nothing where it has no answer."""
    evaluation = contour(streams, direction, eps, expected)
    return evaluation.delta(eps) if evaluation else (0.0, 1.0)


def touch(*brackets: tuple[float, float]) -> bool:
    """Say whether the brackets have a point in common."""
    return max(lower for lower, _ in brackets) <= min(upper for _, upper in brackets)


def sound(bound: Bound) -> bool:
    return 0 <= bound.lower <= bound <= bound.upper < math.inf


# Exact points --------------------------------------------------------------------------------------------------------

PLANS: dict[tuple[str, str], dict[str, tuple[Streams, float, mpf]]] = {}
for _name, (_streams, _direction, _eps, _, _, _delta) in EXACT.items():
    PLANS.setdefault((repr(_streams), repr(_eps)), {})[_direction] = (_streams, _eps, mpf(_delta))
WHOLE = [points for points in PLANS.values() if "replace" in points or {"remove", "add"} <= points.keys()]


@pytest.mark.parametrize("points", WHOLE)
def test_profiles_hold_the_exact_points(points: dict[str, tuple[Streams, float, mpf]]) -> None:
    for adjacency, directions in SEEN_BY.items():
        if set(directions) <= points.keys():
            streams, eps, _ = points[directions[0]]
            exact = max(points[direction][2] for direction in directions)
            bound = profile(*streams, adjacency=adjacency).delta(eps)
            assert bound.lower <= exact <= bound.upper
            assert bound.width <= 1e-6 * exact


@pytest.mark.parametrize(("streams", "direction", "eps", "c", "period", "delta"), EXACT.values(), ids=EXACT)
def test_the_other_engine_holds_the_exact_points(
    streams: Streams, direction: Direction, eps: float, c: float, period: float, delta: str
) -> None:
    lower, upper = tilted_pld(streams, direction, eps, size=1 << 13).delta(eps)
    assert lower <= mpf(delta) <= upper


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.01), (0.05, 0.3), (1e6, 0.5), (3.0, 1 - 1e-12), (0.5, 1e-8)])
def test_one_step_by_its_closed_form(sigma: float, q: float, direction: Direction) -> None:
    adjacency: Adjacency = "replace_one" if direction == "replace" else "add_remove"
    for eps in (0.0, 1e-6, 0.1, 2.0, 150.0):
        exact = max(one_step(sigma, q, one, mpf(eps)) for one in SEEN_BY[adjacency])
        bound = profile((sigma, q, 1), adjacency=adjacency).delta(eps)
        assert bound.lower <= exact <= bound.upper
        assert exact < 1e-36 or bound.width <= 1e-6 * exact
        lower, upper = bracket([(sigma, q, 1)], direction, eps, 0.1)
        assert lower <= one_step(sigma, q, direction, mpf(eps)) <= upper


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("first", "second", "eps"), [((2.0, 0.5), (3.0, 0.7), 0.3), ((2.0, 0.5), (2.0, 0.5), 0.5)])
def test_two_steps_by_an_integral(
    first: tuple[float, float], second: tuple[float, float], direction: Direction, eps: float
) -> None:
    exact = two_steps(first, second, direction, eps)
    streams = [(*first, 1), (*second, 1)]
    for lower, upper in (
        contour(streams, direction, eps, 0.1).delta(eps),
        tilted_pld(streams, direction, eps).delta(eps),
    ):
        assert lower <= exact * (1 + mpf(10) ** -9)
        assert upper >= exact * (1 - mpf(10) ** -9)


# Other engines --------------------------------------------------------------------------------------------------------

SETTINGS: list[Streams] = [
    [(2.0, 0.01, 2000)],
    [(3.0, 0.5, 20)],
    [(1.2, 0.02, 500), (6.0, 0.05, 300)],
    [(8.0, 0.9, 60), (30.0, 1.0, 100)],
]


def dp_accounting(streams: Streams, pessimistic: bool) -> pld.PrivacyLossDistribution:
    parts = [
        pld.from_gaussian_mechanism(
            s,
            value_discretization_interval=5e-4,
            sampling_prob=q,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,  # there is no optimistic form of it
        ).self_compose(n)
        for s, q, n in streams
    ]
    for part in parts[1:]:
        parts[0] = parts[0].compose(part)
    return parts[0]


@pytest.mark.parametrize("streams", SETTINGS, ids=str)
def test_three_engines_agree(streams: Streams) -> None:
    above, below = dp_accounting(streams, pessimistic=True), dp_accounting(streams, pessimistic=False)
    ours = profile(*streams)
    for delta in (1e-6,):
        bound = ours.epsilon(delta)
        assert below.get_epsilon_for_delta(delta) <= bound.upper
        assert bound.lower <= above.get_epsilon_for_delta(delta)
        assert bound.width < 1e-6 * bound
        for eps, direction in itertools.product((float(bound), 0.5 * bound), ("remove", "add", "replace")):
            assert touch(
                bracket(streams, direction, eps, delta),  # type: ignore[arg-type]
                tilted_pld(streams, direction, eps, size=1 << 14).delta(eps),  # type: ignore[arg-type]
            )


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_without_sampling_the_profile_is_the_closed_form(adjacency: Adjacency) -> None:
    streams = [stream(30.0, 1.0, 100), stream(7.0, 1.0, 3)]
    assert isinstance(privacy_profile(streams, adjacency), GaussianProfile)
    # The sampled engine sees a stream that hardly adds anything, and one that hardly samples.
    for q in (1e-9, 1 - 2.0**-40):
        nearly = SampledProfile([*streams[1:], stream(30.0, 1.0, 99), stream(30.0, q, 1)], adjacency)
        others = streams if q > 0.5 else [streams[1], stream(30.0, 1.0, 99)]
        for delta in (1e-9, 1e-5, 1e-2):
            assert nearly.epsilon(delta) == pytest.approx(gaussian_profile(others, adjacency).epsilon(delta), rel=1e-7)


# Properties -----------------------------------------------------------------------------------------------------------

sigmas = st.floats(math.log(0.8), math.log(50)).map(math.exp)
qs = st.floats(math.log(1e-3), 0).map(math.exp) | st.just(1.0)
counts = st.integers(50, 5000)
streams_of = st.tuples(sigmas, qs, counts)
deltas = st.floats(-20, -1).map(lambda x: 10.0**x)
adjacencies = st.sampled_from(ADJACENCIES)


def ordered(smaller: Bound, larger: Bound) -> bool:
    """Say whether nothing that is certified contradicts smaller <= larger, with all ends in order."""
    return sound(smaller) and sound(larger) and smaller.lower <= larger.upper


@given(one=streams_of, delta=deltas, adjacency=adjacencies)
@fuzz
def test_epsilon_rises_with_steps_and_sampling_and_falls_with_noise_and_delta(
    one: tuple[float, float, int], delta: float, adjacency: Adjacency
) -> None:
    sigma, q, steps = one
    eps = profile(one, adjacency=adjacency).epsilon(delta)
    assert ordered(eps, profile((sigma, q, steps + steps // 10), adjacency=adjacency).epsilon(delta))
    assert ordered(eps, profile((0.99 * sigma, q, steps), adjacency=adjacency).epsilon(delta))
    assert ordered(eps, profile(one, adjacency=adjacency).epsilon(0.9 * delta))
    assert ordered(profile((sigma, 0.99 * q, steps), adjacency=adjacency).epsilon(delta), eps)


@given(one=streams_of, other=streams_of, eps=st.floats(0, 8))
@fuzz
def test_delta_falls_with_eps_and_a_composition_reveals_more_than_its_parts(
    one: tuple[float, float, int], other: tuple[float, float, int], eps: float
) -> None:
    both = profile(one, other)
    delta = both.delta(eps)
    assert ordered(both.delta(eps + 0.01), delta)
    assert ordered(profile(one).delta(eps), delta)
    assert ordered(profile(other).delta(eps), delta)
    assert ordered(delta, profile(one, other, adjacency="replace_one").delta(eps))


@given(one=streams_of, other=streams_of, delta=deltas)
@fuzz
def test_order_and_splitting_change_nothing(
    one: tuple[float, float, int], other: tuple[float, float, int], delta: float
) -> None:
    eps = profile(one, other).epsilon(delta)
    sigma, q, steps = one
    halves = (sigma, q, steps // 2), (sigma, q, steps - steps // 2)
    for same in (profile(other, one), profile(halves[1], other, halves[0])):
        again = same.epsilon(delta)
        assert (again.lower, again.upper) == (eps.lower, eps.upper)


@given(one=streams_of, delta=deltas, adjacency=adjacencies)
@fuzz
def test_epsilon_and_delta_are_inverse(one: tuple[float, float, int], delta: float, adjacency: Adjacency) -> None:
    plan = profile(one, adjacency=adjacency)
    eps = plan.epsilon(delta)
    assert plan.delta(float(eps)).upper <= delta
    assert plan.excess(float(eps), delta) <= 0
    assert eps == 0 or plan.delta(0.999 * eps.lower).upper > delta
    if eps.lower > 0:
        assert plan.delta(eps.lower).lower >= delta * (1 - 1e-12)
        assert plan.excess(0.999 * eps.lower, delta) > 0


# Edges ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("one", [(1.0, 0.01, 100), (1e4, 1e-6, 10), (5.0, 0.5, 3)])
def test_epsilon_is_zero_where_delta_covers_the_total_variation(
    one: tuple[float, float, int], adjacency: Adjacency
) -> None:
    plan = profile(one, adjacency=adjacency)
    distance = plan.delta(0.0)
    assert plan.epsilon(distance.upper * 1.01) == 0
    assert 0 < plan.epsilon(distance.lower * 0.9) < math.inf


def test_the_worse_direction_counts() -> None:
    """Removing is worse where losses are rare and large; adding has a bounded loss, -log(1 - q) at most a step."""
    assert profile((1.0, 0.01, 10)).delta(0.2).lower > bracket([(1.0, 0.01, 10)], "add", 0.2, 1e-9)[1]
    # With q close to 1 the two nearly agree.
    add = bracket([(2.0, 0.999, 10)], "add", 5.0, 1e-3)
    assert profile((2.0, 0.999, 10)).delta(5.0) == pytest.approx(add[1], rel=1e-2)
    assert profile((2.0, 0.999, 10)).delta(5.0).upper >= add[0]


def test_a_billion_steps_and_three_hundred_segments_stay_within_time_and_memory() -> None:
    plans: list[Sequence[Stream]] = [
        [stream(300.0, 0.01, 10**8)],
        [stream(1.5 + 0.01 * i, 0.02 / (1 + i % 7), 10 + i) for i in range(300)],
    ]
    for plan in plans:
        tracemalloc.start()
        started = time.process_time()
        delta = privacy_profile(plan, "add_remove").delta(1.8)
        spent, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0 < delta.width < 1e-6 * delta
        assert spent < 20
        assert peak < 1e9


CORNERS = {
    "least q": [(1.0, 1e-8, 10**6)],
    "most steps, least q": [(0.5, 1e-8, 10**8)],
    "rare, many": [(0.64, 5e-7, 173_908)],
    "little noise": [(0.05, 0.01, 1000)],
    "little noise, always": [(0.05, 1.0, 1), (1.0, 0.5, 10)],
    "much noise": [(1e6, 0.5, 1)],
    "much noise, rare": [(1e6, 1e-8, 1)],
    "enormous": [(1.0, 0.5, 10**8)],
    "nearly always": [(0.9, 1 - 1e-9, 40)],
    "all kinds": [(0.07, 2e-7, 53), (1.9, 5e-5, 4_071_803), (24.0, 1.0, 11), (640.0, 0.6, 10**5)],
}


@pytest.mark.parametrize("streams", CORNERS.values(), ids=CORNERS)
def test_corners_answer_soundly_and_soon_or_name_the_bound(streams: Streams) -> None:
    plan = profile(*streams)
    for value in (0.0, 1e3):
        assert sound(plan.delta(value))
    for delta in (1e-9,):
        started = time.process_time()
        try:
            eps = plan.epsilon(delta)
        except ValueError as error:
            assert str(error).startswith("expected")  # noqa: PT017 - an answer is as good
        else:
            assert sound(eps)
            assert plan.delta(float(eps)).lower <= delta
        assert time.process_time() - started < 8


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("sigma", "q", "steps"), [(0.05, 1e-8, 10), (0.21, 1.4257e-7, 8), (0.1, 1e-6, 100)])
def test_hardly_ever_sampled_is_hardly_ever_exposed(adjacency: Adjacency, sigma: float, q: float, steps: int) -> None:
    bound = profile((sigma, q, steps), adjacency=adjacency).delta(0.03)
    assert bound.lower <= bound.upper <= q * steps * (1 + 1e-9)
    if sigma < 0.2:  # so little noise that being sampled gives the record away
        assert bound.upper > 0.9 * q * steps


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("sigma", "q", "steps", "eps"),
    [(0.0407, 2.31e-5, 20, 0.00243), (0.0375, 8.37e-6, 9126, 1.11), (0.025, 1e-5, 100, 0.5), (0.05, 1e-6, 1000, 1e-6)],
)
def test_with_hardly_any_noise_a_record_sampled_is_a_record_exposed(
    adjacency: Adjacency, sigma: float, q: float, steps: int, eps: float
) -> None:
    """No engine may fail there, nor warn: what is left is the chance to be sampled."""
    ever = -math.expm1(steps * math.log1p(-q))
    bound = profile((sigma, q, steps), adjacency=adjacency).delta(eps)
    assert bound.lower <= bound.upper <= ever * (1 + 1e-9)
    assert bound.upper > 0.9 * ever
    assert sound(profile((sigma, q, steps), adjacency=adjacency).epsilon(0.5 * ever))

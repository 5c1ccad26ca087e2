"""Calibration: the exact tables, the safe side, and every bad argument by name."""

import json
import math
import re
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor_acct import (
    Calibration,
    Mechanism,
    SubsampledGaussian,
    calibrate_sigma,
    calibrate_sigmas,
    default_delta,
    hand_back_slack,
    privacy_spent,
)

N, Q, T = 67349, 1000 / 67349, 1347
DELTA = default_delta(N)
ABOVE = 1e-6
DIGITS = 5e-8  # of the printed exact values

# Theory P3, exact: sigma_shared and sigma_expert of the basic split, the epsilon of that pair, the factor with
# keep="ratio", sigma_expert with keep="shared", sigma_shared with keep="expert".
TABLE = {
    1: (2.57316138477651, 18.707194486585536, 0.8702200172105693, 0.8915389792845897, 4.39100230, 2.29071441),
    4: (0.9935909575513991, 5.239955456840617, 3.489748203855667, 0.9363443769910095, 1.42146506, 0.92990768),
    8: (0.7411256468407997, 2.842543426703, 6.971837117046966, 0.9506829840297247, 0.93475863, 0.70436071),
}


def assert_just_above(value: float, exact: float) -> None:
    assert exact * (1 - DIGITS) <= value <= exact * (1 + ABOVE)


@pytest.fixture(scope="module")
def basics() -> dict[int, Calibration]:
    return {eps: calibrate_sigmas(eps, DELTA, 0.9, Q, T) for eps in TABLE}


@pytest.mark.parametrize("eps", TABLE)
def test_basic_split_of_the_paper(eps: int, basics: dict[int, Calibration]) -> None:
    basic = basics[eps]
    shared, expert = basic
    assert_just_above(shared, TABLE[eps][0])
    assert_just_above(expert, TABLE[eps][1])
    assert basic.epsilon_shared <= 0.9 * eps < basic.epsilon_shared * (1 + 1e-5)
    assert basic.epsilon_expert <= 0.1 * eps * (1 + 1e-15) < basic.epsilon_expert * (1 + 1e-5)
    assert_just_above(privacy_spent(*TABLE[eps][:2], Q, T, delta=DELTA).epsilon, TABLE[eps][2])


@pytest.mark.parametrize("eps", TABLE)
def test_joint_calibration(eps: int, basics: dict[int, Calibration]) -> None:
    shared, expert, _, factor, expert_alone, shared_alone = TABLE[eps]
    ratio, kept_shared, kept_expert = (hand_back_slack(basics[eps], keep) for keep in ("ratio", "shared", "expert"))
    assert_just_above(ratio.sigma_shared, shared * factor)
    assert_just_above(ratio.sigma_expert, expert * factor)
    assert kept_shared.sigma_shared == basics[eps].sigma_shared
    # Where the other noise is a little above the least, this one may be a little below it.
    assert kept_shared.sigma_expert == pytest.approx(expert_alone, rel=ABOVE)
    assert kept_expert.sigma_expert == basics[eps].sigma_expert
    assert kept_expert.sigma_shared == pytest.approx(shared_alone, rel=ABOVE)
    for joint in (ratio, kept_shared, kept_expert):
        assert joint.epsilon <= eps < joint.epsilon * (1 + 1e-6)


def test_joint_in_one_call_is_the_basic_split_with_its_slack_handed_back() -> None:
    direct = calibrate_sigmas(1, 1e-6, 0.9, 0.1, 30, composition="joint", keep="shared")
    assert direct == hand_back_slack(calibrate_sigmas(1, 1e-6, 0.9, 0.1, 30), "shared")
    with pytest.raises(ValueError, match=r"expected basic\.composition"):
        hand_back_slack(direct)


def test_a_stream_that_others_cannot_resolve() -> None:
    """S4: fixed grids answer 898.7 here, Renyi accounting 1.6e6."""
    assert_just_above(calibrate_sigma(0.005, 5e-7, 0.02, 1500), 474.53630207405837)
    assert_just_above(calibrate_sigma(0.045, 5e-7, 0.02, 1500), 62.01708874991347)


def test_a_million_steps() -> None:
    """S3: a fixed grid answers 21.11."""
    assert_just_above(calibrate_sigma(0.1, 5e-10, 1e-4, 10**6), 5.1946046954)


def referee(mechanism: Mechanism, delta: float) -> float:
    """Return dp-accounting's epsilon on a grid fine against the smallest one-step deviation."""
    interval = 1.0
    for stream in mechanism.streams:
        if stream.sampling_probability == 1:
            interval = min(interval, 0.005 * math.sqrt(stream.num_steps) / stream.noise_multiplier)
            continue
        spread = stream.sampling_probability * math.sqrt(math.expm1(stream.noise_multiplier**-2))
        reach = 10 / stream.noise_multiplier + stream.noise_multiplier**-2
        interval = min(interval, max(0.01 * spread, reach / 40_000))
    accountant = PLDAccountant(value_discretization_interval=interval)
    return float(accountant.compose(mechanism.to_dp_event()).get_epsilon(delta))


@pytest.mark.parametrize("seed", range(1, 11))
def test_random_calibrations_are_safe_and_tight_by_a_second_accountant(seed: int) -> None:
    """The full 200 of B01 are in benchmarks/check_accounting.py."""
    rng = np.random.default_rng(seed)
    eps, rho = float(rng.uniform(0.1, 10)), float(rng.choice([0.1, 0.5, 0.9]))
    q, steps = float(np.exp(rng.uniform(math.log(1e-3), 0))), int(rng.integers(1, 2001))
    shared, expert = calibrate_sigmas(eps, 1e-5, rho, q, steps)
    # The referee rounds up, by less than 1e-3 on this grid, so it may say a little more than the target.
    sigma, target = (shared, rho * eps) if seed % 2 else (expert, (1 - rho) * eps)
    stream = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)
    assert target - 1e-3 <= referee(stream, 5e-6) <= target + 1e-3
    # And by the accountant's own lower end: a millionth less noise would not do, where delta is known that well.
    certified = stream.guarantee().delta(target)
    share = 1.2e-6 if certified.width < 1e-6 * certified else 1e-4
    less = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma * (1 - share))
    assert less.guarantee().delta(target).lower > 5e-6 >= certified.upper


SCHEDULES: dict[str, dict[str, Any]] = {
    "sampled": {"q": 0.02, "steps": 300},
    "plain": {"q": 1.0, "steps": 7},
    "pairs": {"q": (0.01, 1.0), "steps": (500, 20)},
    "replace": {"q": 0.05, "steps": 100, "adjacency": "replace_one"},
}


WAYS = [
    {"composition": "basic"},
    *({"composition": "joint", "keep": keep} for keep in ("ratio", "shared", "expert")),
    {"composition": "joint", "keep": "ratio", "sampling": "same_batch"},
]


@pytest.mark.parametrize(
    ("schedule", "way"),
    [
        pytest.param(schedule, way, id=f"{name}-{way}")
        for way in WAYS
        for name, schedule in SCHEDULES.items()
        if not ("sampling" in way and isinstance(schedule["q"], tuple))  # one batch has one q
    ],
)
def test_the_noise_is_the_least_that_is_certified(schedule: dict[str, Any], way: dict[str, Any]) -> None:
    adjacency = schedule.get("adjacency", "add_remove")
    calibrated = calibrate_sigmas(1.5, 1e-6, 0.6, **schedule, **way)
    if way["composition"] == "basic":
        parts = [(calibrated.plan.shared, 0.9, "shared"), (calibrated.plan.expert, 0.6, "expert")]
        for stream, eps, _ in parts:
            less = replace(stream, noise_multiplier=stream.noise_multiplier * (1 - 1.2e-6))
            assert stream.guarantee(adjacency).delta(eps).upper <= 5e-7 < less.guarantee(adjacency).delta(eps).lower
        return
    plan, keep = calibrated.plan, way["keep"]
    changed = {
        name: replace(stream, noise_multiplier=stream.noise_multiplier * (1 - 1.2e-6))
        for name, stream in (("shared", plan.shared), ("expert", plan.expert))
        if name != keep
    }
    assert plan.guarantee(adjacency).delta(1.5).upper <= 1e-6
    assert replace(plan, **changed).guarantee(adjacency).delta(1.5).lower > 1e-6
    assert 1.5 * (1 - 1e-5) < calibrated.epsilon <= 1.5


@pytest.mark.parametrize(
    ("eps", "delta", "q", "steps"),
    [
        (1.0, 1e-30, 0.01, 1000),
        (1e-6, 1e-5, 0.01, 1000),
        (1e-6, 1e-30, 1.0, 1),
        (1e3, 1e-5, 0.01, 1000),
        (1e3, 1e-9, 1.0, 10**8),
        (1.0, 1e-5, 1e-8, 10**8),
        (1.0, 1e-5, 0.5, 10**8),
        (1.0, 1e-9, 0.99999, 1),
        (0.5, 5e-3, 0.3, 2),
        (3.0, 1e-12, 0.1, 5),
        (1e-3, 1e-9, 1e-6, 10),
    ],
)
def test_the_whole_range_is_answered_or_the_bound_is_named(eps: float, delta: float, q: float, steps: int) -> None:
    started = time.process_time()
    try:
        sigma = calibrate_sigma(eps, delta, q, steps)
    except ValueError as error:
        assert re.search(r"smallest noise multiplier|largest noise multiplier", str(error))  # noqa: PT017
    else:
        stream = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)
        assert stream.guarantee().delta(eps).upper <= delta
        less = replace(stream, noise_multiplier=sigma * (1 - 1e-4))
        assert less.guarantee().delta(eps).upper > delta
    assert time.process_time() - started < 8


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 60, 2000])
def test_without_sampling_the_noise_adds_up_to_the_closed_form(rho: float, steps: int) -> None:
    for composition in ("basic", "joint"):
        shared, expert = calibrate_sigmas(1, 1e-5, rho, 1.0, steps, composition=composition)  # type: ignore[arg-type]
        assert steps * (shared**-2 + expert**-2) <= 0.071851404655


@pytest.mark.parametrize(
    ("eps", "steps", "effective", "tolerance"),
    [
        (1, 1, 3.7306316348, 1e-6),
        (1, 60, 28.8973483850, 1e-6),
        (20, 1, 0.29004142, 1e-6),
        (0.01, 1, 243.7854376768, 1e-6),
    ],
)
def test_closed_forms_without_sampling(eps: float, steps: int, effective: float, tolerance: float) -> None:
    assert effective * (1 - 1e-9) <= calibrate_sigma(eps, 1e-5, 1.0, steps) <= effective * (1 + tolerance)
    joint = calibrate_sigmas(eps, 1e-5, 0.5, 1.0, steps, composition="joint")
    shared, expert = joint
    assert (shared**-2 + expert**-2) ** -0.5 == pytest.approx(effective, rel=tolerance)
    if (eps, steps) == (1, 1):
        assert shared == pytest.approx(5.2759098542, rel=1e-6)
        assert expert == pytest.approx(5.2759098542, rel=1e-6)


def test_replace_one_doubles_the_noise_without_sampling() -> None:
    assert calibrate_sigma(1, 1e-5, 1.0, 1, adjacency="replace_one") == pytest.approx(2 * 3.7306316348, rel=1e-6)
    calibrated = calibrate_sigmas(2.0, 1e-5, 0.5, 0.02, 200, adjacency="replace_one")
    assert calibrated.sigma_shared > calibrate_sigma(1.0, 5e-6, 0.02, 200) * 1.2
    assert calibrated.plan.guarantee("replace_one").epsilon(1e-5) == calibrated.epsilon <= 2


def test_large_eps_is_calibrated_in_time() -> None:
    started = time.process_time()
    calibrated = calibrate_sigmas(100, 1e-5, 0.5, 0.01, 1000)
    assert time.process_time() - started < 10
    assert 50 < calibrated.epsilon <= 100
    assert calibrate_sigma(100, 1e-5, 0.01, 1000) <= 0.27798


def test_small_eps_is_calibrated_without_a_huge_grid() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    tracemalloc.start()
    sigma = calibrate_sigma(1e-4, 1e-5, 0.01, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1500 < sigma < 6000
    assert calibrate_sigma(0.01, 1e-5, 1.0, 1) == pytest.approx(243.7854376768, rel=1e-6)
    assert peak < 1e8
    shared, expert = calibrate_sigmas(1e-4, 1e-5, 0.5, (0.01, 1.0), (1000, 1))
    assert 3000 < shared < 12000
    assert expert > 4000


def test_pairs_give_each_stream_its_own_schedule() -> None:
    calibrated = calibrate_sigmas(2.0, 1e-5, 0.5, (0.02, 0.1), (200, 50))
    assert calibrated.sigma_shared == calibrate_sigma(1.0, 5e-6, 0.02, 200)
    assert calibrated.sigma_expert == calibrate_sigma(1.0, 5e-6, 0.1, 50)
    assert (calibrated.plan.expert.num_steps, calibrated.plan.expert.sampling_probability) == (50, 0.1)


def test_delta_share_moves_noise_between_the_streams() -> None:
    even, uneven = (calibrate_sigmas(1, 1e-5, 0.5, 1.0, 1, delta_share=share) for share in (0.5, 0.9))
    assert uneven.sigma_shared < even.sigma_shared
    assert uneven.sigma_expert > even.sigma_expert
    assert uneven.sigma_shared == calibrate_sigma(0.5, 0.9e-5, 1.0, 1)


@pytest.mark.parametrize("keep", ["ratio", "shared", "expert"])
def test_same_batch_is_one_mechanism(keep: Any) -> None:
    calibrated = calibrate_sigmas(3.0, 1e-5, 0.7, 0.02, 200, composition="joint", keep=keep, sampling="same_batch")
    assert calibrated.plan.sampling == "same_batch"
    assert 3.0 * (1 - 1e-5) < calibrated.epsilon <= 3.0
    assert (calibrated.sigma_shared**-2 + calibrated.sigma_expert**-2) ** -0.5 == pytest.approx(
        calibrate_sigma(3.0, 1e-5, 0.02, 200), rel=1e-5
    )


def test_basic_composition_of_one_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"two releases from one batch are a single mechanism.*P4"):
        calibrate_sigmas(1, 1e-5, 0.5, 0.01, 100, sampling="same_batch")


def test_swapped_arguments_are_recognised() -> None:
    message = r"expected delta in \(0, 1\), got delta=1\.0; did you swap eps and delta\?"
    with pytest.raises(ValueError, match=message):
        calibrate_sigmas(1e-5, 1.0, 0.5, 0.01, 1000)


def test_everything_after_steps_is_keyword_only() -> None:
    with pytest.raises(TypeError):
        calibrate_sigmas(1, 1e-5, 0.5, 0.01, 1000, "joint")  # type: ignore[misc]


BAD = {
    "eps": [0, -1, math.nan, math.inf, "1", True],
    "delta": [0, 1, -1e-5, math.nan, 2],
    "rho": [0, 1, -0.1, 1.5, math.nan],
    "q": [0, -0.1, 1.3, math.nan, (0.1, 2), (0.1, 0.1, 0.1), "0.1"],
    "steps": [0, -5, 2.5, True, "1000", math.nan, (10, 2.5), (10,)],
    "delta_share": [0, 1, math.nan],
    "composition": ["renyi", None],
    "keep": ["both", None],
    "adjacency": ["zero_out", None],
    "sampling": ["shuffled", None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_arguments_are_refused_by_name_before_any_work(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptor_acct.calibration.least_noise", lambda *_, **__: pytest.fail("started to work"))
    good: dict[str, Any] = {"eps": 1.0, "delta": 1e-5, "rho": 0.5, "q": 0.1, "steps": 10}
    with pytest.raises(ValueError, match=f"^expected {name}"):
        calibrate_sigmas(**{**good, name: value})
    if name in ("eps", "delta", "q", "steps", "adjacency") and not isinstance(value, tuple):
        good.pop("rho")
        with pytest.raises(ValueError, match=f"^expected {name}"):
            calibrate_sigma(**{**good, name: value})


def test_numpy_steps_are_bit_identical() -> None:
    assert calibrate_sigmas(1, 1e-5, 0.5, 0.5, np.int64(10)) == calibrate_sigmas(1, 1e-5, 0.5, 0.5, 10)  # type: ignore[arg-type]


def test_a_large_delta_warns() -> None:
    with pytest.warns(UserWarning, match=r"delta=0\.05 lets each record leak"):
        calibrate_sigmas(1, 0.05, 0.5, 1.0, 1)


def test_unreachable_targets_name_stream_and_bound() -> None:
    with pytest.raises(ValueError, match=r"the single stream meets .* below the smallest noise multiplier supported"):
        calibrate_sigma(5000, 1e-5, 1.0, 1)
    with pytest.raises(ValueError, match=r"cannot meet .* below the largest noise multiplier supported"):
        calibrate_sigma(1e-9, 1e-9, 1.0, 1)


@pytest.mark.parametrize(
    ("eps", "delta", "q", "steps"), [(2.7e-5, 0.44, 5.4e-6, 22_353), (0.08, 8.3e-7, 3e-7, 2), (0.05, 0.07, 5e-4, 27)]
)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.filterwarnings("ignore:delta=")
def test_a_delta_that_covers_every_record_sampled_is_refused_at_once(
    eps: float, delta: float, q: float, steps: int, adjacency: Any
) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match="below the smallest noise multiplier supported"):
        calibrate_sigma(eps, delta, q, steps, adjacency=adjacency)
    stream = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=0.5)
    assert stream.guarantee(adjacency).epsilon(delta) == 0
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("eps", "delta", "q", "steps"), [(0.1, 1e-8, 1e-5, 1000), (0.05, 1e-6, 1e-4, 300), (1, 1e-5, 9e-6, 1)]
)
def test_seldom_sampled_streams_are_calibrated_together_within_the_promise(
    eps: float, delta: float, q: float, steps: int
) -> None:
    joint = calibrate_sigmas(eps, delta, 0.9, q, steps, composition="joint")
    assert eps * (1 - 1e-5) < joint.epsilon <= eps
    assert joint.epsilon.width < 1e-6 * eps


@given(
    eps=st.floats(0.2, 8),
    rho=st.floats(0.2, 0.9),
    q=st.floats(0.02, 1),
    steps=st.integers(1, 50),
)
@settings(max_examples=2, deadline=None)
def test_joint_never_needs_more_noise_than_basic(eps: float, rho: float, q: float, steps: int) -> None:
    basic = calibrate_sigmas(eps, 1e-6, rho, q, steps)
    joint = hand_back_slack(basic, "ratio")
    assert joint.sigma_shared <= basic.sigma_shared
    assert joint.sigma_expert <= basic.sigma_expert
    assert basic.epsilon <= eps
    assert joint.epsilon <= eps


def test_noise_falls_with_eps_and_delta_and_grows_with_q_and_steps() -> None:
    base = calibrate_sigma(1.0, 1e-6, 0.05, 100)
    assert calibrate_sigma(1.5, 1e-6, 0.05, 100) < base
    assert calibrate_sigma(1.0, 1e-5, 0.05, 100) < base
    assert calibrate_sigma(1.0, 1e-6, 0.08, 100) > base
    assert calibrate_sigma(1.0, 1e-6, 0.05, 200) > base


def test_results_are_json_and_spent_matches(basics: dict[int, Calibration]) -> None:
    described = json.loads(json.dumps(basics[8].to_dict(), allow_nan=False))
    assert described["adjacency"] == "add_remove"
    assert described["plan"]["expert"]["noise_multiplier"] == described["sigma_expert"]
    spent = privacy_spent(*basics[8], Q, T, delta=DELTA)
    assert [spent.epsilon, spent.epsilon_shared, spent.epsilon_expert] == pytest.approx(
        [basics[8].epsilon, basics[8].epsilon_shared, basics[8].epsilon_expert], rel=1e-9
    )
    assert json.loads(json.dumps(spent.to_dict(), allow_nan=False))["plan"]["sampling"] == "independent"


@pytest.mark.parametrize("bad", [0, 1, -3, 2.5, True, "10", math.nan])
def test_default_delta_needs_records(bad: Any) -> None:
    with pytest.raises(ValueError, match="expected num_records"):
        default_delta(bad)


@pytest.mark.parametrize("keep", ["ratio", "shared", "expert"])
def test_joint_noise_is_never_above_basic_even_where_the_accountant_is_wide(keep: Any) -> None:
    """One step of two streams that hardly sample: the sum of the parts is then the tighter bound (P2)."""
    basic = calibrate_sigmas(1, 1e-5, 0.5, 9e-6, 1)
    joint = calibrate_sigmas(1, 1e-5, 0.5, 9e-6, 1, composition="joint", keep=keep)
    assert joint.sigma_shared <= basic.sigma_shared
    assert joint.sigma_expert <= basic.sigma_expert
    assert joint.epsilon <= 1


@pytest.mark.parametrize("keep", ["ratio", "shared", "expert"])
@pytest.mark.parametrize("q", [1.0, (0.5, 0.1)])
def test_a_very_unequal_split_stays_within_the_noise_supported(q: Any, keep: Any) -> None:
    joint = calibrate_sigmas(1, 1e-3, 1e-6, q, 1, composition="joint", keep=keep)
    assert 1 - 1e-4 < joint.epsilon <= 1
    assert min(joint) >= 0.02


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1e-6, 1e-20, 1e-6, 1.0, 1), r"shared stream cannot meet rho \* eps=1e-12 and delta_share .* larger eps"),
        ((1e-6, 1e-20, 1 - 1e-6, 1.0, 1), r"expert stream cannot meet \(1 - rho\) \* eps=1e-12 .* rho or delta_share"),
        ((1, 1e-3, 0.5, 1e-6, 1), r"shared stream meets rho \* eps=0.5 .* smallest noise multiplier .* smaller eps"),
    ],
)
def test_a_target_out_of_reach_is_named_as_the_user_wrote_it(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate_sigmas(*arguments, composition="joint")


@pytest.mark.parametrize(("q", "steps"), [(1 / 3, 3), (0.5, 3), (0.2, 1)])
def test_few_steps_of_large_samples_are_calibrated_soon(q: float, steps: int) -> None:
    calibrate_sigmas(1, 1e-5, 0.9, 0.3, 4, composition="joint")  # imports
    started = time.process_time()
    joint = calibrate_sigmas(1, 1e-5, 0.9, q, steps, composition="joint")
    assert time.process_time() - started < 1
    assert joint.epsilon.width < 1e-7

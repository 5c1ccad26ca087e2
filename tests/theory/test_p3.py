"""P3: the joint calibration spends exactly (eps, delta), with less noise than the basic split."""

import itertools
import math
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from proofs.p3_joint_calibration import BATCH, RHO, STEPS, TABLE, N
from raptor_acct import Calibration, SubsampledGaussian, calibrate_sigmas, default_delta, hand_back_slack
from raptor_acct.calibration import KEEPS, Keep

SEARCH = 1e-6  # how far above the least noise a calibration may be, relatively


class Plan(NamedTuple):
    """What `calibrate_sigmas` is asked for."""

    eps: float
    delta: float
    rho: float
    q: float
    steps: int

    def joint(self) -> list[Calibration]:
        basic = calibrate_sigmas(*self)
        return [hand_back_slack(basic, keep) for keep in KEEPS]


PLANS = st.builds(
    Plan,
    eps=st.floats(0.1, 10),
    delta=st.floats(-9, -3).map(lambda x: 10**x),
    rho=st.floats(0.02, 0.98),
    q=st.one_of(st.just(1.0), st.floats(0.02, 1)),
    steps=st.integers(30, 2000),
)


@given(PLANS)
@example(Plan(1.0, 4.88e-6, 0.9, 1000 / 67349, 1347))
@example(Plan(1.0, 1e-5, 0.5, 1.0, 1))
@settings(max_examples=25, deadline=None)
def test_joint_spends_all_of_the_budget_with_less_noise(plan: Plan) -> None:
    basic = calibrate_sigmas(*plan)
    assert basic.epsilon < plan.eps
    for keep in KEEPS:
        joint = hand_back_slack(basic, keep)
        guarantee = joint.plan.guarantee()
        assert plan.eps * (1 - 1e-5) <= guarantee.epsilon(plan.delta) <= plan.eps
        assert guarantee.delta(plan.eps) <= plan.delta
        shared, expert = (now / before for now, before in zip(joint, basic, strict=True))
        if keep == "ratio":
            assert shared < 1
            assert abs(expert / shared - 1) < 1e-12
        else:
            kept, lowered = (shared, expert) if keep == "shared" else (expert, shared)
            assert kept == 1
            assert lowered < 1


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("eps", TABLE)
def test_the_table_of_the_proof(eps: int, keep: Keep) -> None:
    basic_shared, basic_expert, _, factor, less_expert, less_shared = map(float, TABLE[eps])
    joint = calibrate_sigmas(eps, default_delta(N), RHO, BATCH / N, STEPS, composition="joint", keep=keep)
    exact = {
        "ratio": (factor * basic_shared, factor * basic_expert),
        "shared": (basic_shared, less_expert),
        "expert": (less_shared, basic_expert),
    }
    assert tuple(joint) == pytest.approx(exact[keep], rel=SEARCH)


@given(PLANS)
@settings(max_examples=15, deadline=None)
def test_no_way_of_handing_back_has_less_noise_in_both_roles(plan: Plan) -> None:
    for one, other in itertools.permutations(plan.joint(), 2):
        assert one.sigma_shared >= other.sigma_shared * (1 - SEARCH) or one.sigma_expert >= other.sigma_expert


@given(plan=PLANS, more_eps=st.floats(1.01, 2), more_delta=st.floats(1.05, 8))
@settings(max_examples=10, deadline=None)
def test_noise_falls_with_eps_and_with_delta(plan: Plan, more_eps: float, more_delta: float) -> None:
    looser = plan._replace(eps=plan.eps * more_eps), plan._replace(delta=plan.delta * more_delta)
    for before, *after in zip(plan.joint(), *(other.joint() for other in looser), strict=True):
        for calibration in after:
            assert calibration.sigma_shared < before.sigma_shared
            assert calibration.sigma_expert < before.sigma_expert


def test_a_tiny_share_can_get_more_noise_for_more_eps() -> None:
    less, more = (calibrate_sigmas(eps, 1e-4, 1e-5, 1.0, 1, composition="joint", keep="ratio") for eps in (1e-4, 0.01))
    assert more.sigma_shared > 1.2 * less.sigma_shared
    assert more.sigma_expert < less.sigma_expert


@given(PLANS)
@settings(max_examples=25, deadline=None)
def test_two_streams_spend_less_than_the_sum(plan: Plan) -> None:
    basic = calibrate_sigmas(*plan)
    half = plan.delta / 2
    assert basic.plan.guarantee().delta(plan.eps) <= 2 * half - half**2


@given(
    log_sigma=st.floats(-3, 8),
    q=st.one_of(st.just(1.0), st.floats(-9, 0).map(lambda x: 10**x)),
    eps=st.one_of(st.just(0.0), st.floats(0, 20)),
)
@example(log_sigma=8.0, q=1.0, eps=0.0)
@example(log_sigma=-3.0, q=1.0, eps=20.0)
@settings(max_examples=300, deadline=None)
def test_delta_falls_strictly_with_the_noise(log_sigma: float, q: float, eps: float) -> None:
    less, more = (
        SubsampledGaussian(num_steps=1, sampling_probability=q, noise_multiplier=noise).guarantee().delta(eps)
        for noise in (math.exp(log_sigma), math.exp(log_sigma) * 1.05)
    )
    # What is beyond double precision cannot be told apart: all of q is spent, or next to nothing.
    assume(less.width < 1e-3 * less and less < q * (1 - 1e-9) and less > 1e-200)
    assert more.upper < less.lower

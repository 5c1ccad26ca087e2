"""Values found elsewhere by contour inversion, add/remove: epsilon, noise and joint factors."""

import pytest

from raptor_acct import RolePlan, SubsampledGaussian, calibrate_sigma, calibrate_sigmas, privacy_spent

CLOSE = 1e-6

# q, steps, delta, eps, rho, sigma_shared, sigma_expert, joint epsilon, factor of keep="ratio", same-batch epsilon.
GLUE = (1000 / 67349, 1347, 4.8846756719704545e-06)
TWO_STREAMS = {
    "S1e1": (
        *GLUE,
        1,
        0.9,
        2.57316138477651,
        18.707194486585536,
        0.8702200172105693,
        0.8915389792845897,
        0.8722325843252301,
    ),
    "S1e4": (
        *GLUE,
        4,
        0.9,
        0.9935909575513991,
        5.239955456840617,
        3.489748203855667,
        0.9363443769910095,
        3.584996356739632,
    ),
    "S1e8": (
        *GLUE,
        8,
        0.9,
        0.7411256468407997,
        2.842543426703,
        6.971837117046966,
        0.9506829840297247,
        7.55463826449039,
    ),
    "S3": (1e-4, 10**6, 1e-9, 1, 0.9, 0.887860507, 5.1946046954, 0.8871041803, None, None),
    "S4": (0.02, 1500, 1e-6, 0.05, 0.9, 62.01708874991347, 474.53630207405837, 0.04321447812153143, None, None),
}

# q, sigma, steps, delta, epsilon.
ONE_STREAM = [
    # It was given as 0.0672138503, where delta is 1.09975e-18: by python-flint (200 bits) on the lines c = 127 and 153
    # epsilon is 0.06721361410591915, 3.5e-6 less. EXACT["tiny delta, remove"] in exact.py has the point.
    (0.00033, 4.0, 10_000, 1.1e-18, 0.06721361410591915),
    (0.9, 0.3, 100, 1e-5, 634.655842),
    (0.01, 2.0, 10_000, 1e-13, 3.9393071),
    (0.01, 1e4, 1000, 1e-6, 4.6373473e-05),
    (1.0, 10.0, 100, 1e-6, 4.8865541175),
    (1e-4, 2.0, 10_000_000, 1e-9, 0.9232614),
]


@pytest.mark.parametrize(("q", "sigma", "steps", "delta", "epsilon"), ONE_STREAM)
def test_one_stream(q: float, sigma: float, steps: int, delta: float, epsilon: float) -> None:
    stream = SubsampledGaussian(num_steps=steps, sampling_probability=q, noise_multiplier=sigma)
    found = stream.guarantee().epsilon(delta)
    assert found == pytest.approx(epsilon, rel=CLOSE)
    assert found.width <= CLOSE * found
    # Two ulps of the printed digits: epsilon is between the ends.
    assert found.lower * (1 - 2e-8) <= epsilon <= found.upper * (1 + 2e-8)
    assert calibrate_sigma(epsilon, delta, q, steps) == pytest.approx(sigma, rel=CLOSE)


@pytest.mark.parametrize("case", TWO_STREAMS.values(), ids=TWO_STREAMS)
def test_two_streams(case: tuple[float, ...]) -> None:
    q, steps, delta, eps, rho, shared, expert, joint, factor, same_batch = case
    spent = privacy_spent(shared, expert, q, steps, delta=delta)  # type: ignore[arg-type]
    assert spent.epsilon == pytest.approx(joint, rel=CLOSE)
    assert spent.epsilon_shared == pytest.approx(rho * eps, rel=CLOSE)
    assert spent.epsilon_expert == pytest.approx((1 - rho) * eps, rel=CLOSE)
    basic = calibrate_sigmas(eps, delta, rho, q, steps)  # type: ignore[arg-type]
    # The least noise, from the safe side; the last printed digit of S3 is worth 1e-10.
    assert list(basic) == pytest.approx([shared, expert], rel=CLOSE)
    assert all(found >= exact * (1 - 2e-9) for found, exact in zip(basic, (shared, expert), strict=True))
    if factor:
        ratio = calibrate_sigmas(eps, delta, rho, q, steps, composition="joint", keep="ratio")  # type: ignore[arg-type]
        assert list(ratio) == pytest.approx([shared * factor, expert * factor], rel=CLOSE)
    if same_batch:
        one = privacy_spent(shared, expert, q, steps, delta=delta, sampling="same_batch")  # type: ignore[arg-type]
        assert one.epsilon == pytest.approx(same_batch, rel=CLOSE)


def test_one_step_of_two_streams_on_one_batch() -> None:
    one = SubsampledGaussian(num_steps=1, sampling_probability=0.01, noise_multiplier=1.0)
    # Printed to six digits.
    assert RolePlan(shared=one, expert=one, sampling="same_batch").guarantee().epsilon(1e-5) == pytest.approx(
        0.815963, abs=6e-7
    )
    spent = privacy_spent(1.0, 1.0, 0.01, 1, delta=1e-5)
    assert spent.epsilon_shared + spent.epsilon_expert == pytest.approx(0.486633, abs=6e-7)


@pytest.mark.parametrize("ratio", [1.0, 1.03])
def test_no_jump_at_a_tiny_delta(ratio: float) -> None:
    """Elsewhere a 3 % change of delta about 1e-18 moves epsilon from near 0 to near 4."""
    guarantee = SubsampledGaussian(num_steps=10_000, sampling_probability=3.3e-4, noise_multiplier=4.0).guarantee()
    assert 0.0670 < guarantee.epsilon(1.13e-18) < guarantee.epsilon(1.1e-18) < 0.0673
    assert guarantee.epsilon(1e-18 * ratio) == pytest.approx(0.0675, rel=5e-3)

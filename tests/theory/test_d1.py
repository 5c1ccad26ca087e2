"""§5: role mismatch is a distance of shares; an expert's signal to noise does not depend on the denominator."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raptor_acct.diagnostics import expert_snr, role_mismatch

SIZES = st.lists(st.integers(1, 10**9), min_size=2, max_size=8)
NORMS = st.floats(1e-6, 1e6)


def roles(values: list[float]) -> dict[str, float]:
    return {f"role {i}": value for i, value in enumerate(values)}


@given(data=st.data(), sizes=SIZES)
def test_role_mismatch_is_a_total_variation_distance(data: st.DataObject, sizes: list[int]) -> None:
    norms = data.draw(st.lists(NORMS, min_size=len(sizes), max_size=len(sizes)))
    mismatch = role_mismatch(roles(norms), roles(sizes))
    shares = np.array(norms) / sum(norms) - np.array(sizes) / sum(sizes)
    assert 0 <= mismatch <= 1 - min(sizes) / sum(sizes) + 1e-12
    assert mismatch == pytest.approx(float(np.sum(np.maximum(shares, 0))), abs=1e-12)
    assert role_mismatch(roles(sizes), roles(norms)) == pytest.approx(mismatch, abs=1e-12)
    assert role_mismatch(roles([7 * norm for norm in norms]), roles(sizes)) == pytest.approx(mismatch, abs=1e-12)
    merged = [[values[0] + values[1], *values[2:]] for values in (norms, sizes)]
    assert role_mismatch(*map(roles, merged)) <= mismatch + 1e-12


@given(sizes=SIZES, scale=NORMS)
@example(sizes=[9_438_722, 7_864_320], scale=1.0)
def test_role_mismatch_is_0_where_the_shares_agree_and_most_at_the_smallest_role(
    sizes: list[int], scale: float
) -> None:
    assert role_mismatch(roles([scale * size for size in sizes]), roles(sizes)) == pytest.approx(0, abs=1e-12)
    smallest = sizes.index(min(sizes))
    only = [scale if i == smallest else 0.0 for i in range(len(sizes))]
    assert role_mismatch(roles(only), roles(sizes)) == pytest.approx(1 - min(sizes) / sum(sizes), abs=1e-12)


@given(
    norms=st.lists(NORMS, min_size=2, max_size=512),
    sigma=st.floats(0.01, 1e6),
    clip=NORMS,
    d=st.integers(1, 10**9),
    denominator=NORMS,
)
@example(norms=[0.0, 0.0], sigma=1.0, clip=1.0, d=1, denominator=1.0)
def test_snr_is_squared_signal_over_squared_noise_and_the_denominator_cancels(
    norms: list[float], sigma: float, clip: float, d: int, denominator: float
) -> None:
    snr = expert_snr(norms, noise_multiplier=sigma, clip_norm=clip, num_parameters=d)
    exact = np.array(norms) ** 2 / (sigma**2 * clip**2 * d)
    np.testing.assert_allclose(snr.per_expert, exact, rtol=1e-12)
    assert snr.mean == pytest.approx(float(np.mean(exact)), rel=1e-12)
    assert snr.cv * snr.mean == pytest.approx(float(np.std(exact)), rel=1e-9, abs=1e-9 * snr.mean)
    # Divided by D, both the sum and the noise, which then is σ(C/D).
    divided = expert_snr(
        [norm / denominator for norm in norms],
        noise_multiplier=sigma,
        clip_norm=clip / denominator,
        num_parameters=d,
    )
    np.testing.assert_allclose(divided.per_expert, snr.per_expert, rtol=1e-11)


@pytest.mark.parametrize("signal", [0.0, 3.0, 300.0])
def test_a_release_shows_snr_plus_1_with_the_proofs_spread(signal: float) -> None:
    sigma, clip, d, draws = 1.7, 0.5, 400, 4000
    summed = np.full(d, signal / np.sqrt(d))
    noise = np.random.default_rng(5).normal(0, sigma * clip, (draws, d))
    measured = np.sum((summed + noise) ** 2, axis=1) / (sigma**2 * clip**2 * d)
    snr = expert_snr([signal] * 2, noise_multiplier=sigma, clip_norm=clip, num_parameters=d).mean
    variance = (2 + 4 * snr) / d
    assert float(np.mean(measured)) == pytest.approx(snr + 1, abs=5 * np.sqrt(variance / draws))
    assert float(np.var(measured)) == pytest.approx(variance, rel=5 * np.sqrt(2 / draws) * 1.1)
